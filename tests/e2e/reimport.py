#!/usr/bin/python3
# rattan import dir of a directory that was imported before: files that did not change since are not read, and what the second base holds is what
# the directory has, whatever was done to it in between: the same tree as when everything is read.
# timeout: 300
import json
import mmap
import os
import shutil
import subprocess
import sys
import time

from lib import check, done, here, rattan

os.environ["RATTAN_DATA_DIR"] = f"{here}/store"
FS = subprocess.run(["stat", "-f", "-c", "%T", here], capture_output=True, text=True).stdout.strip()
if FS not in ("ext2/ext3", "xfs", "btrfs", "f2fs"):
    print(f"no list of files is kept for {FS}")
    sys.exit(77)


def rt(*args, code=0):
    r = subprocess.run([rattan, *args], capture_output=True, text=True)
    check(r.returncode == code, f"{args} -> {code}", f"{r.returncode}: {r.stdout}{r.stderr}")
    return r.stdout


def imported(name, src, *more):
    return json.loads(rt("import", "dir", src, name, "--json", "--replace", *more))


def aged(path):
    """Everything below it is older than what may have been changed while it was read."""
    newest = max(os.lstat(os.path.join(d, n)).st_ctime for d, ds, fs in os.walk(path) for n in [".", *ds, *fs])
    while time.time() < newest + 1.2:
        time.sleep(0.05)


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


# ---- a tree: files of several sizes, in directories whose names sort before and behind a slash ----

os.makedirs("t/a/b")
for d in "a", "a/b", "a-b", "a.b", "a0", "":
    os.makedirs(f"t/{d}", exist_ok=True)
    for name, n in ("little", 100), ("f-", 5000), ("f", 4096), ("f.x", 131072), ("f0", 400_000):
        put(f"t/{d}/{name}", os.urandom(n))
with open("t/hole", "wb") as f:
    f.write(b"begin" * 1000)
    f.seek(3 << 20)
    f.write(b"end" * 1000)
    f.truncate(5 << 20)
os.link("t/a/f0", "t/a0/again")
put("t/mapped", bytes(100_000))
os.chmod("t/a/f.x", 0o4711)
os.setxattr("t/a/f.x", "user.one", b"1")
LARGE = 6 * 4 + 2

# a page of it is dirty already, so that a store to it is nothing that the file system sees
fd = os.open("t/mapped", os.O_RDWR)
held = mmap.mmap(fd, 100_000)
held[0] = 1
aged("t")
first = imported("one", "t")
check(first["unread"] == 0, "the first import reads all", first)
again = imported("two", "t")
check(again["unread"] == LARGE, "the second reads none of the larger files", again)
check(again["id"] == first["id"] and again["bytes"] == first["bytes"] and again["entries"] == first["entries"], "and is the same", (first, again))
r = imported("two", "t", "--reread")
check(r["unread"] == 0 and r["id"] == first["id"], "--reread reads them", r)
check(f"; {LARGE} files are as the last import read them" in rt("import", "dir", "t", "two", "--replace"), "it is told")
check(imported("two", "./t/../t/.")["unread"] == LARGE, "the directory is what counts, not how it is written")
shutil.copytree("t", "copy")
aged("copy")
check(imported("three", "copy")["unread"] == 0, "another directory is read")

# ---- what changes ----

held[1] = 2
r = imported("two", "t")
check(r["unread"] == LARGE - 1 and r["id"] != first["id"], "a store through a mapping that was there is seen", r)
held.close()
os.close(fd)


def after(what, change, unread):
    """The base after @change is what an import that reads everything gives, and @unread files were not read for it."""
    aged("t")
    imported("two", "t", "--reread")
    change()
    r = imported("two", "t")
    whole = imported("three", "t", "--reread")
    check(r["id"] == whole["id"] and r["bytes"] == whole["bytes"], f"{what}: the tree is what it is", (r, whole))
    check(r["unread"] == unread, f"{what}: {unread} files are not read", r)


def same_times():
    st = os.stat("t/a/f0")
    with open("t/a/f0", "r+b") as f:
        f.write(b"other bytes")
    os.utime("t/a/f0", ns=(st.st_atime_ns, st.st_mtime_ns))


def turned():
    """Names change places, with the directories that they are in: the files themselves are what they were."""
    os.rename("t/a", "t/x")
    os.rename("t/a.b", "t/a")
    os.rename("t/x", "t/a.b")


def copied_back():
    shutil.copy2("t/f0", "t/new")
    os.replace("t/new", "t/f0")


after("nothing", lambda: None, LARGE)
after("bytes changed and the time put back", same_times, LARGE - 1)
after("directories that change places", turned, LARGE - 12)
after("a file in the stead of another, of the same bytes and time", copied_back, LARGE - 1)
after("a file becomes longer by a hole", lambda: os.truncate("t/a0/f0", 1 << 20), LARGE - 1)
after("a mode", lambda: os.chmod("t/a0/f.x", 0o600), LARGE - 1)
after("a name more, a name less", lambda: (os.unlink("t/a0/f"), put("t/a0/e", os.urandom(9000))), LARGE - 1)
after("a file becomes a directory", lambda: (os.unlink("t/a-b/f0"), os.mkdir("t/a-b/f0"), put("t/a-b/f0/f0", b"x" * 400_000)), LARGE - 1)

# ---- a base that is gone, or means something else ----

aged("t")
for n in "one", "two", "three":
    rt("base", "rm", n)
rt("gc", "--removed")
check(imported("one", "t")["unread"] == 0, "of a base that was removed nothing is taken")
n = imported("two", "t")["unread"]
check(n == LARGE, "then again", n)
rt("import", "dir", "copy", "one", "--replace")
rt("import", "dir", "copy", "two", "--replace")
check(imported("three", "t")["unread"] == 0, "of a name that is another's now nothing is taken")
rt("import", "tar", "x.tar", "x", "--reread", code=2)
rt("fsck")
done()
