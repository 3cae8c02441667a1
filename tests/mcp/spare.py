#!/usr/bin/python3
"""A sandbox waits for the next command (runner/spare.h): what is bound, rolled back or changed between two commands is seen by the
second, and what waits ends with the server, however that ends."""
# timeout: 180
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
from lib import check, done, here  # noqa: E402: and lets directories below this one be bound
from rawclient import Server  # noqa: E402


def children(pid):
    return [int(p) for p in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()]


def words(pid):
    try:
        return open(f"/proc/{pid}/cmdline").read()
    except OSError:
        return ""


def waiting(server, wait=True):
    """The bwrap that waits."""
    for _ in range(500 if wait else 1):
        found = [p for p in children(server.p.pid) if words(p).startswith("bwrap")]
        if found or not wait:
            return found[0] if found else None
        time.sleep(0.02)
    return None


def all_of(pid):
    """It and what is below it."""
    return [pid] + [q for p in children(pid) for q in all_of(p)]


def gone(pids):
    for _ in range(500):
        left = [p for p in pids if words(p)]
        if not left:
            return True
        time.sleep(0.02)
    return False


def in_view(pid, mount):
    """Is it a mount for what waits below bwrap?"""
    for _ in range(500):
        for p in all_of(pid)[1:]:
            try:
                if any(line.split()[4] == mount for line in open(f"/proc/{p}/mountinfo")):
                    return True
            except OSError:
                pass
        time.sleep(0.02)
    return False


def run(s, command, **more):
    w = waiting(s)
    text = s.call("shell_run", command=command, **more)
    check(w, f"one waited (line {sys._getframe(1).f_lineno})")
    return text


os.makedirs("bound")
with open("bound/f", "w") as f:
    f.write("of the host\n")

s = Server()
check(waiting(s, False) is None, "nothing waits before the first command")
s.call("shell_run", command="echo one > a")
check("one" in run(s, "cat a"), "what the last command wrote")
s.call("rattan_write_file", path="a", content="two\n", mode="overwrite")
check("two" in run(s, "cat a"), "what a file tool wrote")

waiting(s)
s.call("bind_host_dir", host_path=f"{here}/bound", mount_point="/workspace/b")
check("of the host" in run(s, "cat b/f"), "a directory that was bound meanwhile")
w = waiting(s)
check(in_view(w, "/workspace/b"), "what waits has it")
s.call("unbind_host_dir", mount_point="/workspace/b")
check(gone([w]) and waiting(s, False) is None, "and does not hold it when it is unbound")
check("of the host" not in s.call("shell_run", command="cat b/f 2>&1; true"), "one that was unbound")

s.call("env_commit", message="two")
run(s, "echo three > a; rm -rf /workspace/b")
# One that is built while the tree is taken away comes to nothing, so that none may wait afterwards.
s.call("env_rollback", to_commit_id="head")
check("two" in s.call("shell_run", command="cat a"), "a tree that was rolled back")
waiting(s)
s.call("env_rollback", to_commit_id="base")
check("two" not in s.call("shell_run", command="cat a 2>&1; true"), "and another")
check("4096" not in run(s, "echo $((4000 + 97))") and "exit 7" in run(s, "exit 7"), "each has its own command and code")

# What waits is nobody's business: no job, no lease.
jobs = s.call("shell_job_list")
check(": running" not in jobs, "it is no job", jobs)
waiting(s)
s.call("env_reset")
check("fine" in s.call("shell_run", command="echo fine"), "nothing waits for it")

# It is killed, and so is the daemon below it.
os.kill(waiting(s), signal.SIGKILL)
check("fine" in s.call("shell_run", command="echo fine"), "a command does not miss what was killed")
w = all_of(waiting(s))
subprocess.run(["pkill", "-9", "-u", str(os.getuid()), "-f", f"rattan-fs env --data-dir {os.environ['XDG_DATA_HOME']}/"])
check(gone(w), "it ends with the tree")
check("fine" in s.call("shell_run", command="echo fine"), "and the next command has a new one")

w = all_of(waiting(s))
check(len(w) >= 2, "bwrap and what waits in it", w)
s.close()
check(gone(w), "nothing of it is left when the server has ended")

s = Server()
s.call("shell_run", command="true")
w = all_of(waiting(s))
s.p.kill()
s.p.wait()
check(gone(w), "nor when it was killed")
done()
