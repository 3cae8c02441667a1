"""A server process spoken to in bytes, and TAP, for the tests of the protocol itself (raw.py, calls.py)."""
import json
import os
import select
import subprocess
import sys
import time

CMD = [os.path.abspath(sys.argv[1]), *sys.argv[2:]] if sys.argv[1:] else [os.environ["RATTAN"]]
MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
PATIENT = 60.0  # what a machine under load may take for anything at all
SOON = 1.5      # a client sends SIGTERM two seconds after it has closed its end
count = failed = 0


def ok(cond, what, note=None):
    global count, failed
    count += 1
    failed += not cond
    print(f"{'' if cond else 'not '}ok {count} - {what}", flush=True)
    if not cond and note is not None:
        print("#", str(note)[:600], flush=True)


def run_tests(tests):
    """All functions named test_*, or the one that $ONLY names; then the end of the process."""
    wanted = os.environ.get("ONLY")
    for name, test in sorted((k, v) for k, v in tests.items() if k.startswith("test_")):
        if not wanted or name == "test_" + wanted:
            print("#", name, flush=True)
            test()
    print(f"1..{count}")
    sys.exit(failed > 0)


def until(cond, seconds=PATIENT):
    """Waits for what happens beside us; the last value of @cond."""
    end = time.monotonic() + seconds
    while True:
        got = cond()
        if got or time.monotonic() > end:
            return got
        time.sleep(0.02)


class Server:
    """@init: the revision to open with, None for nothing. @stdio: other ends than pipes, as (ours to write, ours to read, its
    0, its 1). Whatever comes out that no server may send is kept in bad."""

    def __init__(self, init="2025-11-25", args=(), stdio=None, **popen):
        theirs = (subprocess.PIPE, subprocess.PIPE) if stdio is None else stdio[2:]
        self.p = subprocess.Popen([*CMD, *args], stdin=theirs[0], stdout=theirs[1], bufsize=0,
                                  **{"stderr": subprocess.PIPE, **popen})
        self.wfd = self.p.stdin.fileno() if stdio is None else stdio[0]
        self.rfd = self.p.stdout.fileno() if stdio is None else stdio[1]
        self.buf = b""
        self.bad = []
        self.notes = []
        self.seen = []  # ids of all answers
        self.fences = 0
        self.over = None
        if init is not None:
            self.send({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {"protocolVersion": init}})
            self.hello = self.get("init")

    def raw(self, data):
        while data:
            try:
                data = data[os.write(self.wfd, data):]
            except BrokenPipeError:
                print("# the server is gone:", *self.wait(), flush=True)
                raise

    def send(self, o):
        self.raw(json.dumps(o).encode() + b"\n")

    def rawline(self, timeout=PATIENT):
        """The next line without its newline, or None: nothing came, or the end."""
        end = time.monotonic() + timeout
        while b"\n" not in self.buf:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.rfd], [], [], left)[0]:
                return None
            block = os.read(self.rfd, 1 << 16)
            if not block:
                return None
            self.buf += block
        one, self.buf = self.buf.split(b"\n", 1)
        return one

    def line(self, timeout=PATIENT):
        """The next message, or None."""
        one = self.rawline(timeout)
        if one is None:
            return None
        if len(one) >= 1 << 20:
            self.bad.append("line over 1 MiB")
        try:
            m = json.loads(one.decode("utf-8", "strict"))
        except ValueError as e:
            self.bad.append((str(e), one[:200]))
            return {}
        for x in m if isinstance(m, list) else [m]:
            if x.get("jsonrpc") != "2.0" or ("result" in x) + ("error" in x) + ("method" in x) != 1:
                self.bad.append(("not a message", one[:200]))
            if "method" in x and "id" in x:
                self.bad.append(("a request of the server's own", one[:200]))
            if "method" not in x:
                self.seen.append(x.get("id"))
        return m

    def get(self, rid, timeout=PATIENT):
        """The answer to id, passing over whatever else comes (kept in notes)."""
        self.notes = []
        end = time.monotonic() + timeout
        while True:
            m = self.line(max(0, end - time.monotonic()))
            if m is None:
                return None
            if isinstance(m, dict) and m.get("id") == rid and "method" not in m:
                return m
            self.notes.append(m)

    def ask(self, method, params=None, rid=1):
        o = {"jsonrpc": "2.0", "id": rid, "method": method}
        if params is not None:
            o["params"] = params
        self.send(o)
        return self.get(rid)

    def start(self, name, args, rid, **more):
        self.send({"jsonrpc": "2.0", "id": rid, "method": "tools/call", "params": {"name": name, "arguments": args, **more}})

    def call(self, name, args=None, rid=1, **more):
        self.start(name, args or {}, rid, **more)
        return self.get(rid)

    def cancel(self, rid, **more):
        self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": rid, **more}})

    def quiet(self):
        """Nothing came, or will, for what was sent: the next answer is that to a question asked after it."""
        self.fences += 1
        rid = f"fence-{self.fences}"
        return self.ask("server/discover", {"_meta": MODERN}, rid) is not None and not self.notes

    def close(self):
        """End of input; (exit code or "killed", seconds it took, standard error)."""
        t = time.monotonic()
        if self.p.stdin:
            self.p.stdin.close()
        else:
            os.close(self.wfd)
        return self.wait(t)

    def wait(self, since=None):
        """As close(). Also of one that was waited for before: who writes to a server that has gone tells how it went."""
        if self.over:
            return self.over
        since = since or time.monotonic()
        try:
            rc = self.p.wait(timeout=PATIENT)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
            rc = "killed"
        took = time.monotonic() - since
        if self.bad:
            ok(False, "every line out is a message, under 1 MiB", self.bad)
        err = ""
        if self.p.stderr:
            err = self.p.stderr.read().decode("utf-8", "replace")
            self.p.stderr.close()
        if self.p.stdout:
            self.p.stdout.close()
        self.over = rc, took, err
        return self.over


def ends(scenario, what, end=Server.close, tries=8):
    """The server that @scenario gives has to end with 0, always; and soon, which is true when one of several tries is: a machine under
    load delays one or the other, a server that waits for something delays all."""
    best = None
    for _ in range(tries):
        rc, took, err = end(scenario())
        best = took if best is None else min(best, took)
        if rc != 0 or best < SOON:
            break
    ok(rc == 0, f"{what}: exit 0", (rc, err))
    ok(best < SOON, f"{what}: soon ({best * 1000:.0f} ms)", err)


def ping(rid):
    return b'{"jsonrpc":"2.0","id":%s,"method":"ping"}\n' % rid


def code(m):
    return m.get("error", {}).get("code") if isinstance(m, dict) else None


def text(m):
    try:
        return m["result"]["content"][0]["text"]
    except (KeyError, TypeError, IndexError):
        return str(m)


def is_error(m):
    """An answer that the model sees and can mend."""
    return bool(m and m.get("result", {}).get("isError")) and text(m).startswith("error: ")
