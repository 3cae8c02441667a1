"""Directories, and names of what is below."""
import errno
import os
import shutil
import socket
import stat
import subprocess
import threading

from lesson import call, check, ended, fails, forked, get, lesson, names, put, same, tree


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
