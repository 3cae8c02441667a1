"""A small Internet for the tests of networks with rules: a network and mount namespace in which loopback has a few public and
private addresses, names for them in a hosts file, and servers on all of them. Not a test itself.

    enter()         goes on in it, as the same user; returns what enter() outside never does
    with Servers()  their processes, and what was asked of them
"""
import ctypes
import http.server
import os
import pathlib
import shutil
import socket
import socketserver
import ssl
import subprocess
import sys
import threading

HERE = pathlib.Path(os.getcwd())
PUBLIC, PUBLIC6 = "93.184.216.34", "2606:2800:220:1::1"
OTHERS = ["10.0.0.1", "169.254.169.254"]
NAMES = {
    PUBLIC: ["example.com", "a.example.com", "pypi.org", "x.pypi.org", "r.org", "a.b.r.org", "bad.r.org", "evilr.org", "two.r.org"],
    PUBLIC6: ["six.r.org"],
    "10.0.0.1": ["ten.r.org", "two.r.org"],
    "169.254.169.254": ["meta.r.org"],
    "127.0.0.1": ["localhost", "lo.r.org"],
    "::ffff:10.0.0.1": ["mapped.r.org"],
    "::1": ["lo6.r.org"],
}


def enter(*args):
    """Executes this program again, with @args, in the namespaces; there it makes what is in them and returns."""
    if os.environ.get("RATTAN_TEST_HOSTS") != "1":
        env = dict(os.environ, RATTAN_TEST_HOSTS="1")
        cmd = ["unshare", "--user", "--map-current-user", "--keep-caps", "--net", "--mount"]
        if not shutil.which("ip") or subprocess.run([*cmd, "true"], capture_output=True).returncode:
            print("SKIP: no namespaces can be made here, or there is no ip")
            sys.exit(77)
        os.execvpe(cmd[0], [*cmd, sys.executable, os.path.abspath(sys.argv[0]), *args], env)

    def run(*a):
        subprocess.run(a, check=True)
    run("ip", "link", "set", "lo", "up")
    for a in [PUBLIC, *OTHERS]:
        run("ip", "addr", "add", a + "/32", "dev", "lo")
    run("ip", "addr", "add", PUBLIC6 + "/128", "dev", "lo")
    hosts = HERE / "hosts"
    hosts.write_text("".join(f"{a} {' '.join(n)}\n" for a, n in NAMES.items()))
    run("mount", "--bind", str(hosts), "/etc/hosts")
    resolv = HERE / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.53\nsearch evilr.org\noptions timeout:1 attempts:1\n")
    run("mount", "--bind", str(resolv), "/etc/resolv.conf")
    if os.path.exists("/etc/nsswitch.conf"):
        order = HERE / "nsswitch.conf"
        order.write_text("passwd: files\ngroup: files\nhosts: files dns\n")
        run("mount", "--bind", str(order), "/etc/nsswitch.conf")


def drop():
    """What is executed from here on has no capability in the namespace: rattan is a user's program."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(47, 4, 0, 0, 0) != 0:  # PR_CAP_AMBIENT, CLEAR_ALL
        raise OSError(ctypes.get_errno(), "prctl")


class Dual(socketserver.ThreadingMixIn, http.server.HTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True
    request_queue_size = 100

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class Handler(http.server.BaseHTTPRequestHandler):
    """hello from ADDRESS; below /git/ the repositories of ./git; below /files/ what is in ./files."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, body, kind="text/plain", more=()):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for k, v in more:
            self.send_header(k, v)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def git(self):
        path, _, query = self.path.partition("?")
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(HERE / "git"), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path[4:],
               "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""),
               "REMOTE_USER": "t", "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
               "GIT_PROTOCOL": self.headers.get("Git-Protocol", "")}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        out = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True).stdout
        head, _, rest = out.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        code = next((int(v.split()[0]) for k, v in fields if k == "Status"), 200)
        self.answer(code, rest, next((v for k, v in fields if k == "Content-Type"), "text/plain"))

    def do_GET(self):
        self.server.asked.append((self.command, self.server.server_port, self.headers.get("Host"), self.path, self.request.getsockname()[0]))
        if self.path.startswith("/git/"):
            return self.git()
        if self.path.startswith("/files/"):
            p = (HERE / "files" / self.path[7:]).resolve()
            if p.is_dir():
                p = p / "index.html"
            if not p.is_file():
                return self.answer(404, b"none\n")
            return self.answer(200, p.read_bytes(), {".html": "text/html", ".json": "application/json"}.get(p.suffix, "application/octet-stream"))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return self.answer(200, f"hello from {self.request.getsockname()[0].replace('::ffff:', '')} {len(body)}\n".encode())

    do_POST = do_HEAD = do_PUT = do_GET


class Dns(socketserver.BaseRequestHandler):
    """The name server of 127.0.0.53: flip.r.org is public at first and loopback from then on; nothing else is there, but for what the search
    list would make of a name."""

    def handle(self):
        q, sock = self.request
        labels, at = [], 12
        while q[at]:
            labels.append(q[at + 1:at + 1 + q[at]].decode())
            at += 1 + q[at]
        name, kind = ".".join(labels).lower(), int.from_bytes(q[at + 1:at + 3], "big")
        self.server.asked.append((kind, name))
        a = None
        if kind == 1 and name == "flip.r.org":
            first = self.server.asked.count((1, name)) == 1
            a = PUBLIC if first else "127.0.0.1"
        if kind == 1 and name == "nx.r.org.evilr.org":
            a = PUBLIC
        found = a or name == "flip.r.org"
        head = q[:2] + (b"\x81\x80" if found else b"\x81\x83") + b"\0\1" + (b"\0\1" if a else b"\0\0") + b"\0\0\0\0"
        sock.sendto(head + q[12:at + 5] + (b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton(a) if a else b""), self.client_address)


class Servers:
    """HTTP on port 80, HTTPS on 443, both on every address; a name server; and a Unix socket at ./host.sock."""

    def __enter__(self):
        self.asked = []
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=example.com", "-addext",
                        "subjectAltName=DNS:example.com,DNS:*.pypi.org,DNS:r.org", "-keyout", "key.pem", "-out", "cert.pem"],
                       check=True, capture_output=True)
        for port in (80, 443):
            s = Dual(("::", port), Handler)
            s.asked = self.asked
            if port == 443:
                tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                tls.load_cert_chain("cert.pem", "key.pem")
                s.socket = tls.wrap_socket(s.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=s.serve_forever, daemon=True).start()
        self.dns = socketserver.UDPServer(("127.0.0.53", 53), Dns)
        self.dns.asked = []
        threading.Thread(target=self.dns.serve_forever, daemon=True).start()
        sock = HERE / "host.sock"
        sock.unlink(missing_ok=True)
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(sock))
        self.unix.listen(5)
        drop()
        return self

    def __exit__(self, *_):
        self.unix.close()
