#!/usr/bin/python3
"""The daemon is killed between and under the calls of a session: jobs go on, calls work, leases hold."""
# timeout: 120
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402

DATA = os.environ["XDG_DATA_HOME"]


def pids(*how):
    r = subprocess.run(["pgrep", "-u", str(os.getuid()), *how], capture_output=True, text=True)
    return [int(x) for x in r.stdout.split()]


def daemon():
    keeper = pids("-o", "-f", f"rattan-fs env --data-dir {DATA}/")
    return (pids("-n", "-P", str(keeper[0])) or [None])[0] if keeper else None


def kill():
    old = daemon()
    os.kill(old, signal.SIGKILL)
    for _ in range(200):
        new = daemon()
        if new and new != old:
            return
        time.sleep(0.02)
    raise AssertionError("no other daemon")


s = Server()
s.call("rattan_write_file", path="/workspace/a", content="one\n", mode="overwrite")
s.call("env_commit", message="first")
job = re.search(r'job_id="([^"]+)"', s.call(
    "shell_job_start", command="for i in $(seq 60); do echo $i >> log; sleep 0.1; done; wc -l < log; cat a"))[1]
time.sleep(0.5)
for n in range(3):
    kill()
    # At once, before anything of the new daemon was seen to answer.
    s.call("rattan_write_file", path=f"/workspace/w{n}", content=f"{n}\n", mode="overwrite")
    assert f"{n}\n" in s.call("shell_run", command=f"cat w{n}")
    assert "one" in s.call("rattan_read_file", path="/workspace/a")
    refused = s.call("env_rollback", ok=False, to_commit_id="base")
    assert refused.startswith("error:") and "running" in refused, refused
    assert "one" in s.call("rattan_read_file", path="/workspace/a"), "a refused rollback changed the tree"
    s.call("env_commit", message=f"after kill {n}")
    time.sleep(1.1)
out = s.call("shell_job_wait", job_id=job, wait_seconds=30)
assert re.search(r"exit(?:ed)?(?: code)?:? ?0\b|exit 0", out), out
out = s.call("shell_job_output", job_id=job)
assert re.search(r"^60$", out, re.M) and "one" in out, out
kill()
s.call("env_rollback", to_commit_id="base")
assert "one" not in s.call("shell_run", command="cat a 2>/dev/null; true")
assert s.close() == 0
