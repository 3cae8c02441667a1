#!/usr/bin/python3
"""PATH of diff, show and apply: ./x, ../x and paths of the host are files of the directory that is shown, others are below this directory or
below /workspace; and a path at which nothing is says so."""
# timeout: 120
import json
import os
import pathlib
import pty
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from lib import check, done, here, rattan

P = pathlib.Path(here) / "p"
(P / "sub/deep").mkdir(parents=True)
(P / "top").write_text("one\n")
(P / "sub/in").write_text("one\n")
(P / "sub/still").write_text("one\n")
(pathlib.Path(here) / "beside").write_text("x\n")
os.symlink("p", "link")


def run(*args, cwd=P, **kw):
    return subprocess.run([rattan, *args], cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, **kw)


r = run("run", "--overlay-cwd", "-c", "echo two > top; echo two > sub/in; mkdir -p src; echo n > src/only; mkdir sub/src; echo n > sub/src/here; echo e > /var/tmp/else")
check(r.returncode == 0, "a change", r)


def names(word, cwd=P / "sub", cmd=("diff",), **kw):
    r = run(*cmd, word, "--name-status", cwd=cwd, **kw)
    return r.returncode, [line for line in r.stdout.splitlines() if line[1:2] == " "]


IN, TOP, ELSE = ["M /workspace/sub/in"], ["M /workspace/top"], ["A /var/tmp/else"]
ONLY, HERE = ["A /workspace/src/only"], ["A /workspace/sub/src/", "A /workspace/sub/src/here"]
SUB = sorted(IN + HERE)
CASES = [("./in", IN), ("../top", TOP), (f"{P}/top", TOP), (f"{P}/sub/in", IN), (f"{here}/link/top", TOP), ("../sub/in", IN), ("/workspace/top", TOP),
         ("/var/tmp/else", ELSE), ("src/here", HERE[1:]), ("./src", HERE), ("src/only", ONLY), ("sub/in", IN), ("/workspace/sub/../top", TOP), ("./src//here/", HERE[1:])]
for word, want in CASES:
    check(names(word) == (0, want), f"diff {word}", run("diff", word, "--name-status", cwd=P / "sub"))
check([sorted(names(w)[1]) for w in (".", f"{P}/sub")] == [SUB, SUB], "this directory", names("."))
check(names("..")[1] and "A /workspace/src/only" in names("..")[1], "the one above", names(".."))
check(names("./top", P) == (0, TOP) and names("top/", P) == (0, TOP), "at its top", names("./top", P))
logical = subprocess.run(["sh", "-c", f'cd {here}/link/sub && exec "$0" diff "$PWD/in" --name-status', rattan], capture_output=True, text=True)
check(logical.stdout == IN[0] + "\n", "by the name that the shell has", logical)
for word in ("./nosuch", "no/such", f"{P}/nosuch", "/workspace/nosuch", "./in/side", "/nosuch"):
    r = run("diff", word, cwd=P / "sub")
    check(r.returncode == 3 and not r.stdout and r.stderr.count("\n") == 1 and f"'{word}'" in r.stderr and "neither a change nor a file" in r.stderr, f"diff {word}: nothing is there", r)
r = run("diff", "../../beside", cwd=P / "sub")
check(r.returncode == 3 and "'../../beside'" in r.stderr and "shows" in r.stderr and not r.stdout, "beside what is shown", r)
r = run("diff", "./still", cwd=P / "sub")
check(r.returncode == 0 and not r.stdout + r.stderr, "a file without a change: nothing", r)
r = run("diff", "base", "./in", "--json", cwd=P / "sub")
check(r.returncode == 0 and '"/workspace/sub/in"' in r.stdout, "with a revision", r)
r = run("diff", "nosuch", "./in", cwd=P / "sub")
check(r.returncode == 3 and "nosuch" in r.stderr, "a revision that is none", r)

pid, fd = pty.fork()
if pid == 0:
    os.chdir(P / "sub")
    os.execv(rattan, [rattan, "diff", "./still", "--no-pager"])
said = b""
try:
    while piece := os.read(fd, 4096):
        said += piece
except OSError:
    pass
check(os.waitpid(pid, 0)[1] == 0 and b"nothing has changed at /workspace/sub/still" in said, "which a person is told", said)



def brought(word, cwd=P / "sub"):
    r = run("apply", "--dry-run", "--json", word, cwd=cwd)
    return r.returncode, sorted(x["path"] for x in json.loads(r.stdout or "[]"))


APPLIED = [("./in", ["sub/in"]), ("../top", ["top"]), (f"{P}/top", ["top"]), (f"{here}/link/top", ["top"]), ("/workspace/top", ["top"]), ("in", ["sub/in"]),
           ("src/here", ["sub/src/here"]), ("src/only", ["src/only"]), ("top", ["top"]), ("src/h*", ["sub/src/here"]), ("o*y", ["src/only"])]
for word, want in APPLIED:
    check([x for x in brought(word)[1] if not x.endswith("src")] == want, f"apply {word}", run("apply", "--dry-run", word, cwd=P / "sub"))
check(brought("./nosuch")[0] == 3 and brought("../../beside")[0] == 3, "apply of what is not there")
check(run("commit", "-m", "one").returncode == 0, "a commit")
for word, want in CASES:
    check(names(word, cmd=("show", "head")) == (0, want), f"show head {word}", run("show", "head", word, "--name-status", cwd=P / "sub"))
check(names("./in", cmd=("show",)) == (0, IN), "show ./in")
r = run("show", "head", "./nosuch", cwd=P / "sub")
check(r.returncode == 3 and not r.stdout and "neither a change nor a file" in r.stderr, "show of what is not there", r)
check(names("./in", cmd=("diff", "base", "head")) == (0, IN), "between two states")
r = run("diff", "./in", cwd=P / "sub")
check(r.returncode == 0 and not r.stdout + r.stderr, "and none since", r)

# Where no directory is shown, ./x is below /workspace, as x/ is.
r = run("run", "-e", "bare", "-c", "mkdir -p d; echo x > d/f", cwd=here)
check(r.returncode == 0, "another environment", r)
for word in ("./d/f", "d/f", "/workspace/d/f"):
    check(names(word, here, ("diff", "-e", "bare")) == (0, ["A /workspace/d/f"]), f"nothing shown: {word}", names(word, here, ("diff", "-e", "bare")))
check(names("../d/f", here, ("diff", "-e", "bare"))[0] == 3, "nothing shown: ../d/f")
done()
