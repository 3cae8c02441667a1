#!/usr/bin/python3
"""Bytes that no SDK client sends: the server's answer to every odd line, end and signal, in both protocol eras.

Runs $RATTAN (or the program given) and prints TAP. Needs commands to run, but nothing of what they do.
"""
# timeout: 120
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

CMD = sys.argv[1:] or [os.environ["RATTAN"]]
MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
count = failed = 0


def ok(cond, what, note=None):
    global count, failed
    count += 1
    failed += not cond
    print(f"{'' if cond else 'not '}ok {count} - {what}", flush=True)
    if not cond and note is not None:
        print("#", str(note)[:600], flush=True)


class Server:
    def __init__(self, init="2025-11-25", env=None, args=()):
        self.p = subprocess.Popen([*CMD, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, bufsize=0, env={**os.environ, **(env or {})})
        self.buf = b""
        self.bad = []
        if init is not None:
            self.send({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {"protocolVersion": init}})
            self.hello = self.get("init")

    def raw(self, data):
        self.p.stdin.write(data)

    def send(self, o):
        self.raw(json.dumps(o).encode() + b"\n")

    def line(self, timeout=10.0):
        """The next message, or None."""
        end = time.monotonic() + timeout
        while b"\n" not in self.buf:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.p.stdout], [], [], left)[0]:
                return None
            block = os.read(self.p.stdout.fileno(), 1 << 16)
            if not block:
                return None
            self.buf += block
        one, self.buf = self.buf.split(b"\n", 1)
        if len(one) >= 1 << 20:
            self.bad.append("line over 1 MiB")
        try:
            return json.loads(one.decode("utf-8", "strict"))
        except ValueError as e:
            self.bad.append((str(e), one[:200]))
            return {}

    def get(self, rid, timeout=10.0):
        """The answer to id, passing over notifications (kept in self.notes)."""
        self.notes = []
        end = time.monotonic() + timeout
        while True:
            m = self.line(max(0, end - time.monotonic()))
            if m is None:
                return None
            if isinstance(m, dict) and m.get("id") == rid and "method" not in m:
                return m
            self.notes.append(m)

    def ask(self, method, params=None, rid=1, timeout=10.0):
        o = {"jsonrpc": "2.0", "id": rid, "method": method}
        if params is not None:
            o["params"] = params
        self.send(o)
        return self.get(rid, timeout)

    def call(self, name, args=None, rid=1, **more):
        return self.ask("tools/call", {"name": name, "arguments": args or {}, **more}, rid, timeout=30)

    def quiet(self, seconds=0.15):
        m = self.line(seconds)
        return m is None

    def close(self, limit=1.5):
        t = time.monotonic()
        self.p.stdin.close()
        try:
            rc = self.p.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.p.kill()
            rc = "killed"
        took = time.monotonic() - t
        err = self.p.stderr.read().decode("utf-8", "replace")
        self.p.stdout.close()
        self.p.stderr.close()
        return rc, took, err


def code(m):
    return (m or {}).get("error", {}).get("code")


def text(m):
    try:
        return m["result"]["content"][0]["text"]
    except (KeyError, TypeError, IndexError):
        return str(m)


def test_negotiation():
    for want, got in [("2024-11-05",) * 2, ("2025-03-26",) * 2, ("2025-06-18",) * 2, ("2025-11-25",) * 2,
                      ("1999-01-01", "2025-11-25"), ("2026-07-28", "2025-11-25"), ("", "2025-11-25")]:
        s = Server(init=want)
        ok(s.hello["result"]["protocolVersion"] == got, f"initialize {want!r} gives {got}", s.hello)
        s.close()
    s = Server(init=None)
    m = s.ask("initialize", {})
    ok(m["result"]["protocolVersion"] == "2025-11-25", "initialize without a version is answered", m)
    ok("resultType" not in m["result"] and "_meta" not in m["result"], "a legacy result has no modern fields", m)
    ok(m["result"]["capabilities"] == {"tools": {}}, "capabilities are tools and nothing else", m)
    s.close()
    t = time.monotonic()
    s = Server()
    took = time.monotonic() - t
    ok(took < 0.5, f"initialize is answered at once ({took * 1000:.0f} ms with the start of the process)")
    s.close()


def test_modern():
    s = Server(init=None)
    m = s.ask("server/discover", {"_meta": MODERN})
    r = m["result"]
    ok(r["supportedVersions"] == ["2026-07-28"] and r["resultType"] == "complete" and r["ttlMs"] >= 0
       and r["cacheScope"] in ("public", "private"), "server/discover as the first message", m)
    ok(r["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "rattan", "it names the server", m)
    ok(s.ask("server/discover", {"_meta": MODERN})["result"] == r, "twice the same")
    m = s.ask("tools/list", {"_meta": MODERN})
    ok(m["result"]["resultType"] == "complete" and "ttlMs" in m["result"], "tools/list has the modern fields")
    m = s.ask("tools/list", {"_meta": {**MODERN, "io.modelcontextprotocol/protocolVersion": "1999-01-01"}})
    ok(code(m) == -32022 and m["error"]["data"] == {"supported": ["2026-07-28"], "requested": "1999-01-01"},
       "an unknown version is -32022 with what is supported", m)
    m = s.ask("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}})
    ok(code(m) == -32602, "no clientCapabilities is -32602", m)
    for method in ("ping", "initialize", "logging/setLevel", "resources/subscribe", "prompts/list"):
        ok(code(s.ask(method, {"_meta": MODERN})) == -32601, f"modern {method} is -32601")
    ok(code(s.ask("tools/list", {})) == -32602, "a request of no era is -32602")
    ok("result" in s.ask("ping"), "but ping is answered")
    m = s.call("shell_run", {"command": "echo hi"}, _meta=MODERN)
    ok(m["result"]["resultType"] == "complete" and m["result"]["_meta"]["dev.rattan/result"]["rc"] == 0
       and "io.modelcontextprotocol/serverInfo" in m["result"]["_meta"], "a modern call", m)
    s.send({"jsonrpc": "2.0", "id": "L", "method": "subscriptions/listen", "params": {"_meta": MODERN, "notifications": {}}})
    m = s.line()
    ok(m["method"] == "notifications/subscriptions/acknowledged"
       and m["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "L", "listen is acknowledged", m)
    ok(code(s.ask("server/discover", {"_meta": MODERN}, rid="L")) == -32600, "its id is in use")
    s.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "L"}})
    ok("result" in s.ask("server/discover", {"_meta": MODERN}, rid="L"), "until it is cancelled")
    m = s.ask("initialize", {"protocolVersion": "2025-06-18"})
    ok(m["result"]["protocolVersion"] == "2025-06-18", "then a legacy client on the same process")
    ok("resultType" not in s.ask("tools/list")["result"], "and gets legacy results")
    s.send({"jsonrpc": "2.0", "id": "L", "method": "subscriptions/listen", "params": {"_meta": MODERN, "notifications": {}}})
    s.line()
    rc, took, _ = s.close()
    ok(rc == 0 and took < 1.5, f"end of input during listen ends the server ({took * 1000:.0f} ms)", rc)


def test_envelope():
    s = Server()
    cases = [
        (b"{bad json\n", -32700, None, "malformed"),
        (b'{"jsonrpc":"2.0","id":9,"method":"ping"\n', -32700, 9, "cut off, with a clear id"),
        (b'{"jsonrpc":"2.0","id":9,"method":"ping"}}\n', -32700, 9, "trailing bytes"),
        (b'{"jsonrpc":"2.0","id":9,"method":"pi\xff"}\n', -32700, 9, "invalid UTF-8"),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', -32600, None, "id null"),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}\n', -32600, None, "id an array"),
        (b'{"id":9,"method":"ping"}\n', -32600, 9, "no jsonrpc"),
        (b'{"jsonrpc":"1.0","id":9,"method":"ping"}\n', -32600, 9, "jsonrpc 1.0"),
        (b'{"jsonrpc":"2.0","id":9,"method":5}\n', -32600, 9, "method a number"),
        (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":[1]}\n', -32600, 9, "params an array"),
        (b'{"jsonrpc":"2.0","id":9}\n', -32600, 9, "no method"),
        (b'{"jsonrpc":"2.0","id":9,"method":"pi\\u0000ng"}\n', -32600, 9, "U+0000 in the method"),
        (b'{"jsonrpc":"2.0","id":9,"method":"nope"}\n', -32601, 9, "unknown method"),
        (b"[]\n", -32600, None, "empty batch"),
        (b'[{"jsonrpc":"2.0","id":9,"method":"ping"}]\n', -32600, None, "a batch in 2025-11-25"),
        (b'"text"\n', -32600, None, "a string"),
        (b"[" * 100000 + b"\n", -32700, None, "100,000 levels"),
        (b'{"jsonrpc":"2.0","id":9,"method":"x","params":' + b'{"a":' * 70 + b"1" + b"}" * 71 + b"\n", -32700, 9, "72 levels"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":5}}\n', -32602, 9, "tool name a number"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call"}\n', -32602, 9, "no params"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"nope"}}\n', -32602, 9, "unknown tool"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"Name":"shell_run"}}\n', -32602, 9, "case matters"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"shell_run","arguments":[]}}\n', -32602, 9,
         "arguments an array"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"cursor":"x"}}\n', -32602, 9, "bad cursor"),
    ]
    for line, want, rid, what in cases:
        s.raw(line)
        m = s.line()
        ok(code(m) == want and ("id" in m) == (rid is not None) and m.get("id") == rid, f"{what}: {want}", m)
    for line, what in [(b"\n \r\n", "blank lines"), (b'{"jsonrpc":"2.0","method":"nope"}\n', "an unknown notification"),
                       (b'{"jsonrpc":"2.0","id":77,"result":{}}\n', "an answer to nothing"),
                       (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12}}\n', "cancel of nothing"),
                       (b'{"jsonrpc":"2.0","method":"notifications/cancelled"}\n', "cancel without an id")]:
        s.raw(line)
        ok(s.quiet(), f"no answer to {what}")
    s.raw(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}\r\n')
    ok("result" in s.get(1), "a byte order mark and a carriage return")
    s.raw(b'{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}\n')
    ok(s.line()["id"] == 9007199254740993, "an id past 2^53 comes back as it was")
    s.raw(b'{"jsonrpc":"2.0","id":"\\ud800x\\u00e9","method":"ping"}\n')
    ok("result" in s.line(), "half a surrogate pair in an id does not break the line")
    m = s.ask("tools/call", {"name": "shell_run", "arguments": None})
    ok(m["result"].get("isError") and text(m).startswith("error: "), "null arguments: an error a model can mend", m)
    m = s.call("shell_run", {"command": "a\x00b"})
    ok(m["result"].get("isError") and "U+0000" in text(m), "U+0000 in an argument", m)
    m = s.call("shell_run", {"command": "true", "bogus": 1})
    ok(m["result"].get("isError") and "bogus" in text(m), "an unknown argument is named", m)
    m = s.call("shell_run", {"command": 5})
    ok(m["result"].get("isError"), "a wrong type", m)
    big = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"y" * (17 << 20) + b'"}}\n'
    s.raw(big + b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
    m, n = s.line(), s.line()
    ok(code(m) == -32700 and "id" not in m and n.get("id") == 2, "a line of 17 MiB is refused, the next is served", (m, n))
    s.raw(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"y" * (9 << 20) + b'"}}\n')
    ok("result" in s.line(), "one of 9 MiB is read")
    ok(not s.bad, "every line out is JSON under 1 MiB", s.bad)
    rc, took, err = s.close()
    ok(rc == 0 and took < 1.5, f"end of input: exit 0 ({took * 1000:.0f} ms)", (rc, err))


def test_batch():
    s = Server(init="2025-03-26")
    s.raw(b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},{"bad":1},'
          b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"shell_run","arguments":{"command":"echo b"}}}]\n')
    m = s.line()
    ok(isinstance(m, list) and len(m) == 3, "a batch gives one array with an answer for each request", m)
    ok({x.get("id") for x in m} == {1, 2, None} and [code(x) for x in m if "error" in x] == [-32600],
       "with all ids, and the bad member's error", m)
    s.raw(b'[{"jsonrpc":"2.0","method":"x"}]\n')
    ok(s.quiet(), "notifications only: no answer")
    s.raw(b"[" + b",".join(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % i for i in range(65)) + b"]\n")
    ok(code(s.line()) == -32600, "65 members are too many")
    s.close()


def test_list():
    s = Server()
    s.raw(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n')
    tools = s.line()["result"]["tools"]
    size = len(json.dumps(tools, separators=(",", ":")))
    ok(size < 24 * 1024, f"the list is {size} bytes")
    names = [t["name"] for t in tools]
    ok(len(set(names)) == len(names) and all(re.fullmatch(r"[a-z_]{1,24}", n) for n in names), "names", names)
    for t in tools:
        sch = t["inputSchema"]
        good = sch["type"] == "object" and sch["additionalProperties"] is False and "$schema" not in sch \
            and not {"anyOf", "oneOf", "allOf"} & set(sch) and set(sch.get("required", [])) <= set(sch["properties"]) \
            and all(isinstance(p.get("type"), str) for p in sch["properties"].values())
        ok(good and set(t["annotations"]) >= {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
           and len(t["description"]) < 2048, f"schema and annotations of {t['name']}", t)
    again = s.ask("tools/list", {})["result"]["tools"]
    other = Server(init="2024-11-05")
    ok(again == tools == other.ask("tools/list", {})["result"]["tools"], "the same list every time")
    other.close()
    s.close()


def test_concurrency():
    s = Server()
    s.send({"jsonrpc": "2.0", "id": "slow", "method": "tools/call",
            "params": {"name": "shell_run", "arguments": {"command": "sleep 2.5"}, "_meta": {"progressToken": "tok"}}})
    time.sleep(0.2)
    t = time.monotonic()
    for i in range(200):
        ok_ = "result" in (s.ask("ping", rid=i) or {})
        if not ok_:
            break
    ok(ok_ and time.monotonic() - t < 1.5, f"200 pings during a call ({(time.monotonic() - t) * 1000:.0f} ms)")
    ok(code(s.ask("ping", rid="slow")) == -32600, "an id in flight is refused for another request")
    m = s.get("slow")
    notes = [n for n in s.notes if n.get("method") == "notifications/progress"]
    ok(m and "exit 0" in text(m), "the call is answered", m)
    ok(notes and all(n["params"]["progressToken"] == "tok" for n in notes), "progress within its first seconds", s.notes)
    s.send({"jsonrpc": "2.0", "id": "c", "method": "tools/call",
            "params": {"name": "shell_run", "arguments": {"command": "sleep 30"}}})
    time.sleep(0.3)
    s.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c", "reason": "stop"}})
    ok(s.quiet(0.6), "no answer after a cancellation")
    m = s.call("shell_job_list")
    ok("sleep 30" in text(m), "the cancelled command is in the list", m)
    for i in range(100):
        s.send({"jsonrpc": "2.0", "id": i, "method": "tools/call",
                "params": {"name": "shell_run", "arguments": {"command": f"echo {i}"}}})
    got = {}
    for _ in range(100):
        m = s.line(60)
        if m is None:
            break
        got[m["id"]] = text(m)
    ok(len(got) == 100 and all(f"\n{i}\n" in got[i] for i in got), "100 calls at once, each with its own answer", len(got))
    s.close()


def test_waiters():
    s = Server()
    for i in range(20):
        s.send({"jsonrpc": "2.0", "id": f"w{i}", "method": "tools/call",
                "params": {"name": "shell_run", "arguments": {"command": "sleep 20"}}})
    time.sleep(0.5)
    t = time.monotonic()
    m = s.call("shell_job_list")
    ok(m is not None and time.monotonic() - t < 8, "waiting calls do not take all worker threads", m)
    rc, took, err = s.close()
    ok(rc == 0 and took < 1.5, f"end of input with 20 calls under way: {took * 1000:.0f} ms", (rc, err))


def test_output():
    s = Server()
    m = s.call("shell_run", {"command": r"printf 'a\377\000\033[31mred\033[0m\n10%%\r20%%\n'; printf '\342\200\250'"})
    ok("a\\xffred\n20%\n" in text(m), "output is made readable", text(m))
    m = s.call("shell_run", {"command": "head -c 3000000 /dev/zero | tr '\\0' '\\001'", "max_output": 204800})
    ok("result" in m and not s.bad, "output of control characters stays within a line", s.bad)
    m = s.call("shell_run", {"command": "seq 100000"})
    found = re.search(r'job_id="([^"]+)" offset=(\d+)', text(m))
    ok(found and len(text(m)) < 30000 and text(m).rstrip().split("\n")[-2:] != [], "long output is cut in the middle", text(m)[:200])
    m = s.call("shell_job_output", {"job_id": found[1], "offset": int(found[2]), "max_output": 1000})
    ok(re.search(r"next offset=\d+", text(m)) and len(text(m)) < 1300, "and can be paged", text(m)[:200])
    first = int(text(m).split("\n")[1])
    shown = s.call("shell_run", {"command": f"seq 100000 | tail -c +{int(found[2]) + 1} | head -1"})
    ok(str(first) in text(shown), "from where it was cut", first)
    m = s.call("shell_run", {"command": "cat; echo end", "stdin": "given\n"})
    ok("given\nend\n" in text(m), "stdin", text(m))
    m = s.call("shell_run", {"command": "cat; echo end"})
    ok("exit 0" in text(m) and "\nend\n" in text(m), "stdin is empty otherwise", text(m))
    m = s.call("shell_run", {"command": "echo $FOO-$BAR", "env": {"FOO": "a b", "BAR": 1}})
    ok("\na b-1\n" in text(m), "env", text(m))
    m = s.call("shell_run", {"command": "echo out; echo err >&2; exit 4", "structured": True})
    j = json.loads(text(m))
    ok(j["rc"] == 4 and j["stdout"] == "out\n" and j["stderr"] == "err\n" and j["timed_out"] is False
       and j["signal"] is None, "structured", j)
    m = s.call("shell_run", {"command": "kill -SEGV $$"})
    ok(re.match(r"(signal SIGSEGV|exit 139)", text(m)), "a signal", text(m))
    m = s.call("shell_run", {"command": "sleep 10", "timeout": 0.3})
    ok(m["result"].get("isError") and text(m).startswith("timed out"), "a timeout", text(m))
    m = s.call("shell_run", {"command": "true", "cwd": "/nonexistent/dir"})
    ok(m["result"].get("isError") and text(m).startswith("not started"), "a missing directory", text(m))
    s.close()


def test_jobs():
    s = Server()
    m = s.call("shell_run", {"command": "echo one; sleep 1; echo two; sleep 1; exit 5", "wait": 0.3})
    found = re.search(r"running as job (j\d+-[0-9a-f]+)", text(m))
    ok(found and "\none\n" in text(m), "a command becomes a job", text(m))
    job = found[1]
    m = s.call("shell_job_wait", {"job_id": job, "wait_seconds": 10, "until": "^tw"})
    ok("matched until: two" in text(m) and "running" in text(m), "wait until a line matches", text(m))
    m = s.call("shell_job_wait", {"job_id": job, "wait": 10})
    ok("exit 5" in text(m) and "one\ntwo\n" in text(m), "wait for its end", text(m))
    m = s.call("shell_job_status", {"job_id": job})
    ok("exit 5" in text(m), "status", text(m))
    m = s.call("shell_job_kill", {"job_id": job})
    ok(not m["result"].get("isError") and "already ended" in text(m), "kill of an ended job", text(m))
    m = s.call("shell_job_start", {"command": "cat; echo closed", "interactive": True})
    job = re.search(r"j\d+-[0-9a-f]+", text(m))[0]
    s.call("shell_job_input", {"job_id": job, "text": "typed\n"})
    m = s.call("shell_job_wait", {"job_id": job, "wait_seconds": 5, "until": "typed"})
    ok("typed" in text(m), "input", text(m))
    s.call("shell_job_input", {"job_id": job, "eof": True})
    m = s.call("shell_job_wait", {"job_id": job, "wait_seconds": 5})
    ok("exit 0" in text(m) and "closed" in text(m), "end of input", text(m))
    m = s.call("shell_job_input", {"job_id": job, "text": "x"})
    ok(m["result"].get("isError"), "input to an ended job is refused", text(m))
    m = s.call("shell_job_start", {"command": "trap '' TERM; sleep 60 & sleep 60"})
    job = re.search(r"j\d+-[0-9a-f]+", text(m))[0]
    t = time.monotonic()
    m = s.call("shell_job_kill", {"job_id": job, "grace": 0.3})
    ok("killed" in text(m) and time.monotonic() - t < 4, "a job that ignores SIGTERM is killed", text(m))
    m = s.call("shell_job_start", {"command": "sleep 60", "timeout": 0.3})
    job = re.search(r"j\d+-[0-9a-f]+", text(m))[0]
    m = s.call("shell_job_wait", {"job_id": job, "wait_seconds": 5})
    ok("timed out" in text(m), "a job's timeout", text(m))
    m = s.call("shell_job_wait", {"job_id": job, "until": "("})
    ok(m["result"].get("isError") and "regular expression" in text(m), "a bad pattern", text(m))
    for tool in ("status", "wait", "output", "input", "kill"):
        m = s.call(f"shell_job_{tool}", {"job_id": "j1-00000000"})
        ok(m["result"].get("isError") and "no job" in text(m), f"{tool}: unknown id", text(m))
    m = s.call("shell_job_list")
    ok(re.match(r"\d+ jobs, 0 running", text(m)), "list", text(m))
    s.close()


def test_ends():
    s = Server()
    s.raw(b'{"jsonrpc":"2.0","id":1,"method":"pi')
    rc, took, _ = s.close()
    ok(rc == 0 and took < 1.5, f"half a line, then the end ({took * 1000:.0f} ms)", rc)

    marker = f"rattan-raw-{os.getpid()}"
    s = Server()
    s.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "shell_run", "arguments": {"command": f"exec -a {marker} sleep 300 & exec -a {marker} sleep 300"}}})
    time.sleep(0.7)
    ok(subprocess.run(["pgrep", "-f", marker], stdout=subprocess.DEVNULL).returncode == 0, "a command runs")
    rc, took, err = s.close()
    ok(rc == 0 and took < 1.5, f"end of input during a call ({took * 1000:.0f} ms)", (rc, err))
    time.sleep(0.2)
    ok(subprocess.run(["pgrep", "-f", marker], stdout=subprocess.DEVNULL).returncode == 1, "nothing of it is left")

    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        s = Server()
        s.call("shell_job_start", {"command": "sleep 300"})
        t = time.monotonic()
        s.p.send_signal(sig)
        try:
            rc = s.p.wait(5)
        except subprocess.TimeoutExpired:
            rc = "alive"
            s.p.kill()
        ok(rc == 0 and time.monotonic() - t < 2, f"{sig.name} ends it ({(time.monotonic() - t) * 1000:.0f} ms)", rc)
        s.close()

    s = Server()
    s.call("shell_run", {"command": "true"})
    s.p.stdout.close()
    try:
        s.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    except BrokenPipeError:
        pass  # it saw that nobody reads before there was anything to answer
    try:
        rc = s.p.wait(5)
    except subprocess.TimeoutExpired:
        rc = "alive"
        s.p.kill()
    ok(rc == 0, "a client that closes its end of stdout", rc)

    # A client that writes much and reads nothing: input must go on being read (or both wait for ever).
    s = Server()
    for i in range(2000):
        s.send({"jsonrpc": "2.0", "id": i, "method": "ping", "params": {"x": "y" * 5000}})
    got = sum(1 for _ in range(2000) if "result" in (s.line(10) or {}))
    ok(got == 2000, "2,000 requests of 5 KB before the first answer is read", got)
    s.close()

    s = Server()
    for i in range(100):
        s.send({"jsonrpc": "2.0", "id": i, "method": "tools/list"})
    time.sleep(0.3)
    rc, took, _ = s.close()
    ok(rc == 0 and took < 1.5, f"end of input while answers wait for a reader ({took * 1000:.0f} ms)", rc)

    r = subprocess.run(CMD, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=5)
    ok(r.returncode == 0 and r.stdout == b"", "empty input: exit 0 and no output")


def test_stdio():
    s = Server()
    m = s.call("shell_run", {"command": "ls -l /proc/self/fd | tail -n +2 | awk '{print $9}' | sort -n | tr '\\n' ' '"})
    fds = [int(x) for x in text(m).split("\n")[1].split()]
    ok(len([f for f in fds if f > 3]) == 0, "no descriptor of the server reaches a command", fds)
    ok(os.readlink(f"/proc/{s.p.pid}/fd/0") == "/dev/null", "the server's descriptor 0 is /dev/null")
    ok(os.readlink(f"/proc/{s.p.pid}/fd/1") == os.readlink(f"/proc/{s.p.pid}/fd/2"), "descriptor 1 is standard error")
    rc, _, err = s.close()
    ok(err == "", "nothing on stderr in a good session", err)


wanted = os.environ.get("ONLY")
for name, test in sorted((k, v) for k, v in globals().items() if k.startswith("test_")):
    if not wanted or name == "test_" + wanted:
        test()
print(f"1..{count}")
sys.exit(failed > 0)
