"""A command's start beside a bare bwrap. What each tool call takes: calls.py."""
import contextlib
import json
import os
import signal
import subprocess
import time

from rawclient import Server
from rows import Row, Target

BARE = ["bwrap", "--unshare-all", "--bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]


@contextlib.contextmanager
def server(bench, *args, env="bench"):
    s = Server("--env", env, *args, rattan=bench.rattan)
    try:
        yield s
    finally:
        s.close()
        subprocess.run([bench.rattan, "env", "rm", "--force", env], capture_output=True)


def long_shell(s, command):
    """A command that may take longer than a call may wait."""
    s.call("shell_run", command=f"({command}) && touch .done", timeout=3000, wait=50)
    while "there" not in s.call("shell_run", command="test -e .done && echo there || true"):
        time.sleep(0.5)
    s.call("shell_run", command="rm .done")


def status_pid(bench, env):
    """Of the daemon that serves @env, which runs."""
    r = subprocess.run([bench.rattan, "status", "-e", env, "--json"], capture_output=True, text=True)
    try:
        return json.loads(r.stdout).get("daemon_pid")
    except (ValueError, AttributeError):
        return None


def rss(pid):
    """A process's own memory."""
    return int(open(f"/proc/{pid}/status").read().split("RssAnon:")[1].split()[0]) * 1024


def end_daemons(bench):
    """Those of environments in the benchmark's own directories, found by their arguments."""
    mine = os.fsencode(str(bench.top))
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            args = open(f"/proc/{pid}/cmdline", "rb").read()
        except OSError:
            continue
        if b"rattan-fs" in args.split(b"\0")[0] and mine in args:
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGTERM)
    time.sleep(0.5)


def clock(fn, *args, **kw):
    t = time.perf_counter()
    fn(*args, **kw)
    return time.perf_counter() - t


def start(bench):
    """shell_run beside a bwrap that does as little, in turn."""
    out = {"true": {"bwrap": [], "rattan": []}, "bash -c true": {"bwrap": [], "rattan": []}}
    n = bench.scaled(100, 10)
    with server(bench) as s:
        s.call("shell_run", command="true")
        for _ in range(n):
            out["true"]["bwrap"].append(clock(subprocess.run, [*BARE, "true"], check=True))
            out["true"]["rattan"].append(s.timed("shell_run", command="true"))
            out["bash -c true"]["bwrap"].append(clock(subprocess.run, [*BARE, "bash", "-c", "true"], check=True))
    out["bash -c true"]["rattan"] = out["true"]["rattan"]
    return out


def new_environment(bench):
    """rattan run in an environment that does not exist yet: its daemon, its mount, the command."""
    took = []
    for i in range(bench.scaled(20, 3)):
        took.append(clock(subprocess.run, [bench.rattan, "run", "-e", f"new{i}", "--", "true"], check=True, capture_output=True))
        subprocess.run([bench.rattan, "env", "rm", "--force", f"new{i}"], capture_output=True)
    return {"run true, new environment": {"rattan": took}}


ROWS = [
    Row("start", "shell_run true over MCP, warm, beside bwrap", start, (), (Target("true", 1.25, "bwrap"),), once=True),
    Row("new-environment", "a new environment's first command", new_environment, (), (Target("*", 0.1),), once=True),
]
