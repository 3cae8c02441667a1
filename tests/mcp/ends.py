#!/usr/bin/python3
"""How a server ends, and what it is started with: input that ends anywhere, signals, readers that are slow or gone, sockets and files for
its descriptors, a working directory that goes.

Runs $RATTAN (or the program given) and prints TAP. Needs commands to run, but nothing of what they do.
"""
# timeout: 300
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawlib import CMD, Server, ends, ok, ping, run_tests, text, until  # noqa: E402


def running(marker):
    return subprocess.run(["pgrep", "-f", marker], stdout=subprocess.DEVNULL).returncode == 0


def test_ends():
    def half():
        s = Server()
        s.raw(b'{"jsonrpc":"2.0","id":1,"method":"pi')
        return s
    ends(half, "half a line, then the end")

    def whole():
        s = Server()
        s.raw(ping(b"1")[:-1])
        return s
    ends(whole, "a message without its newline, then the end")

    marker = f"rattan-raw-{os.getpid()}"

    def in_a_call():
        s = Server()
        s.start("shell_run", {"command": f"exec -a {marker} sleep 300 & exec -a {marker} sleep 300"}, 1)
        ok(until(lambda: running(marker)), "a command runs")
        return s
    ends(in_a_call, "end of input during a call")
    ok(until(lambda: not running(marker)), "nothing of it is left")

    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        def with_a_job():
            s = Server()
            s.call("shell_job_start", {"command": f"exec -a {marker} sleep 300"})
            return s

        def kill(s):
            t = time.monotonic()
            s.p.send_signal(sig)
            return s.wait(t)
        ends(with_a_job, sig.name, end=kill)
        ok(until(lambda: not running(marker)), "nothing of its job is left")

    def queued():
        s = Server()
        for i in range(100):
            s.send({"jsonrpc": "2.0", "id": i, "method": "tools/list"})
        s.line()
        return s
    ends(queued, "end of input while answers wait for a reader")

    r = subprocess.run(CMD, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60)
    ok(r.returncode == 0 and r.stdout == b"", "empty input: exit 0 and no output")


def test_readers():
    """Clients that close their end, or read slowly, or not at all."""
    s = Server()
    s.call("shell_run", {"command": "true"})
    s.p.stdout.close()
    try:
        s.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    except BrokenPipeError:
        pass  # it saw that nobody reads before there was anything to answer
    ok(s.wait()[0] == 0, "a client that closes its end of stdout")

    # A client that writes much and reads nothing: input must go on being read (or both wait for ever).
    s = Server()
    for i in range(2000):
        s.send({"jsonrpc": "2.0", "id": i, "method": "ping", "params": {"x": "y" * 5000}})
    got = sum(1 for _ in range(2000) if "result" in (s.line() or {}))
    ok(got == 2000, "2,000 requests of 5 KB before the first answer is read", got)
    s.close()

    s = Server()
    for i in range(100):
        s.send({"jsonrpc": "2.0", "id": i, "method": "tools/list"})
    for i in range(20):
        s.start("shell_run", {"command": "seq 20000", "max_output": 100000}, f"c{i}")
    data = b""
    while data.count(b"\n") < 121:
        time.sleep(0.0005)
        data += os.read(s.rfd, 9000)
        if len(data) > 1 << 20 and data.count(b"\n") < 121 and s.wfd >= 0:
            s.send({"jsonrpc": "2.0", "id": "in between", "method": "ping"})
            s.wfd = -1
    ids = [json.loads(one)["id"] for one in data.split(b"\n") if one]
    ok(sorted(map(str, ids)) == sorted([*map(str, range(100)), *(f"c{i}" for i in range(20)), "in between"]),
       "a client that reads slowly gets every answer, whole", ids)
    s.close()

    s = Server()
    try:
        for i in range(600):
            s.send({"jsonrpc": "2.0", "id": i, "method": "tools/list"})
    except BrokenPipeError:
        pass
    rc, _, err = s.wait()
    ok(rc == 0 and "could not be sent" in err, "a client that asks for more than 8 MiB and reads nothing is given up", (rc, err))


def test_stdio():
    s = Server()
    m = s.call("shell_run", {"command": "ls -l /proc/self/fd | tail -n +2 | awk '{print $9}' | sort -n | tr '\\n' ' '"})
    fds = [int(x) for x in text(m).split("\n")[1].split()]
    ok(len([f for f in fds if f > 3]) == 0, "no descriptor of the server reaches a command", fds)
    ok(os.readlink(f"/proc/{s.p.pid}/fd/0") == "/dev/null", "the server's descriptor 0 is /dev/null")
    ok(os.readlink(f"/proc/{s.p.pid}/fd/1") == os.readlink(f"/proc/{s.p.pid}/fd/2"), "descriptor 1 is standard error")
    rc, _, err = s.close()
    ok(err == "", "nothing on stderr in a good session", err)

    for how in ("one socket", "two sockets"):
        a, b = socket.socketpair()
        c, d = socket.socketpair() if how == "two sockets" else (a, b)
        os.set_blocking(b.fileno(), True)
        s = Server(stdio=(a.fileno(), c.fileno(), b, d))
        m = s.call("shell_run", {"command": "seq 100000", "max_output": 200000})
        ok("exit 0" in text(m) and len(text(m)) > 150000, f"{how} in the place of pipes, as node gives them", str(m)[:200])
        ok(os.get_blocking(b.fileno()) and os.get_blocking(d.fileno()), "whose flags are as they were")
        b.close()
        a.shutdown(socket.SHUT_WR)
        ok(s.wait()[0] == 0, "it ends with them")
        for x in (a, c, d):
            x.close()

    with tempfile.TemporaryFile() as f, tempfile.TemporaryFile() as out:
        f.write(ping(b"1") + ping(b"2"))
        f.seek(0)
        r = subprocess.run(CMD, stdin=f, stdout=out, timeout=60)
        out.seek(0)
        ok(r.returncode == 0 and [json.loads(x)["id"] for x in out.read().splitlines()] == [1, 2], "files in the place of pipes")


def test_surroundings():
    r, w = os.pipe()
    os.close(r)
    s = Server(stderr=w)
    os.close(w)
    s.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "shell_run", "arguments": {"command": "echo >&2 x; echo y"}}})
    ok("y" in text(s.get(1)), "a standard error that nobody reads")
    ok(s.close()[0] == 0, "ends as well")

    with tempfile.TemporaryDirectory() as d:
        gone = os.path.join(d, "gone")
        os.mkdir(gone)
        s = Server(cwd=gone, init=None)
        ok(until(lambda: os.readlink(f"/proc/{s.p.pid}/cwd") == "/"), "its working directory is / once it runs")
        os.rmdir(gone)
        s.send({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {"protocolVersion": "2025-06-18"}})
        ok(s.get("init") is not None and "here" in text(s.call("shell_run", {"command": "echo here"})), "so the one it was started in may go")
        s.close()

    several = [Server() for _ in range(5)]
    ok(all("result" in s.ask("tools/list") for s in several), "five at once, as clients that start one to look do")
    ok([s.close()[0] for s in several] == [0] * 5, "each ends")


run_tests(globals())
