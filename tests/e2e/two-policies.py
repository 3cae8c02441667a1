#!/usr/bin/python3
"""Clients with different policies hammer one environment, while its daemon is killed: each command and each file tool is judged by its own
client's policy, from its first moment to its last, or is told that it has to wait."""
# timeout: 300
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib import check, done, rattan  # noqa: E402

TOP = pathlib.Path.cwd()
KEY = "codex/sandbox-state-meta"
ENV = "shared"
ROUNDS = 12
DATA = os.environ["XDG_DATA_HOME"]
for d in ("a", "b", "open"):
    (TOP / d).mkdir()
    (TOP / d / "seen").write_text(f"of {d}\n")


def profile(*entries):
    e = [{"access": "read", "path": {"type": "special", "value": {"kind": "root"}}}]
    e += [{"access": access, "path": {"type": "path", "path": f"{TOP}/{name}"}} for access, name in entries]
    return {"permissionProfile": {"type": "managed", "network": "restricted", "file_system": {"type": "restricted", "entries": e}},
            "sandboxCwd": f"file://{TOP}", "useLegacyLandlock": False}


PROFILES = {"a": profile(("write", "a"), ("write", "open"), ("deny", "b")), "b": profile(("write", "b"), ("write", "open"), ("deny", "a"))}
for name, p in PROFILES.items():
    pathlib.Path(f"{name}.json").write_text(json.dumps(p))

# What each may do, and may not; again and again, for a policy that comes in the middle would be wider in something.
JUDGE = """
may() { "$@" 2>err.$$ >/dev/null || echo "wrong: $* failed: $(cat err.$$)"; }
not() { "$@" 2>/dev/null >/dev/null && echo "wrong: $* went through"; }
put() { echo x > "$1"; }
cd "$START"
for i in 1 2 3 4 5; do
    %s
    sleep 0.02
done
rm -f err.$$
echo judged
"""
CHECKS = {
    "a": "may put %(t)s/a/f; may cat %(t)s/a/seen; not put %(t)s/b/f; not cat %(t)s/b/seen; not put /workspace/f; may put %(t)s/open/f",
    "b": "may put %(t)s/b/f; may cat %(t)s/b/seen; not put %(t)s/a/f; not cat %(t)s/a/seen; not put /workspace/f; may put %(t)s/open/f",
    "plain": "may put /workspace/f; may cat %(t)s/a/seen; may cat %(t)s/b/seen; not put /etc/f",
}
START = {"a": f"{TOP}/a", "b": f"{TOP}/b", "plain": "/workspace"}


def script(who):
    return f"START={START[who]}\n" + JUDGE % (CHECKS[who] % {"t": TOP})


# Said to who has to wait, or whose call was under way when the daemon was killed; nothing else may be.
WAIT = ("in use under another policy", "was replaced or went away", "no profile judges")
tally = {}


def count(who, what):
    tally[who, what] = tally.get((who, what), 0) + 1


def run(who):
    opts = [] if who == "plain" else ["--profile", f"{who}.json"]
    r = subprocess.run([rattan, "run", "-e", ENV, *opts, "-c", script(who)], capture_output=True, text=True)
    if "judged" in r.stdout and "wrong" not in r.stdout:
        count(who, "judged")
        return True
    waits = r.returncode != 0 and not r.stdout and any(w in r.stderr for w in WAIT)
    check(waits, f"{who}: judged by its own policy, or told to wait", r.stdout + r.stderr)
    count(who, "told to wait")
    return False


def hammer(who):
    end = time.time() + 170
    n = 0
    while n < ROUNDS and time.time() < end:
        n += run(who)
    check(n == ROUNDS, f"{who} has its turns", tally)


class Server:
    def __init__(self, *args):
        self.p = subprocess.Popen([rattan, "serve", "-e", ENV, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.n = 0
        self.say("initialize", {"protocolVersion": "2025-11-25"})
        self.answer()

    def say(self, method, params):
        self.n += 1
        self.p.stdin.write(json.dumps({"jsonrpc": "2.0", "id": self.n, "method": method, "params": params}) + "\n")
        self.p.stdin.flush()
        return self.n

    def call(self, name, who, **args):
        return self.say("tools/call", {"name": name, "arguments": args, "_meta": {KEY: PROFILES[who]} if who in PROFILES else {}})

    def answer(self):
        m = json.loads(self.p.stdout.readline())
        r = m.get("result", {})
        return m["id"], r.get("isError", False), r["content"][0]["text"] if "content" in r else ""

    def end(self):
        self.p.stdin.close()
        return self.p.wait(20)


def all_at_once(server, rounds, alone):
    """Calls of both profiles under way at once; @alone: nobody else uses the environment, so that none has to be told to wait."""
    sent = {}
    for i in range(rounds):
        for who, other in (("a", "b"), ("b", "a")):
            sent[server.call("shell_run", who, command=script(who))] = (who, "run")
            sent[server.call("rattan_read_file", who, file_path=f"{TOP}/{other}/seen")] = (who, "closed")
            sent[server.call("rattan_read_file", who, file_path=f"{TOP}/{who}/seen")] = (who, "open")
            sent[server.call("rattan_write_file", who, file_path=f"{TOP}/{other}/w", content="x", mode="overwrite")] = (who, "closed")
    for _ in range(len(sent)):
        n, error, text = server.answer()
        who, kind = sent[n]
        if error and any(w in text for w in WAIT) and not alone:
            count(who, "tool told to wait")
        elif kind == "run":
            check(not error and "judged" in text and "wrong" not in text and "exit 0" in text, f"{who}: a parallel call is judged by its own profile", text)
            count(who, "call judged")
        elif kind == "open":
            check(not error and f"of {who}" in text, f"{who}: a file tool reads what it may", text)
        else:
            check(error and "of " + ("b" if who == "a" else "a") not in text and not any(w in text for w in WAIT), f"{who}: a file tool is refused what it may not", text)


def daemon():
    r = subprocess.run(["pgrep", "-u", str(os.getuid()), "-o", "-f", f"rattan-fs env --data-dir {DATA}/"], capture_output=True, text=True)
    keeper = r.stdout.split()
    if not keeper:
        return None
    r = subprocess.run(["pgrep", "-n", "-P", keeper[0]], capture_output=True, text=True)
    return int(r.stdout.split()[0]) if r.stdout.split() else None


def killer(stop):
    # Not so often in a row that the keeper gives up; and then no more, for a client that was attaching at that moment counts for ten
    # seconds more.
    for _ in range(8):
        if stop.wait(1.4):
            return
        pid = daemon()
        if pid:
            try:
                os.kill(pid, signal.SIGKILL)
                count("daemon", "killed")
            except ProcessLookupError:
                pass


# The environment shows the host's tree; a run that says nothing then has the agent's places in it.
check(run("a") and run("b") and run("plain") and run("a"), "one after the other", tally)

# The directory for temporary files: a second run of the same profile does not empty it under the first, a later one finds it empty.
first = subprocess.Popen([rattan, "run", "-e", ENV, "--profile", "a.json", "-c", "echo x > $TMPDIR/mine; echo up; read go; cat $TMPDIR/mine"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
check(first.stdout.readline() == "up\n", "a run with a temporary file")
r = subprocess.run([rattan, "run", "-e", ENV, "--profile", "a.json", "-c", "ls $TMPDIR"], capture_output=True, text=True)
check(r.returncode == 0 and r.stdout == "mine\n", "a second one beside it", r)
out, _ = first.communicate("go\n")
check(out == "x\n", "which leaves the first one its file", out)
r = subprocess.run([rattan, "run", "-e", ENV, "--profile", "a.json", "-c", "ls $TMPDIR"], capture_output=True, text=True)
check(r.returncode == 0 and r.stdout == "", "afterwards it is emptied", r)

# Nobody takes the policy of a daemon that runs with a wider one.
server = Server("--writable-root", "/")
server.call("shell_run", None, command="echo x > /etc/written; sleep 4")
time.sleep(1)
r = subprocess.run([rattan, "run", "-e", ENV, "-c", "touch /etc/y"], capture_output=True, text=True)
check(r.returncode != 0 and "under another policy" in r.stderr, "a run beside a wider one is told to wait", r.stderr)
n, error, text = server.answer()
check("exit 0" in text, "which goes on", text)
r = subprocess.run([rattan, "run", "-e", ENV, "-c", "echo y > /etc/written"], capture_output=True, text=True)
check(r.returncode == 1, "and has its own afterwards", r.stderr)
server.call("rattan_write_file", None, path="/etc/written", content="z", mode="overwrite")
n, error, text = server.answer()
check(not error, "as the server has", text)
server.end()

s = Server("--sandbox", "inherit", "--keep")
all_at_once(s, 3, True)
print("# one server:", tally, flush=True)

tally.clear()
stop = threading.Event()
threads = [threading.Thread(target=hammer, args=(who,)) for who in ("a", "b", "plain")]
threads.append(threading.Thread(target=all_at_once, args=(s, 4, False)))
k = threading.Thread(target=killer, args=(stop,))
k.start()
for t in threads:
    t.start()
for t in threads:
    t.join()
stop.set()
k.join()
print("# at once:", tally, flush=True)
check(tally.get(("daemon", "killed"), 0) > 1, "the daemon was killed meanwhile", tally)
check(s.end() == 0, "an orderly end")

done()
