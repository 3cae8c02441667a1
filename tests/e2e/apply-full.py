#!/usr/bin/python3
"""apply and unapply where there is no room, at the directory's disk or at that of the data directory, which ends at each stage in turn: one
sentence, the directory as it was, nothing beside it; and with room it goes through. Of two directories on two disks, one of them full, the sentence
says what came back and what did not."""
# timeout: 400
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from lib import check, done, here, rattan
from applylib import differ, snapshot

if "INNER" not in os.environ:  # tmpfs of our own
    os.environ["INNER"] = "1"
    os.execvp("unshare", ["unshare", "-Urm", "--propagation", "private", sys.executable, *sys.argv])
os.environ["RATTAN_GC_S"] = "0"
KIB = 1024
ROOM = 16384  # KiB of each disk


def run(*args):
    return subprocess.run([rattan, *args], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)


def disk(name):
    os.makedirs(name, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}k", "tmpfs", name], check=True)


def leave(where, free):
    """So many bytes are free there, and no more."""
    s = os.statvfs(where)
    n = max(s.f_bavail * s.f_frsize - free, 0)
    with open(f"{where}/hog", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, n) if n else None


def body(seed, n):
    return (b"%d\n" % seed * (n // 2))[:n]


def project():
    shutil.rmtree("proj/p", ignore_errors=True)
    os.makedirs("proj/p/d")
    for name, n in (("big", 1500), ("gone", 1000), ("moves", 200), ("d/in", 300)):
        pathlib.Path("proj/p", name).write_bytes(body(len(name), n * KIB))


def one_sentence(r, what):
    check(r.returncode == 1 and r.stderr.startswith("rattan: ") and r.stderr.count("\n") == 1 and "o space left" in r.stderr and
          (re.search("nothing was (applied to .*|taken back): make room, and (un)?apply again\n$", r.stderr) or "not on the disk yet" in r.stderr or "state was not kept" in r.stderr),
          f"{what}: one sentence", (r.returncode, r.stderr))


def as_it_was(was, what):
    d = differ(was, snapshot("proj/p"))
    check(not d, f"{what}: the directory is as it was", d)
    check(sorted(os.listdir("proj")) == ["hog", "p"], f"{what}: nothing beside it", os.listdir("proj"))


disk("proj")
disk("data")
os.environ["RATTAN_DATA_DIR"] = f"{here}/data/store"
for full, steps in ("proj", (0, 200, 700, 1400, 1700, 2500, 3500)), ("data", (0, 8, 64, 500, 1300, 2300, 3000)):
    env = f"on-{full}"
    project()
    r = run("run", "-e", env, "--overlay", f"{here}/proj/p=/workspace", "-c",
            "cd /workspace; head -c 1600000 /dev/zero | tr '\\0' x > big; rm gone; mv moves moved; head -c 900000 /dev/urandom > new; mkdir e; mv d/in e; chmod 700 d; sync .")
    check(r.returncode == 0, "changes", r.stderr)
    was = snapshot("proj/p")
    failed = 0
    for free in steps:
        leave(full, free * KIB)
        r = run("apply", "-e", env)
        if r.returncode == 0:
            r = run("unapply", "-e", env)
            if r.returncode:
                one_sentence(r, f"unapply, {full} has {free} KiB")
                os.remove(f"{full}/hog")
                r = run("unapply", "-e", env)
                check(r.returncode == 0, "with room it goes back", r)
        else:
            failed += 1
            one_sentence(r, f"apply, {full} has {free} KiB")
        if not os.path.exists("proj/hog"):
            open("proj/hog", "wb").close()
        as_it_was(was, f"{full} has {free} KiB")
        if os.path.exists(f"{full}/hog"):
            os.remove(f"{full}/hog")
    check(failed >= 2, f"{full}: there was no room", failed)
    check(run("status", "-e", env).returncode == 0, "the environment is usable")
    r = run("apply", "-e", env)
    check(r.returncode == 0, f"{full}: with room it goes through", r)
    now = snapshot("proj/p")
    check(now["big"][3] == b"x" * 1600000 and "gone" not in now and len(now["new"][3]) == 900000 and now["moved"][3] == body(5, 200 * KIB) and
          now["e/in"][3] == body(4, 300 * KIB), f"{full}: all of it")
    leave("proj", 0)
    r = run("unapply", "-e", env)
    one_sentence(r, f"{full}: unapply without room")
    check(not differ(now, snapshot("proj/p")), f"{full}: nothing was taken back")
    os.remove("proj/hog")
    r = run("unapply", "-e", env)
    check(r.returncode == 0 and not differ(was, snapshot("proj/p")), f"{full}: unapply", (r, differ(was, snapshot("proj/p"))))

# ---- two directories that are taken back together ----
for name in "ab":
    disk(name)
    os.mkdir(f"{name}/p")


def heads():
    return {name: pathlib.Path(name, "p/f").read_bytes()[:3] for name in "ab"}


applied = set()
for full in "ab":
    for name in "ab":
        pathlib.Path(name, "p/f").write_bytes(b"old" * 100000)
        pathlib.Path(name, "p/g").write_bytes(b"old\n")
    env = f"one-{full}"
    r = run("run", "-e", env, "--overlay", f"{here}/a/p=/workspace", "--overlay", f"{here}/b/p=/home/user/b", "-c",
            "for d in /workspace /home/user/b; do head -c 300000 /dev/zero | tr '\\0' n > $d/f; echo new > $d/g; done; sync")
    check(r.returncode == 0, "two directories", r.stderr)
    leave(full, 0)
    for args in ["--json"], []:
        r = run("apply", "-e", env, *args)
        done_ = [name for name in "ab" if heads()[name] == b"nnn"]
        lines = r.stderr.splitlines()
        check(r.returncode == 1 and full not in done_ and f"nothing was applied to {here}/{full}/p: make room, and apply again" in lines[0], f"{full} is full: apply {args} fails", (r, done_))
        want = [f"rattan: {'' if name in done_ else 'not '}applied: {here}/{name}/p" for name in "ab"] + [f"rattan: 2 applied; to take it back:  rattan unapply -e {env}"] if done_ else []
        check(sorted(lines[1:]) == sorted(want) and lines[-1] == (want or lines)[-1], f"{full} is full: what was applied, and how it is taken back {args}", (lines, want))
        if args:
            got = {(c["directory"], c["path"]): c["applied"] for c in json.loads(r.stdout) if c["verdict"] == "apply"}
            check(all(got.get((f"{here}/{name}/p", n)) for name in done_ for n in "fg") and not any(v for (d, _), v in got.items() if d == f"{here}/{full}/p"), "JSON says both", got)
        applied.add(len(done_))
        r = run("unapply", "-e", env)
        check(r.returncode == (0 if done_ else 3) and set(heads().values()) == {b"old"}, f"{full} is full: and it is taken back", (r, heads()))
    os.remove(f"{full}/hog")
    for name in "ab":
        os.remove(f"{name}/p/g")
check(applied == {0, 1}, "the full disk was the first's, and the second's", applied)

ended = set()
for full in "ab":
    for name in "ab":
        pathlib.Path(name, "p/f").write_bytes(b"old" * 100000)
    env = f"two-{full}"
    r = run("run", "-e", env, "--overlay", f"{here}/a/p=/workspace", "--overlay", f"{here}/b/p=/home/user/b", "-c",
            "echo new > /workspace/f; echo new > /home/user/b/f; sync")
    check(r.returncode == 0, "two directories", r.stderr)
    r = run("apply", "-e", env)
    check(r.returncode == 0 and set(heads().values()) == {b"new"}, "both are applied", (r, heads()))
    leave(full, 0)
    r = run("unapply", "-e", env)
    now = heads()
    back = [name for name in "ab" if now[name] == b"old"]
    first, *rest = r.stderr.splitlines()
    check(r.returncode == 1 and now[full] == b"new" and "o space left" in first and first.endswith(": make room, and unapply again"),
          f"{full} is full: unapply fails", (r, now))
    check(("nothing was taken back" in first) == (not back), f"{full} is full: it says nothing was taken back only when it is so", (r, now))
    want = [f"rattan: taken back: {here}/{name}/p" for name in back] + [f"rattan: not taken back: {here}/{full}/p"] if back else []
    check(rest == want, f"{full} is full: what came back, and what did not", (rest, want))
    ended.add(len(back))
    os.remove(f"{full}/hog")
    r = run("unapply", "-e", env)
    check(r.returncode == 0 and set(heads().values()) == {b"old"}, f"{full} has room: the rest comes back", (r, heads()))
    r = run("unapply", "-e", env)
    check(r.returncode == 3, f"{full}: and that was all", r)
check(ended == {0, 1}, "the full disk was the first's, and the second's", ended)
done()
