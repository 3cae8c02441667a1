#!/usr/bin/python3
"""New directories, and those that were removed and made anew: after `rattan apply` the environment shows no change there."""
# timeout: 240
import os
import signal
import subprocess

from lib import check, done, here, rattan


def run(*args, stdin=""):
    return subprocess.run([rattan, *args], capture_output=True, text=True, input=stdin)


class Project:
    def __init__(self, name, files):
        self.env, self.host = name, f"{here}/{name}"
        os.makedirs(self.host)
        for path, body in files.items():
            os.makedirs(os.path.dirname(f"{self.host}/{path}"), exist_ok=True)
            self.write(path, body)

    def sh(self, text):
        r = run("run", "-e", self.env, "--overlay", f"{self.host}=/workspace", "-c", f"cd /workspace; {text}")
        check(r.returncode == 0, f"sh: {text[:50]}", r.stderr)
        return r

    def apply(self, *args, **kw):
        return run("apply", "-e", self.env, *args, **kw)

    def names(self):
        return sorted(run("diff", "-e", self.env, "--name-status").stdout.splitlines())

    def read(self, path):
        try:
            return open(f"{self.host}/{path}").read()
        except OSError as e:
            return e.__class__.__name__

    def write(self, path, text):
        open(f"{self.host}/{path}", "w").write(text)


# ---- what was applied is no change ----
p = Project("new", {"other": "o\n"})
p.sh("mkdir -p d/in; echo x > d/y; echo z > d/in/z")
r = p.apply()
check("4 applied" in r.stderr, "a new directory is applied", r.stderr)
check(p.names() == [], "and is no change by then", p.names())
r = run("status", "-e", "new")
check("added" not in r.stdout and "deleted" not in r.stdout, "nor for the status", r.stdout)
r = p.sh("true")
check("changed" not in r.stderr and "added" not in r.stderr, "nor after a run", r.stderr)
os.mkdir(f"{p.host}/d/theirs")
p.write("d/theirs/t", "t\n")
p.write("d/y", "other\n")
check(p.names() == ["D /workspace/d/theirs/", "M /workspace/d/y"], "what only the host has there is hidden, and said so", p.names())

# ---- each thing is asked about, and what was answered is what comes ----
p = Project("declined", {"other": "o\n"})
p.sh("mkdir d; echo x > d/x; echo no > d/unwanted; mkdir e; echo e > e/e; mkdir g; echo g > g/g")
r = p.apply("-p", stdin="y\nn\ny\nn\ny\nn\n")
check(r.returncode == 0 and p.read("d/x") == "x\n", "what was taken has come", r.stdout + r.stderr)
check(not os.path.exists(f"{p.host}/d/unwanted"), "what was declined has not")
check(not os.path.exists(f"{p.host}/e") and os.listdir(f"{p.host}/g") == [], "nothing comes of a directory that was declined, and of one alone it alone", r.stdout)
check("e/e" not in r.stdout and "3 applied" in r.stderr, "what has no place then is not asked about", r.stdout + r.stderr)
check(p.names() == ["A /workspace/d/unwanted", "A /workspace/e/", "A /workspace/e/e", "A /workspace/g/g"], "the rest is still there to be applied", p.names())
r = p.apply("-p", stdin="y\ny\ny\ny\n")
check(p.names() == [] and p.read("g/g") == "g\n" and p.read("e/e") == "e\n", "and comes when it is taken", r.stdout + r.stderr)

FILES = {"d/x": "x\n" * 9, "d/keep": "k\n", "gone/a/b": "b\n", "gone/c": "c\n"}
p = Project("anew", FILES)
p.sh("rm -r d; mkdir d; for i in 1 2 3 4 5 6 7 8; do echo x; done > d/x; echo other >> d/x; echo no > d/unwanted")
dry = p.apply("--dry-run").stdout.splitlines()
check([x[:2] for x in dry if not x.startswith("M d ")] == ["D ", "A ", "M "], "a directory made anew is what differs in it", dry)
r = p.apply("-p", stdin="n\n" * 9)
asked = [x.split("]? ")[-1].split("  ")[0] for x in r.stdout.splitlines()]
asked = [x for x in asked if x[:2] in ("A ", "D ")]
check(asked == ["D d/keep", "A d/unwanted"] and "d/x: hunk 1 of 1" in r.stdout and "-x\n+other" in r.stdout, "what is asked about is what a dry run says, a text by hunks", r.stdout)
check(all(p.read(n) == b for n, b in FILES.items()) and not os.path.exists(f"{p.host}/d/unwanted"), "declined: all is as it was")
check("nothing was applied" in r.stderr and "has all of it" not in r.stderr, "and it says that", r.stderr)
r = p.apply("-p", stdin="n\nn\ny\n")
check(p.read("d/x") == "x\n" * 8 + "other\n" and p.read("d/keep") == "k\n" and not os.path.exists(f"{p.host}/d/unwanted"), "one of three", r.stdout + r.stderr)
p.sh("rm -r gone")
r = p.apply("-p", stdin="n\nn\nn\n")
check("D gone  (with all that is in the directory: 3)" in r.stdout and p.read("gone/a/b") == "b\n", "a directory that goes is one question, with how much is in it", r.stdout)
r = p.apply("-p", stdin="n\nn\ny\n")
check(not os.path.exists(f"{p.host}/gone") and p.read("d/keep") == "k\n", "and goes as a whole", r.stdout + r.stderr)

# ---- a directory in whose place a file comes, and the other way round ----
p = Project("types", {"dir/a": "a\n", "file": "f\n"})
p.sh("rm -r dir; echo now > dir; rm file; mkdir file; echo in > file/in")
r = p.apply("-p", stdin="n\nn\nn\n")
check(p.read("dir/a") == "a\n" and p.read("file") == "f\n" and "file/in" not in r.stdout, "declined", r.stdout)
r = p.apply("-p", stdin="y\nn\nn\n")
check(os.path.exists(f"{p.host}/dir") != (p.read("dir") == "now\n") or p.read("file") == "f\n", "the first alone", r.stdout + r.stderr)
r = p.apply("-p", stdin="y\n" * 9)
check(p.read("dir") == "now\n" and p.read("file/in") == "in\n" and p.names() == [], "all", r.stdout + r.stderr)

# ---- a conflict is said before the questions ----
p = Project("conflict", {"c": "1\n2\n", "ok": "1\n"})
p.sh("echo ours >> c; echo ours >> ok")
p.write("c", "1\n2\ntheirs\n")
r = subprocess.run(["sh", "-c", f"{rattan} apply -p -e conflict 2>&1"], capture_output=True, text=True, input="n\n")
check(r.returncode == 4 and "c: hunk" not in r.stdout and r.stdout.index("conflict: c: ") < r.stdout.index("ok: hunk 1"), "a conflict is no question, and said first", r.stdout)
check("nothing was applied" in r.stdout, "and what was declined was not applied", r.stdout)

# ---- Ctrl-C at the prompt ----
x = subprocess.Popen([rattan, "apply", "-p", "-e", "conflict"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
said = b""
while b"]? " not in said:
    c = os.read(x.stdout.fileno(), 4096)
    if not c:
        break
    said += c
x.send_signal(signal.SIGINT)
out, err = x.communicate(timeout=60)
check(x.returncode == 130 and b"rattan: interrupted; nothing was applied\n" in err and p.read("ok") == "1\n", "Ctrl-C says that nothing was applied", (x.returncode, err))
done()
