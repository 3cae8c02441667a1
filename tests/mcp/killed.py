#!/usr/bin/python3
"""What a server that is killed leaves: jobs that the next one can name as lost, and no temporary file of its tools."""
# timeout: 300
import os
import pathlib
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402

SESSIONS = pathlib.Path(os.environ["XDG_DATA_HOME"]) / "rattan/sessions"


def job_of(t):
    return re.search(r"j\d+-[0-9a-f]{8}", t)[0]


def kill(s):
    s.p.kill()
    s.p.wait()


# ---- jobs ----
s = Server()
gone = job_of(s.call("shell_job_start", command="sleep 600\t# one\nand more"))
ended = job_of(s.call("shell_job_start", command="exit 3"))
s.call("shell_job_wait", job_id=ended, wait_seconds=20)
kept = job_of(s.call("shell_run", command="seq 100000"))
other = Server()
t = other.call("shell_job_status", ok=False, job_id=gone)
assert t.startswith(f"error: job {gone} belongs to another server, which runs still"), t
assert gone not in other.call("shell_job_list"), "and is not lost"
other.close()
kill(s)
s = Server()
t = s.call("shell_job_status", ok=False, job_id=gone)
assert re.match(rf"error: job {gone} belonged to an earlier server that ended, and was lost with it", t), t
t = s.call("shell_job_output", ok=False, job_id=ended)
assert t.startswith(f"error: job {ended} belonged to an earlier server that ended; the job had ended before (exit 3), and its output is gone"), t
t = s.call("shell_job_wait", ok=False, job_id=kept)
assert "(exit 0), and its output is gone" in t, t
for never in ("j1-00000000", "j9-" + gone[-8:], "x", gone + "0"):
    t = s.call("shell_job_status", ok=False, job_id=never)
    assert t.startswith(f"error: there is no job '{never}'"), t
t = s.call("shell_job_list")
assert t.startswith("0 jobs, 0 running\n") and f"\n{gone}: lost with its server, which ended  sleep 600 # one and more\n" in t, t
assert ended not in t and kept not in t, "what had ended was not lost"
s.call("env_fork", name="elsewhere")
assert gone not in s.call("shell_job_list", environment="elsewhere"), "not of another environment"
# An orderly end kills them as well, and is told with its time.
gone2 = job_of(s.call("shell_job_start", command="sleep 601"))
s.close()
s = Server()
t = s.call("shell_job_list")
assert re.search(rf"\n{gone2}: lost with its server, which ended at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ  sleep 601\n", t), t
assert gone not in t, "the last that lost any"
t = s.call("shell_job_kill", ok=False, job_id=gone2)
assert re.match(rf"error: job {gone2} belonged to an earlier server that ended at 20.*Z, and was lost with it", t), t
s.call("rattan_write_file", path="f", content="x\n")
mine = [p for p in SESSIONS.iterdir()]
s.close()
left = {p.name for p in SESSIONS.iterdir()}
assert len(left) == len(mine) - 1, "of a session that had nothing to say nothing is kept"
assert all(p.stat().st_mode & 0o777 == 0o600 for p in SESSIONS.iterdir()) and SESSIONS.stat().st_mode & 0o777 == 0o700

# ---- a file tool that is killed between making its temporary file and giving it its name ----
HOST = pathlib.Path(os.environ["HOME"]) / "project"
HOST.mkdir()
(HOST / "f").write_bytes(b"old\n")
content = "x" * 1000000


def die_in_the_middle(args, path):
    """A server that may write files of half a megabyte dies of SIGXFSZ, as it would of SIGKILL, with the first half in its
    temporary file. What serves the environment is not limited: it runs already."""
    s = Server("--fsize=500000", os.environ["RATTAN"], "serve", *args, rattan="prlimit")
    try:
        s.call("rattan_write_file", path=path, content=content, mode="overwrite")
        raise AssertionError("the server lives")
    except EOFError:
        assert s.p.wait() == -signal.SIGXFSZ, s.p.returncode


def temps(s):
    return [x for x in s.call("shell_run", command="ls -A").split("\n")[1:] if ".rattan-" in x]


for args, keep in ((("--env", "bound", "--bind", f"{HOST}=/workspace"), "f"), (("--env", "tree", "--keep"), "g")):
    watch = Server("serve", *args)
    watch.call("rattan_write_file", path=keep, content="old\n", mode="overwrite")
    watch.call("rattan_write_file", path=".f.rattan-notours", content="a user's\n")
    for path in (keep, "new"):
        die_in_the_middle(args, path)
        elsewhere = Server("serve", "--env", "third")
        elsewhere.call("env_status")
        elsewhere.close()
        left = [x for x in temps(watch) if x != ".f.rattan-notours"]
        # Of the one before the next one has removed what it left.
        assert len(left) == 1 and re.fullmatch(rf"\.{path}\.rattan-[0-9a-f]{{8}}", left[0]), left
    s = Server("serve", *args)
    s.call("env_status")
    assert temps(watch) == [".f.rattan-notours"], temps(watch)
    assert "→old\n" in s.call("rattan_read_file", path=keep) and s.call("rattan_read_file", ok=False, path="new").startswith("error: ")
    s.close()
    watch.close()

# Killed at any moment, in the tree itself.
for i in range(6):
    s = Server("serve", "--env", "tree", "--keep")
    s.call("env_status")
    for k in range(20):
        s.say({"jsonrpc": "2.0", "id": 2000 + k, "method": "tools/call", "params": {
            "name": "rattan_write_file", "arguments": {"path": "f" if k % 2 else f"new{i}-{k}", "content": content[:300000] + str(k), "mode": "overwrite"}}})
    time.sleep(0.004 * i)
    kill(s)
s = Server("serve", "--env", "tree", "--keep")
assert temps(s) == [".f.rattan-notours"], temps(s)
s.close()
print("ok")
