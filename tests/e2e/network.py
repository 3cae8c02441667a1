#!/usr/bin/python3
"""A network with rules, with the programs that people use on one: curl, git, pip, npm, python; from the command line and from the MCP
server. The hosts are the test's own (nethosts.py); which patterns let which through is among the cases of profiles.json."""
# timeout: 300
import base64
import hashlib
import io
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../mcp")
import lib  # noqa: E402
import nethosts  # noqa: E402
import rawclient  # noqa: E402
from lib import check  # noqa: E402

nethosts.enter()
HERE = nethosts.HERE


def rattan(*args, **kw):
    return subprocess.run([lib.rattan, "run", *args], capture_output=True, text=True, timeout=120, **kw)


def sh(text, *args, allow=("example.com",)):
    return rattan(*(f"--allow-domain={d}" for d in allow), *args, "--", "bash", "-c", text)


def curl_cases(net):
    r = sh("curl -sS http://example.com/ && curl -sS --cacert /mnt/cert.pem https://example.com/x -d abc && curl -sS --cacert /mnt/cert.pem "
           "--proxy $ALL_PROXY https://example.com/", "--bind-ro", f"{HERE}/certs=/mnt")
    check(r.returncode == 0 and r.stdout == "hello from 93.184.216.34 0\nhello from 93.184.216.34 3\nhello from 93.184.216.34 0\n",
          "curl: plain, with TLS that is the server's own, through SOCKS", r.stdout + r.stderr)
    seen = [a for a in net.asked if a[2] == "example.com"]
    check(len(seen) >= 3 and {a[1] for a in seen} == {80, 443}, "the servers saw them", net.asked)
    before = len(net.asked)
    r = sh("curl -sS http://a.example.com/; curl -sS https://evilr.org/; curl -sS --proxy '' http://93.184.216.34/; "
           "curl -sS --proxy '' http://example.com/; exit 3")
    check(r.returncode == 3 and "403" in r.stderr and len(net.asked) == before, "others do not get there, nor anybody without the proxy", r.stderr)
    check("rattan: refused: connect a.example.com:80 (no rule allows this host; --allow-domain a.example.com)" in r.stderr and
          "rattan: refused: connect evilr.org:443 (" in r.stderr, "what was refused is said, and what to change", r.stderr)
    check("no rule allows this host (--allow-domain a.example.com)" in r.stdout, "to the program as well", r.stdout)
    r = sh("curl -sSf http://example.com/ >/dev/null", "-v")
    check("rattan: network: example.com:80, 1 times" in r.stderr and "network_rules" in r.stderr, "-v says what was reached", r.stderr)
    r = sh("curl -sS http://example.com/big -o /dev/null; head -c 3000000 /dev/zero | curl -sS --data-binary @- http://example.com/")
    check(r.stdout.endswith("hello from 93.184.216.34 3000000\n"), "a body of megabytes", r.stdout + r.stderr)
    r = sh("curl -sS http://six.r.org/", allow=["six.r.org"])
    check(r.stdout == f"hello from {nethosts.PUBLIC6} 0\n", "over IPv6", r.stdout + r.stderr)
    before = len(net.asked)
    r = sh("curl -sS http://example.com/; curl -sS http://six.r.org/", "--deny-domain", nethosts.PUBLIC, allow=["example.com", "six.r.org"])
    check(r.stdout.startswith("rattan: example.com:80: a rule denies this host") and r.stdout.endswith(f"hello from {nethosts.PUBLIC6} 0\n") and
          len(net.asked) == before + 1, "an address that is denied is so by each of its names", r.stdout + r.stderr)
    r = sh("for i in 1 2 3 4 5 6 7 8; do for j in 1 2 3 4 5 6 7 8 9 10; do curl -sS http://example.com/ & done; wait; done | sort | uniq -c")
    check(r.stdout.split()[:1] == ["80"], "eighty requests, ten at a time", r.stdout + r.stderr)
    r = sh("curl -sS http://example.com/", "--promises", "stdio rpath wpath cpath exec proc prot_exec")
    check(r.returncode != 0, "who promises to have no sockets has none", r.stdout)


def agent_cases(net):
    before = len(net.asked)
    r = rattan("--", "curl", "-sS", "http://example.com/")
    check(r.returncode != 0 and len(net.asked) == before, "without --allow-domain there is no network", r.stdout)
    r = rattan("--deny-domain", "r.org", "--", "curl", "-sS", "http://example.com/")
    check(r.returncode != 0 and len(net.asked) == before, "denying opens none", r.stdout)
    conf = pathlib.Path(os.environ["XDG_CONFIG_HOME"]) / "rattan/config.json"
    old = conf.read_text()
    conf.write_text(json.dumps({**json.loads(old), "allowed_domains": ["**.r.org"], "denied_domains": ["bad.r.org", "example.com"]}))
    r = rattan("--", "curl", "-sS", "http://r.org/")
    check(r.returncode != 0 and len(net.asked) == before, "nor do the settings", r.stdout)
    r = sh("curl -sS http://r.org/; curl -sS http://x.pypi.org/; curl -sS http://bad.r.org/; curl -sS http://example.com/", allow=["**.pypi.org", "example.com"])
    check(r.stdout.count("hello from") == 2 and r.stdout.count("a rule denies this host") == 2, "they add up, and what they deny stays denied", r.stdout + r.stderr)
    conf.write_text(json.dumps({**json.loads(old), "allowed_domains": ["a.b/c"]}))
    r = rattan("--", "true")
    check(r.returncode == 2 and "allowed_domains[0]" in r.stderr and "a.b/c" in r.stderr, "settings that say no pattern", r.stderr)
    conf.write_text(old)
    r = rattan("--allow-domain", "https://a.b", "--", "true")
    check(r.returncode == 2 and "--allow-domain" in r.stderr, "nor does the command line", r.stderr)
    role = pathlib.Path(lib.rattan).parent.parent / "share/doc/rattan/profiles/role-session.json"
    r = rattan("--profile", str(role), "--allow-domain", "r.org", "--", "true")
    check(r.returncode == 2 and "--allow-domain" in r.stderr, "a role has the host's network", r.stderr)


def idle_cases():
    """95: where a profile has no network the rules change nothing, also when there is no sandbox to be had."""
    profile = HERE / "ws.json"
    profile.write_text(json.dumps({"permissionProfile": {"type": "managed", "network": "restricted", "file_system": {"type": "restricted", "entries": [
        {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}]}}}))
    hidden = "for b in /usr/bin/bwrap /usr/local/bin/bwrap; do [ ! -e $b ] || mount --bind /dev/null $b || exit 99; done; exec \"$@\""
    got = []
    for rules in ([], ["--deny-domain", "r.org"]):
        r = subprocess.run(["unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "sh", "-c", hidden, "-", lib.rattan, "run", "-e", "idle", *rules,
                            "--profile", str(profile), "--", "true"], capture_output=True, text=True, env=dict(os.environ, XDG_RUNTIME_DIR=str(HERE / "run2")))
        got.append((r.returncode, r.stderr))
    check(got[0] == got[1] and got[0][0] == 125 and "bwrap" in got[0][1], "95: a broken bwrap is the same refusal with idle rules", got)
    r = rattan("-e", "idle", "--profile", str(profile), "--allow-domain", "r.org", "--", "curl", "-s", "http://r.org/")
    check(r.returncode != 0 and "the profile has no network" in r.stderr, "--allow-domain gives a profile no network, and that is said", r.stderr)
    r = rattan("--profile", str(profile), "--explain")
    check("network none" in r.stdout, "--explain: none", r.stdout)
    profile.write_text(profile.read_text().replace("restricted\", \"file", "enabled\", \"file"))
    r = rattan("--profile", str(profile), "--allow-domain", "r.org", "--deny-domain", "a.r.org", "--explain")
    check("deny  domain a.r.org" in r.stdout and "allow domain r.org" in r.stdout, "--explain: the rules", r.stdout)


def git_cases():
    bare = HERE / "git/p.git"
    env = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_AUTHOR_NAME="t", GIT_AUTHOR_EMAIL="t@t", GIT_COMMITTER_NAME="t", GIT_COMMITTER_EMAIL="t@t")

    def git(*a):
        return subprocess.run(["git", *a], check=True, capture_output=True, text=True, env=env).stdout
    git("init", "-q", "--bare", "-b", "main", str(bare))
    git("-C", str(bare), "config", "http.receivepack", "true")
    git("init", "-q", "-b", "main", "seed")
    (HERE / "seed/f").write_text("from the host\n")
    git("-C", "seed", "add", "f")
    git("-C", "seed", "commit", "-qm", "one")
    git("-C", "seed", "push", "-q", str(bare), "main")
    r = sh("cd /tmp && rm -rf p && git clone -q http://r.org/git/p.git && cd p && cat f && head -c 300000 /dev/urandom > big && echo inside > g && git add g big && "
           "git -c user.name=t -c user.email=t@t commit -qm two && git push -q origin main", allow=["r.org"])
    check(r.returncode == 0 and r.stdout == "from the host\n" and git("-C", str(bare), "show", "main:g") == "inside\n",
          "git: clone and push", r.stdout + r.stderr)
    r = sh("git clone -q http://a.b.r.org/git/p.git /tmp/q", allow=["r.org"])
    check(r.returncode == 128 and "refused: connect a.b.r.org:80" in r.stderr, "git: another host", r.stderr)


def pip_cases():
    """pip install from an index, by name."""
    index = HERE / "files/simple/tiny"
    index.mkdir(parents=True)
    w = io.BytesIO()
    files = {"tiny.py": b"print('tiny runs')\n", "tiny-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
             "tiny-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    with zipfile.ZipFile(w, "w") as z:
        record = ""
        for n, b in files.items():
            z.writestr(n, b)
            record += f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(b).digest()).rstrip(b'=').decode()},{len(b)}\n"
        z.writestr("tiny-1.0.dist-info/RECORD", record + "tiny-1.0.dist-info/RECORD,,\n")
    (index / "tiny-1.0-py3-none-any.whl").write_bytes(w.getvalue())
    (index / "index.html").write_text('<a href="tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>')
    pip = ("cd /tmp && rm -rf v && python3 -m venv v && v/bin/pip install -q --disable-pip-version-check --no-cache-dir --retries 0 --trusted-host "
           "x.pypi.org --index-url http://x.pypi.org/files/simple tiny && v/bin/python -m tiny")
    r = sh(pip, allow=["*.pypi.org"])
    check(r.returncode == 0 and "tiny runs" in r.stdout, "pip installs from an index that is allowed", r.stdout + r.stderr)
    r = sh(pip, allow=["pypi.org"])
    check(r.returncode != 0 and "refused: connect x.pypi.org:80" in r.stderr, "and from no other", r.stderr)


def npm_cases():
    pack = HERE / "files/npm"
    pack.mkdir(parents=True)
    t = io.BytesIO()
    with tarfile.open(fileobj=t, mode="w:gz") as z:
        for n, b in {"package/package.json": b'{"name":"tiny","version":"1.0.0","main":"i.js"}', "package/i.js": b"console.log('tiny runs')\n"}.items():
            i = tarfile.TarInfo(n)
            i.size = len(b)
            z.addfile(i, io.BytesIO(b))
    (pack / "tiny-1.0.0.tgz").write_bytes(t.getvalue())
    meta = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "tiny", "version": "1.0.0", "dist": {
        "tarball": "http://r.org/files/npm/tiny-1.0.0.tgz", "shasum": hashlib.sha1(t.getvalue()).hexdigest()}}}}
    (pack / "tiny").write_text(json.dumps(meta))
    r = sh("cd /tmp && rm -rf n && mkdir n && cd n && npm install --registry http://r.org/files/npm/ --no-audit --no-fund --fetch-retries 0 --loglevel error tiny "
           "&& node -e 'require(\"tiny\")'", allow=["r.org"])
    check(r.returncode == 0 and "tiny runs" in r.stdout, "npm installs from a registry", r.stdout + r.stderr)


def python_cases():
    r = sh("python3 - <<'P'\nimport urllib.request, socket, threading\nprint(urllib.request.urlopen('http://r.org/').read().decode(), end='')\n"
           "s = socket.create_server(('127.0.0.1', 0))\n"
           "def own():\n c = s.accept()[0]\n c.recv(4096)\n c.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\nown\\n')\n"
           "threading.Thread(target=own, daemon=True).start()\n"
           "print(urllib.request.urlopen(f'http://127.0.0.1:{s.getsockname()[1]}/').read().decode(), end='')\n"
           "try: urllib.request.urlopen('http://lo.r.org/')\nexcept urllib.error.HTTPError as e: print(e.code, e.read().decode(), end='')\nP", allow=["**.r.org"])
    check(r.stdout.startswith("hello from 93.184.216.34 0\nown\n403 rattan: lo.r.org:80: the host's address is not public"),
          "urllib: by its variables; its own loopback without the proxy; the host's not", r.stdout + r.stderr)


def unix_cases():
    """A socket that a program of the host's listens on, in a directory that is bound: datagrams, too, which a pair could send there."""
    (HERE / "bound").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as host:
        host.bind(str(HERE / "bound/log"))
        host.setblocking(False)
        r = sh("test -S /mnt/log && python3 - <<'P'\nimport socket\na, b = socket.socketpair()\na.send(b'own')\nprint(b.recv(9))\n"
               "for type in (socket.SOCK_DGRAM, socket.SOCK_RAW):\n for way in ('sendto', 'connect'):\n"
               "  try:\n   a = socket.socketpair(socket.AF_UNIX, type)[0]\n   a.sendto(b'out', '/mnt/log') if way == 'sendto' else a.connect('/mnt/log')\n"
               "   print('reached')\n  except OSError as e: print(e.errno)\nP", "--bind", f"{HERE}/bound=/mnt")
        check(r.stdout.split() == ["b'own'", *["13"] * 4], "104: no pair of datagrams, which would reach a host's socket", r.stdout + r.stderr)
        try:
            check(False, "104: nothing came", host.recv(9))
        except BlockingIOError:
            pass


def local_cases(net):
    """What listens on the host's loopback, with and without --allow-local-binding."""
    before = len(net.asked)
    r = sh("curl -sS http://lo.r.org/; curl -sS http://localhost/; curl -sS --noproxy '' http://localhost/; exit 1", allow=["**.r.org", "localhost"])
    check("hello" not in r.stdout and len(net.asked) == before, "the host's loopback is closed", r.stdout + r.stderr)
    check("localhost is allowed, but this machine's own addresses need --allow-local-binding" in r.stderr, "and that is said", r.stderr)
    r = sh("curl -sS http://10.1.2.3/", allow=["10.1.2.3"])
    check("10.1.2.3 is allowed, but is of a network that is not public" in r.stderr, "as of what is private", r.stderr)
    s = rawclient.Server("serve", "--allow-domain", "127.0.0.1", rattan=lib.rattan)
    t = s.call("shell_run", command="curl -sS http://127.0.0.1:9/")
    check("[127.0.0.1 is allowed, but this machine's own addresses need --allow-local-binding" in t, "a server's command that fails says so", t)
    check("is allowed, but" not in s.call("shell_run", command="true"), "one that does well does not")
    s.close()
    r = sh("curl -sS http://lo.r.org/; curl -sS http://localhost/; curl -sS http://ten.r.org/; curl -sS http://meta.r.org/; curl -sS http://127.0.0.1/; exit 1",
           "--allow-local-binding", allow=["**.r.org", "localhost"])
    check(r.stdout.count("hello from 127.0.0.1") == 2 and r.stdout.count("not public") == 2 and "no rule allows this host" in r.stdout,
          "and open when it is asked for, for names that are allowed; nothing else that is private is", r.stdout + r.stderr)
    check("is allowed, but" not in r.stderr, "then there is nothing to say", r.stderr)


def name_cases(net):
    """The address that was judged is the one that is dialled, and a name is that name alone."""
    r = sh("curl -sS http://flip.r.org/; curl -sS http://flip.r.org/", allow=["**.r.org"])
    check(r.stdout.startswith("hello from 93.184.216.34 0\nrattan: flip.r.org:80: the host's address is not public"),
          "a name that changes its mind", r.stdout + r.stderr)
    check(net.dns.asked.count((1, "flip.r.org")) == 2, "is asked for once a request", net.dns.asked)
    before = len(net.asked)
    r = sh("curl -sS http://nx.r.org/", allow=["**.r.org"])
    check("the host's name was not found" in r.stdout and (1, "nx.r.org") in net.dns.asked, "a name that is not there", r.stdout + r.stderr)
    check(not [n for _, n in net.dns.asked if n.endswith("evilr.org")] and len(net.asked) == before, "is not looked for in the search list", net.dns.asked)


def server_cases(net):
    s = rawclient.Server("serve", "--allow-domain", "**.r.org", "--deny-domain", "bad.r.org", rattan=lib.rattan)
    check("network: by a proxy alone; allowed: **.r.org; denied: bad.r.org" in s.call("env_status"), "env_status says what can be reached", s.call("env_status"))
    got = json.loads(s.call("shell_run", structured=True, command="curl -sS http://r.org/; curl -sS http://r.org/; curl -sSf http://bad.r.org/ || curl -sSf https://example.com/"))
    check(got["stdout"].count("hello from") == 2 and got["rc"] != 0, "shell_run has it", got)
    check(sorted((d["domain"], d["port"], d["operation"], d["rule"], d["remedy"], d["count"]) for d in got.get("denials", [])) == [
        ("bad.r.org", 80, "connect", "a rule denies this host", "take the pattern out of the denied domains", 1),
        ("example.com", 443, "connect", "no rule allows this host", "--allow-domain example.com", 1)] and got["denials_total"] == 2,
        "denials", got.get("denials"))
    check({"domain": "r.org", "port": 80, "allowed": True, "verdict": "allowed", "count": 2} in got.get("network", []) and got["network_total"] == 4,
          "network", got.get("network"))
    text = s.call("shell_run", command="curl -sSf http://example.com/")
    check("[refused by the rules on the network: example.com:80 (no rule allows this host; --allow-domain example.com)]" in text, "a model reads it", text)
    check("refused by" not in s.call("shell_run", command="curl -sS http://example.com/ -o /dev/null; true"), "a command that does not fail says nothing")
    j = s.call("shell_job_start", command="curl -sS http://r.org/; sleep 100").split()[2]
    text = ""
    for _ in range(100):
        text = s.call("shell_job_output", job_id=j)
        if "hello" in text:
            break
        time.sleep(0.1)
    check("hello from" in text, "so does a job", text)
    ours = [p for p in pathlib.Path("/proc").glob("[0-9]*") if read(p / "comm") == "rattan-net\n" and f") S {s.p.pid} " in read(p / "stat")]
    started = time.monotonic()
    check(s.close() == 0 and time.monotonic() - started < 8, "the server ends")
    check(ours and not [p for p in ours if read(p / "comm") == "rattan-net\n"], "and no rattan-net is left", ours)


def inherit_cases():
    """Each call brings its profile; the rules are the server's own, whatever it says."""
    s = rawclient.Server("serve", "--sandbox", "inherit", "--allow-domain", "**.r.org", rattan=lib.rattan)

    def call(profile):
        meta = {"codex/sandbox-state-meta": {"permissionProfile": profile, "sandboxCwd": str(HERE)}}
        r = s.ask("tools/call", {"name": "shell_run", "arguments": {"command": "curl -s http://r.org/; curl -s http://example.com/; echo $NO_PROXY"}, "_meta": meta})
        return r.get("isError", False), "".join(c.get("text", "") for c in r["content"])
    files = {"type": "restricted", "entries": [{"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}]}
    bad, text = call({"type": "managed", "network": "enabled", "file_system": files})
    check(not bad and "hello from" in text and "no rule allows this host" in text, "a network that the call's profile enables has the rules", text)
    bad, text = call({"type": "managed", "network": "restricted", "file_system": files})
    check(not bad and "hello" not in text and "rattan:" not in text and "localhost" not in text, "one that it does not enable is none", text)
    bad, text = call({"type": "disabled"})
    check(bad and "asks for no sandbox" in text, "111: no sandbox, no run", text)
    s.close()


def read(p):
    try:
        return p.read_text()
    except OSError:
        return ""


def main():
    (HERE / "certs").mkdir()
    (HERE / "run2").mkdir(mode=0o700)
    with nethosts.Servers() as net:
        shutil.copy("cert.pem", "certs/cert.pem")
        curl_cases(net)
        agent_cases(net)
        python_cases()
        unix_cases()
        local_cases(net)
        name_cases(net)
        idle_cases()
        git_cases()
        pip_cases()
        npm_cases()
        server_cases(net)
        inherit_cases()
    lib.done()


main()
