#!/usr/bin/python3
"""rattan diff of many files: what diff(1) says of each pair alone, byte for byte and in its place, with one diff(1) for hundreds of them."""
# timeout: 300
import glob
import json
import os
import random
import resource
import shutil
import subprocess

from lib import check, done, here, rattan

rnd = random.Random(os.environ.get("RATTAN_SEED") or 8)
REAL = shutil.which("diff")
os.mkdir("bin")
with open("bin/diff", "w") as f:
    f.write(f'#!/bin/sh\necho >> {here}/started\nexec {REAL} "$@"\n')
os.chmod("bin/diff", 0o755)


def run(*args, env=None, **kw):
    return subprocess.run([rattan, *args], capture_output=True, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}, **kw)


LIKE = [b"diff -ru /proc/1/fd/100 /proc/2/fd/101", b"@@ -1 +1 @@", b"-- a/x", b"++ b/x", b"Binary files /proc/1/fd/9 and /proc/1/fd/9 differ", b"\\ No newline at end of file",
        b"", b"\xff\xfe", b"one", b"two", b"three", b" ", b"\t"]


def content():
    lines = [rnd.choice(LIKE) for _ in range(rnd.randrange(25))]
    return b"\n".join(lines) + (b"\n" if rnd.random() < .7 else b"")


def change(c):
    lines = c.split(b"\n")
    for _ in range(rnd.randrange(1, 4)):
        at = rnd.randrange(len(lines) + 1)
        lines[at:at + rnd.randrange(2)] = [rnd.choice(LIKE)]
    c = b"\n".join(lines)
    return c + b"\0x\n" * (rnd.random() < .02)


os.makedirs("old/d")
os.makedirs("new/d")
old, new = {}, {}
for i in range(900):
    name = b"d/%03d" % i + rnd.choice([b"", b"", b"", b" \"q\"", b"\nb", b"\xc3\xa9", b"\xff"])
    if rnd.random() < .9:
        old[name] = content()
    if rnd.random() < .9:
        new[name] = change(old.get(name, b"x\n"))
old[b"d/big"], new[b"d/big"] = b"a\n", b"b\n" * (40 << 20)
old[b"d/large"] = b"".join(b"%d\n" % i for i in range(1 << 20))
new[b"d/large"] = old[b"d/large"].replace(b"\n77777\n", b"\nother\n")
for tree, files in ((b"old", old), (b"new", new)):
    for n, c in files.items():
        with open(tree + b"/" + n, "wb") as f:
            f.write(c)
for d in "old", "new":
    os.symlink(d, f"{d}/d/link")
os.chmod("new/d/large", 0o755)

os.environ["RATTAN_LOG"] = "debug"  # of the daemon
check(run("run", "-e", "m", "--overlay", f"{here}/old=/workspace", "-c", "cat d/large > /dev/null; : > mark").returncode == 0, "an environment")
check(run("commit", "-e", "m", "-m", "one").returncode == 0, "commit")
r = run("run", "-e", "m", "--bind-ro", f"{here}/new=/mnt/new", "-c", "cd d && find . -mindepth 1 -delete && cp -a /mnt/new/d/. .")
check(r.returncode == 0, "what is new", r)

listed = [c for c in json.loads(run("diff", "-e", "m", "--json").stdout) if not c["path"].endswith("/d")]


def alone(path):
    """Of one file, by the command that is asked about it alone; the list's line is not what is looked at."""
    return run("diff", "-e", "m", path).stdout.split(b"\n", 1)[1]


def quoted(n):
    return b'"' + b"".join(b"\\" + bytes([c]) if c in b'"\\' else bytes([c]) if 32 <= c < 127 else b"\\%03o" % c for c in n) + b'"' if any(c < 32 or c in b'"\\\xff' for c in n) else n


def by_hand(n):
    for d, c in (("a", old), ("b", new)):
        with open(f"side-{d}", "wb") as f:
            f.write(c[n])
    r = subprocess.run([REAL, "-u", "--label", quoted(b"a/workspace/" + n), "--label", quoted(b"b/workspace/" + n), "side-a", "side-b"], capture_output=True, env={"LC_ALL": "C"})
    return r.stdout


both = sorted(n for n in old if n in new and old[n] != new[n] and n != b"d/big")
check(len(both) > 600, "many are changed", len(both))
whole = run("diff", "-e", "m", env={"PATH": f"{here}/bin:{os.environ['PATH']}"})
started = open("started").read().count("\n")
check(whole.returncode == 0 and not whole.stderr, "all of it", (whole.returncode, whole.stderr))
check(started <= len(both) / 100, "a diff(1) for hundreds of files, not for each", started)
opened = [line for f in glob.glob(f"{os.environ['XDG_RUNTIME_DIR']}/rattan/*-m/log") for line in open(f, errors="replace") if "is opened to be looked at" in line]
check(0 < len(opened) < len(both) / 10, "nor is a state opened anew for each", len(opened))
text, at = whole.stdout, 0
check(b"a/workspace/d/big and b/workspace/d/big differ; they are over 32 MiB and not shown\n" in text, "what is too big is said to be", text[-300:])
check(b"mode of /workspace/d/large: 100644 -> 100755\n" in text, "modes", text[-300:])
for n in both:
    want = by_hand(n)
    found = text.find(want, at)
    check(found >= 0, f"{n!r}: as diff(1) has it, in its place", (want[:150], text[at:at + 150]))
    at = found + len(want) if found >= 0 else at
for n in sorted(set(old) ^ set(new))[:10] + [b"d/link"]:
    check(alone(os.fsdecode(b"/workspace/" + n)) in text, f"{n!r}: as when it is asked for alone")
heads = text.count(b"\n--- a/workspace") + text.count(b"\n--- \"a/workspace")
check(text.count(b"\n--- /dev/null\n") + heads >= len(both) - text.count(b"Binary files"), "nothing is left out")

print("== with few descriptors, and without diff(1)")
for n in 40, 100, 1024:
    r = run("diff", "-e", "m", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
    check(r.returncode == 0 and r.stdout == text, f"the same with {n}", (r.returncode, r.stderr, len(r.stdout), len(text)))
os.mkdir("none")
r = run("diff", "-e", "m", env={"PATH": f"{here}/none"})
check(r.returncode == 1 and b"the program diff is not installed" in r.stderr, "what is missing is named", r.stderr)
with open("none/diff", "w") as f:
    f.write("#!/bin/sh\nexit 2\n")
os.chmod("none/diff", 0o755)
r = run("diff", "-e", "m", env={"PATH": f"{here}/none:{os.environ['PATH']}"})
check(r.returncode == 1 and r.stderr.startswith(b"rattan: "), "a diff(1) that fails is no success", (r.returncode, r.stderr))
r = subprocess.run(f"{rattan} diff -e m | head -n 1", shell=True, capture_output=True)
check(r.stdout.count(b"\n") == 1 and not r.stderr, "a reader that has enough", r)
done()
