#!/usr/bin/python3
"""apt_install: listed on a base that has apt and on no other; installs from the mirror that the base names, through the proxy, as
root of the environment; what fails, takes too long or is not allowed leaves nothing. The mirror is a little repository that this
test builds and serves on loopback."""
# timeout: 400
import glob
import hashlib
import http.server
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402

if not all(shutil.which(x) for x in ("apt-get", "dpkg", "dpkg-deb", "ldd")):
    print("SKIP: no apt, or nothing to build packages with")
    sys.exit(77)
rattan = os.environ["RATTAN"]
arch = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True).stdout.strip()

# ---- the repository ----


def package(name, version, postinst="exit 0", depends=""):
    for d in ("DEBIAN", f"usr/share/{name}"):
        os.makedirs(f"build/{name}/{d}", exist_ok=True)
    open(f"build/{name}/usr/share/{name}/file", "w").write(f"{name} {version}\n")
    open(f"build/{name}/DEBIAN/control", "w").write(
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@example.org>\n"
        + (f"Depends: {depends}\n" if depends else "") + "Description: x\n")
    open(f"build/{name}/DEBIAN/postinst", "w").write(f"#!/bin/sh\nset -e\n{postinst}\n")
    os.chmod(f"build/{name}/DEBIAN/postinst", 0o755)
    deb = f"repo/{name}_{version}_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", f"build/{name}", deb], check=True, stdout=subprocess.DEVNULL)
    data = open(deb, "rb").read()
    return (open(f"build/{name}/DEBIAN/control").read().rstrip()
            + f"\nFilename: ./{os.path.basename(deb)}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n")


os.makedirs("repo")
index = [package("hello-a", "1", "chown 33:44 /usr/share/hello-a/file; id -u > /usr/share/hello-a/who"),
         package("hello-b", "2", depends="hello-a"),
         package("broken-c", "1", "touch /usr/share/trace; exit 7"),
         package("slow-d", "1", "touch /usr/share/trace; sleep 600")]
open("repo/Packages", "w").write("\n".join(index))


hits = []


class Quiet(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *a):
        super().__init__(*a, directory="repo")

    def log_message(self, *a):
        hits.append(self.headers.get("Host", ""))


web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=web.serve_forever, daemon=True).start()
port = web.server_address[1]

# ---- the base: this machine's apt and dpkg, and what they need ----

SH = ["sh", "bash", "cat", "chmod", "chown", "cp", "id", "ln", "ls", "mkdir", "mv", "rm", "sed", "sleep", "stat", "tar", "touch", "true", "grep", "sort",
      "apt-get", "apt-config", "dpkg", "dpkg-deb", "dpkg-query", "dpkg-split", "start-stop-daemon", "ldconfig", "find", "gzip", "xz", "diff"]


def base(name, source, more={}):
    paths = [shutil.which(x, path=os.environ["PATH"] + ":/usr/sbin:/sbin") for x in SH]
    paths = [p for p in paths if p] + [p for d in ("methods", "solvers", "planners") for p in glob.glob(f"/usr/lib/apt/{d}/*")] + \
        glob.glob("/usr/lib/apt/apt-helper") + glob.glob("/usr/share/dpkg/*table")
    for p in list(paths):
        out = subprocess.run(["ldd", p], capture_output=True, text=True).stdout
        paths += [w for w in out.split() if w.startswith("/")]

    def add(t, name, text=None):
        i = tarfile.TarInfo(name)
        i.mtime = 1
        i.mode = 0o755 if text is None else 0o644
        i.type = tarfile.DIRTYPE if text is None else tarfile.REGTYPE
        i.size = len(text or "")
        t.addfile(i, io.BytesIO((text or "").encode()))

    def own(i):
        i.uid = i.gid = 0
        return i
    with tarfile.open("base.tar", "w", dereference=True) as t:
        for p in sorted(set(paths)):
            t.add(p, arcname=p, filter=own)
            for d in ("/bin/", "/sbin/"):
                if d in p:
                    t.add(p, arcname="/bin/" + os.path.basename(p), filter=own)
                    t.add(p, arcname="/usr/bin/" + os.path.basename(p), filter=own)
        for d in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial",
                  "var/log/apt", "etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/dpkg/dpkg.cfg.d", "usr/share/base-files"):
            add(t, d)
        add(t, "var/lib/dpkg/status", "")
        add(t, "var/lib/dpkg/arch", arch + "\n")
        add(t, "etc/passwd", "root:x:0:0::/root:/bin/sh\n")
        add(t, "etc/group", "root:x:0:\n")
        add(t, "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
        add(t, "etc/apt/sources.list", source)
        for file, text in more.items():
            add(t, f"etc/apt/{file}", text)
    subprocess.run([rattan, "import", "tar", "base.tar", name], check=True, stdout=subprocess.DEVNULL)


base("deb", f"deb [trusted=yes] http://localhost:{port} ./\n")


def tools(s):
    return [t["name"] for t in s.ask("tools/list", {})["tools"]]


s = Server("--no-checkpoints")
assert "apt_install" not in tools(s), "on the host's base there is nothing to install packages with"
s.close()
bases = {b["name"]: b for b in json.loads(subprocess.run([rattan, "base", "list", "--json"], capture_output=True, text=True).stdout)}
assert bases["deb"]["manager"] == "apt", bases
s = Server("--env", "apt", "--base", "deb", "--allow-domain", "localhost", "--allow-local-binding")
assert "apt_install" in tools(s)
size = len(json.dumps(s.ask("tools/list", {}), separators=(",", ":"), ensure_ascii=False).encode())
assert size < 24 * 1024, f"the list is {size} bytes"

for bad in (["-y"], ["--allow-downgrades"], ["hello-a-"], ["./x.deb"], ["/x"], ["a b"], ["hello-a=1/x"], ["hello-a;id"], ["$(id)"], [""], [], [7]):
    t = s.call("apt_install", ok=False, packages=bad)
    assert t.startswith("error: packages"), (bad, t)
t = s.call("apt_install", packages=["hello-b"])
assert t.startswith("done in ") and "hello-b" in t, t
t = s.call("shell_run", command="cat /usr/share/hello-b/file /usr/share/hello-a/file /usr/share/hello-a/who; id -u; touch /usr/x")
assert "hello-b 2\nhello-a 1\n0\n1000\n" in t, t
assert "ermission denied" in t, t
t = s.call("apt_install", ok=False, packages=["broken-c"], refresh=False)
assert t.startswith("error: apt-get failed with exit code 100; nothing is changed") and "broken-c" in t, t
t = s.call("apt_install", ok=False, packages=["no-such-package"], refresh=False)
assert "Unable to locate package no-such-package" in t, t
t = s.call("apt_install", ok=False, packages=["slow-d"], refresh=False, timeout=20)
assert t.startswith("error: apt-get took longer than 20 seconds"), t
t = s.call("shell_run", command="ls /usr/share; grep -c '^Package' /var/lib/dpkg/status; dpkg -l | grep -c '^ii'")
assert "trace" not in t and "2\n2\n" in t, t
t = s.call("shell_job_start", command="sleep 600")
job = t.split()[2]
t = s.call("apt_install", ok=False, packages=["hello-a"], refresh=False)
assert t.startswith("error: packages are installed while nothing else runs here"), t
s.call("shell_job_kill", job_id=job)
t = s.call("env_snapshot_list")
assert "apt_install" in t, t
s.call("env_rollback", rev="base")
assert "No such file" in s.call("shell_run", command="ls /usr/share/hello-a")
s.close()

# Without the way that the user has opened the base's mirror is this machine, and refused.
s = Server("--env", "other", "--base", "deb")
t = s.call("apt_install", ok=False, packages=["hello-a"])
assert "nothing is changed" in t and "Failed to fetch" in t, t
s.close()

# What is a comment, is turned off, or in no file that apt reads there opens nothing; nor does what stands before a host's name. That apt
# looks elsewhere is not what we go by, so that it can be seen to be refused.
off = f"http://localhost:{port}/ ./"
base("off", f"#deb [trusted=yes] {off}\n deb http://localhost:x@127.0.0.2:{port}/ ./ # {off}\nnodeb {off}\n",
     {"sources.list.d/a.list.save": f"deb {off}\n", "sources.list.d/c.disabled": f"deb {off}\n",
      "sources.list.d/b.sources": f"Types: deb\nEnabled: no\nURIs: http://localhost:{port}/\nSuites: ./\n\n# URIs: http://localhost/\n"
      f"Types: deb\nURIs: http://127.0.0.2:{port}/\nSuites: ./\n",
      "elsewhere/d.list": f"deb [trusted=yes] {off}\n",
      "apt.conf.d/elsewhere": 'Dir::Etc::sourcelist "/etc/apt/elsewhere/d.list"; Dir::Etc::sourceparts "/dev/null";\n'})
base("on", "",
     {"sources.list.d/b.sources": f"Types: deb\nURIs: http://127.0.0.2:{port}/\n# between\n http://localhost:{port}/\nSuites: ./\nTrusted: yes\n"})
for name in ("off", "on"):
    s = Server("--env", f"list-{name}", "--base", name, "--allow-domain", "none.invalid", "--allow-local-binding")
    hits.clear()
    t = s.call("apt_install", ok=False, packages=["hello-a"])
    assert ("localhost" in str(hits)) == (name == "on"), (name, hits, t)
    assert name == "on" or f"http://localhost:{port}" in t, t
    s.close()
print("ok")
