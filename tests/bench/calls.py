#!/usr/bin/python3
"""What each tool call takes, p50 and p99 over warm calls, beside the predecessor's figures; how soon a server answers; its memory after a day.

    tests/bench/calls.py --rattan build/cli/rattan [--calls 1000] [--day 20000] [--json out.json] [--quick]

The predecessor's figures are those that its own authors and a later look at it wrote down, on other machines: orders of magnitude. Calls follow
each other without a pause, so that a call that changes something also waits for the state that the one before it leaves
(--no-checkpoints beside it); "at a model's pace" has 20 ms between them. Run it on a quiet machine and quote the load line.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mcp"))
from rawclient import Server  # noqa: E402

# p50 and p99 in ms; where it had no such call: None.
BEFORE = {"shell_run echo": (9.5, 18), "read, 700 B": (34.5, 42), "write, 600 B": (38.6, 50), "edit": (40.6, 46),
          "grep, 30 files": (24.4, 28), "shell_job_start": (35, 75), "env_commit": (432, None)}


def pct(x, p):
    return sorted(x)[min(len(x) - 1, int(len(x) * p))]


def timed(n, call):
    out = []
    for i in range(n):
        t = time.perf_counter()
        call(i)
        out.append(time.perf_counter() - t)
    return out


def jobs_done(s):
    while not re.search(r"\b0 running|^0 jobs", s.call("shell_job_list")):
        time.sleep(0.2)


def tree(s, files):
    s.call("shell_run", command=f"rm -rf d; mkdir d; cd d; for k in $(seq {files // 100}); do mkdir $k; for i in $(seq 100); do echo \"line $i of $k\" > $k/$i; done; done",
           timeout=900, wait=55)
    jobs_done(s)


def files(s, n, fig):
    lines = "int x; // a line of a file\n"
    s.call("rattan_write_file", path="r.c", content=lines * 26, mode="overwrite")
    fig["read, 700 B"] = timed(n, lambda i: s.call("rattan_read_file", path="r.c"))
    fig["write, 600 B"] = timed(n, lambda i: s.call("rattan_write_file", path="w", content=f"{i:6}\n" + "hello\n" * 98, mode="overwrite"))
    s.call("rattan_write_file", path="e", content="beta\nalpha x\n", mode="overwrite")
    fig["edit"] = timed(n, lambda i: s.call("rattan_edit", path="e", old_string="alpha " + "x" * (1 + i % 2), new_string="alpha " + "x" * (1 + (i + 1) % 2)))
    fig["grep, one file"] = timed(n, lambda i: s.call("rattan_grep", pattern="absent", path="r.c"))


def at_a_pace(s, n, fig):
    out = []
    for i in range(max(20, n // 10)):
        time.sleep(0.02)
        out.append(s.timed("rattan_write_file", path="w", content=f"{i} slowly\n", mode="overwrite"))
    fig["write, at a model's pace"] = out


def calls(rattan, n, grep_files):
    fig = {}
    s = Server("serve", "--env", "calls", rattan=rattan)
    s.call("shell_run", command="true")
    fig["shell_run true"] = timed(n, lambda i: s.call("shell_run", command="true"))
    fig["shell_run echo"] = timed(n, lambda i: s.call("shell_run", command="echo hello"))
    files(s, n, fig)
    at_a_pace(s, n, fig)
    s.call("shell_run", command="mkdir few; for i in $(seq 30); do seq 100 > few/$i; done")
    fig["grep, 30 files"] = timed(n, lambda i: s.call("rattan_grep", pattern="absent", path="few"))
    fig["env_status"] = timed(n, lambda i: s.call("env_status"))
    fig["shell_list"] = timed(n, lambda i: s.call("shell_list", pattern="gcc"))
    fig["shell_job_start"] = timed(min(n, 200), lambda i: s.call("shell_job_start", command="true"))
    jobs_done(s)
    tree(s, grep_files)
    name = f"grep, {grep_files} files"
    fig[name] = timed(max(5, n // 50), lambda i: s.call("rattan_grep", pattern="absent", path="d"))
    s.call("env_commit", message="tree")
    commit, back = [], []
    for i in range(n):
        s.call("rattan_write_file", path="c", content=f"{i}\n", mode="overwrite")
        commit.append(s.timed("env_commit", message="m"))
        s.call("rattan_write_file", path="c", content=f"again {i}\n", mode="overwrite")
        back.append(s.timed("env_rollback", rev="head"))
    fig["env_commit"], fig["env_rollback"] = commit, back
    s.close()
    s = Server("serve", "--env", "plain", "--no-checkpoints", rattan=rattan)
    s.call("shell_run", command="true")
    fig["write, --no-checkpoints"] = timed(n, lambda i: s.call("rattan_write_file", path="w", content=f"{i}\n", mode="overwrite"))
    s.close()
    return fig


def starts(rattan, n, fig):
    """From the start of the process to an answer: to initialize and the list of tools; and to the first command, with no daemon yet."""
    hello, first = [], []
    for i in range(n):
        t = time.perf_counter()
        s = Server("serve", "--env", f"start{i}", rattan=rattan)
        s.ask("tools/list", {})
        hello.append(time.perf_counter() - t)
        if i < max(3, n // 5):
            t = time.perf_counter()
            s.call("shell_run", command="true")
            first.append(time.perf_counter() - t)
        s.close()
    fig["start to list of tools"], fig["first command, new environment"] = hello, first


def rss(pids, what):
    """Its own (RssAnon), and what it has mapped of files (RssFile): of a daemon the store, which stays in the page cache without it."""
    out = 0
    for pid in pids:
        m = re.search(what + r":\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
        out += int(m[1]) * 1024 if m else 0
    return out


def memory(s, data):
    return {"server": rss([s.p.pid], "RssAnon"), "daemon": rss(daemons(data), "RssAnon"), "daemon, mapped": rss(daemons(data), "RssFile")}


def daemons(data):
    out = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            if data in pathlib.Path("/proc", p, "cmdline").read_text() and "rattan-fs" in pathlib.Path("/proc", p, "cmdline").read_text():
                out.append(int(p))
        except OSError:
            pass
    return out


def day(rattan, data, n):
    """An agent's day: mostly looking, some changing, some commands, long output, jobs, refusals."""
    s = Server("serve", "--env", "day", rattan=rattan)
    for i in range(200):
        s.call("rattan_write_file", path=f"src/f{i}.c", content=f"int f{i};\n" * 50)

    def hour(k):
        f = f"src/f{k % 200}.c"
        s.call("rattan_read_file", path=f)
        s.call("rattan_grep", pattern=f"f{k % 200}\\b", path="src")
        s.call("rattan_edit", path=f, old_string="int", new_string="int", ok=False)
        s.call("rattan_write_file", path="out", content=f"{k}\n" * 100, mode="overwrite")
        if k % 5 == 0:
            s.call("shell_run", command="ls -l src")
            s.call("env_status")
            s.call("rattan_read_file", path="missing", ok=False)
        if k % 50 == 0:
            s.call("shell_run", command="seq 100000")
            s.call("shell_job_start", command="seq 1000; sleep 0.2")
            s.call("env_diff")
        if k % 500 == 0:
            s.call("env_commit", message=f"{k}")

    for k in range(max(20, n // 50)):
        hour(k)
    at = memory(s, data)
    rounds = n // 5  # about five calls each
    for k in range(rounds):
        hour(k)
    end = memory(s, data)
    s.close()
    return {"calls": rounds * 5, "warm": at, "after": end}


def main():
    sys.stdout.reconfigure(line_buffering=True)
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--rattan", required=True)
    a.add_argument("--calls", type=int, default=1000)
    a.add_argument("--day", type=int, default=20000)
    a.add_argument("--json")
    a.add_argument("--quick", action="store_true")
    o = a.parse_args()
    if o.quick:
        o.calls, o.day = 40, 500
    o.rattan = os.path.abspath(o.rattan)
    top = pathlib.Path(tempfile.mkdtemp(prefix="rattan-calls.", dir="/var/tmp"))
    os.environ.update(XDG_DATA_HOME=str(top / "data"), XDG_RUNTIME_DIR=str(top / "r"), XDG_CONFIG_HOME=str(top / "config"))
    (top / "r").mkdir(mode=0o700)
    report = {"load": os.getloadavg(), "cpus": os.cpu_count(), "kernel": os.uname().release}
    print(f"load {report['load'][0]:.2f}, {report['cpus']} CPUs, Linux {report['kernel']}")
    try:
        fig = calls(o.rattan, o.calls, 1000 if o.quick else 10000)
        starts(o.rattan, 5 if o.quick else 30, fig)
        report["calls"] = {k: {"p50_ms": pct(v, .5) * 1e3, "p99_ms": pct(v, .99) * 1e3, "n": len(v), "before_ms": BEFORE.get(k)} for k, v in fig.items()}
        print(f"\n{'call':34} {'n':>5} {'p50 ms':>9} {'p99 ms':>9} {'predecessor p50':>17} {'p99':>6}")
        for k, v in report["calls"].items():
            b = ["" if x is None else f"{x:g}" for x in BEFORE.get(k, (None, None))]
            print(f"{k:34} {v['n']:5} {v['p50_ms']:9.2f} {v['p99_ms']:9.2f} {b[0]:>17} {b[1]:>6}")
        report["day"] = d = day(o.rattan, str(top / "data"), o.day)
        print(f"\nmemory after {d['calls']} calls: " + ", ".join(f"{k} {d['after'][k] / 1e6:.1f} MB (warm {d['warm'][k] / 1e6:.1f})" for k in d["after"]))
        if o.json:
            pathlib.Path(o.json).write_text(json.dumps(report, indent=1))
    finally:
        for pid in daemons(str(top)):
            subprocess.run(["kill", str(pid)], capture_output=True)
        time.sleep(0.5)
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
