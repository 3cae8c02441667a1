#!/usr/bin/python3
"""Each call that changes something ends with an automatic state: any one of them can be taken back, a job's as well; they are
no commits, and can be switched off."""
# timeout: 180
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402

s = Server()


def states(s=s):
    """Newest first: (id, label, message) of the automatic ones."""
    found = re.findall(r"^([0-9a-f]{12}).*?\[auto\] \[([^]]*)\] ?(.*)$", s.call("env_snapshot_list", limit=500), re.M)
    return found


def read(path, s=s):
    return s.call("shell_run", command=f"cat {path} 2>/dev/null || echo none").split("\n", 1)[1].strip()


assert states() == []
s.call("shell_run", command="true")
s.call("rattan_read_file", path="/etc/passwd")
s.call("env_status")
assert states() == [], "what changed nothing leaves no state"

s.call("rattan_write_file", path="a", content="one\n")
first = states()
assert len(first) == 1 and first[0][1].startswith("rattan_write_file ") and first[0][2] == "a", first
s.call("rattan_edit", path="a", old_string="one", new_string="two")
s.call("shell_run", command="echo three > a; mkdir d; echo x > /home/user/side; rm -f gone\n# second line")
all_of_it = states()
assert [x[1].split()[0] for x in all_of_it] == ["shell_run", "rattan_edit", "rattan_write_file"], all_of_it
assert all_of_it[0][2].startswith("echo three > a; mkdir d") and "\n" not in all_of_it[0][2], all_of_it
assert len({x[0] for x in all_of_it}) == 3

# They are no commits: head is the base, and all is uncommitted.
status = s.call("env_status")
assert "head base" in status and "uncommitted: 3 added" in status, status
assert "A /workspace/a" in s.call("env_diff")

# Any one call is taken back, its side effects included.
t = s.call("env_rollback", rev=all_of_it[1][0])
assert t.startswith("rolled back"), t
assert read("a") == "two" and read("d") == "none" and read("/home/user/side") == "none"
s.call("env_rollback", rev=all_of_it[0][0])
assert read("a") == "three" and read("/home/user/side") == "x", "and forward again"
assert "A /workspace/a" in s.call("env_diff"), "still uncommitted"

# A commit is of all since the last commit, not since the last state.
t = s.call("env_commit", message="all")
assert "committed" in t and re.search(r"[1-9]\d* added", t), t
assert "clean" in s.call("env_status")
assert s.call("env_commit", message="again").startswith("nothing to commit")

# A job's changes have their own state when it ends, whoever learns of the end finds it.
t = s.call("shell_job_start", command="sleep 0.3; echo job > j")
job = re.search(r"j\d+-[0-9a-f]+", t)[0]
s.call("shell_job_wait", job_id=job, wait_seconds=20)
assert states()[0][1] == f"end of {job}", states()[0]
s.call("shell_run", command="rm j a")
t = s.call("shell_job_start", command="sleep 300")
refused = s.call("env_rollback", ok=False, rev=states()[1][0])
assert refused.startswith("error: refused while commands are running"), refused
s.call("env_rollback", rev=states()[1][0], force=True)
assert read("j") == "job" and read("a") == "three"

# What was uncommitted when it is dropped can be had again.
t = s.call("env_reset")
kept = re.search(r'env_rollback rev="([0-9a-f]+)"', t)
assert kept, t
assert read("j") == "none"
s.call("env_rollback", rev=kept[1])
assert read("j") == "job"

# A call that was refused, and parallel ones.
n = len(states())
assert s.call("rattan_edit", ok=False, path="a", old_string="nowhere", new_string="y").startswith("error: ")
assert len(states()) == n
s.close()

# Uncommitted is what was not committed, also when states hold it: the end discards.
s2 = Server()
assert read("a", s2) == "three" and read("j", s2) == "none", "the end of the session went back to the commit"
fsck = subprocess.run([os.environ["RATTAN"], "fsck"], capture_output=True, text=True)
assert fsck.returncode == 0, fsck.stdout + fsck.stderr
s2.close()

# Those that are too many, or too old, go; what others stand on goes into them, and the rest looks as before.
s4 = Server("serve", "--env", "many")
s4.call("rattan_write_file", path="base", content="base\n")
s4.call("env_commit", message="first")
for i in range(12):
    s4.call("shell_run", command=f"seq {i * 30000} {i * 30000 + 20000} > big; echo {i} > f{i}; ln -f f{i} l{i}; rm -f f{i - 3}; truncate -s {100 - i} cut; mkdir -p d/{i}")
before = states(s4)
assert len(before) == 13, before
listing = "find . -type f -printf '%p %n %s ' -exec md5sum {} \\; | sort; find . -type d | sort"
seen = [s4.call("shell_run", command=listing).split("\n", 1)[1]]
gc = [os.environ["RATTAN"], "gc", "--keep-states", "3"]
out = subprocess.run(gc, capture_output=True, text=True)
assert out.returncode == 0, out
left = states(s4)
assert [x[0] for x in left] == [x[0] for x in before[:3]], left
assert s4.call("shell_run", command=listing).split("\n", 1)[1] == seen[0]
out = subprocess.run(gc, capture_output=True, text=True)
assert re.search(r"removed \d+ trees", out.stdout), out
assert s4.call("env_rollback", ok=False, rev=before[5][0]).startswith("error: "), "it is no state any more"
s4.call("env_rollback", rev=left[2][0])
assert read("f9", s4) == "9" and read("f10", s4) == "none" and read("f6", s4) == "none" and read("l0", s4) == "0"
fsck = subprocess.run([os.environ["RATTAN"], "fsck"], capture_output=True, text=True)
assert fsck.returncode == 0, fsck.stdout + fsck.stderr
s4.call("env_rollback", rev=left[0][0])
assert s4.call("shell_run", command=listing).split("\n", 1)[1] == seen[0]
assert "A /workspace/f11" in s4.call("env_diff") and "M /workspace/base" not in s4.call("env_diff")
s4.call("env_commit", message="second")
fsck = subprocess.run([os.environ["RATTAN"], "fsck"], capture_output=True, text=True)
assert fsck.returncode == 0, fsck.stdout + fsck.stderr
s4.close()

s3 = Server("serve", "--no-checkpoints")
n = len(states(s3))
s3.call("rattan_write_file", path="b", content="b\n")
s3.call("shell_run", command="echo c > c")
assert len(states(s3)) == n, "switched off"
t = s3.call("env_reset")
assert 'env_rollback rev="' in t, t
s3.close()
print("ok")
