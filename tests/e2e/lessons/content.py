"""Content: holes, copies, sizes, syncing."""
import collections
import ctypes
import errno
import mmap
import os
import resource
import signal
import subprocess

from lesson import BLOCK, call, check, ended, fails, forked, get, lesson, names, put, same, tree


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
