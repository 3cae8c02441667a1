#!/usr/bin/python3
# A rollback, reset, undo or removal under commands that hold files, mappings and directories: refused with their
# names, or by force, after which none of them is left and what they had written is in the state that was kept.
# timeout: 120
import os
import signal
import subprocess
import sys
import time

rattan = os.environ["RATTAN"]
failed = []


def check(cond, what, note=""):
    if not cond:
        failed.append(what)
        print("FAIL:", what, str(note)[:300], flush=True)


def rt(*args):
    r = subprocess.run([rattan, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return r.returncode, r.stdout


def must(*args):
    rc, out = rt(*args)
    if rc:
        sys.exit(f"rattan {args}: {rc} {out[-300:]}")
    return out


# A program that has everything one can have: an open file with bytes in the kernel, a dirty mapping, a removed file,
# a directory it stands in and one it is in the middle of listing, a lock, a child that does the same.
HOLD = """
import fcntl, mmap, os, sys, time
os.makedirs('/workspace/d/many', exist_ok=True)
for i in range(3000): open(f'/workspace/d/many/f{i}', 'w').close()
fd = os.open('/workspace/d/f', os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 20)
m = mmap.mmap(fd, 1 << 20)
m[:] = b'm' * (1 << 20)
g = open('/workspace/d/gone', 'w+'); g.write('gone'); g.flush(); os.unlink('/workspace/d/gone')
fcntl.flock(fd, fcntl.LOCK_EX)
os.chdir('/workspace/d')
it = os.scandir('many'); next(it)
pid = os.fork()
print('ready' if pid else 'child', flush=True)
n = 0
while True:
    n += 1
    m[n % (1 << 20)] = ord('m')
    next(it, None)
    os.pwrite(fd, b'm', n % (1 << 20)); g.write('x')
    open(f'/workspace/d/t{pid == 0}', 'w').write(str(n))
    time.sleep(0.001)
"""


def hold(env):
    p = subprocess.Popen([rattan, "run", "-e", env, "--", "python3", "-c", HOLD], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True)
    seen = {p.stdout.readline().strip(), p.stdout.readline().strip()}
    check(seen == {"ready", "child"}, "the program is at work", seen)
    return p


def ended(p, what):
    try:
        rc = p.wait(timeout=20)
    except subprocess.TimeoutExpired:
        p.kill()
        rc = "never"
    check(rc not in (0, "never"), f"{what}: the command ended, not well", rc)


def working(p, env, what):
    """Its number grows. Between the opening for writing and the close the file is empty: an empty read says nothing."""
    seen = set()
    end = time.monotonic() + 20
    while len(seen) < 2 and p.poll() is None and time.monotonic() < end:
        seen.add(must("run", "-e", env, "--", "cat", "d/tTrue"))
        seen.discard("")
        time.sleep(0.05)
    check(len(seen) == 2 and p.poll() is None, f"{what}: the command goes on", (seen, p.poll()))


def refused(env, *move):
    t = time.monotonic()
    rc, out = rt(*move, "-e", env)
    check(rc == 4 and "python3" in out and "force" in out, f"{move[0]} is refused and says for what", (rc, out))
    check(time.monotonic() - t < 5, f"{move[0]} is refused at once")


must("run", "-e", "b", "--", "sh", "-c", "echo one > one")
must("commit", "-e", "b", "-m", "one")

# Refused: nothing changes for who works.
p = hold("b")
refused("b", "rollback", "base")
refused("b", "reset")
refused("b", "undo") if rt("undo", "-e", "b")[0] == 4 else None
rc, out = rt("env", "rm", "b")
check(rc == 4, "so is the removal", (rc, out))
working(p, "b", "after the refusals")

# By force: all of it is gone, the tree is the one that was asked for, and what was written is kept.
must("rollback", "-e", "b", "--force", "base")
ended(p, "rollback --force")
check(must("run", "-e", "b", "--", "ls", "-A", "/workspace") == "", "the base is empty")
must("undo", "-e", "b")
check(must("run", "-e", "b", "--", "sh", "-c", "ls; tr -d m < d/f | wc -c; stat -c %s d/f; ls d/many | wc -l").split() ==
      ["d", "one", "0", str(1 << 20), "3000"], "undo brings back what was written, mapped bytes included")
check("gone" not in must("run", "-e", "b", "--", "ls", "d"), "a removed file stays removed")

# Again and again, under writers that come and go.
for i in range(4):
    p = hold("b")
    must(*(("rollback", "-e", "b", "--force", "head"), ("reset", "-e", "b", "--force"))[i % 2])
    ended(p, f"round {i}")
    check(must("run", "-e", "b", "--", "sh", "-c", "ls; cat one").split() == ["one", "one"], f"round {i}: the commit's state")

# A command whose client died holds nothing.
p = hold("b")
p.send_signal(signal.SIGKILL)
p.wait()
for _ in range(100):
    rc, out = rt("rollback", "-e", "b", "base")
    if rc == 0:
        break
    time.sleep(0.1)
check(rc == 0, "after the death of its client a command is in nobody's way", out)

# A commit goes on beside them, and is whole.
p = hold("b")
must("commit", "-e", "b", "-m", "beside")
working(p, "b", "after a commit")
must("rollback", "-e", "b", "--force", "head")
ended(p, "rollback to the commit")
check(must("run", "-e", "b", "--", "sh", "-c", "tr -d m < d/f | wc -c; stat -c %s d/f").split() == ["0", str(1 << 20)],
      "the commit is whole")
must("env", "rm", "b")
print(f"{len(failed)} failed")
sys.exit(1 if failed else 0)
