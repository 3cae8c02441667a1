#!/usr/bin/python3
"""The figures of the design's speed table, each beside its peer in one run; a table, and JSON with --json FILE.

    tests/bench/bench.py --rattan build/cli/rattan [--rounds 3] [--json out.json] [--quick]

Peers: a native directory, kernel overlayfs (mounted in a user namespace) and fuse-overlayfs, all three under a bare
bwrap with the same namespaces. Medians over the rounds, peers in turn within each round; run it on a quiet machine and
quote the load line with every figure.
"""
import argparse
import io
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mcp"))
from rawclient import Server  # noqa: E402


def make_input(path):
    """The same bytes on every run: 4,800 small text files and a C program of 150 units."""
    r = random.Random(7)
    words = ["".join(r.choice("abcdefghijklmnopqrstuvwxyz_") for _ in range(r.randint(3, 11))) for _ in range(3000)]
    with tarfile.open(path, "w") as t:
        def add(name, data):
            i = tarfile.TarInfo("tree/" + name)
            i.size, i.mtime = len(data), 1700000000
            t.addfile(i, io.BytesIO(data))
        for d in range(60):
            for f in range(80):
                n, s = int(r.lognormvariate(8.2, 1.1)), []
                while n > 0:
                    w = r.choice(words) + r.choice([" ", " ", "\n", "(", ");\n"])
                    s.append(w)
                    n -= len(w)
                add(f"pkg{d:02}/sub{f % 8}/mod{f:03}.txt", "".join(s).encode())
        for i in range(150):
            body = '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include "common.h"\n'
            for k in range(25):
                body += (f"int f_{i}_{k}(struct box *b, const char *s) {{ int n = (int)strlen(s); for (int j = 0; j < n;"
                         f" j++) b->v[(j * {k + 3}) & 63] += s[j] ^ {i}; return printf(\"%d\\n\", b->v[{k}]); }}\n")
            add(f"csrc/u{i:03}.c", body.encode())
        add("csrc/common.h", b"struct box { int v[64]; };\n")
        add("csrc/main.c", b"int main(void) { return 0; }\n")
        add("csrc/Makefile", b"OBJ := $(patsubst %.c,%.o,$(wildcard *.c))\nprog: $(OBJ)\n\t$(CC) -o $@ $^\n"
                             b"%.o: %.c common.h\n\t$(CC) -O1 -c -o $@ $<\n")


BWRAP = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
         "--tmpfs", "/run", "--bind"]


def peer_script(kind, top, cmd):
    """Shell text that mounts the peer under @top and runs @cmd in it."""
    b = " ".join(BWRAP)
    m = {
        "native": "mkdir -p m",
        "overlayfs": "mkdir -p l u w m && mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w,userxattr m",
        "fuse-overlayfs": "mkdir -p l u w m && fuse-overlayfs -o lowerdir=l,upperdir=u,workdir=w m",
    }[kind]
    return f"set -e; cd {top}; {m}; exec {b} {top}/m {top}/m --chdir {top}/m -- {cmd}"


def phases(text):
    return {k: float(v) for k, v in (line.split() for line in text.splitlines() if re.match(r"^\S+ \d", line))}


def whole_programs(o, top, tar):
    out = {}
    for n in range(o.rounds):
        for kind in ("native", "overlayfs", "fuse-overlayfs", "rattan"):
            work = top / f"{kind}{n}"
            work.mkdir()
            if kind == "rattan":
                cmd = [o.rattan, "run", "-e", f"bench{n}", "--overlay", f"{HERE}=/mnt", "--overlay", f"{top}/in=/srv", "--",
                       "bash", "/mnt/phases.sh", "/srv/in.tar"]
            else:
                cmd = ["unshare", "-Urm", "bash", "-c", peer_script(kind, work, f"bash {HERE}/phases.sh {tar}")]
            r = subprocess.run(cmd, capture_output=True, text=True, errors="replace")
            if r.returncode:
                print(f"{kind}: {r.stderr.strip()[-300:]}", file=sys.stderr)
                continue
            for k, v in phases(r.stdout).items():
                out.setdefault(k, {}).setdefault(kind, []).append(v)
            subprocess.run([o.rattan, "env", "rm", f"bench{n}"], capture_output=True)
            shutil.rmtree(work, ignore_errors=True)
    return out


def pct(x, p):
    return sorted(x)[min(len(x) - 1, int(len(x) * p))]


def calls(o, n):
    """Tool calls, warm, beside a bare bwrap in turn."""
    s = Server("--env", "benchcalls", rattan=o.rattan)
    s.call("shell_run", command="true")
    fig = {"bwrap true": [], "shell_run true": []}
    for _ in range(n):
        t = time.perf_counter()
        subprocess.run(["bwrap", "--unshare-all", "--bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"], check=True)
        fig["bwrap true"].append(time.perf_counter() - t)
        fig["shell_run true"].append(s.timed("shell_run", command="true"))
    s.call("rattan_write_file", path="/workspace/t.c", content="int x;\n" * 200)
    for name, tool, args in (
            ("read", "rattan_read_file", {"path": "/workspace/t.c"}),
            ("grep one file", "rattan_grep", {"pattern": "y", "path": "/workspace/t.c"}),
            ("write", "rattan_write_file", {"path": "/workspace/w", "content": "hello\n" * 100, "mode": "overwrite"}),
            ("env_status", "env_status", {})):
        fig[name] = [s.timed(tool, **args) for _ in range(n * 5)]
    fig["edit"] = []
    for i in range(n * 5):
        s.call("rattan_write_file", path="/workspace/e", content=f"alpha {i}\nbeta\n", mode="overwrite")
        fig["edit"].append(s.timed("rattan_edit", path="/workspace/e", old_string=f"alpha {i}", new_string="gamma"))
    s.call("env_reset")
    for files in (10, 10_000 if o.quick else 100_000):
        s.call("shell_run", command=f"rm -rf d; mkdir d; cd d; seq {files} | xargs touch", timeout=600, wait=55)
        while not re.search(r"\b0 running|^no jobs", s.call("shell_job_list")):
            time.sleep(0.5)
        s.call("env_commit", message=f"{files} files")
        c, b = [], []
        for i in range(n):
            s.call("rattan_write_file", path="/workspace/change", content=f"{i}\n", mode="overwrite")
            c.append(s.timed("env_commit", message="m"))
            s.call("rattan_write_file", path="/workspace/change", content=f"again {i}\n", mode="overwrite")
            b.append(s.timed("env_rollback", to_commit_id="head"))
        fig[f"env_commit, tree of {files}"] = c
        fig[f"env_rollback, tree of {files}"] = b
    s.close()
    return fig


def npm_input(d):
    """A warm cache of the test clients' packages, if npm and its registry can be had."""
    if shutil.which("npm"):
        for f in ("package.json", "package-lock.json"):
            shutil.copy(HERE.parent / "mcp" / f, d)
        r = subprocess.run(["npm", "ci", "--cache", str(d / "npm"), "--no-audit", "--no-fund", "--loglevel=error"], cwd=d,
                           capture_output=True)
        shutil.rmtree(d / "node_modules", ignore_errors=True)
        if r.returncode:
            shutil.rmtree(d / "npm", ignore_errors=True)


def disk(path):
    return int(subprocess.run(["du", "-s", "-B1", path], capture_output=True, text=True).stdout.split()[0])


def store_size(o, top, n=4):
    """n environments, each with the same unpacked tree and one file of its own, against n copies."""
    subprocess.run(["tar", "xf", str(top / "in/in.tar")], cwd=top, check=True)
    one = disk(top / "tree")
    shutil.rmtree(top / "tree")
    env = dict(os.environ, RATTAN_DATA_DIR=str(top / "sizes"))
    for i in range(n):
        subprocess.run([o.rattan, "run", "-e", f"s{i}", "--overlay", f"{top}/in=/srv", "--", "sh", "-c",
                        f"tar xf /srv/in.tar && echo {i} > own"], env=env, check=True)
        subprocess.run([o.rattan, "commit", "-e", f"s{i}", "-m", "tree"], env=env, check=True, capture_output=True)
        if i == 0:
            first = disk(top / "sizes")
    return {"one copy": one, "copies": n, "store after one": first, "store after all": disk(top / "sizes")}


def main():
    sys.stdout.reconfigure(line_buffering=True)
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--rattan", required=True)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--json")
    a.add_argument("--quick", action="store_true")
    o = a.parse_args()
    o.rattan = os.path.abspath(o.rattan)
    top = pathlib.Path(tempfile.mkdtemp(prefix="rattan-bench.", dir="/var/tmp"))
    os.environ["XDG_DATA_HOME"] = str(top / "data")
    os.environ["XDG_RUNTIME_DIR"] = str(top / "r")
    os.environ["XDG_CONFIG_HOME"] = str(top / "config")
    (top / "config/rattan").mkdir(parents=True)
    (top / "config/rattan/config.json").write_text(json.dumps({"bind_roots": [str(top), str(HERE)]}))
    (top / "r").mkdir(mode=0o700)
    (top / "in").mkdir()
    tar = top / "in" / "in.tar"
    make_input(tar)
    report = {"load": os.getloadavg(), "cpus": os.cpu_count(), "kernel": os.uname().release}
    print(f"load {report['load'][0]:.2f}, {report['cpus']} CPUs, Linux {report['kernel']}")
    try:
        c = calls(o, 20 if o.quick else 100)
        report["calls"] = {k: {"p50_ms": pct(v, .5) * 1e3, "p99_ms": pct(v, .99) * 1e3, "n": len(v)} for k, v in c.items()}
        print(f"\n{'call':34} {'p50 ms':>9} {'p99 ms':>9}")
        for k, v in report["calls"].items():
            print(f"{k:34} {v['p50_ms']:9.2f} {v['p99_ms']:9.2f}")
        print(f"{'shell_run true / bwrap true':34} {pct(c['shell_run true'], .5) / pct(c['bwrap true'], .5):9.2f}")
        report["size"] = z = store_size(o, top)
        print(f"\n{z['copies']} similar trees: {z['copies'] * z['one copy'] / 1e6:.1f} MB as copies, "
              f"{z['store after all'] / 1e6:.1f} MB in the store ({z['store after one'] / 1e6:.1f} MB with the first)")
        npm_input(top / "in")
        w = whole_programs(o, top, tar)
        report["programs"] = w
        kinds = ("native", "overlayfs", "fuse-overlayfs", "rattan")
        print(f"\n{'program, seconds':18}" + "".join(f"{k:>16}" for k in kinds) + f"{'/overlayfs':>12}{'/fuse-ovl':>12}")
        for k, by in w.items():
            m = {x: statistics.median(by[x]) for x in kinds if by.get(x)}
            row = "".join(f"{m[x]:16.3f}" if x in m else f"{'-':>16}" for x in kinds)
            rel = "".join(f"{m['rattan'] / m[x]:12.2f}" if "rattan" in m and m.get(x) else f"{'-':>12}"
                          for x in ("overlayfs", "fuse-overlayfs"))
            print(f"{k:18}{row}{rel}")
        if o.json:
            pathlib.Path(o.json).write_text(json.dumps(report, indent=1))
    finally:
        subprocess.run(["pkill", "-f", f"rattan-fs.*{top}"])
        time.sleep(0.5)
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
