#!/usr/bin/python3
# What a script sees of users in a provisioning run: docs/decisions/0014-root-is-emulated.md, the column "emulated".
import json
import resource
import subprocess

from lib import check, done, rattan

INSIDE = r"""
import errno, json, os, stat, struct, subprocess
os.chdir("/root")
seen = {}


def tried(fn):
    try:
        return fn()
    except OSError as e:
        return errno.errorcode[e.errno]


def owner(path):
    st = os.lstat(path)
    return [st.st_uid, st.st_gid]


def made(name):
    open(name, "w").close()
    return name


def changed(fn):
    "What @fn finds in a process that has become user 33."
    r, w = os.pipe()
    if not os.fork():
        os.setgroups([])
        os.setresgid(33, 33, 33)
        os.setresuid(33, 33, 33)
        os.write(w, json.dumps(tried(fn)).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(r, 4096))


os.chown(made("a"), 33, 44)
seen["owner"] = owner("a")
os.chown(made("b"), 70000, -1)
seen["beyond a range"] = owner("b")
os.symlink("nowhere", "l")
os.lchown("l", 33, 33)
seen["link"] = owner("l")
os.chown(made("c"), 33, 33)
os.chmod("c", 0o4755)
seen["set-id"] = stat.S_IMODE(os.stat("c").st_mode)
os.mknod("d", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
seen["device"] = [stat.S_ISCHR(os.stat("d").st_mode), os.stat("d").st_rdev == os.makedev(1, 3), tried(lambda: os.open("d", os.O_RDONLY))]
os.setxattr(made("i"), "security.capability", struct.pack("<5I", 0x02000001, 0x400, 0, 0, 0))
seen["capability"] = len(os.getxattr("i", "security.capability")) > 0
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in ((1, 6, 2**32 - 1), (2, 4, 33), (4, 4, 2**32 - 1), (16, 4, 2**32 - 1), (32, 4, 2**32 - 1)))
seen["named in a list"] = tried(lambda: os.setxattr(made("h"), "system.posix_acl_access", acl))
seen["and listed"] = [os.getxattr("h", "system.posix_acl_access") == acl, oct(os.stat("h").st_mode & 0o777), os.listxattr("h")]
few = acl[:12] + acl[20:28] + acl[36:]
seen["nobody named"] = [tried(lambda: os.setxattr(made("few"), "system.posix_acl_access", few)), os.listxattr("few")]
os.mkdir("acl")
os.setxattr("acl", "system.posix_acl_default", acl)
seen["handed on"] = [len(os.getxattr(made("acl/x"), "system.posix_acl_access")), b"!" in os.getxattr("acl/x", "system.posix_acl_access")]
seen["another's list"] = changed(lambda: [tried(lambda: os.setxattr("h", "system.posix_acl_access", acl)), tried(lambda: os.setxattr(made("/tmp/own"), "system.posix_acl_access", acl))])
with open("h", "r+b") as f:
    os.setxattr(f.fileno(), "system.posix_acl_access", acl.replace(b"!", b"#"))
    seen["by descriptor"] = b"#" in os.getxattr(f.fileno(), "system.posix_acl_access")
seen["wrong"] = [tried(lambda: os.setxattr("h", "system.posix_acl_access", acl[:-1])), tried(lambda: os.setxattr("h", "system.posix_acl_access", acl + acl[4:])),
                 tried(lambda: os.setxattr("h", "system.posix_acl_access", acl, os.XATTR_CREATE)), tried(lambda: os.setxattr("nowhere", "system.posix_acl_access", acl)),
                 tried(lambda: os.setxattr("h", "system.posix_acl_default", acl))]
os.chmod("h", 0o600)
seen["mode"] = os.getxattr("h", "system.posix_acl_access")[30]
os.removexattr("h", "system.posix_acl_access")
seen["removed"] = os.listxattr("h")
os.chmod(made("secret"), 0o600)
seen["root's id"] = [os.getuid(), os.getresgid()]
seen["another's id"] = changed(lambda: [os.getuid(), os.geteuid(), os.getgid()])
seen["another makes"] = changed(lambda: owner(made("/tmp/by-33")))
seen["another reads"] = changed(lambda: open("secret").read())
seen["nor back"] = changed(lambda: [tried(lambda: os.seteuid(0)), tried(lambda: os.setgroups([5])), tried(lambda: os.setresuid(33, 0, 33)), os.getresuid()])
seen["another gives away"] = changed(lambda: [tried(lambda: os.chown("a", 33, 33)), tried(lambda: os.chown("secret", 33, 33)),
                                              tried(lambda: os.mknod("/tmp/n33", 0o600 | stat.S_IFCHR, os.makedev(1, 3)))])


def kinds():
    os.mkdir("/tmp/d33")
    os.symlink("x", "/tmp/l33")
    os.mkfifo("/tmp/f33")
    fd = os.open("/tmp", os.O_TMPFILE | os.O_RDWR)
    os.link(f"/proc/self/fd/{fd}", "/tmp/t33", src_dir_fd=fd, follow_symlinks=True)
    return [owner("/tmp/" + n) for n in ("d33", "l33", "f33", "t33")]


seen["of all kinds"] = changed(kinds)
os.mkdir("shared")
os.chown("shared", 0, 77)
os.chmod("shared", 0o2777)
seen["in a directory with a group"] = changed(lambda: owner(made("shared/x")))
seen["in a program"] = changed(lambda: subprocess.run("id -u; id -g; id -G; touch /tmp/by-a-program; stat -c %u:%g /tmp/by-a-program", shell=True,
                                                        capture_output=True, text=True).stdout.split())


def as_group():
    r, w = os.pipe()
    if not os.fork():
        os.setgroups([7, 8])
        os.setregid(9, 9)
        os.seteuid(33)
        a = [os.getresuid(), os.getresgid(), os.getgroups()]
        os.chown(made("/tmp/g"), -1, 8)
        a += [owner("/tmp/g"), tried(lambda: os.chown("/tmp/g", -1, 99))]
        os.seteuid(0)
        a += [os.geteuid(), owner(made("/tmp/g2"))]
        os.write(w, json.dumps(a).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(r, 4096))


seen["for a while"] = as_group()


def threads():
    import threading
    go, had = threading.Event(), []
    t = threading.Thread(target=lambda: (go.wait(), had.append(os.getuid()), had.append(owner(made("/tmp/by-thread")))))
    t.start()
    os.setresuid(44, 44, 44)
    go.set()
    t.join()
    return had


def in_child(fn):
    r, w = os.pipe()
    if not os.fork():
        os.write(w, json.dumps(tried(fn)).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(r, 4096))


seen["all threads"] = in_child(threads)
seen["no such id"] = in_child(lambda: [tried(lambda: os.setuid(2**31)), os.getuid()])
seen["root after all"] = [os.getuid(), owner(made("z"))]
print(json.dumps(seen))
"""
want = {"owner": [33, 44], "beyond a range": [70000, 0], "link": [33, 33], "set-id": 0o4755, "device": [True, True, "EACCES"], "capability": True, "named in a list": None,
        "and listed": [True, "0o644", ["system.posix_acl_access"]], "nobody named": [None, []], "handed on": [44, True], "another's list": ["EPERM", None], "by descriptor": True,
        "wrong": ["EINVAL", "EINVAL", "EEXIST", "ENOENT", "EACCES"], "mode": 0, "removed": [],
        "root's id": [0, [0, 0, 0]], "another's id": [33, 33, 33], "another makes": [33, 33], "another reads": "",
        "nor back": ["EPERM", "EPERM", "EPERM", [33, 33, 33]], "another gives away": [None, "EPERM", "EPERM"],
        "of all kinds": [[33, 33]] * 4, "in a directory with a group": [33, 77], "in a program": ["33", "33", "33", "33:33"],
        "for a while": [[0, 33, 0], [9, 9, 9], [7, 8], [33, 8], "EPERM", 0, [0, 9]],
        "all threads": [44, [44, 0]], "no such id": ["EINVAL", 0], "root after all": [0, [0, 0]]}
r = subprocess.run([rattan, "run", "-e", "ids", "--provision", "--", "/usr/bin/python3", "-c", INSIDE], capture_output=True, text=True)
check(r.returncode == 0, "it runs", r.stderr[-800:])
seen = json.loads(r.stdout) if r.returncode == 0 else {}
for what, is_ in want.items():
    check(seen.get(what) == is_, what, seen.get(what))

# A limit of the caller's says nothing of who the command is. 10: RLIMIT_LOCKS.
for hard in resource.RLIM_INFINITY, 7000 << 12:
    r = subprocess.run([rattan, "run", "-e", "ids", "--provision", "--", "/bin/sh", "-c", "touch /root/limited; stat -c %u:%g /root/limited; id -u; id -g"],
                       capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(10, (5000 << 12, hard)))
    check(r.stdout.split() == ["0:0", "0", "0"], "root is root below a limit, too", (hard, r))
done()
