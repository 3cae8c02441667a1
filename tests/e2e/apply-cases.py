#!/usr/bin/python3
"""What `rattan apply` must not get wrong beside the plain case: hunks of texts of every kind, several host directories under one environment, a profile,
links that somebody plants and files that somebody exchanges while it runs."""
# timeout: 600
import json
import os
import pathlib
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from applylib import differ, snapshot
from lib import check, done, here, rattan


def run(*args, stdin="", **kw):
    return subprocess.run([rattan, *args], capture_output=True, text=True, errors="replace", input=stdin, **kw)


class Project:
    def __init__(self, name, files, mount="/workspace"):
        self.env, self.host, self.over = name, f"{here}/{name}", [f"{here}/{name}={mount}"]
        os.makedirs(self.host)
        for path, body in files.items():
            p = f"{self.host}/{path}"
            os.makedirs(os.path.dirname(p), exist_ok=True)
            open(p, "wb").write(body.encode() if isinstance(body, str) else body)

    def sh(self, text, *args):
        over = [x for o in self.over for x in ("--overlay", o)]
        r = run("run", "-e", self.env, *over, *args, "-c", text)
        check(r.returncode == 0, f"{self.env}: {text[:60]}", r.stderr)
        return r.stdout

    def apply(self, *args, **kw):
        return run("apply", "-e", self.env, *args, **kw)

    def unapply(self):
        return run("unapply", "-e", self.env)

    def read(self, path):
        try:
            return open(f"{self.host}/{path}", "rb").read()
        except OSError as e:
            return e.__class__.__name__


# ---- hunks: what is taken is there, byte for byte, and all of it is the tree's file ----
LINES = [f"{i}\n" for i in range(1, 31)]


def text(change={}, lines=LINES):
    return "".join(change.get(i + 1, line) for i, line in enumerate(lines))


CRLF = [line.replace("\n", "\r\n") for line in LINES]
HUNKS = { # name: before, after, what the first hunk alone makes of it
    "plain": (text(), text({2: "two\n", 28: "x\n"}), text({2: "two\n"})),
    "crlf": (text(lines=CRLF), text({2: "two\r\n", 28: "x\r\n"}, CRLF), text({2: "two\r\n"}, CRLF)),
    "to-crlf": (text(), text({2: "2\r\n", 28: "28\r\n"}), text({2: "2\r\n"})),
    "no-end": (text()[:-1], text({2: "two\n", 30: "end"})[:], text({2: "two\n"})[:-1]),
    "end-gone": (text(), text({2: "two\n"})[:-1], text({2: "two\n"})),
    "end-comes": (text()[:-1], text({2: "two\n"}), text({2: "two\n"})[:-1]),
    "first-line": (text(), "new\n" + text({28: "x\n"}), "new\n" + text()),
    "last-gone": (text(), text({2: "two\n", 29: "", 30: ""}), text({2: "two\n"})),
    "like-a-diff": (text({15: "@@ -1 +1 @@\n", 16: "--- a\n", 17: "\\ No newline\n"}), text({2: "two\n", 15: "@@ -2 +2 @@\n", 16: "+++ b\n", 17: "\\ No\n"}),
                    text({2: "two\n", 15: "@@ -1 +1 @@\n", 16: "--- a\n", 17: "\\ No newline\n"})),
    "latin-1": (text({15: "x\n"}).encode() + b"\xe4\xff\n", text({2: "two\n", 15: "x\n"}).encode() + b"\xf6\xff\n", text({2: "two\n", 15: "x\n"}).encode() + b"\xe4\xff\n"),
}
HUNKS = {k: tuple(x if isinstance(x, bytes) else x.encode() for x in v) for k, v in HUNKS.items()}
p = Project("hunks", {k: v[0] for k, v in HUNKS.items()})
for k, (_, after, _) in HUNKS.items():
    open(f"{here}/{k}.new", "wb").write(after)
    r = subprocess.run([rattan, "run", "-e", p.env, "--overlay", p.over[0], "-c", f"cat > /workspace/{k}"], stdin=open(f"{here}/{k}.new", "rb"))
    check(r.returncode == 0, f"{k} is written")
for k, (before, after, first) in HUNKS.items():
    r = p.apply("-p", k, stdin="y\nd\n")
    check(r.returncode == 0 and p.read(k) == first, f"{k}: the first hunk", f"{p.read(k)!r} {r.stdout} {r.stderr}")
    r = p.apply("-p", k, stdin="a\n")
    check(r.returncode == 0 and p.read(k) == after, f"{k}: the rest", f"{p.read(k)!r} {r.stdout} {r.stderr}")
    check(p.unapply().returncode == 0 and p.read(k) == first and p.unapply().returncode == 0 and p.read(k) == before, f"{k}: and back, one by one")
    r = p.apply("-p", k, stdin="n\n" * 4)
    check(r.returncode == 0 and p.read(k) == before, f"{k}: none of it", r.stdout + r.stderr)
# Cut between unchanged lines, the second part alone; with a line end that is missing in one of both.
r = p.apply("-p", "no-end", stdin="n\ny\n")
check(p.read("no-end") == text({30: "end"}).encode(), "the end of a file without its last line end", f"{p.read('no-end')!r}")

p = Project("whole", {"bin": b"\0\1\2" * 100, "empty": "", "full": "a\nb\n", "mode": "m\nn\n", "old": "r\n" * 30, "size": "s"})
p.sh("cd /workspace; printf 'now\\0' > bin; echo text > empty; : > full; echo more >> mode; chmod 755 mode; mv old new; echo s >> new")
r = p.apply("-p", "bin", stdin="n\n")
check(r.returncode == 0 and "hunk" not in r.stdout and p.read("bin") == b"\0\1\2" * 100, "bytes are asked about as a whole, and left", r.stdout)
check(p.apply("-p", "bin", stdin="y\n").returncode == 0 and p.read("bin") == b"now\0", "or taken")
check(p.apply("-p", "empty", stdin="y\n").returncode == 0 and p.read("empty") == b"text\n", "what was empty")
check(p.apply("-p", "full", stdin="y\n").returncode == 0 and p.read("full") == b"", "what is empty now")
r = p.apply("-p", "mode", stdin="y\n")
check(r.returncode == 0 and p.read("mode") == b"m\nn\nmore\n" and os.stat(f"{p.host}/mode").st_mode & 0o777 == 0o755, "a mode comes with what the file says", r.stdout + r.stderr)
r = p.apply("-p", "new", stdin="n\n")
check(r.returncode == 0 and p.read("new") == "FileNotFoundError" and p.read("old") == b"r\n" * 30, "a rename with other bytes is one question", r.stdout)
r = p.apply("-p", "new", stdin="y\n")
check(r.returncode == 0 and p.read("old") == "FileNotFoundError" and p.read("new") == b"r\n" * 30 + b"s\n", "and comes whole", r.stdout + r.stderr)
for _ in range(5):
    check(p.unapply().returncode == 0, "back")
check(p.read("old") == b"r\n" * 30 and p.read("bin") == b"\0\1\2" * 100 and p.read("full") == b"a\nb\n" and os.stat(f"{p.host}/mode").st_mode & 0o777 == 0o644, "all of it")

# ---- there, back, and there again: what a change is based on was at a place that another directory has had since ----
p = Project("again", {"b/f": "f\n", "b/s/in": "in\n", "b/two": "2\n", "g/two": "1\n", "g/x": "x\n", "e/d/x": "x\n", "e/y": "y\n"})
before = snapshot(p.host)
p.sh("cd /workspace; rm -r g; mv b g; echo more >> g/f; chmod 700 g/s; echo more >> g/s/in; echo more >> g/two; mv e h; rm -r h/d; mkdir h/d; echo n > h/d/n; echo more >> h/y")
for i in range(3):
    r = p.apply()
    check(r.returncode == 0 and [p.read(x) for x in ("g/f", "g/s/in", "g/x", "h/d/n", "h/d/x", "h/y", "b/f", "e/y")] ==
          [b"f\nmore\n", b"in\nmore\n", "FileNotFoundError", b"n\n", "FileNotFoundError", b"y\nmore\n", "FileNotFoundError", "FileNotFoundError"],
          f"a directory that has taken another's place, time {i}", r.stdout + r.stderr)
    check(p.unapply().returncode == 0 and snapshot(p.host) == before, "and back", str(differ(snapshot(p.host), before)))
p.sh("cd /workspace; echo again >> g/f")
os.unlink(f"{p.host}/g/two")
open(f"{p.host}/g/new", "w").write("somebody's\n")
r = p.apply()
check(r.returncode == 4 and "g/new" in r.stderr and p.read("g/new") == b"somebody's\n", "what somebody makes in it is left alone", r.stdout + r.stderr)
check("conflict: g/two: what it replaces was removed" in r.stderr and p.read("g/two") == "FileNotFoundError" and p.read("g/f") == b"f\nmore\nagain\n",
      "and so is what he removes", r.stdout + r.stderr)

p = Project("gone", {"d/x": "x\n", "d/y": "y\n"})
p.sh("rm /workspace/d/x")
check(p.apply().returncode == 0 and p.read("d/x") == "FileNotFoundError", "a name is removed")
p.sh("cd /workspace; echo new > d/x; mv d e")
check(p.apply().returncode == 0 and p.read("e/x") == b"new\n" and p.unapply().returncode == 0 and p.read("d/x") == "FileNotFoundError",
      "its directory is renamed, and back")
p.sh("mv /workspace/e /workspace/d")
r = p.apply()
check(r.returncode == 0 and p.read("d/x") == b"new\n", "what was made under that name since", r.stdout + r.stderr)

# ---- several host directories ----
p = Project("one", {"a": "a\n", "moves": "m\n", "d/x": "x\n"}, "/workspace/one")
q = Project("two", {"b": "b\n", "taken": "t\n"}, "/workspace/two")
p.over += q.over
before = snapshot(p.host), snapshot(q.host)
p.sh("cd /workspace; echo more >> one/a; echo more >> two/b; mv one/moves two/moves; mv two/taken one/d/x; echo out > outside")
r = p.apply("one/a")
check(r.returncode == 0 and p.read("a") == b"a\nmore\n" and q.read("b") == b"b\n", "one of two directories", r.stdout + r.stderr)
r = p.apply()
check(r.returncode == 0 and q.read("b") == b"b\nmore\n" and q.read("moves") == b"m\n" and p.read("moves") == "FileNotFoundError" and p.read("d/x") == b"t\n" and
      q.read("taken") == "FileNotFoundError", "what moved between them", r.stdout + r.stderr)
run("commit", "-e", "one", "-m", "x")
run("fork", "three", "-e", "one")
p.env = "three"
check(p.sh("cd /workspace; cat two/moves one/d/x one/a two/b") == "m\nt\na\nmore\nb\nmore\n", "is in the sandbox as well")
p.env = "one"
r = p.unapply()
check(r.returncode == 0 and p.read("moves") == b"m\n" and q.read("moves") == "FileNotFoundError" and q.read("b") == b"b\n", "one unapply takes both back", r.stderr)
check(p.unapply().returncode == 0 and (snapshot(p.host), snapshot(q.host)) == before, "and the first one", str(differ(snapshot(p.host), before[0]) + differ(snapshot(q.host), before[1])))

# ---- one host directory at two places ----
p = Project("twice", {"f": "1\n"}, "/workspace/x")
p.over.append(f"{p.host}=/workspace/y")
p.sh("echo n > /workspace/x/n; echo m > /workspace/y/m")
r = p.apply()
check(r.returncode == 0 and p.read("n") == b"n\n" and p.read("m") == b"m\n", "what was changed at either place comes at once", r.stdout + r.stderr)
check(p.unapply().returncode == 0 and sorted(os.listdir(p.host)) == ["f"], "and goes together", os.listdir(p.host))

# ---- somebody plants links, and exchanges files, while it runs ----
p = Project("swaps", {"f": "f\n", "d/x": "x\n", "e": "e\n"})
outside = f"{here}/aside"
os.makedirs(f"{outside}/d")
for name in ("f", "d/x", "d/new"):
    open(f"{outside}/{name}", "w").write("not for anybody\n")
os.makedirs(f"{here}/links")
os.symlink(f"{outside}/f", f"{here}/links/f")
os.symlink(f"{outside}/d", f"{here}/links/d")
open(f"{here}/links/e", "w").write("somebody's\n")
was = snapshot(outside)
p.sh("cd /workspace; echo more >> f; echo more >> d/x; echo new > d/new; echo more >> e; chmod 700 d")
stop = threading.Event()
SWAP = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
host, links = sys.argv[1:3]
while True:
    for n in ("f", "d", "e"):
        libc.renameat2(-100, f"{host}/{n}".encode(), -100, f"{links}/{n}".encode(), 2)
"""
swapper = subprocess.Popen([sys.executable, "-c", SWAP, p.host, f"{here}/links"])
ends = {}
for i in range(30):
    r = p.apply()
    said = "went through" if r.returncode == 0 else "in this moment" if "in this moment" in r.stderr else "conflict" if r.returncode == 4 else r.stderr[-100:]
    ends[said] = ends.get(said, 0) + 1
    p.unapply()
swapper.kill()
swapper.wait()
print("while files were exchanged:", ends)
r = p.apply("--dry-run")
check(snapshot(outside) == was, "what a planted link leads to is never touched", str(differ(snapshot(outside), was)))
both = [open(f"{x}/e").read() for x in (p.host, f"{here}/links") if not os.path.islink(f"{x}/e")]
check("somebody's\n" in both, "what somebody has put there is never lost", str(both))
links = [n for n in ("f", "d") for x in (p.host, f"{here}/links") if os.path.islink(f"{x}/{n}")]
check(links == ["f", "d"], "nor are the links", str(links))
check(not [n for n in os.listdir(p.host) if n.startswith(".rattan")], "nothing of ours is left", str(os.listdir(p.host)))

# ---- one part first: what was not chosen can be chosen afterwards, also below a directory that was made anew ----
p = Project("parts", {"d/1": "1\n", "d/2": "2\n", "d/s/3": "3\n", "e/1": "1\n", "gone": "g\n", "f": "f\n"})
was = snapshot(p.host)
p.sh("cd /workspace; rm -r d; mkdir d; echo n > d/new; echo 22 > d/2; echo more >> e/1; rm gone; mkdir gone; echo x > gone/x; echo F > f")
for first in ["e"], ["*.none", "f"], ["d/new"]:
    r = p.apply(*[w for w in first if w != "*.none"])
    check(r.returncode == 0 and "conflict" not in r.stderr, f"{first} alone", r)
    r = p.apply("--dry-run")
    check(r.returncode == 0 and "conflict" not in r.stderr, f"{first} first: the rest is no conflict", r.stderr)
    r = p.unapply()
    check(r.returncode == 0 and not differ(was, snapshot(p.host)), f"{first} is taken back", (r, differ(was, snapshot(p.host))))
    r = p.apply("--dry-run")
    check(r.returncode == 0 and "D d/1\n" in r.stdout, f"{first} was taken back: all of it again, and no conflict", r)
for first in ["e"], ["f"], []:
    r = p.apply(*first)
    check(r.returncode == 0, f"{first}", r)
now = snapshot(p.host)
check({n for n in now if now[n][0] != 0o040000} == {"d/new", "d/2", "e/1", "gone/x", "f"} and p.read("d/2") == b"22\n" and p.read("gone/x") == b"x\n", "part by part it is all there", now.keys())
for _ in range(3):
    p.unapply()
check(not differ(was, snapshot(p.host)), "and part by part it goes back", differ(was, snapshot(p.host)))
done()
