"""Inodes, links, attributes, times."""
import ctypes
import errno
import os
import stat
import struct
import subprocess

from lesson import call, check, ended, fails, forked, get, lesson, names, put, same, tree


@lesson(lambda: put("f", b"a" * 300000))
def inode_stays_and_old_readers_see():
    fd = os.open("f", os.O_RDONLY)
    first = os.fstat(fd)
    with open("f", "r+b") as f:
        f.write(b"b")
    same(os.pread(fd, 2, 0), b"ba", "who had it open sees the change")
    with open("f", "ab") as f:
        f.write(b"end")
    same(os.pread(fd, 9, 299999), b"aend", "and what was appended")
    for step in (lambda: os.chmod("f", 0o600), lambda: os.link("f", "g"), lambda: os.rename("f", "h"),
                 lambda: os.truncate("h", 5)):
        step()
        for st in (os.fstat(fd), os.stat("h" if os.path.exists("h") else "f")):
            same((st.st_dev, st.st_ino), (first.st_dev, first.st_ino), "device and inode")
    os.close(fd)


def hard_below():
    put("a", b"x" * 200000)
    os.link("a", "b")


@lesson(hard_below)
def hard_links():
    same((os.stat("a").st_nlink, os.stat("a").st_ino), (2, os.stat("b").st_ino), "from below")
    os.link("b", "c")
    same(os.stat("a").st_nlink, 3, "one more")
    with open("a", "r+b") as f:
        f.write(b"new")
        f.flush()
        os.fchmod(f.fileno(), 0o640)
        same((get("c")[:4], os.stat("b").st_mode & 0o777), (b"newx", 0o640), "through another name")
    os.rename("a", "b")
    same(names(), ["a", "b", "c"], "renaming one to another does nothing")
    os.unlink("a")
    os.unlink("c")
    same((os.stat("b").st_nlink, get("b")[:4]), (1, b"newx"), "the last name")


@lesson(tree("f"))
def links_from_many_processes():
    def work(k):
        for i in range(100):
            os.link("f", f"l{k}")
            if os.stat(f"l{k}").st_nlink < 2:
                return 2
            os.unlink(f"l{k}")
    same(ended(*[forked(work, k) for k in range(4)]), [0] * 4, "each finds it")
    same((os.stat("f").st_nlink, names()), (1, ["f"]), "in the end")


def closed_below():
    put("f", "ro", 0o444)
    put("none", "x", 0o400)
    os.chmod("none", 0)
    os.mkdir("d", 0o755)
    put("d/in", "x", 0o444)
    os.chmod("d", 0o755)


@lesson(closed_below)
def modes_without_write():
    fd = os.open("obj", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o444)
    os.write(fd, b"object")
    os.close(fd)
    same(get("obj"), b"object", "written through the descriptor that made it")
    os.chmod("none", 0o644)
    put("none", "open")
    os.rename("f", "g")
    os.unlink("g")
    os.unlink("d/in")
    os.rmdir("d")
    same(names(), ["none", "obj"], "all can be removed")


def times_below():
    for i, t in enumerate((-10**9 * 86400, 0, 123456789, 2**31 * 10**9 + 1, 2**32 * 10**9 + 999999999)):
        put(f"t{i}")
        os.utime(f"t{i}", ns=(t, t))
    os.mkdir("dir")
    put("dir/f")
    os.utime("dir", ns=(10**18 + 3, 10**18 + 5))


@lesson(times_below)
def times():
    for i, t in enumerate((-10**9 * 86400, 0, 123456789, 2**31 * 10**9 + 1, 2**32 * 10**9 + 999999999)):
        same(os.stat(f"t{i}").st_mtime_ns, t, "kept to the nanosecond")
        os.chmod(f"t{i}", 0o600)
        same(os.stat(f"t{i}").st_mtime_ns, t, "also over a chmod")
    subprocess.check_call(["touch", "-m", "-d", "@77.5", "t1"])
    same((os.stat("t1").st_atime_ns, os.stat("t1").st_mtime_ns), (0, 77500000000), "one of the two alone")
    before = os.stat("dir").st_mtime_ns
    put("dir/f", "changed")
    os.chmod("dir/f", 0o600)
    os.setxattr("dir/f", "user.k", b"v")
    os.chmod("dir", 0o700)
    same((before, os.stat("dir").st_mtime_ns), (10**18 + 5,) * 2, "a directory's stays while its entries do")
    for step in (lambda: put("dir/g"), lambda: os.rename("dir/g", "dir/h"), lambda: os.unlink("dir/h")):
        os.utime("dir", ns=(1, 1))
        step()
        check(os.stat("dir").st_mtime_ns > 10**18, "and moves when one comes, goes or is renamed")
    fd = os.open("t2", os.O_WRONLY)
    os.write(fd, b"data")
    os.utime("t2", ns=(9, 12345678901))
    os.fsync(fd)
    os.close(fd)
    os.sync()
    same(os.stat("t2").st_mtime_ns, 12345678901, "one that is set before the close stays")


def attributes_below():
    put("f")
    os.mkdir("d")
    for p in ("f", "d"):
        os.setxattr(p, "user.one", b"1")
        os.setxattr(p, "user.big", b"b" * 3000)


@lesson(attributes_below)
def user_attributes():
    for p in ("f", "d"):
        same((sorted(os.listxattr(p)), os.getxattr(p, "user.big")), (["user.big", "user.one"], b"b" * 3000), p)
        os.chmod(p, 0o700)
        os.setxattr(p, "user.two", b"")
        os.removexattr(p, "user.one")
        same(sorted(os.listxattr(p)), ["user.big", "user.two"], "changed")
        fails(errno.ENODATA, os.getxattr, p, "user.one")
        fails(errno.EEXIST, os.setxattr, p, "user.two", b"", os.XATTR_CREATE)
        fails(errno.ENODATA, os.setxattr, p, "user.none", b"", os.XATTR_REPLACE)


def group_below():
    os.mkdir("d")
    os.chmod("d", 0o2775)


@lesson(group_below)
def directories_that_give_their_group():
    put("d/f")
    os.mkdir("d/sub")
    same((os.stat("d/f").st_gid, bool(os.stat("d/sub").st_mode & stat.S_ISGID)), (os.stat("d").st_gid, True), "handed on")
    os.chmod("d", 0o2700)
    os.chown("d", -1, os.stat("d").st_gid)
    check(os.stat("d").st_mode & stat.S_ISGID, "kept over chmod and chown")


@lesson(tree("d/"))
def default_access_lists():
    def acl(user, group, mask, rest):
        return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", t, p, 0xffffffff) for t, p in
                                               ((1, user), (4, group), (0x10, mask), (0x20, rest)))
    os.setxattr("d", "system.posix_acl_default", acl(7, 7, 6, 0))
    old = os.umask(0o077)
    put("d/f", "x", 0o666)
    os.mkdir("d/sub", 0o777)
    os.umask(old)
    same(os.stat("d/f").st_mode & 0o777, 0o660, "the list in place of the umask")
    same(os.getxattr("d/sub", "system.posix_acl_default"), acl(7, 7, 6, 0), "handed on")


@lesson(tree("f"))
def file_handles():
    def handle(path):
        buf = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
        mount = ctypes.c_int()
        call("name_to_handle_at", -100, path.encode(), buf, ctypes.byref(mount), 0)
        size, kind = struct.unpack_from("Ii", buf)
        return kind, buf.raw[8:8 + size]
    first = handle("f")
    put("f", "changed")
    os.rename("f", "g")
    same(handle("g"), first, "stays over a write and a rename")
