#!/usr/bin/python3
"""Bytes that no SDK client sends: the server's answer to every odd line, in both protocol eras, and to many at once.

Runs $RATTAN (or the program given) and prints TAP. Needs commands to run, but nothing of what they do.
"""
# timeout: 300
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawlib import MODERN, Server, code, ends, is_error, ok, ping, run_tests, text, until  # noqa: E402

META = "io.modelcontextprotocol/"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LISTEN = {"jsonrpc": "2.0", "id": "L", "method": "subscriptions/listen", "params": {"_meta": MODERN, "notifications": {}}}
flags = 0


def flag():
    """(a command that waits until it is told, what the command to tell it is): both in the tree that calls see."""
    global flags
    flags += 1
    name = f"/tmp/rattan-raw-{os.getpid()}-{flags}"
    return f"until test -e {name}; do sleep 0.05; done; rm {name}", f"touch {name}"


# ---- opening, eras ----

def test_negotiation():
    for want, got in [*((v, v) for v in LEGACY), ("1999-01-01", "2025-11-25"), ("2026-07-28", "2025-11-25"), ("", "2025-11-25"),
                      (5, "2025-11-25"), (None, "2025-11-25"), ({}, "2025-11-25"), ("2025-11-25 ", "2025-11-25")]:
        s = Server(init=want or "") if want is not None else Server(init=None)
        if want is None:
            s.hello = s.ask("initialize", {"protocolVersion": None})
        ok(s.hello["result"]["protocolVersion"] == got, f"initialize {want!r} gives {got}", s.hello)
        s.close()
    for params in ({}, None, {"protocolVersion": "2025-06-18", "capabilities": {"roots": {"listChanged": True}, "sampling": {},
                                                                               "elicitation": {"form": {}}}, "clientInfo": 5}):
        s = Server(init=None)
        m = s.ask("initialize", params)
        want = (params or {}).get("protocolVersion", "2025-11-25")
        ok(m["result"]["protocolVersion"] == want, f"initialize with {params} is answered", m)
        ok("resultType" not in m["result"] and "_meta" not in m["result"], "a legacy result has no modern fields", m)
        ok(m["result"]["capabilities"] == {"tools": {}}, "capabilities are tools and nothing else", m)
        ok(m["result"]["serverInfo"]["name"] == "rattan" and len(m["result"]["instructions"].encode()) <= 1024, "name, and instructions of 1 KiB")
        s.close()
    s = Server(init=None)
    s.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    ok("result" in s.ask("ping"), "ping before anything, and initialized before initialize")
    ok(s.ask("initialize", {"protocolVersion": "2025-06-18"})["result"]["protocolVersion"] == "2025-06-18", "initialize after a ping")
    s.cancel(1)
    ok(s.ask("initialize", {"protocolVersion": "2025-03-26"})["result"]["protocolVersion"] == "2025-03-26", "a second initialize counts")
    s.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    s.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
    ok(s.quiet(), "nothing comes back for notifications, and no question about roots")
    s.close()


def modern_of(m):
    """Whether an answer looks modern; None: like neither era's."""
    r = m["result"]
    has = [r.get("resultType") == "complete", META + "serverInfo" in r.get("_meta", {})]
    none = "resultType" not in r and "ttlMs" not in r and "cacheScope" not in r and META + "serverInfo" not in r.get("_meta", {})
    return True if all(has) else False if none else None


def test_modern():
    s = Server(init=None)
    m = s.ask("server/discover", {"_meta": MODERN})
    r = m["result"]
    ok(r["supportedVersions"] == ["2026-07-28"] and r["resultType"] == "complete" and r["ttlMs"] >= 0
       and r["cacheScope"] in ("public", "private") and r["capabilities"] == {"tools": {}}, "server/discover as the first message", m)
    ok(r["_meta"][META + "serverInfo"]["name"] == "rattan", "it names the server", m)
    ok(s.ask("server/discover", {"_meta": MODERN})["result"] == r, "twice the same")
    m = s.ask("tools/list", {"_meta": MODERN})
    ok(modern_of(m) and m["result"]["ttlMs"] >= 0 and m["result"]["cacheScope"] in ("public", "private"), "tools/list has the modern fields")
    for v in ("1999-01-01", "2025-11-25", "2026-07-29", ""):
        m = s.ask("tools/list", {"_meta": {**MODERN, META + "protocolVersion": v}})
        ok(code(m) == -32022 and m["error"]["data"] == {"supported": r["supportedVersions"], "requested": v},
           f"version {v!r} is -32022 with what is supported, as discover says it", m)
    for bad, what in [({META + "protocolVersion": 5}, "a version that is a number"), ({META + "protocolVersion": None}, "a version null"),
                      ({META + "clientCapabilities": []}, "capabilities an array"), ({META + "clientCapabilities": None}, "capabilities null")]:
        ok(code(s.ask("tools/list", {"_meta": {**MODERN, **bad}})) == -32602, f"{what} is -32602")
    m = s.ask("tools/list", {"_meta": {META + "protocolVersion": "2026-07-28"}})
    ok(code(m) == -32602, "no clientCapabilities is -32602", m)
    more = {META + "clientInfo": {"name": "x", "version": "1"}, META + "logLevel": "debug", "other/key": [1], "progressToken": {"a": 1}}
    ok(modern_of(s.ask("tools/list", {"_meta": {**MODERN, **more}})) is True, "what else _meta holds does not matter")
    for method in ("ping", "initialize", "logging/setLevel", "resources/subscribe", "resources/list", "prompts/list", "completion/complete",
                   "tasks/list"):
        ok(code(s.ask(method, {"_meta": MODERN})) == -32601, f"modern {method} is -32601")
    for method in ("tools/list", "tools/call", "server/discover", "subscriptions/listen"):
        ok(code(s.ask(method, {})) == code(s.ask(method)) == code(s.ask(method, {"_meta": []})) == -32602, f"{method} of no era is -32602")
    ok("result" in s.ask("ping"), "but ping is answered")
    m = s.call("shell_run", {"command": "echo hi"}, _meta=MODERN)
    ok(modern_of(m) and m["result"]["_meta"]["dev.rattan/result"]["rc"] == 0, "a modern call", m)
    m = s.call("shell_run", {"command": 5}, _meta=MODERN)
    ok(modern_of(m) and is_error(m), "a modern call with a wrong argument", m)
    ok(code(s.call("nope", {}, _meta=MODERN)) == -32602, "an unknown tool")
    ok(code(s.ask("tools/list", {"_meta": MODERN, "cursor": ""})) == -32602, "an empty cursor")
    s.close()


def test_both_eras():
    s = Server(init=None)
    ok(modern_of(s.ask("tools/list", {"_meta": MODERN})) is True, "a modern client first")
    ok(modern_of(s.ask("initialize", {"protocolVersion": "2025-06-18"})) is False, "then a legacy one on the same process")
    for i in range(3):
        for method, params in (("tools/list", {}), ("tools/call", {"name": "shell_job_list"})):
            a, b = s.ask(method, params, "l"), s.ask(method, {**params, "_meta": MODERN}, "m")
            ok(modern_of(a) is False and modern_of(b) is True, f"{method} to each in its own dialect, in turn", (a, b))
    a, b = s.ask("tools/list", {}), s.ask("tools/list", {"_meta": MODERN})
    ok(a["result"]["tools"] == b["result"]["tools"], "the same tools")
    ok(modern_of(s.ask("tools/list", {"_meta": {"progressToken": 1}})) is False, "other keys of _meta do not make a request modern")
    for method in ("server/discover", "subscriptions/listen", "logging/setLevel", "resources/list", "prompts/list", "completion/complete",
                   "tasks/get", "sampling/createMessage", ""):
        ok(code(s.ask(method, {})) == -32601, f"legacy {method or 'empty method'} is -32601")
    m = s.call("shell_job_list", {}, task={"ttl": 60000})
    ok("content" in m["result"], "a task is not offered, and a call that asks for one is answered as it is", m)
    s.close()


def test_listen():
    s = Server(init=None)
    for rid in ("L", 7, "\u2028\u00e9"):
        s.send({**LISTEN, "id": rid, "params": {"_meta": MODERN, "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["x:y"]}}})
        m = s.line()
        ok(m["method"] == "notifications/subscriptions/acknowledged" and m["params"]["_meta"][META + "subscriptionId"] == rid
           and m["params"]["notifications"] == {}, f"listen {rid!r} is acknowledged, with what there is: nothing", m)
    ok(code(s.ask("server/discover", {"_meta": MODERN}, rid="L")) == -32600, "its id is in use")
    s.cancel("L")
    ok("result" in s.ask("server/discover", {"_meta": MODERN}, rid="L"), "until it is cancelled")
    ok(not s.notes, "which nothing answers", s.notes)
    for i in range(62):
        s.send({**LISTEN, "id": 100 + i})
        s.line()
    s.send({**LISTEN, "id": "one more"})
    ok(code(s.line()) == -32603, "65 at once are too many")
    ok("result" in s.ask("tools/list", {"_meta": MODERN}, rid="after"), "others are served")
    s.close()

    def listening():
        s = Server(init=None)
        s.send(LISTEN)
        s.line()
        return s
    ends(listening, "end of input during listen")


# ---- one line ----

def test_envelope():
    s = Server()
    cases = [
        (b"{bad json\n", -32700, None, "malformed"),
        (b"{}\n", -32600, None, "an empty object"),
        (b'{"jsonrpc":"2.0","id":9,"method":"ping"\n', -32700, 9, "cut off, with a clear id"),
        (b'{"jsonrpc":"2.0","id":9,"method":"ping"}}\n', -32700, 9, "trailing bytes"),
        (ping(b"9")[:-1] + ping(b"8"), -32700, 9, "two messages on one line"),
        (b'{"jsonrpc":"2.0","id":9,"method":"ping",}\n', -32700, 9, "a comma too many"),
        (b"{'jsonrpc':'2.0','id':9,'method':'ping'}\n", -32700, None, "other quotes"),
        (b'{"jsonrpc":"2.0","id":9,"method":"pi\xff"}\n', -32700, 9, "invalid UTF-8"),
        (b'{"jsonrpc":"2.0","id":9,"method":"pi\xc0\xae"}\n', -32700, 9, "overlong UTF-8"),
        (b'{"jsonrpc":"2.0","id":9,"method":"pi\xed\xa0\x80"}\n', -32700, 9, "a surrogate in UTF-8"),
        (b'{"jsonrpc":"2.0","id":9,"method":"pi\xf4\x90\x80\x80"}\n', -32700, 9, "past U+10FFFF"),
        (b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}\n', -32700, None, "an id that is not UTF-8 is not sent back"),
        ('{"jsonrpc":"2.0","id":9,"method":"ping"}'.encode("utf-16-le").replace(b"\n", b"") + b"\n", -32700, None, "UTF-16"),
        (b'{"jsonrpc":"2.0","id":9,"method":"pi\x01ng"}\n', -32700, 9, "a raw control character"),
        (b'{"jsonrpc":"2.0","id":9,"method":"pi\x00ng"}\n', -32700, 9, "a raw NUL in a string"),
        (b'\x00{"jsonrpc":"2.0","id":9,"method":"ping"}\n', -32700, None, "a raw NUL before the message"),
        (b'{"jsonrpc":"2.0","id":9,"method":"pi\\x41ng"}\n', -32700, 9, "an escape that JSON has not"),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', -32600, None, "id null"),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}\n', -32600, None, "id an array"),
        (b'{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}\n', -32600, None, "id an object"),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}\n', -32600, None, "id true"),
        (b'{"jsonrpc":"2.0","\\u0069d":9,"method":"ping"}\n', -32600, None, "id with an escape in its key"),
        (b'{"id":9,"method":"ping"}\n', -32600, 9, "no jsonrpc"),
        (b'{"jsonrpc":"1.0","id":9,"method":"ping"}\n', -32600, 9, "jsonrpc 1.0"),
        (b'{"jsonrpc":2.0,"id":9,"method":"ping"}\n', -32600, 9, "jsonrpc a number"),
        (b'{"JSONRPC":"2.0","id":9,"method":"ping"}\n', -32600, 9, "keys have their case"),
        (b'{"jsonrpc":"2.0","id":9,"method":5}\n', -32600, 9, "method a number"),
        (b'{"jsonrpc":"2.0","id":9,"method":null}\n', -32600, 9, "method null"),
        (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":[1]}\n', -32600, 9, "params an array"),
        (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":"x"}\n', -32600, 9, "params a string"),
        (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":null}\n', -32600, 9, "params null"),
        (b'{"jsonrpc":"2.0","id":9}\n', -32600, 9, "no method"),
        (b'{"jsonrpc":"2.0","id":9,"method":"pi\\u0000ng"}\n', -32600, 9, "U+0000 in the method"),
        (b'{"jsonrpc":"2.0","id":9,"method":"ping","params":{"a\\u0000":1}}\n', -32600, 9, "U+0000 in a key"),
        (b'{"jsonrpc":"2.0","id":9,"method":"nope"}\n', -32601, 9, "unknown method"),
        (b'{"jsonrpc":"2.0","id":9,"method":"Ping"}\n', -32601, 9, "methods have their case"),
        (b'{"jsonrpc":"2.0","id":9,"method":"' + b"x" * 100000 + b'"}\n', -32601, 9, "a method of 100,000 letters"),
        (b'{"jsonrpc":"2.0","id":9,"method":"a\xe2\x80\xa8b\\n\\u007f"}\n', -32601, 9, "odd characters in a method"),
        (b'{"jsonrpc":"2.0","id":9,"method":"nope","method":"ping"}\n', -32601, 9, "of two equal keys the first counts"),
        (b"[]\n", -32600, None, "empty batch"),
        (b"[" + ping(b"9")[:-1] + b"]\n", -32600, None, "a batch in 2025-11-25"),
        *((w + b"\n", -32600, None, w.decode()) for w in (b'"text"', b"5", b"null", b"true", b"-0.5e3")),
        *((w + b"\n", -32700, None, w.decode()) for w in (b"nul", b"NaN", b"01", b"+1", b".5", b"1.", b"1e", b"-", b'"\\ud8')),
        (b"[" * 100000 + b"\n", -32700, None, "100,000 levels"),
        (b'{"jsonrpc":"2.0","id":9,"method":"x","params":' + b'{"a":' * 70 + b"1" + b"}" * 71 + b"\n", -32700, 9, "72 levels"),
        (b'{"jsonrpc":"2.0","id":9,"method":"x","params":' + b'{"a":' * 62 + b"[1]" + b"}" * 63 + b"\n", -32700, 9, "65 levels"),
        (b'{"jsonrpc":"2.0","id":9,"method":"x","params":' + b'{"a":' * 61 + b"[1]" + b"}" * 62 + b"\n", -32601, 9, "64 levels are read"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":5}}\n', -32602, 9, "tool name a number"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":null}}\n', -32602, 9, "tool name null"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call"}\n', -32602, 9, "no params"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"nope"}}\n', -32602, 9, "unknown tool"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":""}}\n', -32602, 9, "empty tool name"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"%n%s\\n\\ud800"}}\n', -32602, 9, "odd tool name"),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"Name":"shell_run"}}\n', -32602, 9, "case matters"),
        *((b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"shell_run","arguments":' + v + b'}}\n', -32602, 9,
           f"arguments {v.decode()}") for v in (b"[]", b'"x"', b"5", b"false")),
        *((b'{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"cursor":' + v + b'}}\n', -32602, 9, f"cursor {v.decode()}")
          for v in (b'"x"', b'""', b"1")),
    ]
    for line, want, rid, what in cases:
        s.raw(line)
        m = s.line()
        ok(code(m) == want and ("id" in m) == (rid is not None) and m.get("id") == rid, f"{what}: {want}", m)
        if want == -32601:
            ok(len(m["error"]["message"]) < 200 and m["error"]["message"].isprintable() is not None, "with a short message", m)
    silent = [(b"\n \r\n\t\n", "blank lines"), (b'{"jsonrpc":"2.0","method":"nope"}\n', "an unknown notification"),
              (b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"shell_run"}}\n', "a call without an id"),
              (b'{"jsonrpc":"2.0","id":77,"result":{}}\n', "an answer to nothing"),
              (b'{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"x"}}\n', "an error to nothing"),
              (b'{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}\n', "an error without an id"),
              (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12}}\n', "cancel of nothing"),
              (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":[]}}}\n', "cancel of an object"),
              (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null,"reason":5}}\n', "cancel of null"),
              (b'{"jsonrpc":"2.0","method":"notifications/cancelled"}\n', "cancel without an id"),
              (b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}\n', "progress of a client")]
    for line, what in silent:
        s.raw(line)
        ok(s.quiet(), f"no answer to {what}", s.notes)
    s.raw(b'\xef\xbb\xbf \t' + ping(b"1")[:-1] + b" \r\n")
    ok("result" in s.get(1), "a byte order mark, blanks and a carriage return")
    for byte in ping(b"2"):
        s.raw(bytes([byte]))
    ok("result" in s.get(2), "a line that comes byte by byte")
    s.raw(b"".join(ping(b"%d" % i) for i in range(3, 200)))
    ok([s.line().get("id") for i in range(3, 200)] == list(range(3, 200)), "197 lines in one write are answered in order")
    s.close()
    ends(Server, "end of input")


def test_ids():
    s = Server()
    for rid in (b"0", b"-1", b"1.5", b"1e3", b"-0", b"9007199254740993", b"123456789012345678901234567890", b"1e400", b'""', b'" "', b'"1"',
                b'"a\\n\\"\\\\/"', b'"\\/\\u0041\\ud83d\\ude00"', '"é\u2028\x7f日本"'.encode(), b'"' + b"i" * 1022 + b'"'):
        s.raw(ping(rid))
        one = s.rawline()
        ok(one == b'{"jsonrpc":"2.0","id":%s,"result":{}}' % rid, f"id {rid.decode()[:60]} comes back as it was", one)
    s.raw(b'{"jsonrpc":"2.0","id":"\\ud800x\\u00e9","method":"ping"}\n')
    m = s.line()
    ok("result" in m and m["id"] == "\ufffdx\u00e9", "half a surrogate pair in an id does not break the line", m)
    s.raw(ping(b'"' + b"i" * 1023 + b'"'))
    m = s.line()
    ok(code(m) == -32600 and "id" not in m, "an id of more than 1024 bytes is refused", m)
    s.raw(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}\n')
    ok(s.line()["id"] == 1, "of two ids the first counts")
    s.raw(b'{"params":{"id":5},"jsonrpc":"2.0","method":"ping","id":6}\n')
    ok(s.line()["id"] == 6, "an id inside params is none")
    wait, go = flag()
    s.start("shell_run", {"command": wait}, 1)
    s.start("shell_run", {"command": "echo other"}, "1")
    m = s.get("1")
    ok("other" in text(m), "1 and \"1\" are two ids", m)
    for again in ("ping", "tools/list", "tools/call"):
        ok(code(s.ask(again, {"name": "shell_run"}, rid=1)) == -32600, f"an id in flight is refused for {again}")
    s.cancel("1")
    s.call("shell_run", {"command": go}, "go")
    m = s.get(1) if not any(n.get("id") == 1 for n in s.notes) else next(n for n in s.notes if n.get("id") == 1)
    ok("exit 0" in text(m), "the first is answered all the same, and cancelling \"1\" is not cancelling 1", m)
    ok("result" in s.ask("ping", rid=1), "then the id may be used again")
    s.close()


def test_strings():
    s = Server()
    m = s.ask("tools/call", {"name": "shell_run", "arguments": None})
    ok(is_error(m), "null arguments: an error a model can mend", m)
    m = s.ask("tools/call", {"name": "shell_job_list", "arguments": None})
    ok(not is_error(m) and "jobs" in text(m), "which is nothing where none is needed", m)
    ok("jobs" in text(s.ask("tools/call", {"name": "shell_job_list"})), "nor are arguments needed at all")
    for args in ({"command": "a\x00b"}, {"command": "true", "cwd": "/\x00"}, {"comm\x00and": "true"}):
        m = s.call("shell_run", args)
        ok(is_error(m) and "U+0000" in text(m), f"U+0000 in {args}", m)
    m = s.call("shell_run\x00", {"command": "true"})
    ok(code(m) == -32602 or (is_error(m) and "U+0000" in text(m)), "U+0000 in the name of a tool", m)
    m = s.call("shell_run", {"command": "true", "bogus": 1})
    ok(is_error(m) and "bogus" in text(m), "an unknown argument is named", m)
    for args in ({"command": 5}, {"command": ["true", 5]}, {"command": {"a": 1}}, {"command": True}, {"command": ""}, {"command": "true", "wait": "x"},
                 {"command": "true", "timeout": -1}, {"command": "true", "max_output": 1.5}, {"command": "true", "env": []},
                 {"command": "true", "env": {"A B": "1"}}, {"command": "true", "stderr": "both"}):
        ok(is_error(s.call("shell_run", args)), f"a wrong value: {args}")
    for number in (b"1e400", b"-1e400", b"123456789012345678901234567890", b"9007199254740993", b"1e-400"):
        s.raw(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell_run","arguments":{"command":"true","max_output":%s}}}\n' % number)
        ok(is_error(s.get(1)), f"max_output {number.decode()}")
    m = s.call("shell_run", {"command": "printf '%s' '\U0001f600é日' | od -An -tx1 | tr -d ' \\n'"})
    ok("f09f9880c3a9e697a5" in text(m), "characters reach the command as UTF-8", m)
    s.raw(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell_run","arguments":{"command":"echo \\ud83d\\ude00 \\ud800- \\udc00-"}}}\n')
    m = s.get(1)
    ok("\U0001f600 \ufffd- \ufffd-" in text(m), "a pair of surrogates is one character, halves are U+FFFD", m)
    s.raw(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[' + b"0," * 1000000 + b"0]}}\n")
    ok("result" in s.get(1), "a million elements are read")
    s.raw(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell_run","arguments":{' +
          b",".join(b'"k%d":1' % i for i in range(20000)) + b"}}}\n")
    m = s.get(1)
    ok(is_error(m) and len(text(m)) < 2000, "20,000 arguments", text(m)[:300])
    s.close()


def test_long_lines():
    s = Server()
    big = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"y" * (17 << 20) + b'"}}\n'
    s.raw(big + ping(b"2"))
    m, n = s.line(), s.line()
    ok(code(m) == -32700 and "id" not in m and n.get("id") == 2, "a line of 17 MiB is refused, the next is served", (m, n))
    for size, served in ((9 << 20, True), (16 << 20, True), ((16 << 20) + 1, False)):
        head, tail = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"', b'"}}'
        s.raw(head + b"y" * (size - len(head) - len(tail)) + tail + b"\n")
        m = s.line()
        ok("result" in m if served else code(m) == -32700, f"one of {size} bytes is {'read' if served else 'refused'}", str(m)[:200])
    s.raw(b"\n" * 100000 + ping(b"3"))
    ok(s.line().get("id") == 3, "100,000 empty lines")

    def unfinished():
        s = Server()
        s.raw(b"x" * (20 << 20))
        return s
    s.close()
    ends(unfinished, "a line of 20 MiB without an end")


def test_batch():
    for version in LEGACY[:2]:
        s = Server(init=version)
        s.raw(b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},{"bad":1},'
              b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"shell_run","arguments":{"command":"echo b"}}}]\n')
        m = s.line()
        ok(isinstance(m, list) and len(m) == 3, f"a batch gives one array with an answer for each request ({version})", m)
        ok({x.get("id") for x in m} == {1, 2, None} and [code(x) for x in m if "error" in x] == [-32600],
           "with all ids, and the bad member's error", m)
        s.raw(b'[{"jsonrpc":"2.0","method":"x"}]\n[{"jsonrpc":"2.0","id":1,"result":{}}]\n')
        ok(s.quiet(), "notifications and answers only: no answer")
        s.close()
    for line, n, what in [(b'[1,"x",null,[],[[]]]', 5, "members that are no messages"),
                          (b'[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}]', 1, "initialize stands alone"),
                          (b"[" + ping(b"1")[:-1] + b"," + ping(b"1")[:-1] + b"]", 0, "one id twice, each answered")]:
        s = Server(init="2025-03-26")
        s.raw(line + b"\n")
        m = s.line()
        ok(isinstance(m, list) and sum(code(x) == -32600 for x in m) == n and len(m) == max(n, 2 if not n else n), what, m)
        s.raw(b"[" + ping(b"5")[:-1] + b"]\n")
        ok(isinstance(s.line(), list), "batches go on")
        s.close()
    s = Server(init="2025-03-26")
    s.raw(b"[" + b",".join(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % i for i in range(65)) + b"]\n")
    ok(code(s.line()) == -32600, "65 members are too many")
    s.raw(b"[" + ping(b"1")[:-1] + b",\n")
    ok(code(s.line()) == -32700, "half a batch")
    wait, go = flag()
    s.raw(b"[" + ping(b"1")[:-1] + b"," + json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "shell_run", "arguments": {"command": wait}}}).encode() + b"]\n")
    s.cancel(2)
    m = s.line()
    ok(isinstance(m, list) and [x["id"] for x in m] == [1], "a member that is cancelled is left out", m)
    s.close()
    for version in LEGACY[2:]:
        s = Server(init=version)
        s.raw(b"[" + ping(b"1")[:-1] + b"]\n")
        m = s.line()
        ok(code(m) == -32600 and "id" not in m, f"no batches in {version}", m)
        s.close()
    s = Server(init=None)
    s.raw(b'[{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":' + json.dumps(MODERN).encode() + b"}}]\n")
    ok(code(s.line()) == -32600, "nor modern ones")
    s.close()


def test_list():
    s = Server()
    s.raw(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n')
    r = s.line()["result"]
    tools = r["tools"]
    size = len(json.dumps(tools, separators=(",", ":")))
    ok(size < 24 * 1024 and set(r) == {"tools"}, f"the list is {size} bytes, on one page")
    names = [t["name"] for t in tools]
    ok(len(set(names)) == len(names) and all(re.fullmatch(r"[a-z_]{1,24}", n) for n in names), "names", names)
    for t in tools:
        sch = t["inputSchema"]
        good = sch["type"] == "object" and sch["additionalProperties"] is False and "$schema" not in sch \
            and not {"anyOf", "oneOf", "allOf"} & set(sch) and set(sch.get("required", [])) <= set(sch["properties"]) \
            and all(isinstance(p.get("type"), str) and p.get("description") and "format" not in p for p in sch["properties"].values())
        ok(good and set(t["annotations"]) >= {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
           and len(t["description"]) < 2048, f"schema and annotations of {t['name']}", t)
    ok({t["name"] for t in tools if t.get("_meta", {}).get("anthropic/maxResultSizeChars", 0) > 204800}
       == {"shell_run", "shell_job_wait", "shell_job_output", "rattan_read_file"}, "who answers at length says so")
    ok({t["name"] for t in tools if t["annotations"]["openWorldHint"]} == {"bind_host_dir"}, "without a network nothing reaches the open world")
    again = s.ask("tools/list", {})["result"]["tools"]
    s.call("shell_run", {"command": "true"})
    later = s.ask("tools/list", {"cursor": None})["result"]["tools"]
    other = Server(init="2024-11-05")
    ok(again == later == tools == other.ask("tools/list", {})["result"]["tools"], "the same list every time")
    other.close()
    s.close()


# ---- several at once ----

def test_concurrency():
    s = Server()
    wait, go = flag()
    for rid, token in (("slow", "tok"), (8, 9007199254740993)):
        s.start("shell_run", {"command": f"echo {rid} is here; {wait.replace('rm ', 'true ')}"}, rid, _meta={"progressToken": token})
    got = [s.ask("ping", rid=i) is not None for i in range(200)]
    ok(all(got) and not any("result" in n for n in s.notes), "200 pings during two calls")
    seen = {"tok": [], 9007199254740993: []}
    while min(len(v) for v in seen.values()) < 2:
        m = s.line()
        if m is None:
            break
        seen.get(m.get("params", {}).get("progressToken"), []).append(m)
    ok(all(len(v) >= 2 and all(n["method"] == "notifications/progress" for n in v) for v in seen.values()),
       "progress of both, with the tokens as they were", seen)
    ok(all(b["params"]["progress"] > a["params"]["progress"] for v in seen.values() for a, b in zip(v, v[1:])), "it rises", seen)
    ok("slow is here" in seen["tok"][-1]["params"]["message"], "and says where the command is", seen["tok"][-1])
    for token in ({"a": 1}, [1], True, None):
        ok("exit 0" in text(s.call("shell_run", {"command": "true"}, _meta={"progressToken": token})), f"a progress token {token} is none")
    s.call("shell_run", {"command": go}, "go")
    late = s.notes + [s.line() for _ in range(2 - sum("result" in n for n in s.notes))]
    ok({n.get("id") for n in late if "result" in n} == {"slow", 8} and all("exit 0" in text(n) for n in late if "result" in n),
       "both are answered", late)
    s.call("shell_run", {"command": wait})
    ok(s.quiet(), "no progress after an answer")
    for i in range(200):
        s.start("shell_run", {"command": f"echo {i}"}, i)
    got = {}
    for _ in range(200):
        m = s.line()
        if m is None:
            break
        got[m["id"]] = text(m)
    ok(len(got) == 200 and all(f"\n{i}\n" in got[i] for i in got), "200 calls at once, each with its own answer",
       (len(got), [(i, got[i]) for i in got if f"\n{i}\n" not in got[i]][:5]))
    ok(s.quiet(), "and one alone", s.notes)
    s.close()


def test_cancel():
    s = Server()
    mark = f"/tmp/rattan-raw-{os.getpid()}-c"
    s.start("shell_run", {"command": f"touch {mark}; sleep 300", "timeout": 300}, "c")
    ok("exit 0" in text(s.call("shell_run", {"command": f"until test -e {mark}; do sleep 0.05; done; rm {mark}"})), "a command runs")
    s.cancel("c", reason="stop")
    m = until(lambda: re.search("killed after.*sleep 300", text(s.call("shell_job_list"))))
    ok(m, "cancelling ends it; it is still in the list")
    s.cancel("c")
    ok(s.quiet() and "c" not in s.seen, "no answer after a cancellation, nor to another", s.notes)
    ok("exit 0" in text(s.call("shell_run", {"command": "true"}, "c")), "its id may be used again")
    s.cancel("c")
    ok(s.quiet(), "cancel of what was answered", s.notes)
    for i in range(20):
        s.start("shell_run", {"command": f"echo started {i} > /dev/null; sleep 300"}, f"q{i}")
    for i in reversed(range(20)):  # who waits goes first: each that ends makes room for one more
        s.cancel(f"q{i}")
    ok("exit 0" in text(s.call("shell_run", {"command": "true"})), "20 more, those that were still waiting their turn too")
    ok(s.quiet() and "started 19" not in text(s.call("shell_job_list")), "which never started", s.notes)
    ok(not [i for i in s.seen if i in [f"q{n}" for n in range(20)]], "none is answered", s.seen)
    # Of a call that just ends. What went wrong there was a matter of some instructions: so many.
    for i in range(3000):
        s.start("shell_job_list", {}, f"e{i}")
        s.cancel(f"e{i}")
        while i % 50 == 49 and s.line(0):
            pass
    ok(s.ask("ping") is not None and not [i for i in set(s.seen) if str(i)[0] == "e" and s.seen.count(i) > 1], "3000 that just end: an answer or none")
    s.close()


def test_too_many():
    s = Server()
    wait, go = flag()
    for i in range(520):
        s.start("shell_run", {"command": wait}, i)
    refused = [s.line() for _ in range(8)]
    ok(all(is_error(m) and "too many calls" in text(m) for m in refused) and [m["id"] for m in refused] == list(range(512, 520)),
       "more than 512 calls at once are refused in words", refused)
    ok("result" in s.ask("ping", rid="p"), "ping is answered")
    s.close()

    def waiting():
        s = Server()
        for i in range(20):
            s.start("shell_run", {"command": "sleep 300"}, f"w{i}")
        ok("running" in text(s.call("shell_job_list")), "waiting calls do not take all worker threads")
        return s
    ends(waiting, "end of input with 20 calls under way")


run_tests(globals())
