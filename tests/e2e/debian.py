#!/usr/bin/python3
# rattan bootstrap debian: from a little archive of its own, a base by mmdebstrap, twice with the same id; what is refused, fails or is
# stopped leaves nothing. With RATTAN_LONG, a real Debian by each tool from the mirror of this machine's own apt, in which apt installs.
# (tests/mcp/apt.py has apt_install.)
# timeout: 3000
import glob
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from debmirror import NAMED, Mirror
from lib import LONG, check, done, here, rattan

os.environ["RATTAN_DATA_DIR"] = f"{here}/store"


def rt(*args, **kw):
    return subprocess.run([rattan, *args], capture_output=True, text=True, **kw)


def says(code, words, *args):
    r = rt(*args)
    check(r.returncode == code and words in r.stdout + r.stderr, f"{args} -> {code} '{words}'", f"{r.returncode}: {r.stdout}{r.stderr}")


def nothing_left(names):
    there = [b["name"] for b in json.loads(rt("base", "list", "--json").stdout) if b["name"] != "host"]
    check(there == names, "no base on the way is left", there)
    check("bootstrap" not in rt("env", "list").stdout, "no environment is left", rt("env", "list").stdout)


says(2, "is neither debian nor arch", "bootstrap", "gentoo", "x")
says(2, "give debian, a name", "bootstrap", "debian")
says(2, "no http:// or https:// URL", "bootstrap", "debian", "x", "sid", "--mirror", "file:///x")
says(2, "--tool is mmdebstrap or debootstrap, not 'apt'", "bootstrap", "debian", "x", "sid", "--mirror", "http://localhost:9", "--tool", "apt")
says(2, "--tool is for debian", "bootstrap", "arch", "x", "--tool", "mmdebstrap")
AT = "/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = [t for t in ("mmdebstrap", "debootstrap") if shutil.which(t, path=AT)]
for t in ("mmdebstrap", "debootstrap"):
    for more in (["--allow-local-binding"], []):
        said = "fetching and unpacking failed" if t in TOOLS else f"there is no {t} on this host; install the package {t}"
        says(1, said, "bootstrap", "debian", "x", "sid", "--mirror", "http://localhost:9", "--tool", t, *more)
    if t in TOOLS:
        says(1, "localhost is allowed, but this machine's own addresses need --allow-local-binding", "bootstrap", "debian", "x", "sid", "--mirror", "http://localhost:9", "--tool", t)
        says(1, "the network refused what is said above", "bootstrap", "debian", "x", "sid", "--mirror", "http://10.1.2.3", "--tool", t)
nothing_left([])
if not TOOLS:
    says(1, "no mmdebstrap and no debootstrap on this host", "bootstrap", "debian", "x", "sid", "--mirror", "http://localhost:9", "--allow-local-binding")
    done()


def small():
    """A base of a little archive, as it is made, and as it is not."""
    m = Mirror(f"{here}/mirror")
    m.package("more", postinst="chown 7:8 /usr/share/more/file; chmod 2711 /usr/share/more/file; id -u > /usr/share/more/who; test -c /dev/null; echo > /dev/null",
              depends="base-files")
    m.package("broken", postinst="touch /usr/share/trace; exit 7")
    m.package("slow", postinst="sleep 600")
    m.publish()
    to = ("bookworm", "--mirror", m.url, "--allow-local-binding", "--tool", "mmdebstrap")
    key = ("--keyring", m.keyring)
    says(1, "failed", "bootstrap", "debian", "small", *to)
    check("bookworm" in " ".join(m.hits) and ".deb" not in " ".join(m.hits), "an archive that nobody known has signed: no package is asked for", m.hits)
    says(3, "no-such", "bootstrap", "debian", "small", *to, "--keyring", "no-such")
    says(1, "makes minbase, buildd and -", "bootstrap", "debian", "small", *to, *key, "--variant", "fakechroot")
    says(1, "configuring failed", "bootstrap", "debian", "small", *to, *key, "--include", "broken")
    says(1, "no-such-package", "bootstrap", "debian", "small", *to, *key, "--include", "no-such-package")
    nothing_left([])
    os.makedirs("over/etc")
    with open("over/etc/motd", "w") as f:
        f.write("from the directory\n")
    os.utime("over/etc/motd", (1, 1))
    ids = []
    for again in (), ("--replace",):
        r = rt("bootstrap", "debian", "small", *to, *key, "--include", "more", "--add", "over", "--json", *again)
        check(r.returncode == 0, "a base by mmdebstrap", r.stderr[-800:])
        ids.append(json.loads(r.stdout)["id"] if r.returncode == 0 else None)
        nothing_left(["small"] if r.returncode == 0 else [])
    check(ids[0] and ids[0] == ids[1], "the same packages give the same id", ids)
    r = rt("run", "--base", f"small@{ids[0]}", "-e", "s", "--provision", "-c", """stat -c '%u:%g %a' /usr/share/more/file; cat /usr/share/more/who /etc/motd /etc/apt/sources.list
dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sort; dpkg --audit; find /etc/apt -type f; find /usr/sbin/policy-rc.d /var/cache/apt /var/lib/apt/lists -type f; stat -c %Y /usr/share/more/who""")
    want = ["7:8 2711", "0", "from the directory", f"deb {m.url} bookworm main", *sorted(f"installed {p}" for p in (*NAMED, "apt", "base-files", "more")),
            "/etc/apt/apt.conf.d/90rattan", "/etc/apt/sources.list", "1704067200"]
    check(sorted(r.stdout.splitlines()) == sorted(want), "what is in it", r.stdout + r.stderr)
    rt("env", "rm", "s", "--force")
    if "debootstrap" in TOOLS:
        ids = []
        for again in (), ("--replace",):
            r = rt("bootstrap", "debian", "other", *to[:-1], "debootstrap", *key, "--include", "more", "--json", *again)
            check(r.returncode == 0, "a base by debootstrap", r.stderr[-800:])
            ids.append(json.loads(r.stdout)["id"] if r.returncode == 0 else None)
            nothing_left(["other", "small"] if r.returncode == 0 else ["small"])
        check(ids[0] and ids[0] == ids[1], "debootstrap: the same packages give the same id", ids)
        r = rt("run", "--base", "other", "-e", "s", "--provision", "-c", "stat -c '%u:%g %a' /usr/share/more/file; dpkg --audit; dpkg-query -W more; ls -d /debootstrap")
        check(r.stdout == "7:8 2711\nmore\t1\n", "what is in it", r.stdout + r.stderr)
        rt("env", "rm", "s", "--force")
        rt("base", "rm", "other")

    print("== stopped")
    held = threading.Event()
    m.delay["more_1"] = lambda: held.wait(60)
    for sig in signal.SIGINT, signal.SIGTERM:
        for what, include, sign in (("fetching", "more", lambda p: any("more_1" in h for h in m.hits)), ("configuring", "slow", lambda p: b"Setting up slow" in p.said),
                                    ("packing", "apt", lambda p: b"rattan: packing" in p.said)):
            m.hits.clear()
            r = stopped(sig, sign, "bootstrap", "debian", "stopped", *to, *key, "--include", include, "-v")
            check(r.returncode == 128 + sig and b"stopped; nothing is left of it" in r.said, f"{what}: {sig.name} ends it", (r.returncode, r.said[-500:]))
            nothing_left(["small"])
            left = [c for c in commands() if m.url in c or "slow.postinst" in c or here in c and "bootstrap." in c]
            check(not left, f"{what}: {sig.name}: no process is left", left)
    for what, include, sign in (("fetching", "more", lambda p: any("more_1" in h for h in m.hits)), ("configuring", "slow", lambda p: b"Setting up slow" in p.said)):
        m.hits.clear()
        r = stopped(signal.SIGKILL, sign, "bootstrap", "debian", "killed", *to, *key, "--include", include, "-v")
        check(r.returncode == -signal.SIGKILL, f"{what}: killed", r.returncode)
        gone = all_gone(lambda: [c for c in commands() if m.url in c or "slow.postinst" in c])
        check(not gone, f"{what}: no process of the killed is left", gone)
        bases = [b["name"] for b in json.loads(rt("base", "list", "--json").stdout)]
        check("killed" not in bases, f"{what}: no half base has the name", bases)
        for b in bases:
            if b.startswith("bootstrap."):
                says(0, "", "base", "rm", b)
        for e in json.loads(rt("env", "list", "--json").stdout):
            if e["name"].startswith("bootstrap."):
                says(0, "", "env", "rm", e["name"], "--force")
        nothing_left(["small"])
    held.set()
    r = rt("fsck")
    check(r.returncode == 0, "the store is whole", (r.stdout + r.stderr)[-400:])


def commands():
    """Command lines of this user."""
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{p}").st_uid == os.getuid():
                yield open(f"/proc/{p}/cmdline", "rb").read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            pass


def all_gone(look):
    """What is left a while after."""
    until = time.monotonic() + 60
    while (there := look()) and time.monotonic() < until:
        time.sleep(0.1)
    return there


def stopped(sig, sign, *args):
    """The command gets @sig when @sign says so."""
    p = subprocess.Popen([rattan, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    p.said = b""
    os.set_blocking(p.stdout.fileno(), False)
    until = time.monotonic() + 200
    sent = False
    while (more := p.stdout.read()) != b"" and time.monotonic() < until:
        p.said += more or b""
        if not sent and sign(p):
            p.send_signal(sig)
            sent = True
        time.sleep(0.02)
    check(sent, f"the moment for {sig.name} came", p.said[-500:])
    if time.monotonic() >= until:
        p.kill()
    p.wait()
    return p


SMALL = "mmdebstrap" in TOOLS and shutil.which("gpg")
if SMALL:
    small()


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
    for tool in TOOLS:
        ids = []
        for again in (False, True):
            r = rt("bootstrap", "debian", "deb", SUITE, "--mirror", at, "--allow-local-binding", "--json", "--tool", tool, "--replace")
            check(r.returncode == 0, f"bootstrap debian by {tool}", r.stderr[-800:])
            ids.append(json.loads(r.stdout)["id"] if r.returncode == 0 else None)
            nothing_left([*(["deb"] if ids[-1] else []), *(["small"] if SMALL else [])])
        check(ids[0] and ids[0] == ids[1], f"{tool}: the same packages give the same id", ids)
        says(4, "--replace makes it anew", "bootstrap", "debian", "deb", SUITE, "--mirror", at)
        net = ["--allow-domain", "localhost", "--allow-local-binding"]
        r = rt("run", "--base", f"deb@{ids[0]}", "-e", tool, "--provision", *net, "-c", "apt-get update && apt-get install -y hello && stat -c %u:%g /etc/shadow; dpkg --audit")
        check(r.returncode == 0 and r.stdout.endswith("0:42\n"), "apt in a real Debian", r.stdout[-300:] + r.stderr[-500:])
        r = rt("run", "-e", tool, "-c", "hello; id -un; dpkg -l hello | tail -1; cat /etc/apt/sources.list")
        check("Hello, world!\nuser\nii  hello" in r.stdout and at in r.stdout, "what was installed runs", r.stdout)
    # Packages whose scripts make accounts, give files away, start programs that talk to each other. They come while there is a network.
    r = rt("run", "-e", tool, "--provision", *net, "-c", "apt-get install -y --no-install-recommends dbus openssh-server openssh-client locales postgresql; c=$?; dpkg --audit; exit $c")
    check(r.returncode == 0, "difficult packages", r.stdout[-600:] + r.stderr[-300:])
    r = rt("run", "-e", tool, "-c", """exec 2>&1; getent passwd messagebus sshd postgres | cut -d: -f1,7; stat -c %a /usr/lib/dbus-1.0/dbus-daemon-launch-helper
dbus-run-session -- dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.ListNames | grep -c '":1.0"'
mkdir -p -m 700 ~/.ssh; ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519; cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys
/usr/sbin/sshd -h ~/.ssh/id_ed25519 -p 2222 -o UsePAM=no -o PidFile=/tmp/sshd.pid -E /tmp/sshd.log
for i in 1 2 3 4 5 6 7 8 9; do ssh -q -o StrictHostKeyChecking=no -p 2222 localhost echo over ssh && break; sleep 1; done
localedef -i de_DE -f UTF-8 /tmp/de_DE.UTF-8 && LOCPATH=/tmp LC_ALL=de_DE.UTF-8 date -d 2026-03-01 +%B
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH; initdb -D /tmp/pg > /dev/null 2>&1 && pg_ctl -D /tmp/pg -w -o '-k /tmp' -l /tmp/pg.log start > /dev/null; psql -h localhost -d postgres -Atc 'select 6*7'; pg_ctl -D /tmp/pg stop > /dev/null""")
    check(r.stdout.splitlines() == ["messagebus:/usr/sbin/nologin", "sshd:/usr/sbin/nologin", "postgres:/bin/bash", "4754", "1", "over ssh", "März", "42"], "work for the ordinary user", r.stdout)
done()
