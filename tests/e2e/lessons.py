#!/usr/bin/python3
"""What programs rely on, a lesson each: on a tree that is open, on one that was committed, in a fork of it, and over a host directory.

    lessons.py                      as a test: makes the environments and runs itself in them
    lessons.py prepare|run DIR      in one: the content that the lessons start from, and the lessons
"""
# timeout: 400
import collections
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time

BLOCK = 1 << 17
libc = ctypes.CDLL(None, use_errno=True)
LESSONS = []  # (name, prepare, run)
failed = []


def lesson(prepare=None):
    """@prepare makes what the lesson starts from, in a directory of its own."""
    def add(run):
        LESSONS.append((run.__name__, prepare, run))
        return run
    return add


def check(cond, what):
    if not cond:
        raise AssertionError(what)


def same(got, want, what):
    check(got == want, f"{what}: {str(got)[:200]}, not {str(want)[:200]}")


def fails(code, fn, *args, **kw):
    try:
        fn(*args, **kw)
    except OSError as e:
        same(errno.errorcode.get(e.errno), errno.errorcode[code], f"{fn.__name__}{args}")
        return
    raise AssertionError(f"{fn.__name__}{args} succeeded")


def put(path, data=b"x", mode=0o644):
    if isinstance(data, str):
        data = data.encode()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.write(fd, data)
    os.close(fd)


def get(path):
    with open(path, "rb", buffering=0) as f:
        return b"".join(iter(lambda: f.read(1 << 20), b""))


def call(name, *args):
    r = getattr(libc, name)(*args)
    if r < 0:
        raise OSError(ctypes.get_errno(), name)
    return r


def tree(*paths):
    def make():
        for p in paths:
            os.makedirs(os.path.dirname(p) or ".", exist_ok=True)
            if not p.endswith("/"):
                put(p, p)
    return make


def names(d="."):
    return sorted(os.listdir(d))


def forked(fn, *args):
    """fn in a process of its own; its exit code."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = fn(*args) or 0
        finally:
            os._exit(code)
    return pid


def ended(*pids):
    return [os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids]


# ---- directories and names of what is below ----

@lesson(tree("a/x", "a/sub/y", "to/"))
def directory_moves_whole():
    os.rename("a", "b")
    same((names("b"), get("b/sub/y"), os.path.exists("a")), (["sub", "x"], b"a/sub/y", False), "renamed")
    os.rename("b", "to/a")
    same(get("to/a/x"), b"a/x", "and moved")
    put("to/a/x", "new")
    os.rename("to/a", "again")
    same((get("again/x"), get("again/sub/y")), (b"new", b"a/sub/y"), "a changed file and the others")


@lesson(tree("d/old1", "d/sub/old2", "e/kept"))
def directory_made_again_is_empty():
    shutil.rmtree("d")
    os.mkdir("d")
    same(names("d"), [], "listed")
    fails(errno.ENOENT, os.stat, "d/old1")
    fails(errno.ENOENT, os.stat, "d/sub")
    put("d/old1", "again")
    same((get("d/old1"), names("d")), (b"again", ["old1"]), "a name that was there")
    shutil.rmtree("d")
    os.mkdir("new")
    put("new/mine")
    os.rename("new", "d")
    same((names("d"), os.path.exists("new")), (["mine"], False), "another directory in its place")
    os.rename("e", "d2")
    fails(errno.ENOENT, os.stat, "e/kept")


@lesson(tree("changed", "replaced", "linked", "moved", "d/one", "d/two"))
def what_is_removed_stays_removed():
    put("changed", "c")
    put("tmp", "r")
    os.rename("tmp", "replaced")
    os.link("linked", "link")
    os.unlink("link")
    os.rename("moved", "moved2")
    for n in ("changed", "replaced", "linked", "moved2"):
        os.unlink(n)
    os.sync()
    same(names(), ["d"], "what is left")
    for n in ("changed", "replaced", "linked", "moved", "moved2"):
        fails(errno.ENOENT, os.stat, n)
    put("d/two", "2")
    put("d/three")
    shutil.rmtree("d")
    fails(errno.ENOENT, os.stat, "d")


@lesson(tree("a/.wh.old", "a/x", "b/x"))
def no_name_is_special():
    for n in (".wh.x", ".wh..wh..opq", ".wh.", "..wh"):
        put(f"a/{n}", n)
    os.unlink("a/x")
    same(get("b/x"), b"b/x", "the same name elsewhere")
    same(names("a"), sorted([".wh.old", ".wh.x", ".wh..wh..opq", ".wh.", "..wh"]), "all listed")
    for n in (b"\xff\xfe latin", "e\u0301".encode(), "\u00e9".encode(), b"a\nb\x01\x7f", b"Case", b"case", b"\\"):
        put(b"b/" + n, n)
    for n in os.listdir(b"b"):
        same(get(b"b/" + n), b"b/x" if n == b"x" else n, "each kept apart")
    same(len(os.listdir(b"b")), 8, "and none lost")


@lesson(lambda: put("l" * 255, "long"))
def names_of_255_bytes():
    same(get("l" * 255), b"long", "from below")
    put("m" * 255, "new")
    os.rename("m" * 255, "l" * 255)
    same(get("l" * 255), b"new", "renamed over")
    fails(errno.ENAMETOOLONG, put, "n" * 256)
    os.symlink("t" * 4000, "link")
    same(len(os.readlink("link")), 4000, "a long target")


@lesson(tree("one/f", "two/g", "file"))
def exchange():
    def swap(a, b):
        call("renameat2", -100, a.encode(), -100, b.encode(), 2)
    swap("one", "two")
    same((names("one"), names("two")), (["g"], ["f"]), "directories")
    put("new", "n")
    swap("new", "file")
    same((get("new"), get("file")), (b"file", b"n"), "old and new")
    swap("file", "one")
    check(os.path.isdir("file") and get("one") == b"n", "a file and a directory")
    fails(errno.ENOENT, swap, "file", "none")


@lesson(lambda: put("f", b"0" * 3000))
def replaced_under_readers():
    stop, bad = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                data = get("f")
            except OSError as e:
                bad.append(e)
                continue
            if len(data) != 3000 or len(set(data)) != 1:
                bad.append(data[:20])
    t = [threading.Thread(target=read) for _ in range(3)]
    for x in t:
        x.start()
    for i in range(300):
        put("f.new", bytes([i % 250]) * 3000)
        os.rename("f.new", "f")
    stop.set()
    for x in t:
        x.join()
    same(bad[:3], [], "readers by name")


@lesson(tree("target"))
def lock_files():
    for i in range(200):
        fd = os.open("target.lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        fails(errno.EEXIST, os.open, "target.lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(fd, str(i).encode())
        os.close(fd)
        os.rename("target.lock", "target")
    same(get("target"), b"199", "the last one")


def links_below():
    put("file", "kept")
    os.symlink("file", "link")
    os.symlink("none", "dangling")
    os.utime("link", ns=(10**18, 10**18 + 7), follow_symlinks=False)


@lesson(links_below)
def symbolic_links():
    before = os.stat("file").st_mtime_ns
    same(os.lstat("link").st_mtime_ns, 10**18 + 7, "its own time")
    os.utime("link", ns=(5, 5), follow_symlinks=False)
    os.rename("link", "moved")
    os.rename("dangling", "link")
    same((os.readlink("moved"), os.readlink("link")), ("file", "none"), "targets")
    same((get("moved"), os.stat("file").st_mtime_ns), (b"kept", before), "the file is left alone")
    for i in range(40):
        os.symlink("file" if i == 0 else f"chain{i - 1}", f"chain{i}")
    same(get("chain39"), b"kept", "40 links")
    os.symlink("chain39", "chain40")
    fails(errno.ELOOP, os.stat, "chain40")
    put("real", "#!/bin/sh\necho ran $0\n", 0o755)
    os.symlink(os.path.abspath("real"), "prog")
    same(subprocess.check_output(["./prog"]), b"ran ./prog\n", "a script through an absolute link")


@lesson(tree("d/sub/f", "gone/f", "to/"))
def working_directory():
    top = os.getcwd()
    os.chdir("d/sub")
    os.rename(f"{top}/d", f"{top}/to/e")
    same((os.getcwd(), get("f"), names("..")), (f"{top}/to/e/sub", b"d/sub/f", ["sub"]), "moved away")
    os.chdir(f"{top}/gone")
    shutil.rmtree(f"{top}/gone")
    fails(errno.ENOENT, os.getcwd)
    fails(errno.ENOENT, put, "new")
    os.chdir(top)
    fails(errno.ENOENT, os.chdir, "gone")


def many_below():
    for i in range(1200):
        put(f"b{i}", str(i))


@lesson(many_below)
def big_directory():
    for i in range(1500):
        put(f"n{i}", str(i))
    for i in range(0, 1200, 2):
        os.unlink(f"b{i}")
    for i in range(1, 1200, 4):
        os.rename(f"b{i}", f"r{i}")
    want = {f"n{i}" for i in range(1500)} | {f"r{i}" for i in range(1, 1200, 4)} | {f"b{i}" for i in range(3, 1200, 4)}
    got = os.listdir(".")
    same((len(got), set(got) == want), (len(want), True), "each once")
    same((get("r401"), get("b403")), (b"401", b"403"), "and itself")


def kinds_below():
    put("file")
    os.link("file", "hard")
    os.mkdir("dir")
    os.symlink("file", "link")
    os.mkfifo("fifo")
    s = socket.socket(socket.AF_UNIX)
    s.bind("sock")
    s.close()


@lesson(kinds_below)
def listings_tell_the_truth():
    put("new")
    os.rename("fifo", "fifo2")
    os.rename("dir", "dir2")
    put("file", "changed")
    os.link("hard", "harder")
    seen = 0
    for e in os.scandir("."):
        st = os.lstat(e.name)
        same((e.inode(), e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False), e.is_symlink()),
             (st.st_ino, stat.S_ISDIR(st.st_mode), stat.S_ISREG(st.st_mode), stat.S_ISLNK(st.st_mode)), e.name)
        same(st.st_dev, os.stat(".").st_dev, f"one device: {e.name}")
        seen += 1
    same(seen, 8, "all of them")
    same(os.stat("dir2/..").st_ino, os.stat(".").st_ino, "..")


@lesson(kinds_below)
def fifos_and_sockets():
    os.chmod("fifo", 0o600)
    for path in ("fifo", "fifo.new"):
        if path != "fifo":
            os.mkfifo(path)
        check(stat.S_ISFIFO(os.stat(path).st_mode), f"{path} is one")
        pid = forked(lambda p=path: put(p, "through"))
        same((get(path), ended(pid)), (b"through", [0]), path)
    os.unlink("sock")
    s = socket.socket(socket.AF_UNIX)
    s.bind("sock")
    s.listen(1)
    os.chmod("sock", 0o700)
    c = socket.socket(socket.AF_UNIX)
    c.connect("sock")
    c.send(b"hello")
    same(s.accept()[0].recv(9), b"hello", "a socket in its place")


# ---- inodes, links, attributes ----

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


# ---- content ----

@lesson(lambda: put("f", b"a" * (2 * BLOCK)))
def direct_and_mapped():
    fd = os.open("f", os.O_RDWR)
    m = mmap.mmap(fd, 2 * BLOCK)
    private = mmap.mmap(fd, 2 * BLOCK, flags=mmap.MAP_PRIVATE)
    d = os.open("f", os.O_RDWR | os.O_DIRECT)
    buf = mmap.mmap(-1, 4096)
    os.preadv(d, [buf], BLOCK)
    same(buf[:], b"a" * 4096, "read past the cache")
    buf[:] = b"b" * 4096
    os.pwritev(d, [buf], BLOCK - 4096)
    same((m[BLOCK - 4096:BLOCK + 1], os.pread(fd, 1, BLOCK - 1)), (b"b" * 4096 + b"a", b"b"), "written past it")
    m[0:3] = b"map"
    same((os.pread(fd, 4, 0), get("f")[:4]), (b"mapa", b"mapa"), "stored through a mapping")
    os.pwrite(fd, b"wr", 10)
    same(m[10:12], b"wr", "written beside it")
    private[0:3] = b"own"
    same(get("f")[:3], b"map", "a private one is private")
    os.close(fd)
    m.close()
    same(get("f")[:4], b"mapa", "after the mapping")


def sparse_below():
    put("s", b"head")
    with open("s", "r+b") as f:
        f.seek(1 << 20)
        f.write(b"tail")


@lesson(sparse_below)
def holes_and_blocks():
    for path in ("s", "t"):
        if path == "t":
            sparse_copy()
        fd = os.open(path, os.O_RDWR)
        size = os.fstat(fd).st_size
        same(size, (1 << 20) + 4, "its size")
        same(os.lseek(fd, 0, os.SEEK_DATA), 0, "data at the start")
        check(4 <= os.lseek(fd, 0, os.SEEK_HOLE) <= 1 << 20, "then a hole")
        check(4 < os.lseek(fd, BLOCK * 2, os.SEEK_DATA) <= 1 << 20, "then data")
        fails(errno.ENXIO, os.lseek, fd, size, os.SEEK_DATA)
        check(0 < os.fstat(fd).st_blocks * 512 < size, "blocks say so")
        os.pwrite(fd, b"x", BLOCK * 3)
        same(os.lseek(fd, BLOCK * 3, os.SEEK_DATA), BLOCK * 3, "what was written just now is data")
        os.close(fd)
    put("full", b"f" * 100000)
    check(os.stat("full").st_blocks * 512 >= 100000, "a file without holes has its blocks")


def sparse_copy():
    subprocess.check_call(["cp", "--sparse=always", "s", "t"])
    with open("t", "r+b") as f:
        f.seek(BLOCK * 3)
        f.write(b"\0")
    subprocess.check_call(["cp", "--sparse=always", "t", "t2"])
    os.rename("t2", "t")


@lesson(lambda: put("src", bytes(range(256)) * 2000))
def copies_inside_the_kernel():
    want = get("src")
    src, dst = os.open("src", os.O_RDWR), os.open("dst", os.O_RDWR | os.O_CREAT)
    n = 0
    while got := os.copy_file_range(src, dst, 1 << 20, n, n):
        n += got
    same((n, get("dst")), (len(want), want), "copy_file_range, to the end")
    os.pwrite(src, b"fresh", 1000)
    os.copy_file_range(src, dst, 3000, 999, 5)
    same(get("dst")[5:12], want[999:1000] + b"fresh" + want[1005:1006], "of what was just written, in part")
    os.ftruncate(dst, 0)
    os.lseek(dst, 0, 0)
    os.lseek(src, 0, 0)
    n = 0
    while got := os.sendfile(dst, src, n, 1 << 20):
        n += got
    r, w = os.pipe()
    same((get("dst"), os.splice(src, w, 4096, 1000), os.read(r, 5)), (get("src"), 4096, b"fresh"), "sendfile and splice")


@lesson(lambda: put("f", b"long content " * 1000))
def shorter_content_leaves_no_tail():
    fd = os.open("f", os.O_RDONLY)
    m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    os.pread(fd, 13000, 0)
    put("f", "short")
    same((get("f"), os.pread(fd, 100, 0), os.stat("f").st_size), (b"short", b"short", 5), "for all readers")
    same(m[:6], b"short\0", "and mappings")
    os.truncate("f", 9)
    same(get("f"), b"short\0\0\0\0", "grown: zeros")


@lesson(lambda: put("log", "0 first line\n"))
def many_appenders():
    def work(k):
        fd = os.open("log", os.O_WRONLY | os.O_APPEND)
        for i in range(100):
            os.write(fd, f"{k} line {i} {'.' * (i % 50)}|\n".encode())
    same(ended(*[forked(work, k) for k in range(4)]), [0] * 4, "each ends")
    lines = get("log").decode().splitlines()
    per = collections.Counter(x[0] for x in lines)
    same((len(lines), [per[str(k)] for k in range(4)]), (401, [101, 100, 100, 100]), "none lost")
    check(all(x.endswith("|") for x in lines[1:]), "each whole")


@lesson()
def big_offsets():
    fd = os.open("big", os.O_RDWR | os.O_CREAT)
    for at in (2**31 - 2, 2**32 - 2, 2**33):
        os.pwrite(fd, b"edge", at)
    for at in (2**31 - 2, 2**32 - 2, 2**33):
        same(os.pread(fd, 6, at)[:4], b"edge", f"at {at}")
    same((os.fstat(fd).st_size, os.pread(fd, 2, 2**32 + 5)), (2**33 + 4, b"\0\0"), "size, and a hole between")
    os.ftruncate(fd, 2**32)
    same((os.pread(fd, 9, 2**32 - 2), os.fstat(fd).st_size), (b"ed", 2**32), "cut")
    os.close(fd)


@lesson(lambda: put("f", "content"))
def a_failed_grow_loses_nothing():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    fd = os.open("f", os.O_RDWR)
    for size in (2**63 - 1, 2**62):
        try:
            os.ftruncate(fd, size)
            os.ftruncate(fd, 7)
        except OSError as e:
            check(e.errno in (errno.EFBIG, errno.EINVAL), f"{size}: {e}")

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        fails(errno.EFBIG, os.ftruncate, fd, 5000)
        fails(errno.EFBIG, os.pwrite, fd, b"x", 4096)
    same((ended(forked(limited)), get("f")), ([0], b"content"), "as it was")


@lesson(tree("f", "d/"))
def every_way_to_sync():
    fd = os.open("f", os.O_RDWR)
    os.write(fd, b"data")
    os.fdatasync(fd)
    os.fsync(fd)
    call("sync_file_range", fd, ctypes.c_int64(0), ctypes.c_int64(0), 7)
    call("syncfs", fd)
    m = mmap.mmap(fd, 4)
    m[:] = b"DATA"
    m.flush()
    for p in (".", "d"):
        d = os.open(p, os.O_RDONLY)
        os.fsync(d)
        os.close(d)
    s = os.open("s", os.O_WRONLY | os.O_CREAT | os.O_SYNC)
    os.write(s, b"s")
    same((get("f"), get("s")), (b"DATA", b"s"), "written")


@lesson(tree("d/"))
def unnamed_files():
    for d in (".", "d"):
        fd = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o644)
        os.write(fd, b"unnamed")
        same((os.fstat(fd).st_nlink, names("d")), (0, []), "no name")
        os.link(f"/proc/self/fd/{fd}", "named", src_dir_fd=0, follow_symlinks=True)
        same((get("named"), os.fstat(fd).st_nlink), (b"unnamed", 1), "given one")
        os.unlink("named")
        same(os.pread(fd, 9, 0), b"unnamed", "and without it again")
        os.close(fd)


# ---- programs, locks, watchers, what is in use ----

@lesson(lambda: put("old", "#!/bin/sh\necho old\n", 0o755))
def run_what_was_just_written():
    same(subprocess.check_output("./old"), b"old\n", "from below")
    for i in range(20):
        shutil.copy("/bin/true", f"t{i}")
        same(subprocess.call(f"./t{i}"), 0, "copied")
    fd = os.open("t0", os.O_WRONLY)
    try:
        subprocess.call("./t0")
        check(False, "a program that is open for writing was run")
    except OSError as e:
        same(e.errno, errno.ETXTBSY, "open for writing")
    os.close(fd)
    shutil.copy("/bin/sleep", "sl")
    p = subprocess.Popen(["./sl", "60"])
    fails(errno.ETXTBSY, os.open, "sl", os.O_WRONLY)
    p.kill()
    p.wait()


@lesson(lambda: put("count", "0"))
def locks_exclude():
    def work(how):
        for _ in range(50):
            fd = os.open("count", os.O_RDWR)
            how(fd)
            n = int(os.pread(fd, 20, 0))
            os.pwrite(fd, str(n + 1).encode(), 0)
            os.close(fd)
    for i, how in enumerate((lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX), lambda fd: fcntl.flock(fd, fcntl.LOCK_EX),
                             lambda fd: fcntl.fcntl(fd, 38, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)))):
        same(ended(*[forked(work, how) for _ in range(4)]), [0] * 4, "no false error")
        same(int(get("count")), 200 * (i + 1), "none lost")


@lesson(lambda: put("f", "x" * 100))
def locks_end_with_their_owner():
    fd = os.open("f", os.O_RDWR)
    r, w = os.pipe()

    def hold():
        mine = os.open("f", os.O_RDWR)
        fcntl.lockf(mine, fcntl.LOCK_EX, 10, 0)
        os.write(w, b"!")
        time.sleep(60)
    pid = forked(hold)
    os.read(r, 1)
    fails(errno.EAGAIN, fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 20)
    kind, _, _, _, owner = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 5, 0)))
    same((kind, owner), (fcntl.F_WRLCK, pid), "who has it")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
    os.close(fd)


class Watch:
    def __init__(self, path, mask):
        self.fd = call("inotify_init1", os.O_NONBLOCK)
        call("inotify_add_watch", self.fd, path.encode(), mask)

    def got(self, mask, name=b""):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            if not select.select([self.fd], [], [], 0.2)[0]:
                continue
            data = os.read(self.fd, 65536)
            while data:
                _, m, _, n = struct.unpack_from("iIII", data)
                if m & mask and data[16:16 + n].rstrip(b"\0") == name:
                    return True
                data = data[16 + n:]
        return False


@lesson(tree("d/f", "d/g"))
def watchers():
    modify, moved_to, delete, create, delete_self = 2, 0x80, 0x200, 0x100, 0x400
    f, d = Watch("d/f", modify | delete_self), Watch("d", modify | moved_to | delete | create)

    def elsewhere(cmd):
        subprocess.check_call(["sh", "-c", cmd])
    for i in range(3):
        elsewhere(f"echo {i} > new; cp new d/f")
        check(f.got(modify) and d.got(modify, b"f"), "rewritten by another process")
    elsewhere("mv new d/f")
    check(f.got(delete_self) and d.got(moved_to, b"f"), "replaced by rename")
    elsewhere("rm d/g; touch d/h")
    check(d.got(delete, b"g"), "removed")
    elsewhere("touch d/i")
    check(d.got(create, b"i"), "made")


def library_below():
    put("one.c", "int version(void) { return 1; }\n")
    put("two.c", "int version(void) { return 2; }\n")
    for n in ("one", "two"):
        subprocess.check_call(["cc", "-shared", "-fPIC", "-o", f"{n}.so", f"{n}.c"])


@lesson(library_below if shutil.which("cc") else None)
def library_replaced_while_in_use():
    if not os.path.exists("one.so"):
        return
    here = os.getcwd()
    old = ctypes.CDLL(f"{here}/one.so")
    os.rename("two.so", "one.so")
    code = f"import ctypes; print(ctypes.CDLL('{here}/one.so').version())"
    same((old.version(), subprocess.check_output([sys.executable, "-c", code])), (1, b"2\n"), "old goes on, new is new")


def small_below():
    for i in range(600):
        put(f"f{i}", f"{i}".ljust(200))


@lesson(small_below)
def mappings_outlive_descriptors():
    maps = []
    for i in range(600):
        fd = os.open(f"f{i}", os.O_RDONLY)
        maps.append(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
        os.close(fd)
    for i in range(0, 600, 2):
        os.unlink(f"f{i}")
    same([i for i, m in enumerate(maps) if m[:].rstrip() != str(i).encode()], [], "all readable")


@lesson(small_below)
def churn():
    for i in range(300):
        put("t", "y")
        os.rename("t", "t2")
        os.unlink("t2")
        os.mkdir("d")
        os.rmdir("d")
        fails(errno.ENOENT, os.stat, f"none{i}")
        same(get(f"f{i}").rstrip(), str(i).encode(), "reads go on")
    same(len(os.listdir(".")), 600, "nothing is left over")


@lesson()
def free_space():
    v = os.statvfs(".")
    check(v.f_blocks > 0 and 0 < v.f_bavail <= v.f_blocks and v.f_bsize >= 512 and v.f_files > 0 and v.f_ffree > 0, str(v))
    same(v.f_namemax, 255, "longest name")


def built_below():
    put("Makefile", "all: b\nb: a\n\tcp a b\n\techo made >> log\na: src\n\tcp src a\n\techo a >> log\n")
    put("src", "1")
    subprocess.check_call(["make", "-s"])


@lesson(built_below if shutil.which("make") else None)
def make_decides_by_times():
    if not os.path.exists("log"):
        return
    subprocess.check_call(["make", "-s"])
    same(get("log"), b"a\nmade\n", "up to date as it is")
    put("src", "2")
    subprocess.check_call(["make", "-s"])
    subprocess.check_call(["make", "-s"])
    same((get("log"), get("b")), (b"a\nmade\n" * 2, b"2"), "made once after a change")


def sh(cmd):
    r = subprocess.run(["sh", "-euc", cmd], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(
        os.environ, HOME=os.getcwd(), GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL="/dev/null", GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@x",
        GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@x", LC_ALL="C"))
    same(r.returncode, 0, f"{cmd}: {r.stdout.decode(errors='replace')[-300:]}")
    return r.stdout.decode()


def repository_below():
    sh("git init -q -b main .; mkdir dir; echo 1 > dir/f; echo 2 > g; git add .; git commit -qm 'a long first message'; "
       "git checkout -qb side; echo side > h; git add .; git commit -qm side; git checkout -q main")


@lesson(repository_below if shutil.which("git") else None)
def git_changes_history():
    if not os.path.exists(".git"):
        return
    sh("git mv dir moved; echo 3 >> g; git stash -q; test -e dir/f; git stash pop -q; git add .; git commit -qm 'second, moved'; "
       "git commit -q --amend -m short; git checkout -q side; git rebase -q main; git reset -q --hard HEAD~1; "
       "git clone -q . clone; git clone -q --no-hardlinks . other; git gc -q --prune=now; git -C clone repack -adq")
    same(sh("git log --format=%s main; cat moved/f; git status --porcelain -uno; git fsck --strict --no-dangling 2>&1; "
            "git -C clone fsck --no-dangling 2>&1; git reflog main | wc -l").split("\n"),
         ["short", "a long first message", "1", "3", ""], "the history, and nothing is corrupt")


@lesson(kinds_below)
def tar_of_what_just_changed():
    put("new", b"n" * 300000)
    with open("sparse", "wb") as f:
        f.truncate(1 << 20)
    os.rename("dir", "moved")
    os.unlink("sock")
    for i in range(5):
        put("file", str(i) * 1000)
        same(sh("tar cSf ../t.tar ."), "", "no file has changed as it was read")
    sh("mkdir ../out; tar xpf ../t.tar -C ../out")

    def look(top):
        return [(os.path.relpath(p, top), st.st_mode, st.st_nlink, st.st_mtime_ns // 10**9, 0 if stat.S_ISDIR(st.st_mode) else st.st_size)
                for d, ds, fs in os.walk(top) for p in sorted(os.path.join(d, n) for n in ds + fs) for st in [os.lstat(p)]]
    same(sorted(look("../out")), sorted(look(".")), "the same comes out")
    shutil.rmtree("../out")
    os.unlink("../t.tar")


# ---- running them ----

def inside(what, top):
    for name, prepare, run in LESSONS:
        d = f"{top}/{name}"
        os.makedirs(d, exist_ok=True)
        os.chdir(d)
        if what == "prepare":
            if prepare:
                prepare()
            continue
        try:
            run()
        except Exception as e:
            print(f"FAIL: {name}: {type(e).__name__}: {e}", flush=True)
            failed.append(name)
    print(f"{len(LESSONS)} lessons, {len(failed)} failed", flush=True)
    sys.exit(1 if failed else 0)


def outside():
    from lib import here, rattan
    text = open(__file__, "rb").read()

    def lessons(name, what, *args):
        r = subprocess.run([rattan, "run", *args, "--", "python3", "-", what, "/workspace/l"], input=text,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if r.returncode or what == "run":
            print("\n".join(f"{name}: {x}" for x in r.stdout.decode(errors="replace").splitlines()), flush=True)
        if r.returncode:
            failed.append(name)

    def rt(*args):
        subprocess.run([rattan, *args], check=True, stdout=subprocess.DEVNULL)
    lessons("open", "prepare", "-e", "open")
    lessons("open", "run", "-e", "open")
    lessons("committed", "prepare", "-e", "committed")
    rt("commit", "-e", "committed", "-m", "prepared")
    rt("fork", "fork", "-e", "committed")
    lessons("committed", "run", "-e", "committed")
    lessons("fork", "run", "-e", "fork")
    os.makedirs("host/l")
    subprocess.run([sys.executable, __file__, "prepare", f"{here}/host/l"], check=True, stdout=subprocess.DEVNULL)
    lessons("host", "run", "-e", "host", "--overlay", f"{here}/host=/workspace")
    sys.exit(1 if failed else 0)


if len(sys.argv) == 3:
    inside(sys.argv[1], sys.argv[2])
outside()
