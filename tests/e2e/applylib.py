"""Shared by the tests of apply; not a test itself: trees that are made, changed at random, and compared whole."""
import errno
import os
import random
import stat
import subprocess
import sys


def snapshot(top, times=True):
    """Everything below a directory: type, mode, owner, time, bytes or target, attributes of a user's own."""
    out = {}

    def look(path, rel):
        st = os.lstat(path)
        kind = stat.S_IFMT(st.st_mode)
        body = None
        if kind == stat.S_IFREG:
            try:
                body = open(path, "rb").read()
            except PermissionError:
                os.chmod(path, 0o600)
                body = open(path, "rb").read()
                os.chmod(path, stat.S_IMODE(st.st_mode))
        elif kind == stat.S_IFLNK:
            body = os.readlink(path)
        x = {}
        if kind in (stat.S_IFREG, stat.S_IFDIR):
            try:
                x = {n: os.getxattr(path, n) for n in os.listxattr(path) if n.startswith("user.")}
            except OSError as e:
                if e.errno not in (errno.ENOTSUP, errno.EACCES):
                    raise
        mode = None if kind == stat.S_IFLNK else stat.S_IMODE(st.st_mode)
        out[rel] = (kind, mode, st.st_mtime_ns if times else 0, body, x)
        if kind == stat.S_IFDIR:
            for name in sorted(os.listdir(path)):
                look(os.path.join(path, name), f"{rel}/{name}" if rel else name)

    look(top, "")
    return out


def differ(a, b, limit=8):
    """What two snapshots differ in, in words; empty when they do not."""
    out = []
    for p in sorted(set(a) | set(b)):
        if a.get(p) == b.get(p):
            continue
        if p not in a or p not in b:
            out.append(f"{p!r} only in {'the second' if p not in a else 'the first'}")
            continue
        names = ("type", "mode", "time", "bytes", "attributes")
        out.append(f"{p!r}: " + ", ".join(f"{n} {str(x)[:60]} / {str(y)[:60]}" for n, x, y in zip(names, a[p], b[p]) if x != y))
    return out[:limit]


NAMES = ["a", "b", "c.txt", "d e", "f\n2", "ü", "-x", "g", "h.c", "Makefile"]


def every(top):
    out = []
    for d, dirs, files in os.walk(top):
        out += [os.path.join(d, n) for n in dirs + files]
    return sorted(out)


def a_dir(rng, top):
    return rng.choice([top] + [p for p in every(top) if os.path.isdir(p) and not os.path.islink(p)])


def a_name(rng, top):
    return os.path.join(a_dir(rng, top), rng.choice(NAMES) + rng.choice(["", "", str(rng.randrange(9))]))


def some_bytes(rng):
    return rng.choice([b"", b"x", bytes(rng.randrange(256) for _ in range(rng.randrange(300))), b"line\n" * rng.randrange(400),
                       bytes(range(256)) * rng.choice([4, 700, 1100])])


def grow(top, seed, n=40):
    """A tree of a project, in the past."""
    rng = random.Random(seed)
    os.makedirs(top, exist_ok=True)
    for _ in range(n):
        p = a_name(rng, top)
        if os.path.lexists(p):
            continue
        k = rng.random()
        if k < 0.3:
            os.mkdir(p)
        elif k < 0.4:
            os.symlink(rng.choice(["a", "../b", "/etc/passwd", "nowhere"]), p)
        else:
            with open(p, "wb") as f:
                f.write(some_bytes(rng))
            os.chmod(p, rng.choice([0o644, 0o600, 0o755, 0o444]))
            if rng.random() < 0.2:
                try:
                    os.setxattr(p, "user.k", b"v%d" % rng.randrange(9))
                except OSError:
                    pass
    for p in sorted(every(top), reverse=True) + [top]:
        t = rng.randrange(1_500_000_000, 1_600_000_000) * 10**9 + rng.randrange(10**9)
        os.utime(p, ns=(t, t), follow_symlinks=False)


def change(top, seed, n=30):
    """What an agent could do, at random. Run in the sandbox."""
    rng = random.Random(seed)
    for _ in range(n):
        try:
            one_change(rng, top)
        except OSError as e:
            if e.errno not in (errno.EACCES, errno.ENOTEMPTY, errno.EINVAL, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.EBUSY, errno.ENOENT, errno.EPERM, errno.ELOOP):
                raise


def one_change(rng, top):
    everything = every(top)
    p = rng.choice(everything) if everything else a_name(rng, top)
    new = a_name(rng, top)
    k = rng.randrange(20)
    if k == 0:
        os.mkdir(new)
    elif k in (1, 2):
        with open(new, "wb") as f:
            f.write(some_bytes(rng))
    elif k == 3:
        os.symlink(rng.choice(["x", "../../y"]), new)
    elif k in (4, 5) and os.path.isfile(p) and not os.path.islink(p):
        with open(p, "r+b") as f:
            f.seek(rng.randrange(0, 200))
            f.write(some_bytes(rng))
    elif k == 6 and os.path.isfile(p) and not os.path.islink(p):
        os.truncate(p, rng.randrange(400))
    elif k == 7 and os.path.isfile(p) and not os.path.islink(p):
        with open(p + ".tmp", "wb") as f:
            f.write(some_bytes(rng))
        os.rename(p + ".tmp", p)
    elif k == 8 and not os.path.islink(p):
        os.chmod(p, rng.choice([0o755, 0o700, 0o555]) if os.path.isdir(p) else rng.choice([0o644, 0o600, 0o755, 0o444, 0o400]))
    elif k in (9, 10):
        if os.path.isdir(p) and not os.path.islink(p):
            subprocess.run(["rm", "-rf", p], stderr=subprocess.DEVNULL)
        else:
            os.unlink(p)
    elif k in (11, 12):
        os.rename(p, new)
    elif k == 13 and not os.path.islink(p):
        os.setxattr(p, "user.k", b"w%d" % rng.randrange(9))
    elif k == 14:
        t = rng.randrange(1_600_000_000, 1_700_000_000) * 10**9 + 5
        os.utime(p, ns=(t, t), follow_symlinks=False)
    elif k == 15:
        if os.path.isdir(p) and not os.path.islink(p):
            subprocess.run(["rm", "-rf", p], stderr=subprocess.DEVNULL)
            if not os.path.lexists(p):
                open(p, "w").write("was a directory")
        else:
            os.unlink(p)
            os.mkdir(p)
            open(p + "/in", "w").write("was a file")
    elif k == 16: # a name is taken by another thing that is there already
        over = rng.choice(everything) if everything else new
        os.rename(p, over)
    elif k == 17 and os.path.isdir(p) and not os.path.islink(p): # a directory goes away, another has its name, and some of what it had
        names = sorted(os.listdir(p))
        os.rename(p, new)
        os.mkdir(p)
        for name in rng.sample(names, rng.randrange(len(names) + 1)):
            os.rename(f"{new}/{name}", f"{p}/{name}")
    elif k == 18 and not os.path.isdir(p):
        os.link(p, new, follow_symlinks=False)
    elif k == 19 and os.path.isdir(p) and not os.path.islink(p): # made anew, with some of what it had
        names = sorted(os.listdir(p))
        keep = rng.sample(names, rng.randrange(len(names) + 1))
        os.mkdir(new)
        for name in keep:
            os.rename(f"{p}/{name}", f"{new}/{name}")
        subprocess.run(["rm", "-rf", p], stderr=subprocess.DEVNULL)
        if not os.path.lexists(p):
            os.rename(new, p)


if __name__ == "__main__" and len(sys.argv) > 1:
    if sys.argv[1] == "change":
        change("/workspace", int(sys.argv[2]))
    elif sys.argv[1] == "snapshot":
        sys.stdout.write(repr(snapshot("/workspace")))
