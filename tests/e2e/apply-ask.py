#!/usr/bin/python3
"""rattan apply -p of many files: each question is about the right one, with few diff(1)s, the first at once; and what was shown is what comes."""
# timeout: 240
import os
import resource
import shutil
import subprocess

from lib import check, done, here, rattan

N = 150
REAL = shutil.which("diff")
os.mkdir("bin")
with open("bin/diff", "w") as f:
    f.write(f'#!/bin/sh\necho >> {here}/started\nexec {REAL} "$@"\n')
os.chmod("bin/diff", 0o755)
os.mkdir("p")
ENV = dict(os.environ, PATH=f"{here}/bin:{os.environ['PATH']}")


def sh(text):
    r = subprocess.run([rattan, "run", "-e", "p", "--overlay", f"{here}/p=/workspace", "-c", f"cd /workspace; {text}"], capture_output=True, text=True)
    check(r.returncode == 0, text[:60], r.stderr)


def apply(stdin, **kw):
    return subprocess.run([rattan, "apply", "-p", "-e", "p"], input=stdin, capture_output=True, text=True, env=ENV, **kw)


def read(name):
    return open(f"p/{name}").read() if os.path.exists(f"p/{name}") else None


was, want = {}, {}
for i in range(N):
    was[f"{i:03}"] = f"{i}\n" * 3
    with open(f"p/{i:03}", "w") as f:
        f.write(was[f"{i:03}"])
with open("p/bin", "wb") as f:
    f.write(b"\0\n")
sh("for f in [0-9]*; do echo more >> $f; done; rm 007 030; echo new > 031a; printf '\\0' > 050; echo more >> bin")
answers, at = [], 0
for i in range(N):
    name = f"{i:03}"
    taken = i % 3 != 1
    answers.append("y" if taken else "n")
    want[name] = was[name] if not taken else was[name] + "more\n"
    if i in (7, 30):
        want[name] = None if taken else was[name]
    if i == 31:
        answers.append("y")  # 031a
want["050"] = "\0" if 50 % 3 != 1 else was["050"]

r = apply("\n".join(answers) + "\nn\n")
check(r.returncode == 0, "applied", r.stderr)
got = {n: read(n) for n in want}
check(got == want, "each answer was for its file", [(n, got[n], want[n]) for n in want if got[n] != want[n]][:5])
check(read("031a") == "new\n" and open("p/bin", "rb").read() == b"\0\n", "what has no hunks", r.stdout[-300:])
started = len(open("started").readlines())
check(started <= 5, "one diff(1) for many", started)

# ---- few descriptors ----
r = apply("y\n" * (N + 9), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 4096)))
check(r.returncode == 0 and all(read(f"{i:03}") == was[f"{i:03}"] + "more\n" for i in range(N) if i not in (7, 30, 50)), "the rest, with a low limit of descriptors", r.stderr)

# ---- what was shown is what comes ----
for how, first in (("y", "y\n"), ("a", "a\n"), ("y of two", "y\n")):
    sh("echo shown >> 003" + ("; sed -i 1s/^/top/ 003" if "two" in how else ""))
    before = read("003")
    p = subprocess.Popen([rattan, "apply", "-p", "-e", "p"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV)
    said = b""
    while b"]? " not in said:
        c = os.read(p.stdout.fileno(), 4096)
        if not c:
            break
        said += c
    check(b"+shown" in said or "two" in how, f"{how}: the hunk is shown", said)
    sh("echo evil >> 003; sed -i 's/shown/hidden/' 003")
    out, err = p.communicate(first.encode() * 2, timeout=60)
    check(p.returncode == 0, f"{how}: applied", err)
    after = read("003")
    check("evil" not in after and "hidden" not in after and after.endswith("shown\n"), f"{how}: what was shown has come, not what a command made of it meanwhile", after)
    sh("sed -i -e /evil/d -e s/hidden/shown/ 003")
done()
