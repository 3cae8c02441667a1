#!/usr/bin/python3
"""An export is at its destination whole or not at all: when it fails, is told to stop, or is killed; what a killed one has left beside is
gone after the next one of the same name. Nothing is timed: an export is stopped in the midst of its work when that shows on the disk."""
# timeout: 300
import fcntl
import glob
import os
import resource
import shutil
import signal
import stat
import subprocess
import time

from lib import check, done, here, listens, rattan

MARK = ".rattan-partial-"
LIMIT = 120


def rt(*args, **kw):
    return subprocess.run([rattan, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT * 2, **kw)


def says(code, text, *args, **kw):
    r = rt(*args, **kw)
    check(r.returncode == code and text in r.stdout + r.stderr, f"{' '.join(args)}: {code}, {text}", (r.returncode, (r.stdout + r.stderr)[-300:]))
    return r


def left(dest="dest"):
    return sorted(n for n in os.listdir(os.path.dirname(dest) or ".") if n.startswith(os.path.basename(dest)[:200]) and MARK in n)


def whole(kind, dest="dest"):
    """What a second one says is the same; and it is taken away."""
    shutil.rmtree("again", ignore_errors=True)
    rt("export", kind, "big", "again")
    if kind == "tar":
        same = open(dest, "rb").read() == open("again", "rb").read()
        os.remove(dest)
        os.remove("again")
    else:
        for d in dest, "again":
            for path, dirs, files in os.walk(d):
                for n in files:
                    os.chmod(f"{path}/{n}", 0o644)
                for n in dirs:
                    check(kind == "oci" or n != "shut" or stat.S_IMODE(os.lstat(f"{path}/{n}").st_mode) == 0, "modes are what they were", n)
                    os.chmod(f"{path}/{n}", 0o755)
        same = subprocess.run(["diff", "-r", dest, "again"], capture_output=True).returncode == 0
        shutil.rmtree(dest)
        shutil.rmtree("again")
    check(same, f"export {kind}: it is whole")


def admin(pid):
    """What does the work for it."""
    try:
        of = [int(p) for p in open(f"/proc/{pid}/task/{pid}/children").read().split()]
        return [p for p in of if b"\0admin\0export\0" in open(f"/proc/{p}/cmdline", "rb").read()]
    except OSError:
        return []


def in_the_midst(kind, dest, what):
    """@what is done to the export, given as (rattan, rattan-fs), when there is a part of it; tried until it was in time."""
    for _ in range(50):
        p = subprocess.Popen([rattan, "export", kind, "big", dest], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        fs = []
        while p.poll() is None:
            fs = fs or admin(p.pid)
            at = glob.glob(glob.escape(dest)[:200] + "*" + MARK + "*")
            try:
                if fs and at and (os.path.getsize(at[0]) if kind == "tar" else os.listdir(at[0])):
                    os.kill(fs[0], signal.SIGSTOP)
                    break
            except OSError:
                pass
        if p.poll() is None and left(dest) and not os.path.exists(dest):
            what(p, fs[0])
            return p.communicate(timeout=LIMIT), p.returncode
        if fs and p.poll() is None:
            os.kill(fs[0], signal.SIGCONT)
        p.communicate(timeout=LIMIT)
        if os.path.isdir(dest):
            subprocess.run(["chmod", "-R", "u+rwx", dest])
            shutil.rmtree(dest)
        elif os.path.exists(dest):
            os.remove(dest)
    check(False, f"export {kind}: was never seen at work")
    done()


def stopped(p, fs):
    p.send_signal(signal.SIGINT)
    until = time.monotonic() + LIMIT
    while listens(p.pid, fs) and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(fs, signal.SIGCONT)


def killed(p, fs):
    os.kill(fs, signal.SIGKILL)


def starter_killed(p, fs):
    p.kill()
    p.wait()
    os.kill(fs, signal.SIGCONT)
    for _ in range(LIMIT * 50):
        if not os.path.exists(f"/proc/{fs}"):
            return
        time.sleep(0.02)
    check(False, "the work ends with who started it")


os.makedirs("big/d/deep/" + "/".join("abcdefgh" * 10))
os.makedirs("big/a/shut")
for i in range(24):
    with open(f"big/d/{i}", "wb") as f:
        f.write(os.urandom(1 << 20))
with open("big/a/shut/f", "w") as f:
    f.write("x")
for i in range(500):
    with open(f"big/a/{i}", "w") as f:
        f.write(f"{i}\n")
subprocess.run(["tar", "cf", "big.tar", "--mode=a=", "big/a/shut"], check=True)  # closed already in the archive
subprocess.run(["tar", "rf", "big.tar", "--exclude=shut", "big"], check=True)
subprocess.run(["tar", "rf", "big.tar", "--mode=a=", "--no-recursion", "big/a/shut"], check=True)
check(rt("import", "tar", "big.tar", "big", "--strip", "1").returncode == 0, "import")

for kind in "dir", "tar", "oci":
    print("==", kind)
    (_, err), code = in_the_midst(kind, "dest", stopped)
    check(code == -signal.SIGINT and "interrupted; nothing was exported" in err, f"export {kind}: stopped", (code, err))
    check(not left() and not os.path.exists("dest"), f"export {kind}: nothing is left when it was stopped", os.listdir("."))
    in_the_midst(kind, "dest", starter_killed)
    check(not left() and not os.path.exists("dest"), f"export {kind}: nothing is left when who started it was killed", os.listdir("."))
    _, code = in_the_midst(kind, "dest", killed)
    check(code == 1 and len(left()) == 1 and not os.path.exists("dest"), f"export {kind}: a killed one leaves a part beside", (code, os.listdir(".")))
    was = left()
    # What only looks like it stays.
    for n in "dest.rattan-partial-x1", "dest.rattan-partial-", "dest2.rattan-partial-12":
        with open(n, "w") as f:
            f.write("mine\n")
    says(0, "", "export", kind, "big", "dest")
    check(left() == ["dest.rattan-partial-", "dest.rattan-partial-x1", "dest2.rattan-partial-12"], f"export {kind}: the next one takes {was} away", left())
    for n in left():
        os.remove(n)
    says(4, "not empty" if kind != "tar" else "is there already", "export", kind, "big", "dest")
    whole(kind)

    r = says(1, "File too large", "export", kind, "big", "dest", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600000, 600000)))
    check(not left() and not os.path.exists("dest"), f"export {kind}: nothing is left of one that fails", os.listdir("."))

    print("== at work at once")

    def another(p, fs):
        says(0, "", "export", kind, "big", "dest")
        check(len(left()) == 1, f"export {kind}: what another is filling is not taken away", os.listdir("."))
        os.kill(fs, signal.SIGCONT)

    (_, err), code = in_the_midst(kind, "dest", another)
    check(code == 4 and "File exists" in err, f"export {kind}: the later one does not take the place of the first", (code, err))
    check(not left(), f"export {kind}: and leaves nothing", os.listdir("."))
    whole(kind)

    long = "n" * 255
    _, code = in_the_midst(kind, long, killed)
    check(len(left(long)) == 1, "a name as long as can be", os.listdir("."))
    says(0, "", "export", kind, "big", long)
    check(not left(long), "a long name's leftover is taken away", os.listdir("."))
    whole(kind, long)

print("== into an empty directory that is there")
for kind in "dir", "oci":
    os.mkdir("dest", 0o700)
    says(0, "", "export", kind, "big", "dest")
    whole(kind)
    if os.geteuid():
        os.makedirs("kept/dest")
        os.chmod("kept/dest", 0o750)
        os.chmod("kept", 0o555)
        says(0, "", "export", kind, "big", "kept/dest")
        os.chmod("kept", 0o755)
        whole(kind, "kept/dest")
        os.mkdir("kept/dest", 0o750)
        os.chmod("kept", 0o555)
        says(1, "File too large", "export", kind, "big", "kept/dest", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600000, 600000)))
        check(os.listdir("kept/dest") == [] and stat.S_IMODE(os.lstat("kept/dest").st_mode) == 0o750, "where nothing can be made beside, it is emptied again",
              os.listdir("kept/dest"))
        says(3, "there is no directory nowhere to export to", "export", kind, "big", "nowhere/dest")
        says(1, "Permission denied", "export", kind, "big", "kept/other")
        os.chmod("kept", 0o755)
        shutil.rmtree("kept")

print("== into the directory that one is in")
os.mkdir("dest")
had = os.stat("dest").st_ino
for dest, cwd in (".", "dest"), (here + "/dest/", "dest"):
    says(0, "", "export", "dir", "big", dest, cwd=cwd)
    check(os.stat("dest").st_ino == had and len(os.listdir("dest")) == 2, f"export to {dest} in it: it is the same one", os.listdir("dest"))
    subprocess.run("chmod -R u+rwx dest && rm -r dest/*", shell=True, check=True)
r = says(1, "File too large", "export", "dir", "big", ".", cwd="dest", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600000, 600000)))
check(os.listdir("dest") == [], "it is empty again after one that fails", os.listdir("dest"))


def in_place(kind, what):
    """@what is done while an export that fills ./dest where it is has made its first name and no other."""
    for _ in range(50):
        p = subprocess.Popen([rattan, "export", kind, "big", "."], cwd="dest", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        fs = []
        while p.poll() is None:
            fs = fs or admin(p.pid)
            if fs and os.listdir("dest"):
                os.kill(fs[0], signal.SIGSTOP)
                break
        if p.poll() is None and os.listdir("dest") in (["a"], ["blobs"]):
            what(p, fs[0])
            return p.communicate(timeout=LIMIT), p.returncode
        if fs and p.poll() is None:
            os.kill(fs[0], signal.SIGCONT)
        p.communicate(timeout=LIMIT)
        subprocess.run("chmod -R u+rwx dest && rm -rf dest/*", shell=True, check=True)
    check(False, f"export {kind}: was never seen at work in place")
    done()


def put_mine(name):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "w") as f:
        f.write("mine\n")


def with_mine(p, fs):
    put_mine("dest/mine")
    put_mine("dest/photos/one")
    stopped(p, fs)


def in_the_way(name):
    def put(p, fs):
        put_mine(name)
        os.kill(fs, signal.SIGCONT)
    return put


for kind, way in ("dir", "dest/d/mine"), ("oci", "dest/index.json"):
    (_, err), code = in_place(kind, with_mine)
    check(code == -signal.SIGINT and sorted(os.listdir("dest")) == ["mine", "photos"] and os.listdir("dest/photos") == ["one"],
          f"export {kind}: what came meanwhile stays when it is stopped", (code, err, os.listdir("dest")))
    shutil.rmtree("dest/photos")
    os.remove("dest/mine")
    (_, err), code = in_place(kind, in_the_way(way))
    check(code != 0 and "File exists" in err and [os.path.join(d, f) for d, _, fs in os.walk("dest") for f in fs] == [way],
          f"export {kind}: what came meanwhile and is in the way stays, and nothing else", (code, err, os.listdir("dest")))
    shutil.rmtree("dest")
    os.mkdir("dest")
shutil.rmtree("dest")

print("== one that is nearly done has the mode of its tree")
os.mkdir("dest.rattan-partial-7")
put_mine("dest.rattan-partial-7/f")
os.chmod("dest.rattan-partial-7", 0o555)
held = os.open("dest.rattan-partial-7", os.O_RDONLY)
fcntl.flock(held, fcntl.LOCK_EX)
for held in held, None:
    says(0, "", "export", "dir", "big", "dest")
    subprocess.run(["chmod", "-R", "u+rwx", "dest"])
    shutil.rmtree("dest")
    if held is not None:
        check(stat.S_IMODE(os.stat("dest.rattan-partial-7").st_mode) == 0o555, "and keeps it while it is held", oct(os.stat("dest.rattan-partial-7").st_mode))
        os.close(held)
check(not left(), "then it goes")

print("== what cannot be taken away is named")
if os.geteuid():
    os.mkdir("dest.rattan-partial-7")
    os.makedirs("dest.rattan-partial-7/d")
    os.symlink(here + "/big", "dest.rattan-partial-7/l")
    with open("dest.rattan-partial-7/d/f", "w") as f:
        f.write("x")
    says(0, "", "export", "dir", "big", "dest")
    check(not left() and len(os.listdir("big/d")) == 25, "links are not followed", os.listdir("big"))
    subprocess.run(["chmod", "-R", "u+rwx", "dest"])
    shutil.rmtree("dest")
done()
