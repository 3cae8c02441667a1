#!/usr/bin/python3
"""`rattan apply`: each kind of change, what is chosen, conflicts with what the host has changed meanwhile, names that never go there, links
that somebody planted, hunks, exit codes; and `unapply`."""
# timeout: 600
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import applylib
from applylib import differ, snapshot
from lib import check, done, here, rattan


def run(*args, stdin=""):
    return subprocess.run([rattan, *args], capture_output=True, text=True, errors="replace", input=stdin)


class Project:
    """A host directory, an environment over it."""

    def __init__(self, name, files):
        self.env, self.host = name, f"{here}/{name}"
        for path, body in files.items():
            p = f"{self.host}/{path}"
            os.makedirs(os.path.dirname(p), exist_ok=True)
            if body is not None:
                open(p, "w").write(body)
        os.makedirs(self.host, exist_ok=True)

    def sh(self, text):
        r = run("run", "-e", self.env, "--overlay", f"{self.host}=/workspace", "-c", text)
        if r.returncode:
            print("sh:", r.returncode, r.stderr[-500:])
        return r

    def apply(self, *args, **kw):
        return run("apply", "-e", self.env, *args, **kw)

    def unapply(self, *args):
        return run("unapply", "-e", self.env, *args)

    def snap(self):
        return snapshot(self.host)

    def read(self, path):
        try:
            return open(f"{self.host}/{path}").read()
        except OSError as e:
            return e.__class__.__name__

    def write(self, path, text):
        open(f"{self.host}/{path}", "w").write(text)


# ---- every kind of change ----
p = Project("kinds", {"keep": "k\n", "edit": "one\n", "sed": "one\n", "gone": "g\n", "mode": "m\n", "was-dir/x": "x\n", "was-file": "f\n",
                      "old-name": "r\n", "tree/a/b": "b\n", "tree/c": "c\n", "del/x/y": "y\n", "del/z": "z\n", "moved-dir/in": "in\n"})
os.symlink("keep", f"{p.host}/link")
before = p.snap()
r = p.sh("""cd /workspace; echo two >> edit; sed -i s/one/two/ sed; rm gone; chmod 755 mode; rm -r was-dir; echo now > was-dir; rm was-file; mkdir was-file
            echo n > was-file/n; mv old-name new-name; mv tree/a tree/moved; rm -r del; ln -sf edit link; mkdir -p new/deep; echo d > new/deep/file; mv moved-dir new/
            ln -s /etc/passwd new/abs; mkfifo new/pipe; touch -d @1600000000 keep; : > empty""")
check(r.returncode == 0, "changes are made", r.stderr)
r = p.apply("--dry-run")
check(r.returncode == 0 and p.snap() == before, "a dry run changes nothing", r.stderr)
for line in ("M edit", "M sed", "D gone", "M mode  (mode)", "A was-dir", "T was-file", "R old-name -> new-name", "R tree/a -> tree/moved", "D del", "M link", "A new/deep/file"):
    check(line in r.stdout.splitlines(), f"a dry run says: {line}", r.stdout)
want = eval(p.sh("true") and subprocess.run([rattan, "run", "-e", "kinds", "--overlay", f"{p.host}=/workspace", "--", "python3", "-", "snapshot"],
                                            input=open(applylib.__file__).read(), capture_output=True, text=True).stdout)
r = p.apply()
check(r.returncode == 0 and p.snap() == want, "the host is what the sandbox shows", r.stderr + str(differ(p.snap(), want)))
check("unapply" in r.stderr, "it says how to take it back", r.stderr)
check(p.sh("cat /workspace/new-name /workspace/tree/moved/b /workspace/new/moved-dir/in").stdout == "r\nb\nin\n", "what was renamed is in the sandbox, too")
r = p.apply()
check(r.returncode == 0 and "nothing to apply" in r.stderr and not r.stdout, "applied twice, nothing is left to be done", r.stdout + r.stderr)
r = p.unapply("--list")
check(r.returncode == 0 and "(applied)" in r.stdout, "it is listed", r.stdout)
r = p.unapply()
check(r.returncode == 0 and p.snap() == before, "taken back, byte for byte", r.stderr + str(differ(p.snap(), before)))
r = p.unapply()
check(r.returncode == 3 and "nothing of kinds" in r.stderr, "and there is nothing more to be taken back", r.stderr)
check("(taken back)" in p.unapply("--list").stdout, "the list says so")

# ---- some of it ----
p = Project("some", {"a.c": "a\n", "b.h": "b\n", "src/c.c": "c\n", "src/sub/d.c": "d\n", "doc/e": "e\n"})
p.sh("cd /workspace; for f in a.c b.h src/c.c src/sub/d.c doc/e; do echo more >> $f; done; mkdir -p x/y; echo 1 > x/y/1.c; echo 2 > x/2; rm -f doc/none")
check(p.apply("b.h").returncode == 0 and p.read("b.h") == "b\nmore\n" and p.read("a.c") == "a\n", "one path")
check(p.apply("*.c").returncode == 0 and [p.read(f) for f in ("a.c", "src/c.c", "src/sub/d.c", "x/y/1.c", "x/2", "doc/e")] ==
      ["a\nmore\n", "c\nmore\n", "d\nmore\n", "1\n", "FileNotFoundError", "e\n"], "a pattern of names, with the directories that it needs")
check(p.apply(f"{p.host}/doc").returncode == 0 and p.read("doc/e") == "e\nmore\n", "a path of the host")
r = p.apply("nowhere")
check(r.returncode == 3 and "no change" in r.stderr, "a path without a change is an error", r.stderr)
r = p.apply("--json", "--dry-run")
check(r.returncode == 0 and [c["path"] for c in json.loads(r.stdout) if c["verdict"] == "apply"] == ["x/2"], "as JSON", r.stdout)
check(p.apply("--forse").returncode == 2 and "--force" in p.apply("--forse").stderr, "an unknown option suggests the nearest")
check(p.apply("--force").returncode == 2, "force needs paths")
check(run("apply", "-e", "nosuch").returncode == 3, "no environment")
run("run", "-e", "plain", "-c", "true")
check(run("apply", "-e", "plain").returncode == 3, "an environment without a host directory")

# ---- what the host has changed meanwhile ----
files = {n: n + "\n" for n in ("edit", "sed", "gone", "mode", "made", "renamed", "same", "replaced", "rm-host", "rm-both")} | {"dir/in": "in\n", "dir2/in": "in\n"}
files.pop("made")
p = Project("drift", files)
p.sh("cd /workspace; for f in edit same rm-host; do echo more >> $f; done; sed -i s/s/S/ sed replaced; rm gone rm-both; chmod 700 mode; echo mine > made; mv renamed other; rm -r dir dir2")
for f in ("edit", "sed", "gone", "renamed", "mode"):
    p.write(f, "the user's\n")
p.write("made", "the user's\n")
p.write("dir/in", "the user's\n")
p.write("dir2/new", "the user's\n")
os.unlink(f"{p.host}/rm-host")
os.unlink(f"{p.host}/rm-both")
os.unlink(f"{p.host}/replaced")
was = p.snap()
r = p.apply()
now = p.snap()
check(r.returncode == 4, "conflicts have an exit code", f"{r.returncode} {r.stderr}")
for f in ("edit", "sed", "gone", "made", "dir", "dir2", "rm-host", "replaced"):
    check(f"conflict: {f}:" in r.stderr and {k: v for k, v in now.items() if k.split("/")[0] == f} == {k: v for k, v in was.items() if k.split("/")[0] == f},
          f"{f} is a conflict and left alone", r.stderr)
check(p.read("same") == "same\nmore\n" and os.stat(f"{p.host}/mode").st_mode & 0o777 == 0o700 and p.read("mode") == "the user's\n",
      "what has not drifted goes through; a mode does not mind other bytes", r.stderr)
check(p.read("other") == "the user's\n" and "renamed" not in now, "a rename takes along what it has by now")
r = p.apply("--force", "edit", "dir2")
check(r.returncode == 0 and p.read("edit") == "edit\nmore\n" and not os.path.exists(f"{p.host}/dir2"), "by force, the paths that are named", r.stderr)
r = p.unapply()
check(r.returncode == 0 and p.read("edit") == "the user's\n" and p.read("dir2/new") == "the user's\n", "and what was written over comes back", r.stderr)
r = p.apply("edit")
check(r.returncode == 4 and p.read("edit") == "the user's\n", "it is a conflict again", r.stderr)
# The sandbox goes on from what was applied.
p = Project("again", {"f": "0\n"})
for i in range(3):
    p.sh(f"echo {i} >> /workspace/f; echo {i} > /workspace/new")
    r = p.apply()
    check(r.returncode == 0 and p.read("new") == f"{i}\n", f"applied again, {i}", r.stderr)
p.sh("rm /workspace/new /workspace/f")
check(p.apply().returncode == 0 and os.listdir(p.host) == [], "what was applied is removed again")
p.write("f", "new on the host\n")
r = p.apply()
check(r.returncode == 4 and p.read("f") == "new on the host\n", "but not what the host has made since", r.stderr)

# ---- a directory made anew, with something moved onto a name that the old one had ----
FILES = {"d/file": "old\n", "d/dir/in": "old\n", "d/out": "o\n", "d/over": "old\n", "d/same": "s\n", "y": "y\n", "z": "z\n", "t/in": "t\n", "u/in": "u\n"}
ANEW = """cd /workspace; mv d/out kept; rm -r d; mkdir d; echo s > d/same; mv y d/file; mv z d/dir; mv t d/over; mv u d/out"""
p = Project("anew", FILES)
before = p.snap()
check(p.sh(ANEW).returncode == 0, "a directory is made anew")
r = p.apply()
check(r.returncode == 0 and not [n for n in ("y", "z", "t", "u") if os.path.lexists(f"{p.host}/{n}")]
      and [p.read(n) for n in ("d/file", "d/dir", "d/over/in", "d/out/in", "kept", "d/same")] == ["y\n", "z\n", "t\n", "u\n", "o\n", "s\n"],
      "what was moved onto the old names is there", r.stdout + r.stderr)
check(p.unapply().returncode == 0 and p.snap() == before, "and all of it can be taken back", str(differ(p.snap(), before)))
r = p.apply("d/file")
check(r.returncode == 0 and p.read("d/file") == "y\n" and p.read("d/dir/in") == "old\n", "one of them alone takes the old one away", r.stdout + r.stderr)
p = Project("anew-drift", FILES)
p.sh(ANEW)
p.write("d/file", "theirs\n")
p.write("d/dir/theirs", "new\n")
r = p.apply()
check(r.returncode == 4 and p.read("d/file") == "theirs\n" and p.read("d/dir/theirs") == "new\n" and p.read("y") == "y\n" and p.read("d/over/in") == "t\n",
      "what the host has changed of the old names stays", r.stdout + r.stderr)
r = p.apply("--force", "d/file")
check(r.returncode == 0 and p.read("d/file") == "y\n" and p.read("d/dir/theirs") == "new\n", "unless it is forced", r.stdout + r.stderr)

# ---- what the host has changed since stays, and can still be taken back ----
p = Project("stays", {f: f"{f}\n" for f in "abcd"})
before = p.snap()
p.sh("cd /workspace; echo 1 >> d")
check(p.apply().returncode == 0, "one apply before")
p.sh("cd /workspace; for f in a b c; do echo more >> $f; done")
check(p.apply().returncode == 0, "and one")
p.write("b", "theirs\n")
for said in "2 taken back", "0 taken back":
    r = p.unapply()
    check(r.returncode == 4 and said in r.stderr and "1 in conflict" in r.stderr and [p.read(f) for f in "abc"] == ["a\n", "theirs\n", "c\n"],
          "what is in conflict is left alone, each time", r)
r = p.unapply("--force")
check(r.returncode == 0 and p.read("b") == "b\n" and p.read("d") == "d\n1\n", "and taken back by force, as was said", r)
check(p.unapply().returncode == 0 and p.snap() == before, "then the one before it")

# ---- what the sandbox shows from a directory of the host that goes ----
p = Project("shown", {"a/b/f": "f\n", "a/b/empty/x": "x\n", "a/d/in": "in\n", "file": "f\n"})
os.remove(f"{p.host}/a/b/empty/x")
os.symlink("f", f"{p.host}/a/b/link")
os.mkfifo(f"{p.host}/a/b/pipe")
before = p.snap()
p.sh("cd /workspace; mv a/b c; rm file; mv a/d file; rm -r a")
LIST = "cd /workspace; find . | sort; readlink c/link; cat c/f file/in"
want = p.sh(LIST).stdout
r = p.apply()
check(r.returncode == 0 and os.readlink(f"{p.host}/c/link") == "f" and os.path.isdir(f"{p.host}/c/empty") and p.read("file/in") == "in\n", "a directory is moved out of one that goes", r.stdout + r.stderr)
time.sleep(3) # names that the kernel still knows are not looked up
check("./c/pipe" in want and p.sh(LIST).stdout == want, "links, pipes and empty directories stay in the sandbox", p.sh(LIST).stdout)
check(p.unapply().returncode == 0 and p.snap() == before and p.sh(LIST).stdout == want, "also when it is taken back", str(differ(p.snap(), before)))

# ---- what the sandbox shows from places of the host that change, chosen or not ----
MOVED = {"p/f": "f\n", "p/h": "h\n", "d/x": "x\n", "d/k": "k\n", "d/t": "t\n", "e": "e\n", "k": "k\n", "out/o": "o\n", "lone": "l\n"}
CASES = {
    "over": ("mv d/x e; mv d/k k; ln -sf nowhere was; mv d/t was; rm -r d", [["d"], []]), # onto a file, an equal one, a link: no renames, as d is gone
    "inner": ("mv p q; mv q/f g", [["q"], []]),
    "same-name": ("mv p q; mkdir p; mv q/f p/f", [[]]),
    "new-name": ("mv p q; rm q/f; mkdir p; echo other > p/f", [[]]),
    "deep": ("mkdir p/s; mv p/f p/s/f; mv p q; mkdir -p p/s; mv q/s/f p/s/f", [[]]),
    "outside": ("mv out /home/user/out; mv lone /home/user/lone", [["lone"], []]),
    "links": ("ln lone two; mv d/x e; ln e three; rm -r d lone", [["lone"], []]),
}
COUNT = "cd /workspace; find . /home/user -type f -exec grep -H . {} + | sort; find . | sort"
for name, (script, applies) in CASES.items():
    p = Project(f"moved-{name}", MOVED)
    os.symlink("nowhere", f"{p.host}/was")
    shutil.copy2(f"{p.host}/d/k", f"{p.host}/k")
    before = p.snap()
    p.sh(f"cd /workspace; {script}")
    want = p.sh(COUNT).stdout
    for i, args in enumerate(applies):
        r = p.apply(*args)
        check(r.returncode == 0, f"{name} {args}: applied", r.stdout + r.stderr)
        run("commit", "-e", p.env, "-m", "applied")
        copy = Project(f"copy-{name}{i}", {})
        copy.host = p.host
        run("fork", copy.env, "-e", p.env) # what nobody holds open any more, or has cached
        now = copy.sh(COUNT).stdout
        check(now == want, f"{name} {args}: the sandbox still has all of it", f"{now}\n{want}")
    there = sorted("./" + x if x else "." for x in p.snap())
    check(there == [x for x in want.splitlines() if x.startswith(".") and ":" not in x], f"{name}: the host has just that", str(there) + want)
    for _ in applies:
        p.unapply()
    check(p.snap() == before, f"{name}: taken back", str(differ(p.snap(), before)))

# ---- what was changed since it was applied ----
p = Project("back", {"edit": "e\n", "gone": "g\n", "keep/x": "x\n"})
p.sh("cd /workspace; echo more >> edit; rm gone; mkdir made; echo 1 > made/1; mv keep moved")
check(p.apply().returncode == 0, "applied")
p.write("edit", "the user's\n")
p.write("made/2", "the user's\n")
p.write("gone", "the user's\n")
r = p.unapply()
check(r.returncode == 4 and p.read("edit") == "the user's\n" and p.read("made/2") == "the user's\n" and p.read("gone") == "the user's\n", "what was changed since stays", r.stderr)
check(p.read("keep/x") == "x\n" and not os.path.exists(f"{p.host}/moved"), "the rest is taken back")

# ---- names that never go to the host, and links that lead elsewhere ----
p = Project("names", {".git/config": "[core]\n", "sub/x": "x\n", "linked/x": "x\n"})
outside = f"{here}/outside"
os.makedirs(outside)
open(f"{outside}/secret", "w").write("s\n")
p.sh("cd /workspace; mkdir -p .git/hooks sub/.git .codex; echo evil > .git/hooks/pre-commit; echo evil >> .git/config; echo evil > sub/.git/config; echo evil > .codex/c; echo fine > sub/fine"
     f"; echo more >> linked/x; echo new > linked/new; ln -s {outside} away; mkdir -p a/.GIT; echo evil > a/.GIT/config; echo ok > a/ok")
r = p.apply()
check(r.returncode == 0 and p.read(".git/config") == "[core]\n" and not os.path.exists(f"{p.host}/.git/hooks") and not os.path.exists(f"{p.host}/sub/.git") and
      not os.path.exists(f"{p.host}/.codex") and not os.path.exists(f"{p.host}/a/.GIT"), "protected names stay as they are, at any depth and in any case", r.stderr)
check("kept back: 3 changes in .git: " in r.stderr and "kept back: 2 changes in .codex: " in r.stderr and r.stderr.count("kept back: ") == 4 and p.read("sub/fine") == "fine\n" and p.read("a/ok") == "ok\n", "that is said, and the rest goes through", r.stderr)
p.sh("cd /workspace; rm -r sub; echo again >> linked/x; rm away; mkdir away; echo through > away/secret")
os.makedirs(f"{p.host}/sub/.git")
shutil.move(f"{p.host}/linked", f"{here}/really")
os.symlink(f"{here}/really", f"{p.host}/linked")
was = snapshot(f"{here}/really"), snapshot(outside)
r = p.apply()
check(r.returncode == 4 and (snapshot(f"{here}/really"), snapshot(outside)) == was, "a link on the host is not followed", r.stderr)
check(os.path.isdir(f"{p.host}/sub/.git"), "a directory that holds something protected stays", r.stderr)

# ---- hunks ----
text = "".join(f"{i}\n" for i in range(1, 41))
p = Project("hunks", {"f": text, "g": "g\n", "h": "no end"})
p.sh("cd /workspace; sed -i -e 's/^3$/three/' -e 's/^20$/twenty/' -e 's/^38$/x/' f; echo more >> g; printf 'no end at all' > h")
r = p.apply("-p", stdin="y\nn\ny\nn\ny\n")
check(r.returncode == 0 and p.read("f") == text.replace("\n3\n", "\nthree\n").replace("\n38\n", "\nx\n") and p.read("g") == "g\n" and p.read("h") == "no end at all",
      "some hunks of a file, no other file, and an end without a line", r.stdout[-600:] + r.stderr)
r = p.apply("-p", stdin="q\n")
check(r.returncode == 0 and p.read("g") == "g\n", "quit: nothing more", r.stderr)
r = p.apply("-p", stdin="a\ny\n")
check(p.read("f") == p.sh("cat /workspace/f").stdout and p.read("g") == "g\nmore\n", "the rest of it", r.stdout[-300:])
p = Project("split", {"f": "".join(f"{i}\n" for i in range(1, 9))})
p.sh("cd /workspace; sed -i -e 's/^2$/two/' -e 's/^6$/six/' f")
r = p.apply("-p", stdin="s\nn\ny\n")
check(p.read("f") == "1\n2\n3\n4\n5\nsix\n7\n8\n", "a hunk is split", r.stdout)

# ---- what cannot be done leaves all as it was ----
p = Project("fails", {"a": "a\n", "locked/b": "b\n", "z": "z\n"})
p.sh("cd /workspace; echo more >> a; echo more >> locked/b; echo more >> z")
was = p.snap()
os.makedirs(f"{here}/store-full", exist_ok=True)
os.chmod(p.host, 0o555)
r = p.apply()
os.chmod(p.host, 0o755)
check(r.returncode in (0, 1), "a directory that is closed is opened for the moment, or it is said", r.stderr)
check(p.read("a") == ("a\nmore\n" if r.returncode == 0 else "a\n"), "whole or not at all", r.stderr)
done()
