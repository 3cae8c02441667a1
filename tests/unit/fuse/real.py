#!/usr/bin/python3
"""Real files on a real mount over a real store: every kind of request once, and what a commit must keep. Prints TAP.

    tests/unit/fuse/real.py OVLRUN          runs itself in mounts
    tests/unit/fuse/real.py --in write|read in one, with the mount as cwd
"""
import errno
import mmap
import os
import shutil
import stat
import subprocess
import sys
import tempfile

n = failed = 0


def ok(good, what):
    global n, failed
    n += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {n} - {what}", flush=True)


def fails(code, fn, *args, **kw):
    try:
        fn(*args, **kw)
    except OSError as e:
        return e.errno == code
    return False


def put(path, data, flags=os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode=0o644):
    fd = os.open(path, flags, mode)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)


def get(path):
    with open(path, "rb") as f:
        return f.read()


def names():
    put("f", b"0123456789")
    put("f", b"abc")
    ok(get("f") == b"abc", "O_TRUNC truncates")
    ok(fails(errno.EEXIST, os.open, "f", os.O_CREAT | os.O_EXCL), "O_EXCL")
    ok(fails(errno.ENAMETOOLONG, os.stat, "x" * 256), "a name of 256 bytes")
    put("x" * 255, b"long")
    os.mkdir("d")
    os.link("f", "d/g")
    ok(os.stat("f").st_nlink == 2 and os.stat("f").st_ino == os.stat("d/g").st_ino, "hard link")
    os.rename("f", "d/h")
    ok(sorted(os.listdir("d")) == ["g", "h"], "rename")
    os.symlink("d/g", "s")
    ok(os.readlink("s") == "d/g" and get("s") == b"abc", "symlink")
    ok(fails(errno.ENOTEMPTY, os.rmdir, "d"), "rmdir of what is not empty")
    os.mkfifo("fifo", 0o600)
    fd = os.open("d", os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    os.umask(0o027)
    put("masked", b"", mode=0o666)
    os.umask(0o022)
    ok(os.stat("masked").st_mode & 0o777 == 0o640, "umask")
    for i in range(3000):
        put(f"d/n{i}", b"")
    ok(len(os.listdir("d")) == 3002, "a directory of thousands")
    for i in range(3000):
        os.unlink(f"d/n{i}")
    ok(len(os.listdir("d")) == 2, "emptied")


def content():
    big = os.urandom(300_000)
    put("big", big)
    ok(get("big") == big, "300 kB")
    fd = os.open("hole", os.O_CREAT | os.O_RDWR)
    os.pwrite(fd, b"end", 5 << 30)
    ok(os.fstat(fd).st_size == (5 << 30) + 3 and os.fstat(fd).st_blocks < 1024, "a hole of 5 GiB")
    ok(0 < os.lseek(fd, 0, os.SEEK_DATA) <= 5 << 30, "SEEK_DATA")
    os.fsync(fd)
    os.close(fd)
    with open("big", "rb") as a, open("copy", "wb") as b:
        ok(os.copy_file_range(a.fileno(), b.fileno(), len(big)) == len(big), "copy_file_range")
    ok(get("copy") == big, "copies")
    with open("big", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[1000:1003] = b"map"
    ok(get("big")[1000:1003] == b"map", "a shared mapping is seen by read")
    fd = os.open("gone", os.O_CREAT | os.O_RDWR)
    os.unlink("gone")
    os.write(fd, b"still")
    ok(os.pread(fd, 9, 0) == b"still" and os.fstat(fd).st_nlink == 0, "open but unlinked")
    os.close(fd)
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR)
        os.write(fd, b"tmp")
        here = os.open(".", os.O_RDONLY)
        os.link(f"/proc/self/fd/{fd}", "linked", src_dir_fd=here)  # without it Python does not follow
        os.close(here)
        os.close(fd)
        ok(get("linked") == b"tmp", "O_TMPFILE gets a name")
    except OSError as e:
        ok(e.errno == errno.EOPNOTSUPP, f"O_TMPFILE: {e}")


def attributes():
    put("t", b"x")
    os.utime("t", ns=(1_000_000_001, -5))
    ok((os.stat("t").st_atime_ns, os.stat("t").st_mtime_ns) == (1_000_000_001, -5), "times before 1970 to the nanosecond")
    os.setxattr("t", "user.k", b"v" * 5000)
    ok(os.getxattr("t", "user.k") == b"v" * 5000 and os.listxattr("t") == ["user.k"], "xattr")
    os.removexattr("t", "user.k")
    ok(fails(errno.ENODATA, os.getxattr, "t", "user.k"), "removed xattr")
    os.chmod("t", 0o4711)
    put("t", b"y", os.O_WRONLY)
    ok(os.stat("t").st_mode & 0o7777 == 0o711, "a write drops the set-id bit")
    os.chown("t", os.getuid(), os.getgid())
    ok(os.stat("t").st_uid == os.getuid(), "owner")
    ok(os.statvfs(".").f_namemax == 255, "statfs")


def racing():
    """Names of one file come and go while others look at it: the count of links that the kernel keeps stays right."""
    put("hub", b"hub")
    os.mkdir("spokes")

    def worker(k):
        for i in range(100):
            a = f"spokes/{k}-{i % 5}"
            os.link("hub", a)
            if os.stat(a).st_nlink < 2 or get(a) != b"hub":
                return 1
            os.unlink(a)
        return 0

    def looker(_):
        return 0 if all(os.stat("hub").st_nlink >= 1 for _ in range(600)) else 1

    good = True
    for _ in range(6):
        pids = []
        for fn, k in [(worker, 0), (looker, 1), (worker, 2), (looker, 3)]:
            pid = os.fork()
            if not pid:
                try:
                    os._exit(fn(k))
                except OSError as e:
                    print(f"# {e}", flush=True)
                    os._exit(1)
            pids.append(pid)
        good = all([os.waitpid(p, 0)[1] == 0 for p in pids]) and good
    ok(good, "a file whose names come and go is never missing")
    ok(os.stat("hub").st_nlink == 1, "and has one link in the end")
    os.unlink("hub")
    os.rmdir("spokes")


def overlay(dir):
    """Mounts a kernel's overlay over directories in @dir, as the root of this user namespace may. Was it mounted?"""
    for d in ("low/d", "up", "work", "all"):
        os.makedirs(f"{dir}/{d}")
    put(f"{dir}/low/a", b"low")
    put(f"{dir}/low/d/b", b"low")
    options = f"lowerdir={dir}/low,upperdir={dir}/up,workdir={dir}/work,userxattr"
    return subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", f"{dir}/all"]).returncode == 0


def under_an_overlay():
    """The changed side of a kernel's overlay may lie here, for which it needs renames that leave a whiteout."""
    with tempfile.TemporaryDirectory() as other:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", other], check=True)
        can = overlay(other)
        subprocess.run(["umount", "-R", other], check=True)
    if not can:
        ok(True, "no overlay # SKIP this user cannot mount one over a tmpfs either")
        return
    ok(overlay("o"), "an overlay over the mount")
    os.rename("o/all/a", "o/all/d/c")
    os.unlink("o/all/d/b")
    ok(os.listdir("o/all") == ["d"] and os.listdir("o/all/d") == ["c"], "shows what was moved and removed in it")
    subprocess.run(["umount", "o/all"], check=True)
    st = [os.stat(p) for p in ("o/up/a", "o/up/d/b")]
    ok(all(stat.S_ISCHR(s.st_mode) and s.st_rdev == 0 for s in st), "by whiteouts")
    ok(get("o/up/d/c") == b"low" and get("o/low/a") == b"low", "above what lies below")
    shutil.rmtree("o")


def write():
    names()
    content()
    attributes()
    racing()
    under_an_overlay()


def read():
    ok(sorted(os.listdir(".")) == sorted(["x" * 255, "d", "s", "fifo", "masked", "big", "hole", "copy", "linked", "t"]),
       "the names are there after the commit")
    ok(get("d/g") == b"abc" and os.stat("d/h").st_nlink == 2, "a linked file")
    ok(get("big")[1000:1003] == b"map" and get("copy")[:1000] == get("big")[:1000], "contents")
    ok(os.stat("hole").st_size == (5 << 30) + 3, "the hole")
    ok(os.stat("t").st_mtime_ns > 0 and os.stat("t").st_mode & 0o7777 == 0o711, "attributes")
    put("big", b"new", os.O_WRONLY)
    ok(get("big")[:3] == b"new" and get("copy")[:3] != b"new", "a copy stays what it was")


def main(ovlrun):
    dir = tempfile.mkdtemp(prefix="rattan-test-")
    try:
        for phase in ("write", "read"):
            r = subprocess.run([ovlrun, "-c", dir + "/store", sys.executable, os.path.abspath(__file__), "--in", phase],
                               stdout=subprocess.PIPE, text=True)
            if r.returncode == 77:
                print("1..0 # SKIP this host refuses the mount")
                return 0
            for line in r.stdout.splitlines():
                ok(line.startswith("ok"), f"{phase}: {line}")
            ok(r.returncode == 0, f"{phase}: status {r.returncode}")
    finally:
        shutil.rmtree(dir, ignore_errors=True)
    print(f"1..{n}")
    return 1 if failed else 0


if sys.argv[1] == "--in":
    {"write": write, "read": read}[sys.argv[2]]()
    sys.exit(1 if failed else 0)
sys.exit(main(sys.argv[1]))
