#!/usr/bin/python3
# Taking a state leaves what the kernel caches of files alone, while nothing is mapped; and what a mapping dirtied is in the
# state, whether it is mapped still or has just gone with its process.
# timeout: 240
import os
import subprocess
import sys

from lib import LONG, check, done, here, rattan

sys.path.insert(0, os.path.join(os.environ["RATTAN_SRC"], "tests/mcp"))
from rawclient import Server  # noqa: E402

MIB = 1 << 20
# The kernel from which the end of a mapping waits for what it wrote; before, each state pushes.
WAITS = tuple(int(x) for x in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 16)
MAPPED = """
import mmap, os, sys, time
fd = os.open("m", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 300000)
m = mmap.mmap(fd, 300000)
os.close(fd)
m[:] = sys.argv[1].encode() * 300000
if len(sys.argv) > 2:
    open("ready", "w").close()
    time.sleep(600)
"""


def cached(s, path):
    """Bytes of it that are in the page cache."""
    return int(s.call("shell_run", command=f"fincore -nbo RES {path}").split("\n", 1)[1])


def committed(s, what):
    """The file of the last commit is this letter all over, and nothing came after the commit."""
    view = f"{here}/view"
    os.makedirs(view, exist_ok=True)
    subprocess.run([rattan, "mount", "-e", "w", "head", view], check=True, stdout=subprocess.DEVNULL)
    try:
        with open(f"{view}/workspace/m", "rb") as f:
            return f.read() == what.encode() * 300000
    finally:
        subprocess.run([rattan, "umount", view], check=True, stdout=subprocess.DEVNULL)


s = Server("--keep", "--env", "w", rattan=rattan)
s.call("shell_run", command=f"head -c {MIB} /dev/urandom > f")
if WAITS:
    check(cached(s, "f") == MIB, "what a call wrote is cached in the next", cached(s, "f"))
s.call("env_commit", message="one")
s.call("shell_run", command="cat f > /dev/null; echo > other")
s.call("env_commit", message="two")
if WAITS:
    check(cached(s, "f") == MIB, "and after a commit", cached(s, "f"))

s.call("rattan_write_file", path="/workspace/map.py", content=MAPPED)
for i in range(40 if LONG else 8):
    letter = chr(97 + i % 26)
    s.call("shell_run", command=f"python3 map.py {letter}")
    s.call("env_commit", message=letter)
    check("clean" in s.call("env_status"), f"{letter}: nothing comes after the commit")
    check(committed(s, letter), f"{letter}: what a mapping held that has gone is in the commit")

s.call("shell_job_start", command="python3 map.py Z stay")
while "ready" not in s.call("shell_run", command="ls"):
    pass
s.call("env_commit", message="mapped")
check(committed(s, "Z"), "what a mapping holds is in the commit")
check(s.close() == 0, "the end of the server")
done()
