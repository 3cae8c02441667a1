#!/usr/bin/python3
# timeout: 900
"""What takes long says so after a second, and ^C ends it: by the signal (130 to a shell), with one sentence and nothing half done. Each
command on a terminal and into a pipe. Nothing is timed: what works is stopped, and let go on for moments, until it has shown what is waited for."""
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import lib
from lib import check, here, listens, rattan

LIMIT = 120  # seconds; for what must come
STORE = os.path.join(os.environ["XDG_DATA_HOME"], "rattan")


def run(*args, **kw):
    return subprocess.run([rattan, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, **kw)


def works(*args):
    r = run(*args)
    check(r.returncode == 0, args, r)
    return r.stdout


class Started:
    """A command on a terminal of its own, or with pipes."""

    def __init__(self, args, tty, stdin=None):
        self.seen, self.tty = "", tty
        if tty:
            self.pid, self.fd = pty.fork()
            if self.pid == 0:
                if stdin is not None:
                    os.dup2(stdin, 0)
                os.execve(rattan, [rattan, *args], {**os.environ, "TERM": "dumb", "PAGER": "cat"})
        else:
            self.fd, err = os.pipe()
            self.pid = os.posix_spawn(rattan, [rattan, *args], os.environ, setsigdef=[signal.SIGINT],
                                      file_actions=[(os.POSIX_SPAWN_DUP2, err, 2), (os.POSIX_SPAWN_OPEN, 1, "out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
                                                    (os.POSIX_SPAWN_DUP2, stdin, 0) if stdin is not None else (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)])
            os.close(err)

    def look(self, seconds):
        """What has been shown by then; False: it has ended."""
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                got = os.read(self.fd, 65536)
            except OSError:  # of a terminal
                got = b""
            self.seen += got.decode(errors="replace")
            return bool(got)
        return True

    def stop(self):
        if self.tty:
            os.write(self.fd, b"\x03")
        else:
            os.kill(self.pid, signal.SIGINT)

    def end(self):
        until = time.monotonic() + LIMIT
        while self.look(1) and time.monotonic() < until:
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def until(cond, what):
    end = time.monotonic() + LIMIT
    while not cond():
        if time.monotonic() > end:
            check(False, what)
            return False
        time.sleep(0.01)
    return True


def children(pid):
    try:
        return [int(p) for p in open(f"/proc/{pid}/task/{pid}/children").read().split()]
    except OSError:
        return []


def does(pid, what):
    try:
        return f"\0admin\0{what}\0".encode() in open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError:
        return False


def kill(pid, sig):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


def ended(c, name, said, code):
    text = c.seen.replace("\r\n", "\n")
    check(code == -signal.SIGINT, f"{name}: ended by the signal", (code, text))
    check(re.search(r"(^|\n|\r|\x1b\[K|\^C)rattan: interrupted; " + said + r"\n$", text) and text.count("rattan:") == 1, f"{name}: one sentence", repr(text[-120:]))


def leftover():
    """Work of ours that goes on. Daemons are none."""
    return [p for p in lib.servers(STORE) if b"\0admin\0" in open(f"/proc/{p}/cmdline", "rb").read()]


def in_the_middle(name, args, verb, said, tty):
    """Until it tells how far it is; a pipe is told nothing for five seconds, and is asked earlier."""
    c = Started(args, tty)
    fs = []
    if not until(lambda: [fs.append(p) for p in children(c.pid) if does(p, args[0])], f"{name}: rattan-fs is started"):
        lib.done()
    fs = fs[0]
    # Of bytes, which have a unit behind their number, or of things that are counted.
    shown = re.compile(rf"\r?{verb}" + (r"( \[[# ]+\] \d+ % of|:) \d+ MiB" if args[0] in ("import", "export") else r" \S+( \[#+| ?\[|: \d)"))
    steps = 0
    while not (shown.search(c.seen) if tty else steps > 5) and steps < LIMIT * 10:
        kill(fs, signal.SIGSTOP)
        if not c.look(0.1):
            break
        kill(fs, signal.SIGCONT)
        time.sleep(0.001)
        steps += 1
    if tty:
        check(shown.search(c.seen), f"{name}: says how far it is", repr(c.seen[-300:]))
    kill(fs, signal.SIGSTOP)  # so slow that it does not see that it is to stop
    c.stop()
    until(lambda: not listens(c.pid, fs), f"{name}: it is let go")
    kill(fs, signal.SIGCONT)
    ended(c, name, said, c.end())
    check(not leftover(), f"{name}: nothing goes on", leftover())


class Slow:
    """A daemon of which the answer number @hold, and what follows, waits: its socket is ours, and passes on the rest."""

    def __init__(self, env, hold):
        self.hold, self.asked, self.go = hold, 0, threading.Event()
        place = [p for p in os.listdir(f"{os.environ['XDG_RUNTIME_DIR']}/rattan") if p.endswith("-" + env)]
        self.path = f"{os.environ['XDG_RUNTIME_DIR']}/rattan/{place[0]}/sock"
        os.rename(self.path, self.path + ".real")
        self.sock = socket.socket(socket.AF_UNIX)
        os.chdir(os.path.dirname(self.path))
        self.sock.bind("sock")
        os.chdir(here)
        self.sock.listen(8)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                a, _ = self.sock.accept()
            except OSError:
                return
            b = socket.socket(socket.AF_UNIX)
            os.chdir(os.path.dirname(self.path))
            b.connect("sock.real")
            os.chdir(here)
            for f, t, down in ((a, b, False), (b, a, True)):
                threading.Thread(target=self.lead, args=(f, t, down), daemon=True).start()

    def lead(self, f, t, down):
        while True:
            head, fds, _, _ = socket.recv_fds(f, 4, 8)
            if len(head) < 4:
                break
            left, body = struct.unpack(">I", head)[0], b""
            while len(body) < left:
                part = f.recv(left - len(body))
                if not part:
                    break
                body += part
            if not down:
                self.asked += 1
            elif self.asked == self.hold:
                self.go.wait(LIMIT)
            try:
                socket.send_fds(t, [head + body], fds)
            except OSError:
                break
            for x in fds:
                os.close(x)
        try:
            t.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def end(self):
        self.go.set()
        self.sock.close()
        os.rename(self.path + ".real", self.path)


def while_it_waits(name, args, verb, said, tty, env, nth):
    s = Slow(env, nth)
    try:
        c = Started(args, tty)
        if tty:
            until(lambda: f"{verb} for seconds: " in c.seen or not c.look(0.1), f"{name}: it waits")
            check(f"{verb} for seconds: " in c.seen, f"{name}: says that it waits", repr(c.seen))
        else:
            until(lambda: s.asked >= nth, f"{name}: it waits")
            time.sleep(0.05)
        c.stop()
        ended(c, name, said, c.end())
    finally:
        s.end()


print("== what a process of its own does")
os.makedirs("big/d")
for i in range(64):
    with open(f"big/d/{i}", "wb") as f:
        f.write(os.urandom(1 << 20))
for i in range(2000):
    with open(f"big/{i}", "wb") as f:
        f.write(b"%d" % i * 100)
subprocess.run(["tar", "cf", "big.tar", "big"], check=True)
works("import", "dir", "big", "big")
works("export", "oci", "big", "oci", "--compress", "none")


def base_names():
    return [b["name"] for b in json.loads(works("base", "list", "--json"))]


def no_new():
    check("new" not in base_names(), "no half base")


def no_dest():
    check(not [n for n in os.listdir(".") if "dest" in n], "nothing at the destination", os.listdir("."))


LONG = [
    (["import", "dir", "big", "new"], "importing", "nothing was imported", no_new),
    (["import", "tar", "big.tar", "new"], "importing", "nothing was imported", no_new),
    (["import", "oci", "oci", "new"], "importing", "nothing was imported", no_new),
    (["export", "dir", "big", "dest"], "exporting", "nothing was exported", no_dest),
    (["export", "tar", "big", "dest"], "exporting", "nothing was exported", no_dest),
    (["export", "oci", "big", "dest"], "exporting", "nothing was exported", no_dest),
    (["fsck"], "checking", "not all was checked", lambda: None),
]
for args, verb, said, after in LONG:
    for tty in True, False:
        in_the_middle(f"{' '.join(args)}{' on a terminal' if tty else ''}", args, verb, said, tty)
        after()

print("== what waits for a pipe")
for tty in True, False:
    r, w = os.pipe()
    with open("big.tar", "rb") as f:
        feed = threading.Thread(target=lambda: os.write(w, f.read(3 << 20)), daemon=True)
        feed.start()
        c = Started(["import", "tar", "-", "new"], tty, r)
        os.close(r)
        feed.join(LIMIT)
    c.stop()
    ended(c, "import tar -", "nothing was imported", c.end())
    os.close(w)
    no_new()
    check(not leftover(), "import tar -: nothing goes on", leftover())

print("== what is told too late")
with open("fs", "w") as f:
    f.write(f"#!/bin/sh\ncd {here}\necho $$ > late\nuntil test -s code; do sleep 0.02; done\nexit $(cat code)\n")
os.chmod("fs", 0o755)
for args, code, said in ((["import", "dir", "big", "new"], 0, "all was done by then"), (["import", "dir", "big", "new"], 1, "nothing was imported"),
                         (["export", "tar", "big", "dest", "-e", "w"], 0, "all was done by then")):
    os.environ["RATTAN_FS"] = f"{here}/fs"
    c = Started(args, False)
    del os.environ["RATTAN_FS"]
    until(lambda: os.path.exists("late") and os.path.getsize("late"), "the work is under way")
    fs = int(open("late").read())
    c.stop()
    until(lambda: not listens(c.pid, fs), "it is let go")
    with open("code", "w") as f:
        f.write(f"{code}\n")
    ended(c, f"{args[0]} that ends with {code}", said, c.end())
    os.remove("late")
    os.remove("code")

print("== garbage")
os.mkdir("other")
for tty in True, False:
    for i in range(3000):
        with open(f"other/{i}", "wb") as f:
            f.write(os.urandom(8192))
    works("import", "dir", "other", "gone")
    works("base", "rm", "gone")
    in_the_middle("gc", ["gc"], "collecting", "what was removed is; the next rattan gc goes on", tty)
works("gc")

print("== what a daemon does")
works("run", "-e", "w", "-c", "cd /workspace; echo one > one")
works("commit", "-e", "w", "-m", "one")
os.mkdir("host")
with open("host/f", "w") as f:
    f.write("f\n")
works("run", "-e", "over", "--overlay", f"{here}/host=/workspace", "-c", "echo more >> /workspace/f")


def edit():
    works("run", "-e", "w", "-c", "cd /workspace; date +%N >> two")


WAITS = [
    (["diff", "-e", "w"], "comparing", "nothing was changed", "w", 2),
    (["show", "-e", "w"], "comparing", "nothing was changed", "w", 3),
    (["status", "-e", "w"], "comparing", "nothing was changed", "w", 2),
    (["apply", "-e", "over"], "comparing", "nothing was applied", "over", 3),
    (["commit", "-e", "w", "-m", "two"], "committing", "the commit may still be made; rattan log shows it", "w", 2),
]
for args, verb, said, env, nth in WAITS:
    for tty in True, False:
        edit()
        while_it_waits(f"{' '.join(args)}{' on a terminal' if tty else ''}", args, verb, said, tty, env, nth)
check(open("host/f").read() == "f\n", "nothing was applied")
check(works("log", "-e", "w").count("two") == 2, "commits that were waited for are made", works("log", "-e", "w"))
works("apply", "-e", "over")
check(open("host/f").read() == "f\nmore\n", "and then it is")

print("== nobody is told what ended in time")
r = run("status", "-e", "w")
check(r.returncode == 0 and not r.stderr, "no word", r)
r = run("fsck")
check(r.returncode == 0, "the store is whole", r)
lib.done()
