#!/usr/bin/python3
"""What a hostile tree holds says nothing to the terminal of whoever looks at it: names and contents with escape sequences, control
characters of eight bits, ends of lines and marks of direction, in all that the command line prints of an environment. A patch that is
made of it names the files that it is about, and no other."""
# timeout: 120
import os
import pathlib
import pty
import re
import subprocess
import sys

RATTAN = os.environ["RATTAN"]
FAILED = []
EVIL = [b"\x1b[31mred", b"\x1b]52;c;aGk=\x07", b"\xc2\x9b31m", b"\xe2\x80\xaetxt.exe", b"\x9b31m", b"a\n+++ b_etc_passwd", b"quote\"back\\slash", b"ende\xcc\x81"]
SPEAKS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|(?<![\xc0-\xff\x80-\xbf])[\x80-\xbf]")


def ok(cond, what, note=""):
    print(("ok - " if cond else "not ok - ") + what, "" if cond else f"({note!r:.600})", flush=True)
    if not cond:
        FAILED.append(what)


def run(*args, **kw):
    return subprocess.run([RATTAN, *args], capture_output=True, stdin=subprocess.DEVNULL, **kw)


os.environ.update(TERM="dumb", PAGER="cat")


def seen(*args, **env):
    """What a terminal gets."""
    out = b""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(RATTAN, [RATTAN, *args], {**os.environ, **env})
    while True:
        try:
            got = os.read(fd, 65536)
        except OSError:
            break
        if not got:
            break
        out += got
    os.waitpid(pid, 0)
    return out.replace(b"\r\n", b"\n")


MAKE = f"""
import os
os.chdir("/workspace")
for i, n in enumerate({EVIL!r}):
    open(n, "wb").write(b"line\\n" + n + b"\\n\\ttab\\n")
    os.chmod(n, 0o600)
    try:
        os.mkdir(b"/usr/" + n)
    except OSError:
        pass
"""
r = run("run", "-e", "seen", "--", "python3", "-c", MAKE)
ok(r.returncode == 0 and not SPEAKS.search(r.stderr), "what was refused is told plainly", r.stderr)
for what, args in (("diff", ["diff", "-e", "seen"]), ("names", ["diff", "-e", "seen", "--name-status"]), ("status", ["status", "-e", "seen"])):
    out = seen(*args)
    ok(out and not SPEAKS.search(out), f"{what} says nothing to a terminal", SPEAKS.search(out) and out[max(0, SPEAKS.search(out).start() - 60):][:160])
out = seen("diff", "-e", "seen")
ok(b"\n+\ttab\n" in out and "ende\u0301".encode() in out, "tabs and letters are shown as they are", out[-300:])
# In colours and by the page on a terminal, and there alone.
plain = out
out = seen("diff", "-e", "seen", TERM="xterm")
ok(out.replace(b"\x1b[0m", b"") != plain and b"\n\x1b[32m+line\x1b[0m\n" in out and b"\x1b[1m+++ " in out, "in colours", out[:300])
ok(re.sub(rb"\x1b\[[0-9]+m", b"", out) == plain, "that are all that is added")
ok(seen("diff", "-e", "seen", TERM="xterm", NO_COLOR="1") == plain, "but not with NO_COLOR")
out = seen("diff", "-e", "seen", PAGER="sed 's/^/P:/'")
ok(out.startswith(b"P:A ") and all(s.startswith(b"P:") for s in out.splitlines()), "through PAGER", out[:200])
ok(seen("diff", "-e", "seen", "--no-pager", PAGER="sed 's/^/P:/'") == plain and seen("diff", "-e", "seen", PAGER="") == plain, "unless told not to")
ok(seen("diff", "-e", "seen", PAGER="head -n 1").count(b"\n") == 1, "a pager that has seen enough is enough")
out = run("diff", "-e", "seen", env={**os.environ, "TERM": "xterm", "PAGER": "false"})
ok(out.returncode == 0 and b"\x1b[0m" not in out.stdout and b"\x1b[32m" not in out.stdout and out.stdout.count(b"\n") > 10, "neither off a terminal", out)
patch = run("diff", "-e", "seen").stdout
patch = patch[patch.index(b"--- "):]
os.mkdir("tree")
subprocess.run(["git", "-C", "tree", "init", "-q"], check=True)
r = subprocess.run(["git", "-C", "tree", "apply", "-"], input=patch, capture_output=True)
there = sorted(os.fsencode(p.name) for p in pathlib.Path("tree/workspace").iterdir()) if os.path.isdir("tree/workspace") else []
ok(there == sorted(EVIL), "a patch makes the very files", (r.stderr, there))
r = run("commit", "-e", "seen", "-m", os.fsdecode(b"m\x1b[31m \xc2\x9b1m\nid fake"))
out = seen("log", "-e", "seen")
ok(r.returncode == 0 and out and not SPEAKS.search(out), "log says nothing to a terminal", out)
sys.exit(1 if FAILED else 0)
