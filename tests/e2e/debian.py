#!/usr/bin/python3
# rattan bootstrap debian: what is refused, and that a failure leaves nothing; with RATTAN_LONG, a real Debian from the mirror of this
# machine's own apt, twice with the same id, in which apt installs. (tests/mcp/apt.py installs always, from a repository of its own.)
# timeout: 3000
import glob
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request

from lib import LONG, check, done, here, rattan

os.environ["RATTAN_DATA_DIR"] = f"{here}/store"


def rt(*args, **kw):
    return subprocess.run([rattan, *args], capture_output=True, text=True, **kw)


def says(code, words, *args):
    r = rt(*args)
    check(r.returncode == code and words in r.stdout + r.stderr, f"{args} -> {code} '{words}'", f"{r.returncode}: {r.stdout}{r.stderr}")


def nothing_left(names):
    check([b["name"] for b in json.loads(rt("base", "list", "--json").stdout) if b["name"] != "host"] == names, "no base on the way is left")
    check("bootstrap" not in rt("env", "list").stdout, "no environment is left", rt("env", "list").stdout)


says(2, "is neither debian nor arch", "bootstrap", "gentoo", "x")
says(2, "give debian, a name", "bootstrap", "debian")
says(2, "no http:// or https:// URL", "bootstrap", "debian", "x", "sid", "--mirror", "file:///x")
if not shutil.which("debootstrap", path="/usr/sbin:/usr/bin:/sbin:/bin"):
    says(1, "install the package debootstrap", "bootstrap", "debian", "x", "sid", "--mirror", "http://localhost:9", "--allow-local-binding")
    done()
says(1, "fetching and unpacking failed", "bootstrap", "debian", "x", "sid", "--mirror", "http://localhost:9", "--allow-local-binding")
nothing_left([])
says(1, "failed", "bootstrap", "debian", "x", "sid", "--mirror", "http://localhost:9")
nothing_left([])


def mirror():
    """The first of apt's own sources, and its suite."""
    for path in ["/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*"))]:
        try:
            text = open(path).read()
        except OSError:
            continue
        m = re.search(r"^URIs: *(\S+)", text, re.M), re.search(r"^Suites: *(\S+)", text, re.M)
        if path.endswith(".sources") and all(m):
            return m[0][1], m[1][1]
        m = re.search(r"^deb (?:\[.*?\] )?(https?://\S+) (\S+)", text, re.M)
        if path.endswith((".list")) and m:
            return m[1], m[2]
    return None, None


class Relay(http.server.BaseHTTPRequestHandler):
    """The mirror on loopback: where it is, is this machine's affair, and may not be a public address."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        try:
            r = urllib.request.urlopen(URI.rstrip("/") + self.path, timeout=120)
        except urllib.error.HTTPError as e:
            self.send_response(e.code)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        data = r.read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *a):
        pass


URI, SUITE = mirror()
if LONG and URI:
    try:
        urllib.request.urlopen(f"{URI.rstrip('/')}/dists/{SUITE}/Release", timeout=60).read()
    except OSError as e:
        print("the mirror cannot be reached:", e)
        sys.exit(1)
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    at = f"http://localhost:{web.server_address[1]}"
    ids = []
    for again in (False, True):
        r = rt("bootstrap", "debian", "deb", SUITE, "--mirror", at, "--allow-local-binding", "--json", *(["--replace"] if again else []))
        check(r.returncode == 0, "bootstrap debian", r.stderr[-800:])
        ids.append(json.loads(r.stdout)["id"] if r.returncode == 0 else None)
        nothing_left(["deb"] if r.returncode == 0 else [])
    check(ids[0] and ids[0] == ids[1], "the same packages give the same id", ids)
    says(4, "--replace makes it anew", "bootstrap", "debian", "deb", SUITE, "--mirror", at)
    net = ["--allow-domain", "localhost", "--allow-local-binding"]
    r = rt("run", "--base", f"deb@{ids[0]}", "-e", "d", "--provision", *net, "-c", "apt-get update && apt-get install -y hello && stat -c %u:%g /etc/shadow")
    check(r.returncode == 0 and r.stdout.endswith("0:42\n"), "apt in a real Debian", r.stdout[-300:] + r.stderr[-500:])
    r = rt("run", "-e", "d", "-c", "hello; id -un; dpkg -l hello | tail -1; cat /etc/apt/sources.list")
    check("Hello, world!\nuser\nii  hello" in r.stdout and at in r.stdout, "what was installed runs", r.stdout)
done()
