"""HTTP on loopback in front of a stdio server, for testers that speak nothing else. Bytes pass as they are, both ways.

A legacy session (opened with initialize) has a process of its own, named by Mcp-Session-Id. Modern requests are stateless: each takes
a process that is not serving another, so that ids of two clients never meet. Not a proxy for use: it checks nothing but that clients are
of this machine.
"""
import http.server
import itertools
import json
import queue
import select
import socket
import subprocess
import threading

VERSION = "io.modelcontextprotocol/protocolVersion"
LOOPBACK = ("127.0.0.1", "localhost")
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


class Process:
    """One server. Lines go to whoever waits for the id, the progress token or the subscription that they name."""

    def __init__(self, cmd):
        self.p = subprocess.Popen(cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.lock = threading.Lock()
        self.waiting = {}
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.p.stdout:
            m = json.loads(line)  # anything else is the end of this thread, and a failure of all that wait
            params = m.get("params", {})
            key = m.get("id") if "method" not in m else params.get("progressToken", params.get("_meta", {}).get(
                "io.modelcontextprotocol/subscriptionId"))
            with self.lock:
                q = self.waiting.get(json.dumps(key)) or (next(iter(self.waiting.values())) if len(self.waiting) == 1 else None)
            if q:
                q.put((line.rstrip(b"\n"), "method" not in m, m.get("error", {}).get("code")))

    def write(self, data):
        with self.lock:
            self.p.stdin.write(data.replace(b"\n", b" ") + b"\n")

    def expect(self, *keys):
        q = queue.Queue()
        with self.lock:
            self.waiting.update({json.dumps(k): q for k in keys})
        return q

    def forget(self, *keys):
        with self.lock:
            for k in keys:
                self.waiting.pop(json.dumps(k), None)

    def close(self):
        self.p.stdin.close()
        return self.p.wait(30)


class Bridge(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Clients that hang up are none; a failure of ours fails their request, which is what the tester sees."""

    def __init__(self, cmd):
        super().__init__(("127.0.0.1", 0), Handler)
        self.cmd = cmd
        self.lock = threading.Lock()
        self.sessions, self.idle, self.all = {}, [], []
        self.numbers = itertools.count(1)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"

    def start(self):
        p = Process(self.cmd)
        self.all.append(p)
        return p

    def take(self):
        with self.lock:
            return self.idle.pop() if self.idle else self.start()

    def give(self, p):
        with self.lock:
            self.idle.append(p)

    def open(self):
        with self.lock:
            name = f"session-{next(self.numbers)}"
            self.sessions[name] = self.start()
        return name, self.sessions[name]

    def close(self):
        """Exit codes of all the servers."""
        self.shutdown()
        self.server_close()
        return [p.close() for p in self.all]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, kind=None, body=b"", **headers):
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k.replace("_", "-"), v)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        gone = self.server.sessions.pop(self.headers.get("Mcp-Session-Id"), None)
        self.answer(200 if gone else 404)

    def ours(self):
        """No page of a browser, whatever name it has made resolve to here."""
        names = [self.headers.get("Host", ""), self.headers.get("Origin", "http://localhost").partition("://")[2]]
        return all(n.rpartition(":")[0] in LOOPBACK or n in LOOPBACK for n in names)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.ours():
            self.answer(403)
            return
        try:
            m = json.loads(body)
        except ValueError:
            m = {"id": None}  # the server says what it thinks of it
        name = self.headers.get("Mcp-Session-Id")
        if isinstance(m, dict) and m.get("method") == "initialize" and VERSION not in m.get("params", {}).get("_meta", {}):
            name, p = self.server.open()
            self.pass_on(p, m, body, Mcp_Session_Id=name)
        elif name:
            p = self.server.sessions.get(name)
            self.pass_on(p, m, body) if p else self.answer(404)
        else:
            p = self.server.take()
            self.pass_on(p, m, body)
            self.server.give(p)

    def pass_on(self, p, m, body, **headers):
        if "id" not in m or "method" not in m and m["id"] is not None:
            p.write(body)
            self.answer(202)
            return
        meta = (m.get("params") or {}).get("_meta") or {}
        keys = [m["id"], *([meta["progressToken"]] if "progressToken" in meta else [])]
        q = p.expect(*keys)
        p.write(body)
        try:
            self.relay(q, meta, headers)
        except (BrokenPipeError, ConnectionResetError):
            p.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": m["id"]}}).encode())
        p.forget(*keys)

    def relay(self, q, meta, headers):
        """As JSON when the answer comes first, as a stream of events when something else does."""
        line, last, code = q.get(timeout=60)
        if last:
            # Over HTTP a modern envelope that is refused has a status of its own; tool arguments that are, have not.
            bad = code in (-32022, -32021, -32020) or (code == -32602 and not (VERSION in meta and CAPABILITIES in meta))
            legacy = self.headers.get("Mcp-Session-Id") or "Mcp_Session_Id" in headers
            self.answer(200 if legacy else 404 if code == -32601 else 400 if bad else 200, "application/json", line, **headers)
            return
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        while True:
            self.wfile.write(b"data: " + line + b"\n\n")
            self.wfile.flush()
            if last:
                return
            line, last, _ = self.next(q)

    def next(self, q):
        """What comes next; BrokenPipeError when the client has gone meanwhile."""
        while True:
            try:
                return q.get(timeout=0.2)
            except queue.Empty:
                if select.select([self.connection], [], [], 0)[0] and not self.connection.recv(1, socket.MSG_PEEK):
                    raise BrokenPipeError from None
