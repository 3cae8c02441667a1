#!/usr/bin/python3
# What a script sees of users in a provisioning run: docs/decisions/0014-root-is-emulated.md, the column "emulated".
import json
import subprocess

from lib import check, done, rattan

INSIDE = r"""
import errno, json, os, stat, struct
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
os.chmod(made("secret"), 0o600)
seen["another's id"] = changed(lambda: [os.getuid(), os.geteuid(), os.getgid()])
seen["another makes"] = changed(lambda: owner(made("/tmp/by-33")))
seen["another reads"] = changed(lambda: open("secret").read())
print(json.dumps(seen))
"""
want = {"owner": [33, 44], "beyond a range": [70000, 0], "link": [33, 33], "set-id": 0o4755, "device": [True, True, "EACCES"], "capability": True, "named in a list": "EINVAL",
        "another's id": [0, 0, 0], "another makes": [0, 0], "another reads": ""}
r = subprocess.run([rattan, "run", "-e", "ids", "--provision", "--", "/usr/bin/python3", "-c", INSIDE], capture_output=True, text=True)
check(r.returncode == 0, "it runs", r.stderr[-800:])
seen = json.loads(r.stdout) if r.returncode == 0 else {}
for what, is_ in want.items():
    check(seen.get(what) == is_, what, seen.get(what))
done()
