#!/usr/bin/python3
"""Keeper and daemon are killed in one moment, while a commit makes the kernel write what a mapping holds: nobody waits for
ever. The command that mapped ends, the next call starts from the last flush, and no process or mount is left."""
# timeout: 600
# alone
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

RATTAN, DATA = os.environ["RATTAN"], os.environ["XDG_DATA_HOME"]
ROUNDS = 60 if os.environ.get("RATTAN_LONG") else 12
# Seconds. What this looks for waits for ever; a disk that others keep busy takes its time.
HANGS = 60
JOB = """
import mmap
f = open('/workspace/m', 'w+b')
f.truncate(1 << 26)
m = mmap.mmap(f.fileno(), 1 << 26)
print('mapped', flush=True)
i = 0
while True:
    m[i % (1 << 26)] = i & 255
    i += 4099
"""


def stat(pid):
    """State and parent of a process or thread; nothing when there is none."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
    except OSError:
        return ["", ""]


def daemons():
    """Keeper, then daemon."""
    r = subprocess.run(["pgrep", "-u", str(os.getuid()), "-f", f"rattan-fs env --data-dir {DATA}/"],
                       capture_output=True, text=True)
    found = [int(x) for x in r.stdout.split() if stat(x)[0]]
    keeper = [p for p in found if stat(p)[1] not in map(str, found)]
    return keeper + [p for p in found if p not in keeper]


def stuck(pid):
    try:
        return any(stat(f"{pid}/task/{t}")[0] == "D" for t in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return False


def wait(what, cond, seconds):
    end = time.monotonic() + seconds
    while not cond():
        if time.monotonic() > end:
            sys.exit(f"FAIL: {what}")
        time.sleep(0.02)


def rt(*args):
    r = subprocess.run([RATTAN, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HANGS)
    if r.returncode:
        sys.exit(f"FAIL: rattan {args}: {r.returncode} {r.stdout[-300:]}")
    return r.stdout


def under(pid):
    """All descendants, the sandbox's included."""
    found = [pid]
    for p in filter(str.isdigit, os.listdir("/proc")):
        if stat(p)[1] == str(pid):
            found += under(int(p))
    return found


hits = 0
rt("run", "--", "sh", "-c", "echo kept > f")
rt("commit", "-m", "kept")
for n in range(10 * ROUNDS):
    if n >= ROUNDS and hits:
        break
    job = subprocess.Popen([RATTAN, "run", "--", "/usr/bin/python3", "-c", JOB], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True)
    assert job.stdout.readline() == "mapped\n"
    time.sleep(0.3)
    # Before the commit, for which the keeper has short-lived processes of its own.
    pids, all_of_it = daemons(), under(job.pid)
    commit = subprocess.Popen([RATTAN, "commit", "-m", "more"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert len(pids) == 2 and len(all_of_it) > 2, (pids, all_of_it)
    end = time.monotonic() + random.random()
    while not stuck(pids[1]) and time.monotonic() < end:
        pass # in the middle, most often
    for p in pids:
        os.kill(p, signal.SIGKILL)
    time.sleep(0.05)
    hit = stuck(pids[1])
    hits += hit
    t = time.monotonic()
    if n % 2 == 0:
        # Its client is there to end it.
        wait(f"round {n}: the command does not end", lambda: job.poll() is not None, HANGS)
        wait(f"round {n}: its processes do not end", lambda: not any(stat(p)[0] not in ("", "Z") for p in all_of_it), HANGS)
    else:
        job.kill() # nobody is
    took = time.monotonic() - t
    assert rt("run", "--", "cat", "f") == "kept\n"
    wait(f"round {n}: something hangs", lambda: not any(stat(p)[0] not in ("", "Z") for p in pids + all_of_it), HANGS)
    print(f"round {n}: stuck: {hit}, {took:.2f} s, next call after {time.monotonic() - t:.2f} s", flush=True)
    job.wait()
    commit.wait(HANGS)
if not hits:
    sys.exit("FAIL: never in that moment: this test shows nothing")
print(f"{hits} times in that moment")
