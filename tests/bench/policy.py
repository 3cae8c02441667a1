#!/usr/bin/python3
"""What a policy costs look-ups: one project of 10,000 files on the host, shown under three profiles in turn. 'all' may write everything, so
nothing is judged away; 'workspace' is the profile of that name; '30 rules' has paths, patterns and protected names.

    tests/bench/policy.py --rattan build/cli/rattan [--rounds 7]

Each figure is the least and the median of the rounds, in ms, and the median beside that of 'all'. What a host directory said is believed for a second:
each step waits longer than that, so that every name is asked for again. Quote the load line with the figures.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

WORK = r"""
import json, os, subprocess, sys, time
out = {}
def step(name, fn):
    time.sleep(1.3)
    t = time.perf_counter()
    fn()
    out[name] = (time.perf_counter() - t) * 1000
def walk():
    n = 0
    for d, dirs, files in os.walk("."):
        for f in files:
            os.lstat(os.path.join(d, f))
            n += 1
    assert n > 10000, n
def missing():
    for d in range(100):
        for f in range(100):
            try:
                os.lstat(f"d{d}/none{f}")
                raise SystemExit("it is there")
            except FileNotFoundError:
                pass
def read():
    for d in range(100):
        for f in range(100):
            with open(f"d{d}/f{f}", "rb") as x:
                x.read()
git = lambda: subprocess.run(["git", "status", "--porcelain"], check=True, stdout=subprocess.DEVNULL)
git()
step("stat of 10,000 files", walk)
step("10,000 names that are not there", missing)
step("git status", git)
step("open, read, close 10,000 files", read)
json.dump(out, sys.stdout)
"""


def profile(entries):
    return {"family": "managed", "permissionProfile": {"type": "managed", "network": "restricted",
                                                       "file_system": {"type": "restricted", "entries": entries}}}


def special(kind, access):
    return {"path": {"type": "special", "value": {"kind": kind}}, "access": access}


def profiles(project):
    basic = [special("root", "read"), special("project_roots", "write"), special("slash_tmp", "write")]
    paths = [{"path": {"type": "path", "path": f"{project}/d{i}/{n}"}, "access": a}
             for i in range(7) for n, a in (("kept", "read"), ("closed", "deny"))]
    globs = [{"path": {"type": "glob_pattern", "pattern": f"{project}/**/{p}"}, "access": "deny"}
             for p in ("*.env", ".env.*", "*.pem", "*.key", "id_[rd]sa*", "secrets/**", "*.{p12,pfx}", "*.kdbx", "token*", "*.gpg", "vault-?/**", ".npmrc")]
    return {"all": profile([special("root", "write")]), "workspace": profile(basic), "30 rules": profile(basic + paths + globs)}


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--rattan", required=True)
    a.add_argument("--rounds", type=int, default=7)
    o = a.parse_args()
    o.rattan = os.path.abspath(o.rattan)
    top = pathlib.Path(tempfile.mkdtemp(prefix="rattan-bench.", dir=pathlib.Path.home()))
    env = dict(os.environ, XDG_DATA_HOME=str(top / "data"), XDG_CONFIG_HOME=str(top / "config"), XDG_RUNTIME_DIR=str(top / "run"))
    project = top / "project"
    for d in ("run", "data", "config", "project"):
        (top / d).mkdir(mode=0o700)
    for d in range(100):
        (project / f"d{d}").mkdir()
        for f in range(100):
            (project / f"d{d}/f{f}").write_text(f"{d} {f}\n" * 20)
    for c in (["init", "-q"], ["add", "."], ["-c", "user.name=b", "-c", "user.email=b@b", "commit", "-qm", "x"]):
        subprocess.run(["git", *c], cwd=project, check=True)
    all_of = profiles(str(project))
    for name, p in all_of.items():
        (top / f"{name}.json").write_text(json.dumps(p))
    got = {name: {} for name in all_of}
    try:
        for _ in range(o.rounds):
            for name in all_of:
                r = subprocess.run([o.rattan, "run", "--profile", str(top / f"{name}.json"), "-e", "bench-" + name.replace(" ", "-"), "--",
                                    "python3", "-c", WORK], cwd=project, env=env, capture_output=True, text=True)
                if r.returncode:
                    sys.exit(f"policy.py: {name}: {r.stdout[-500:]}{r.stderr[-1000:]}")
                for k, v in json.loads(r.stdout).items():
                    got[name].setdefault(k, []).append(v)
    finally:
        for name in all_of:
            subprocess.run([o.rattan, "env", "rm", "--force", "bench-" + name.replace(" ", "-")], env=env, capture_output=True)
        shutil.rmtree(top, ignore_errors=True)
    print(f"load {os.getloadavg()[0]:.1f}; {o.rounds} rounds; least, median in ms (median of 'all' = 1)")
    for k in got["all"]:
        base = statistics.median(got["all"][k])
        print(f"{k:32}", "  ".join(f"{n}: {min(v[k]):7.1f} {statistics.median(v[k]):7.1f} ({statistics.median(v[k]) / base:.2f})"
                                   for n, v in got.items()))


if __name__ == "__main__":
    main()
