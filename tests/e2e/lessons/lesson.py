"""What a lesson is written with: @lesson, checks, files."""
import ctypes
import errno
import os

BLOCK = 1 << 17
libc = ctypes.CDLL(None, use_errno=True)
LESSONS = []  # (name, prepare, run)


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
