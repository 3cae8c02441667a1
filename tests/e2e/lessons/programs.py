"""Programs, locks, watchers, what is in use."""
import ctypes
import errno
import fcntl
import mmap
import os
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time

from directories import kinds_below
from lesson import call, check, ended, fails, forked, get, lesson, put, same, tree


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
