#!/usr/bin/python3
# Random trees with everything that a file can have, as root: directory -> store -> archive -> store -> directory, all equal, and
# the same through an OCI image. RATTAN_SEED repeats a run.
# user: root
# timeout: 600
import errno
import json
import os
import random
import shutil
import stat
import struct
import subprocess
import time

from lib import LONG, check, done, here, rattan

os.environ["RATTAN_DATA_DIR"] = f"{here}/store"
seed = int(os.environ.get("RATTAN_SEED") or time.time_ns() % (1 << 32))
rnd = random.Random(seed)
print("seed", seed)


def out(*args):
    r = subprocess.run([rattan, *args], capture_output=True)
    check(r.returncode == 0, f"{args}", r.stderr.decode(errors="replace"))
    return r.stdout


def xattr_ok(path):
    try:
        os.setxattr(path, "user.try", b"1")
        os.removexattr(path, "user.try")
        return True
    except OSError:
        return False


def name(rnd):
    kind = rnd.randrange(12)
    if kind == 0:
        return bytes(rnd.choice([c for c in range(1, 256) if c != 47]) for _ in range(rnd.randrange(1, 30)))
    if kind == 1:
        return b"n" * rnd.randrange(90, 256)
    if kind == 2:
        return rnd.choice([b" ", b"a\nb", b"-rf", b"...", b".wh", b"\\", "ü".encode(), b"*"])
    return b"f%d" % rnd.randrange(1000)


def acl(rnd, mask_from=None):
    ids = sorted(rnd.sample(range(1, 70000), 2))
    ents = [(1, rnd.randrange(8), 0xffffffff), (2, rnd.randrange(8), ids[0]), (2, rnd.randrange(8), ids[1]), (4, rnd.randrange(8), 0xffffffff),
            (8, rnd.randrange(8), ids[1]), (16, rnd.randrange(8), 0xffffffff), (32, rnd.randrange(8), 0xffffffff)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in ents)


def content(rnd, path):
    kind = rnd.randrange(8)
    with open(path, "wb") as f:
        if kind == 0:
            return
        if kind == 1:  # holes, in the middle, at the end, nothing but
            f.truncate(rnd.randrange(1, 4 << 20))
            for _ in range(rnd.randrange(3)):
                f.seek(rnd.randrange(4 << 20))
                f.write(rnd.randbytes(rnd.randrange(1, 300000)))
        elif kind == 2:
            f.write(bytes(rnd.randrange(300000)))
        elif kind == 3:
            f.write(rnd.randbytes(rnd.choice([1535, 1536, 1537, 4075, 4076, 4077, 131071, 131072, 131073, 262144])))
        else:
            f.write(rnd.randbytes(rnd.randrange(1, 20000)))


def set_attribute(path, name, value):
    try:
        os.setxattr(path, name, value)
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EINVAL, errno.EOPNOTSUPP):  # more than this file system keeps of a file
            raise


def attributes(rnd, path, st, xattrs):
    link, isdir = stat.S_ISLNK(st), stat.S_ISDIR(st)
    if rnd.randrange(2):
        os.chown(path, rnd.randrange(70000), rnd.choice([0, 5, 1000, 3_000_000_000]), follow_symlinks=False)
    if not link:
        os.chmod(path, rnd.choice([0o755, 0o644, 0, 0o4755, 0o2755, 0o1777, 0o6711, 0o7777, rnd.randrange(0o10000)]))
    if xattrs and (stat.S_ISREG(st) or isdir):
        for _ in range(rnd.randrange(3)):
            set_attribute(path, b"user.x%d" % rnd.randrange(100), rnd.randbytes(rnd.choice([0, 1, 200, 256, 257, 1500])))
        if rnd.randrange(4) == 0:
            set_attribute(path, "trusted.overlay", b"y")
        if rnd.randrange(4) == 0:
            set_attribute(path, "system.posix_acl_access", acl(rnd))
        if isdir and rnd.randrange(3) == 0:
            set_attribute(path, "system.posix_acl_default", acl(rnd))
    if xattrs and stat.S_ISREG(st) and rnd.randrange(4) == 0:
        set_attribute(path, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0))


def times(rnd, path):
    os.utime(path, ns=(0, rnd.choice([0, 1, 999999999, 1700000000123456789, 4_000_000_000_000_000_001, rnd.randrange(1 << 60)])), follow_symlinks=False)


def grow(rnd, root, n, xattrs):
    dirs, files = [root], []
    os.mkdir(root)
    for _ in range(n):
        d = rnd.choice(dirs)
        p = os.path.join(d, name(rnd))
        if os.path.lexists(p):
            continue
        kind = rnd.randrange(12)
        if kind < 3:
            os.mkdir(p)
            dirs.append(p)
        elif kind < 7:
            content(rnd, p)
            files.append(p)
        elif kind == 7:
            os.symlink(rnd.choice([b"x", b"../..", b"/abs/olute", b"t" * rnd.randrange(1, 4000), b"\xff\n"]), p)
        elif kind == 8:
            os.mkfifo(p)
            files.append(p)
        elif kind == 9:
            os.mknod(p, stat.S_IFCHR | 0o600, os.makedev(rnd.randrange(300), rnd.randrange(100000)))
            files.append(p)
        elif kind == 10:
            os.mknod(p, stat.S_IFBLK | 0o600, os.makedev(7, rnd.randrange(10)))
        elif files:
            os.link(rnd.choice(files), p, follow_symlinks=False)
    everything = [os.path.join(d, f) for d, ds, fs in os.walk(root) for f in ds + fs] + [root]
    for p in everything:
        attributes(rnd, p, os.lstat(p).st_mode, xattrs)
    for p in everything:
        times(rnd, p)


def describe(root, holes):
    """path -> all that is to be the same."""
    found, first = {}, {}
    for d, ds, fs in sorted(os.walk(root)):
        for n in sorted(ds + fs) + ([b""] if d == root else []):
            p = os.path.join(d, n)
            st = os.lstat(p)
            rel = os.path.relpath(p, root)
            one = [stat.S_IFMT(st.st_mode), st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns, st.st_rdev if stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode) else 0]
            if not stat.S_ISDIR(st.st_mode):
                one += [st.st_nlink, first.setdefault(st.st_ino, rel)]
            if stat.S_ISLNK(st.st_mode):
                one.append(os.readlink(p))
            if stat.S_ISREG(st.st_mode):
                one += [st.st_size, open(p, "rb").read()]
                if holes:
                    one.append(st.st_blocks * 512 <= st.st_size // 2)
            if not stat.S_ISLNK(st.st_mode):
                one.append(sorted((a, os.getxattr(p, a, follow_symlinks=False)) for a in os.listxattr(p, follow_symlinks=False)))
            found[rel] = one
    return found


def compare(want, is_, what):
    check(want.keys() == is_.keys(), f"{what}: names", set(want) ^ set(is_))
    for k in want:
        if k in is_ and want[k] != is_[k]:
            check(False, f"{what}: {k!r}", [(a, b) for a, b in zip(want[k], is_[k]) if a != b])


rounds = 40 if LONG else 6
for i in range(rounds):
    work = f"{here}/r{i}".encode()
    os.mkdir(work)
    xattrs = xattr_ok(work)
    if not xattrs:
        print("no attributes here:", here)
    a, b = work + b"/a", work + b"/b"
    grow(rnd, a, rnd.choice([0, 5, 60, 400]), xattrs)
    want = describe(a, False)
    w = work.decode()
    one = json.loads(out("import", "dir", f"{w}/a", f"d{i}", "--json"))
    out("export", "tar", f"d{i}", f"{w}/t.tar")
    two = json.loads(out("import", "tar", f"{w}/t.tar", f"t{i}", "--json"))
    check(one["id"] == two["id"], "the id through an archive", (one["id"], two["id"]))
    out("export", "dir", f"t{i}", f"{w}/b")
    compare(want, describe(b, False), f"round {i}")
    out("export", "oci", f"t{i}", f"{w}/o", "--compress", rnd.choice(["gzip", "zstd", "none"]))
    three = json.loads(out("import", "oci", f"{w}/o", f"o{i}", "--json"))
    check(one["id"] == three["id"], "the id through an image", (one["id"], three["id"]))
    # as GNU tar has it
    flags = ["--xattrs", "--xattrs-include=*", "--acls"] if xattrs else []
    subprocess.run(["tar", "--format=posix", *flags, "--sparse", "-cf", f"{w}/g.tar", "-C", f"{w}/a", "."], check=True)
    four = json.loads(out("import", "tar", f"{w}/g.tar", f"g{i}", "--json"))
    if four["id"] != one["id"]:
        out("export", "dir", f"g{i}", f"{w}/g")
        compare(want, describe(work + b"/g", False), f"round {i}, through GNU tar")
        check(False, "the id through GNU tar", four)
    os.mkdir(f"{w}/u")
    subprocess.run(["tar", *flags, "-xpf", f"{w}/t.tar", "-C", f"{w}/u"], check=True)
    compare(want, describe(work + b"/u", False), f"round {i}, unpacked by GNU tar")
    shutil.rmtree(work)
# GNU tar tells lists by names where it knows them; without the attribute beside them nobody knows whose they are.
os.mkdir("acl")
open("acl/f", "w").close()
if xattr_ok(f"{here}/acl/f"):
    os.setxattr("acl/f", "system.posix_acl_access", struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in (
        (1, 6, 0xffffffff), (2, 4, 5), (2, 6, 71234), (4, 4, 0xffffffff), (16, 6, 0xffffffff), (32, 4, 0xffffffff))))
    with_numbers = os.getxattr("acl/f", "system.posix_acl_access")
    for more, want in ((["--xattrs", "--xattrs-include=*"], with_numbers), ([], None)):
        subprocess.run(["tar", "--format=posix", "--acls", *more, "-cf", "acl.tar", "acl"], check=True)
        out("import", "tar", "acl.tar", "acl", "--replace")
        shutil.rmtree("acl-out", ignore_errors=True)
        out("export", "dir", "acl", "acl-out")
        got = os.getxattr("acl-out/acl/f", "system.posix_acl_access")
        check(got == want if want else struct.pack("<HHI", 2, 6, 71234) in got, f"a list by names {more}", got)
done()
