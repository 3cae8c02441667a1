#!/usr/bin/python3
"""rattan ls and cat: names and contents of the working tree, of commits and of the base, without a mount."""
# timeout: 120
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from lib import check, done, rattan


def run(*args):
    return subprocess.run([rattan, *args], capture_output=True, stdin=subprocess.DEVNULL)


def sh(text):
    r = run("run", "-e", "l", "-c", text)
    check(r.returncode == 0, text, r.stderr)


sh("cd /workspace; mkdir -p d/e; echo one > d/f; echo x > 'd/a\nb'; ln -s f d/link; printf 'a\\0b' > bin; echo deep > d/e/g")
check(run("commit", "-e", "l", "-m", "one").returncode == 0, "commit")
sh("cd /workspace; echo two > d/f; rm -r d/e; : > d/new")
check(run("ls", "-e", "l").stdout == b"bin\nd/\n", "the working directory", run("ls", "-e", "l"))
check(run("ls", "-e", "l", "d").stdout == b"a\\x0ab\nf\nlink\nnew\n", "a directory; a name is one line", run("ls", "-e", "l", "d"))
check(run("ls", "-e", "l", "head:d").stdout == b"a\\x0ab\ne/\nf\nlink\n", "the same in a commit", run("ls", "-e", "l", "head:d"))
check(run("ls", "-e", "l", "-z", "/workspace/d").stdout == b"a\nb\0f\0link\0new\0", "as they are")
check(run("ls", "-e", "l", "-R", "head:").stdout == b"bin\nd/\nd/a\\x0ab\nd/e/\nd/f\nd/link\nd/e/g\n", "with everything below", run("ls", "-e", "l", "-R", "head:"))
out = run("ls", "-e", "l", "-l", "d").stdout.decode()
check("l0777" in out and "link -> f" in out and "-0644            4" in out, "with details", out)
files = {f["path"]: f for f in json.loads(run("ls", "-e", "l", "--json", "l:head:d").stdout)}
check(files["/workspace/d/link"]["target"] == "f" and files["/workspace/d/f"]["size"] == 4 and files["/workspace/d/e"]["type"] == "d", "as JSON, of an environment's revision", files)
check(b"passwd" in run("ls", "-e", "l", "base:/etc").stdout.split(b"\n"), "the base")
check(run("cat", "-e", "l", "d/f").stdout == b"two\n" and run("cat", "-e", "l", "head:d/f").stdout == b"one\n", "contents")
check(run("cat", "-e", "l", "bin", "head:d/f").stdout == b"a\0bone\n", "several, byte for byte")
for args, code in ((["ls", "nowhere"], 3), (["cat", "nowhere"], 3), (["ls", "nosuch:d"], 3), (["cat"], 2), (["ls", "a", "b"], 2), (["ls", "-z", "--json"], 2)):
    r = run(args[0], "-e", "l", *args[1:])
    check(r.returncode == code and r.stderr.startswith(b"rattan: "), f"{args}: {code}", r)
r = run("cat", "-e", "l", "d")
check(r.returncode == 1 and b"director" in r.stderr, "a directory has no content", r)
sh("echo three > /workspace/d/f")
check(run("commit", "-e", "l", "-m", "the second\x1b[31m").returncode == 0, "another commit")
out = run("show", "-e", "l").stdout
check(out.startswith(b"commit ") and b"\nthe second\\x1b[31m\n" in out and b"-one\n+three\n" in out and b"D /workspace/d/e/g\n" in out, "a commit, and what it changed", out)
out = run("show", "-e", "l", "head~1", "--name-status").stdout
check(b"\none\n" in out and b"A /workspace/d/f\n" in out and b"+++" not in out, "the first, against the base", out)
check(run("show", "-e", "l", "base").returncode == 3 and run("show", "-e", "l", "nosuch").returncode == 3 and run("show", "a", "b").returncode == 2, "what is no commit")
sh("cd /workspace; chmod 600 d/f; chmod 700 d; mv bin 'bin\n2'; setfattr -n user.x -v y d/new 2> /dev/null || python3 -c 'import os; os.setxattr(\"d/new\", \"user.x\", b\"y\")'; rm d/link; mkdir d/link")
out = run("diff", "-e", "l", "-z").stdout
words, got = out.split(b"\0")[:-1], {}
while words:
    kind = words.pop(0)
    old = words.pop(0) if kind == b"R" else None
    got[words.pop(0)] = (kind, old)
check(got == {b"/workspace/d": (b"M", None), b"/workspace/d/f": (b"M", None), b"/workspace/d/new": (b"M", None), b"/workspace/d/link": (b"T", None),
              b"/workspace/bin\n2": (b"R", b"/workspace/bin")}, "each kind with its names", got)
out = run("diff", "-e", "l").stdout
for line in (b"mode of /workspace/d: now 040700\n", b"mode of /workspace/d/f: 100644 -> 100600\n", b"extended attributes of /workspace/d/new: changed\n"):
    check(line in out, line, out)
what = {c["path"]: c.get("changed") for c in json.loads(run("diff", "-e", "l", "--json").stdout)}
check(what["/workspace/d/f"] == ["mode"] and "xattrs" in what["/workspace/d/new"] and what["/workspace/d/link"] is None, "what differs, as JSON", what)
check(run("diff", "-e", "l", "-z", "--stat").returncode == 2 and run("show", "-e", "l", "-z", "--json").returncode == 2, "names beside what has none")
sh("cd /workspace; rm -rf * ; printf 'a\\nb' > n; echo one > o; : > empty; printf 'a\\0' > zero")
check(run("commit", "-e", "l", "-m", "whole files").returncode == 0, "commit")
out = run("diff", "-e", "l", "head~1", "head", "./n").stdout + run("diff", "-e", "l", "head", "head~1", "./o").stdout + run("diff", "-e", "l", "head~1", "head", "./zero").stdout
want = (b"A /workspace/n\n--- /dev/null\n+++ b/workspace/n\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
        b"D /workspace/o\n--- a/workspace/o\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\nA /workspace/zero\nBinary files /dev/null and b/workspace/zero differ\n")
check(out == want, "new and removed files, as diff(1) has them", out)

# A directory of the host that is called something else: what was changed in it is compared with what it was, by its old name.
host = pathlib.Path("host")
(host / "src/deep").mkdir(parents=True)
(host / "src/f").write_text("one\ntwo\n")
(host / "src/deep/g").write_text("three\n")
(host / "saved").write_text("s\n")
r = run("run", "-e", "h", "--overlay", f"{host.absolute()}=/workspace", "-c",
        "cd /workspace; mv src lib; echo more >> lib/f; echo four > lib/deep/g; echo S > new && mv new saved; mkdir src; echo mine > src/f")
check(r.returncode == 0, "a directory is moved", r)
out = run("diff", "-e", "h").stdout
want = (b"R /workspace/src -> /workspace/lib/\nM /workspace/lib/deep/g\nM /workspace/lib/f\nM /workspace/saved\nA /workspace/src/\nA /workspace/src/f\n"
        b"--- a/workspace/src/deep/g\n+++ b/workspace/lib/deep/g\n@@ -1 +1 @@\n-three\n+four\n"
        b"--- a/workspace/src/f\n+++ b/workspace/lib/f\n@@ -1,2 +1,3 @@\n one\n two\n+more\n"
        b"--- a/workspace/saved\n+++ b/workspace/saved\n@@ -1 +1 @@\n-s\n+S\n"
        b"--- /dev/null\n+++ b/workspace/src/f\n@@ -0,0 +1 @@\n+mine\n")
check(out == want, "what was changed in it", out)
got = {c["path"]: (c["kind"], c.get("old_path"), c.get("changed")) for c in json.loads(run("diff", "-e", "h", "--json").stdout)}
check(got == {"/workspace/lib": ("R", "/workspace/src", []), "/workspace/lib/deep/g": ("M", "/workspace/src/deep/g", ["content"]),
              "/workspace/lib/f": ("M", "/workspace/src/f", ["content"]), "/workspace/saved": ("M", None, ["content"]),
              "/workspace/src": ("A", None, None), "/workspace/src/f": ("A", None, None)},
      "the same as JSON; what a command puts in a host file's place is not another's", got)
check(run("diff", "-e", "h", "./lib/f").stdout.endswith(b"\n two\n+more\n"), "one file of it")
done()
