#!/usr/bin/python3
"""Greedy commands of an MCP session: each meets its limit, the server answers all the while, and nothing is left of them, nor of a
server that was killed."""
# timeout: 900
# alone
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402

MARK = f"86{os.getpid()}.5"
LIMITS = ["memory=200M", "processes=150", "files=200", "file-size=60M", "output=4M", "cpu=2", "disk=40M"]
FAILED = []


def ok(cond, what, note=""):
    print(("ok - " if cond else "not ok - ") + what, "" if cond else f"({note})", flush=True)
    if not cond:
        FAILED.append(what)


def marked():
    """Processes whose command line has the mark; only ours has it."""
    n = 0
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            n += MARK.encode() in pathlib.Path("/proc", p, "cmdline").read_bytes() and int(p) != os.getpid()
        except OSError:
            pass
    return n


def wait_none(seconds=15):
    end = time.monotonic() + seconds
    while marked() and time.monotonic() < end:
        time.sleep(0.1)
    return marked()


HOGS = {
    # name: (command, what a look afterwards must say, the look)
    "fork bomb": (f"b() {{ sleep {MARK} & b | b & }}; b; b; sleep {MARK}", None, None),
    "memory": ("python3 -c 'x = []\nwhile 1: x.append(bytearray(1 << 20))' 2> /tmp/m; echo $? > /tmp/rc", "1 MemoryError",
               "echo $(cat /tmp/rc) $(tail -n 1 /tmp/m)"),
    "output": ("yes", None, None),
    "one large file": ("dd if=/dev/urandom of=/tmp/big bs=1M count=100000 2> /tmp/e; echo $? > /tmp/rc",
                       r"1[25][0-9]*|1|153", "rm -f /tmp/big; cat /tmp/rc"),
    "disk": ("i=0; while head -c 4M /dev/urandom > /tmp/f$i; do i=$((i+1)); sync; done", "quota exceeded", "rm -f /tmp/f*; echo x > /tmp/x"),
    "descriptors": ("python3 -c 'import os\nn = 0\ntry:\n  while 1: os.dup(0); n += 1\nexcept OSError as e: print(n, e.errno, file=open(\"/dev/shm/n\", \"w\"))';"
                    " cat /dev/shm/n", None, None),
    "processor": (f"sh -c 'while :; do :; done # {MARK}'", None, None),
    "/dev/shm": ("head -c 100G /dev/zero > /dev/shm/x", None, None),
    "a tree that is deaf": (f"trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM HUP; sleep {MARK} & exec sleep {MARK}' &); sleep {MARK}", None, None),
}


INOTIFY = """
import ctypes, os
libc, n, w = ctypes.CDLL(None), [], 0
while len(n) < 1000 and (fd := libc.inotify_init()) >= 0:
    n.append(fd)
print(len(n), "instances")
os.makedirs("/tmp/w")
dirs = [f"/tmp/w/{i}".encode() for i in range(2000)]
for d in dirs:
    os.mkdir(d)
for fd in n:
    for d in dirs:
        w += libc.inotify_add_watch(fd, d, 256) > 0
print(w, "watches")
"""
UNDER_WAY = """python3 - <<'E'
import array, os, socket, time
n, keep = 0, []
try:
    while n < 100000:
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        keep += [a, b]
        a.setblocking(False)
        try:
            while 1:
                a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 250))])
                n += 250
        except BlockingIOError:
            pass
except OSError:
    pass
open("/tmp/under-way", "w").write(f"{n} under way")
time.sleep(600)
E"""


def answers(s, seconds):
    """The longest time that a look and a command took, while something else runs."""
    worst = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        worst = max(worst, s.timed("env_status"), s.timed("shell_run", command="true"))
        time.sleep(0.2)
    return worst


def finished(s, command):
    """What a command came to, also one that on a busy machine takes longer than a call waits."""
    got = s.call("shell_run", ok=False, command=command, timeout=150)
    job = re.search(r'job_id="([^"]+)"', got)
    end = time.monotonic() + 160
    while job and "still running" in got and time.monotonic() < end:
        got = s.call("shell_job_wait", ok=False, job_id=job[1])
    return got


def fresh(*more):
    return Server("serve", *[w for v in LIMITS for w in ("--limit", v)], *more)


def main():
    s = fresh()
    s.call("shell_run", command="true")
    quiet = answers(s, 2)
    bound = max(10.0, 30 * quiet)
    for name, (command, want, look) in HOGS.items():
        # Who is to meet a limit that the disk is needed for gets longer.
        seconds = 4 if want else 2
        s.call("shell_run", ok=False, command=command, timeout=seconds, run_in_background=True)
        t = answers(s, seconds + 1)
        ok(t < bound, f"{name}: the server answers within {bound:.1f} s", f"{t:.1f} s, {quiet:.2f} s at rest")
        ok(wait_none() == 0, f"{name}: nothing is left", f"{marked()} processes")
        if look:
            time.sleep(1)
            got = s.call("shell_run", ok=False, command=look)
            ok(re.search(want, got), f"{name}: met its limit", got[-300:])
    # What each came to, asked directly.
    for what, command, want in (
            ("files", "python3 -c 'import os\nn = 0\ntry:\n  while 1: os.dup(0); n += 1\nexcept OSError as e: print(n > 150, n < 200, e.errno)'",
             "True True 24"),
            ("/dev/shm", "for i in 1 2 3 4 5 6; do head -c 50M /dev/zero > /dev/shm/x$i || break; done", "No space left on device"),
            ("file-size", "head -c 100M /dev/zero | dd of=/dev/shm/big bs=1M 2> /dev/null; echo code $?", "code 153"),
            ("processes", "python3 -c 'import os, signal\nn = 0\ntry:\n  while 1:\n    if not os.fork(): signal.pause()\n    n += 1\n"
             "except OSError as e: print(n > 100, n < 150, e.errno)'", "True True 11"),
            ("cpu", "sh -c 'while :; do :; done'; echo code $?", "code 1(37|52)"),
            ("disk", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do head -c 4M /dev/urandom > g$i || break; sync; done", "quota exceeded"),
            ("a million files", "python3 -c 'for i in range(1000000): open(f\"m{i}\", \"x\").close()' 2>&1 | tail -n 1", "quota exceeded")):
        if what == "processes" and os.getuid() == 0:
            continue
        got = finished(s, command)
        ok(re.search(want, got), f"{what}: {want}", got[-300:])
    s.call("env_reset", ok=False)
    again = "echo x > f && cat f > g && echo fine"
    ok("quota" in s.call("shell_run", ok=False, command=again), "a client gets no room by going back, which keeps what it leaves")
    s.close()
    s = fresh("--limit", "disk=400M")
    ok("fine" in s.call("shell_run", ok=False, command=again), "a server that allows more does")
    r = s.ask("tools/call", {"name": "shell_run", "arguments": {"command": "true"}})
    held = str(r.get("_meta"))
    ok("rlimits" in held and "seccomp" in held and "netns" in held, "the result says what held", held[:300])
    # Descriptors under way in Unix sockets are counted for the user: with as many as a command can have there, others start.
    w = Server("serve", "-e", "under-way")
    counted = [int(open(f"/proc/sys/user/max_inotify_{x}").read()) for x in ("instances", "watches")]
    got = w.call("shell_run", command=f"python3 -c '{INOTIFY}'")
    n = int(re.search(r"(\d+) instances", got)[1])
    ok(0 < n <= counted[0] // 2, "half of the user's inotify instances are left to others", f"{n} of {counted[0]}")
    n = int(re.search(r"(\d+) watches", got)[1])
    ok(0 < n <= counted[1] // 2, "and half of the watches", f"{n} of {counted[1]}")
    w.call("shell_run", command=UNDER_WAY, run_in_background=True)
    look = "cat /tmp/under-way 2> /dev/null; true"
    end = time.monotonic() + 60
    while "under way" not in w.call("shell_run", command=look) and time.monotonic() < end:
        time.sleep(0.2)
    n = int(re.search(r"(\d+) under way", w.call("shell_run", command=look))[1])
    ok(n > 1000, "a command has descriptors under way", n)
    r = subprocess.run([os.environ["RATTAN"], "run", "-e", "another", "--", "echo", "fine"], capture_output=True, text=True, timeout=60)
    ok(r.stdout == "fine\n", "and another environment starts", r.stderr)
    w.close()
    # The server is killed under a tree that is deaf to everything.
    s.call("shell_run", command=HOGS["a tree that is deaf"][0], run_in_background=True)
    end = time.monotonic() + 10
    while marked() < 3 and time.monotonic() < end:
        time.sleep(0.1)
    ok(marked() >= 3, "a tree of processes runs")
    os.kill(s.p.pid, signal.SIGKILL)
    s.p.wait()
    ok(wait_none() == 0, "the server killed with -9 leaves none", f"{marked()} processes")
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    ok(os.environ["HOME"] not in mounts, "and no mount")
    s = fresh("--limit", "disk=400M")
    ok("again" in s.call("shell_run", command="echo again"), "and the next server works")
    s.close()
    return 1 if FAILED else 0


sys.exit(main())
