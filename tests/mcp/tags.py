#!/usr/bin/python3
"""env_commit(label=...) names a state: the name is a revision wherever one is taken, is listed, and is given once."""
# timeout: 120
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402

s = Server()


def put(text):
    s.call("rattan_write_file", path="f", content=text + "\n", mode="overwrite")


def first_line(t):
    return t.split("\n", 1)[0]


put("one")
t = s.call("env_commit", message="first", label="v1")
one = re.search(r"committed ([0-9a-f]{12})", t)[1]
put("two")
t = s.call("env_commit", ok=False, message="second", label="v1")
assert t.startswith("error: 'v1' names " + one) and "(File exists)" not in t, t
for bad in ("tests pass", "head", "base", "deadbeef", "a/b", "-x"):
    t = s.call("env_commit", ok=False, message="second", label=bad)
    assert t.startswith(f"error: '{bad}' is no name for a state") and "(Invalid" not in t, t
assert "[v1] first" in s.call("env_snapshot_list", automatic=False)
assert s.call("env_snapshot_list", automatic=False).startswith("1 snapshot "), "nothing was committed with a label that is none"
s.call("env_commit", message="second", label="v2")
t = s.call("env_snapshot_list", automatic=False)
assert re.search(r"\(head\) .*\[v2\] second\n.*\[v1\] first\n", t), t
assert "M /workspace/f" in s.call("env_diff", **{"from": "v1", "to": "v2"})
s.call("shell_run", command="mkdir dir; mv f dir/g; cp dir/g dir/h")
s.call("env_commit", message="moved", label="v3")
s.call("shell_run", command="mv dir dir2; echo three >> dir2/h")
t = s.call("env_diff", path="/workspace/dir2/h")
assert t.endswith("M /workspace/dir2/h\n--- a/workspace/dir/h\n+++ b/workspace/dir2/h\n@@ -1 +1,2 @@\n two\n+three\n"), t
t = s.call("env_diff", **{"from": "v2", "to": "v3", "path": "/workspace/dir/g"})
assert t.endswith("R /workspace/f -> /workspace/dir/g\nsame content\n"), t
for gone in ("dir2/nosuch", "/nosuch/f", "dir2/h/below"):
    t = s.call("env_diff", ok=False, path=gone)
    assert t.startswith("error: there is neither a change nor a file at /") and gone in t, t
for same in ("/etc/passwd", "/etc", "dir2"):
    assert "neither" not in s.call("env_diff", path=same), "what is there, changed or not"
s.call("env_rollback", rev="v1")
assert "one" in s.call("rattan_read_file", path="f")
s.call("env_rollback", rev="v2~1")
s.call("env_rollback", rev="v2")
assert "two" in s.call("rattan_read_file", path="f")
t = s.call("env_fork", name="tried", rev="v1")
assert t.startswith(f"forked tried from default at {one}"), t
assert "one" in s.call("rattan_read_file", path="f", environment="tried")
assert "[v1] first" in s.call("env_snapshot_list", environment="tried") and "v2" not in s.call("env_snapshot_list", environment="tried")
s.call("env_rollback", rev="v1", environment="tried")
# expect takes a name as well
put("three")
assert s.call("env_commit", ok=False, message="third", expect="v1").startswith("error: ")
s.call("env_commit", message="third", expect="v2")
# nothing to commit is no error, and the name is given all the same
t = s.call("env_commit", message="again", label="done")
assert re.match(r"nothing to commit: the tree is as it was at head, [0-9a-f]{12}, which is named done\n", t), t
assert s.call("env_commit", message="again", label="done").startswith("nothing to commit"), "twice"
assert s.call("env_commit", ok=False, message="again", label="v1").startswith("error: 'v1' names "), "but another state's"
t = s.call("env_snapshot_list", automatic=False)
assert re.search(r"\(head\) .*\[done\] third\n", t), t
# What a person names is the agent's as well, also where no line of the list stands for it.
for args in (("start", "base"), ("kept", re.search(r"^([0-9a-f]{12}).*\[auto\]", s.call("env_snapshot_list"), re.M)[1])):
    subprocess.run([os.environ["RATTAN"], "tag", *args], check=True, stdout=subprocess.DEVNULL)
t = s.call("env_snapshot_list", automatic=False)
assert re.search(r"\n\[other names: kept = [0-9a-f]{12}, start = base\]\n$", t), t
t = s.call("env_snapshot_list")
assert re.search(r"\[auto\] \[kept\] \[rattan_write_file ", t) and t.endswith("\n[other names: start = base]\n"), t
subprocess.run([os.environ["RATTAN"], "tag", "-d", "v1"], check=True, stdout=subprocess.DEVNULL)
assert "[labelled v1] first" in s.call("env_snapshot_list", automatic=False), "it names nothing any more"
s.call("env_rollback", rev="start")
assert s.call("rattan_read_file", ok=False, path="f").startswith("error: ")
assert s.call("env_rollback", ok=False, rev="nothing-like-it").startswith("error: 'nothing-like-it' is no commit, tag")
s.close()
print("ok")
