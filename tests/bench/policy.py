#!/usr/bin/python3
"""What a policy costs: one project of 10,000 files and 400 modules on the host, shown four times at once. 'none' may write everything, so nothing
is judged; 'agent' is what agents get; 'workspace' is the managed profile of that name, which protects .git; '30 rules' has paths, patterns and
protected names.

    tests/bench/policy.py --rattan build/cli/rattan [--rounds 30]

A sandbox of each stays open, and each step is done in all of them in turn, in a random order, before the next: what else the machine does
then falls on all alike. Each line is the least of 'none' in ms, and for each policy the median over the rounds of its figure divided by that of
'none' in the same round, with the range that holds the true median nineteen times in twenty. Wall is the command's; CPU is the command's and the
daemon's together, which other work on the machine changes least. The last lines are all look-ups of a round together, against the 5 % that are allowed.
What a host directory said is believed for a second: each step waits longer than that, so that every name is asked for again. 'Warm' opens what it
has just read.
"""
import argparse
import glob
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

# Runs inside: one step a line, and what it took.
WORK = r"""
import json, os, resource, subprocess, sys, time
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
def one(path):
    # Not open(), which asks whether it is a terminal: a message that has nothing to do with a policy.
    fd = os.open(path, os.O_RDONLY)
    os.read(fd, 65536)
    os.close(fd)
def read():
    for d in range(100):
        for f in range(100):
            one(f"d{d}/f{f}")
def warm():
    for i in range(11):
        if i == 1:
            begin()
        for f in range(1000):
            one(f"d{f % 10}/f{f // 10}")
def run(*argv):
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
steps = {
    "stat": walk,
    "missing": missing,
    "status": lambda: run("git", "status", "--porcelain"),
    "find": lambda: run("find", ".", "-size", "+1M"),
    "imports": lambda: run(sys.executable, "-c", "import modules.all"),
    "read": read,
    "warm": warm,
}
def cpu():
    return sum(r.ru_utime + r.ru_stime for r in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
began = None
def begin():
    global began
    began = time.perf_counter(), cpu()
for line in sys.stdin:
    begin()
    steps[line.strip()]()
    print(json.dumps([time.perf_counter() - began[0], cpu() - began[1]]), flush=True)
"""
STEPS = {"stat": "stat of 10,000 files", "missing": "10,000 names that are not there", "status": "git status", "find": "find -size",
         "imports": "python imports 400 modules", "read": "open, read, close 10,000 files", "warm": "the same, 1,000 files 10 times, warm"}
LOOKUPS = ("stat", "missing", "status", "find", "imports")
ALLOWED = 1.05


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
    return {"workspace": profile(basic), "30 rules": profile(basic + paths + globs)}


def views(top, project):
    """What makes each sandbox, as options of rattan run. A managed profile shows the host at its own places."""
    of = {"none": ["--writable-root", "/", "--overlay", f"{project}=/srv/project", "--cwd", "/srv/project"],
          "agent": ["--overlay", f"{project}=/workspace/project", "--cwd", "/workspace/project"]}
    for name, p in profiles(str(project)).items():
        (top / f"{name}.json").write_text(json.dumps(p))
        of[name] = ["--profile", str(top / f"{name}.json")]
    return of


def make_project(project):
    for d in range(100):
        (project / f"d{d}").mkdir()
        for f in range(100):
            (project / f"d{d}/f{f}").write_text(f"{d} {f}\n" * 20)
    modules = project / "modules"
    modules.mkdir()
    for m in range(400):
        (modules / f"m{m}.py").write_text(f"def f(x):\n    return x + {m}\n")
    (modules / "all.py").write_text("".join(f"from modules import m{m}\n" for m in range(400)))
    subprocess.run([sys.executable, "-c", "import modules.all"], cwd=project, check=True)
    # git reads a file again that is not older than its index, or another's now (root's files are shown as the user's); where .git
    # is protected it cannot note what it found.
    time.sleep(1.1)
    for c in (["init", "-q"], ["config", "core.checkStat", "minimal"], ["add", "."], ["-c", "user.name=b", "-c", "user.email=b@b", "-c", "gc.auto=0", "commit", "-qm", "x"]):
        subprocess.run(["git", *c], cwd=project, check=True)


class Sandbox:
    def __init__(self, rattan, env, project, name, options):
        self.env_name = "bench-" + name.replace(" ", "-")
        self.p = subprocess.Popen([rattan, "run", "-e", self.env_name, *options, "--", "python3", "-c", WORK],
                                  cwd=project, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.daemons = None

    def step(self, name):
        # A run that has not begun has no daemon yet.
        before = self.daemon_cpu() if self.daemons else 0
        self.p.stdin.write(name + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            sys.exit(f"policy.py: {self.env_name}: {name} failed")
        if self.daemons is None:
            self.daemons = self.find_daemons()
        wall, cpu = json.loads(line)
        spent = self.daemon_cpu() - before
        return {"wall": wall * 1000, "cpu": (cpu + spent) * 1000, "daemon": spent * 1000}

    def find_daemons(self):
        found = []
        for d in glob.glob("/proc/[0-9]*"):
            try:
                argv = pathlib.Path(d, "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if argv[0].endswith("rattan-fs") and self.env_name in argv:
                found.append(d)
        if not found:
            sys.exit("policy.py: no daemon of " + self.env_name)
        return found

    def daemon_cpu(self):
        total = 0
        for d in self.daemons:
            for t in glob.glob(d + "/task/*/schedstat"):
                total += int(pathlib.Path(t).read_text().split()[0])
        return total / 1e9

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def median_range(v):
    """The median, and the order statistics that hold the true one with 95 % (a sign test's range)."""
    v, n = sorted(v), len(v)
    k = max(0, int(n / 2 - 0.98 * n ** 0.5))
    return statistics.median(v), v[k], v[n - 1 - k]


def ratios(got, name, steps, kind):
    mine, base = ([sum(r[s][kind] for s in steps) for r in got[n]] for n in (name, "none"))
    return median_range([a / b for a, b in zip(mine, base)])


def report(got, o):
    print(f"load {os.getloadavg()[0]:.1f}; {o.rounds} rounds; least ms of 'none', then median of the ratio to it in the same round (its range)")
    for kind in ("wall", "cpu"):
        for s in STEPS:
            print(f"{kind:4} {STEPS[s]:32} {min(r[s][kind] for r in got['none']):7.1f}", end="")
            for name in got:
                if name != "none":
                    print("  {}: {:.3f} ({:.3f} to {:.3f})".format(name, *ratios(got, name, [s], kind)), end="")
            print()
    for name in got:
        for kind in ("wall", "cpu"):
            if name != "none":
                m, lo, hi = ratios(got, name, LOOKUPS, kind)
                word = "held" if hi <= ALLOWED else "not held" if lo > ALLOWED else "not decided: more rounds"
                print(f"all look-ups, {kind}, {name}: {m:.3f} ({lo:.3f} to {hi:.3f}); at most {ALLOWED}: {word}")


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--rattan", required=True)
    a.add_argument("--rounds", type=int, default=30)
    o = a.parse_args()
    o.rattan = os.path.abspath(o.rattan)
    top = pathlib.Path(tempfile.mkdtemp(prefix="rattan-bench.", dir=pathlib.Path.home()))
    env = dict(os.environ, XDG_DATA_HOME=str(top / "data"), XDG_CONFIG_HOME=str(top / "config"), XDG_RUNTIME_DIR=str(top / "run"))
    project = top / "project"
    for d in ("run", "data", "config", "project"):
        (top / d).mkdir(mode=0o700)
    make_project(project)
    all_of = views(top, project)
    got = {name: [] for name in all_of}
    boxes = {}
    try:
        for name in all_of:
            boxes[name] = Sandbox(o.rattan, env, project, name, all_of[name])
            for s in STEPS:
                boxes[name].step(s)
        for _ in range(o.rounds):
            for name in all_of:
                got[name].append({})
            for s in STEPS:
                # Their order is another each time, and the wait lies before all of them.
                subprocess.run(["sleep", "1.3"], check=True)
                for name in random.sample(list(all_of), len(all_of)):
                    got[name][-1][s] = boxes[name].step(s)
    finally:
        for b in boxes.values():
            b.close()
            subprocess.run([o.rattan, "env", "rm", "--force", b.env_name], env=env, capture_output=True)
        shutil.rmtree(top, ignore_errors=True)
    report(got, o)


if __name__ == "__main__":
    main()
