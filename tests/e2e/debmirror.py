"""A little Debian archive of this machine's own programs, signed with a key of its own, and served on loopback; for tests, not one itself."""
import atexit
import contextlib
import glob
import gzip
import hashlib
import http.server
import os
import shutil
import subprocess
import threading

ARCH = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True).stdout.strip()
PROGRAMS = ["sh", "bash", "cat", "chmod", "chown", "cp", "date", "dpkg", "dpkg-deb", "dpkg-divert", "dpkg-query", "dpkg-split", "dpkg-trigger", "dpkg-statoverride", "diff",
            "expr", "find", "grep", "gzip", "head", "id", "install", "ldconfig", "ln", "ls", "mkdir", "mknod", "mktemp", "mv", "perl", "readlink", "rm", "rmdir", "sed", "sleep", "sort",
            "start-stop-daemon", "stat", "tar", "touch", "tr", "true", "uname", "wc", "xz", "chroot", "env", "basename", "dirname", "cut", "uniq", "sha256sum", "test", "tee", "awk", "mount", "umount", "false", "seq", "printf", "echo", "sync"]
# debootstrap asks for these by name.
NAMED = ["base-passwd", "dpkg", "libc6", "perl-base", "mawk", "debconf", "usr-is-merged"]


def add(tree, path):
    """With what it needs, below usr: bin, sbin and lib are links."""
    wanted = [path] + [w for w in subprocess.run(["ldd", path], capture_output=True, text=True).stdout.split() if w.startswith("/")]
    for p in wanted:
        to = tree + (p if p.startswith("/usr/") else "/usr" + p)
        if not os.path.exists(to):
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy(os.path.realpath(p), to)


def put(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)


class Mirror:
    """suite bookworm; packages are added, then publish(), then the archive is at @url, its key in @keyring."""

    def __init__(self, where):
        self.top, self.index, self.delay, self.hits = where, [], {}, []
        os.makedirs(f"{where}/pool")
        self.gpg = dict(os.environ, GNUPGHOME=f"{where}/gpg")
        os.makedirs(f"{where}/gpg", mode=0o700)
        self.run("gpg", "--batch", "--passphrase", "", "--quick-gen-key", "archive <a@example.org>", "default", "sign", "never")
        atexit.register(self.run, "gpgconf", "--kill", "all")
        self.keyring = f"{where}/archive.gpg"
        self.run("gpg", "--batch", "-o", self.keyring, "--export")
        outer = self

        class Serve(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *a):
                super().__init__(*a, directory=where)

            def do_GET(self):
                outer.hits.append(self.path)
                for part, wait in outer.delay.items():
                    if part in self.path:
                        wait()
                with contextlib.suppress(OSError):  # who asked may be stopped
                    super().do_GET()

            def log_message(self, *a):
                pass
        web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Serve)
        web.daemon_threads = True
        threading.Thread(target=web.serve_forever, daemon=True).start()
        self.url = f"http://localhost:{web.server_address[1]}"
        self.base()
        for n in NAMED:
            self.package(n, essential=True)

    def run(self, *args, **kw):
        return subprocess.run(args, check=True, env=self.gpg, capture_output=True, **kw).stdout

    def base(self):
        t = f"{self.top}/build/base-files"
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        os.makedirs(f"{t}/usr/sbin")
        for p in filter(None, (shutil.which(x, path=path) for x in PROGRAMS)):
            add(t, p)
        for d in "bin", "sbin", "lib", "lib64":
            os.makedirs(f"{t}/usr/{d}", exist_ok=True)
            os.symlink(f"usr/{d}", f"{t}/{d}")
        for d in "etc/apt/apt.conf.d", "etc/dpkg/dpkg.cfg.d", "tmp", "var/tmp", "var/log", "var/lib/dpkg/info", "dev", "proc", "sys", "run", "root", "home", "var/cache":
            os.makedirs(f"{t}/{d}", exist_ok=True)
        shutil.copytree("/usr/share/dpkg", f"{t}/usr/share/dpkg")
        put(f"{t}/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
        put(f"{t}/etc/group", "root:x:0:\n")
        put(f"{t}/etc/shadow", "root:*:1::::::\n", 0o640)
        put(f"{t}/etc/gshadow", "root:*::\n", 0o640)
        put(f"{t}/etc/debian_version", "12\n")
        for p in [shutil.which("apt-get"), shutil.which("apt-config"), shutil.which("apt-mark"), *glob.glob("/usr/lib/apt/methods/*"), *glob.glob("/usr/lib/apt/solvers/*"), *glob.glob("/usr/lib/apt/planners/*"), "/usr/lib/apt/apt-helper"]:
            if p and os.path.exists(p):
                add(t, p)
        for d in "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/log/apt", "etc/apt/preferences.d", "etc/apt/trusted.gpg.d", "etc/apt/sources.list.d":
            os.makedirs(f"{t}/{d}", exist_ok=True)
        self.package("base-files", essential=True)
        self.package("apt", depends="base-files")

    def package(self, name, version="1", postinst=None, depends="", essential=False):
        """Its tree is build/NAME, which may have something in it."""
        t = f"{self.top}/build/{name}"
        put(f"{t}/usr/share/{name}/file", f"{name} {version}\n")
        what = f"Package: {name}\nVersion: {version}\nArchitecture: {ARCH}\nMaintainer: x <x@example.org>\nDescription: x\n"
        what += f"Depends: {depends}\n" if depends else ""
        what += "Essential: yes\nPriority: required\n" if essential else "Priority: optional\n"
        put(f"{t}/DEBIAN/control", what)
        if postinst:
            put(f"{t}/DEBIAN/postinst", f"#!/bin/sh\nset -e\n{postinst}\n", 0o755)
        deb = f"pool/{name}_{version}_{ARCH}.deb"
        self.run("dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "-b", t, f"{self.top}/{deb}")
        data = open(f"{self.top}/{deb}", "rb").read()
        self.index.append(what + f"Filename: {deb}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n")

    def publish(self):
        d = f"{self.top}/dists/bookworm"
        text = "".join(x + "\n" for x in self.index).encode()
        put(f"{d}/main/binary-{ARCH}/Packages", text.decode())
        with open(f"{d}/main/binary-{ARCH}/Packages.gz", "wb") as f:
            f.write(gzip.compress(text, mtime=0))
        sums = "".join(f" {hashlib.sha256(data).hexdigest()} {len(data)} main/binary-{ARCH}/{n}\n"
                       for n in ("Packages", "Packages.gz") for data in [open(f"{d}/main/binary-{ARCH}/{n}", "rb").read()])
        put(f"{d}/Release", f"Origin: x\nSuite: bookworm\nCodename: bookworm\nDate: Mon, 01 Jan 2024 00:00:00 UTC\nArchitectures: {ARCH}\nComponents: main\nSHA256:\n{sums}")
        for f in "InRelease", "Release.gpg":
            if os.path.exists(f"{d}/{f}"):
                os.unlink(f"{d}/{f}")
        self.run("gpg", "--batch", "--clearsign", "-o", f"{d}/InRelease", f"{d}/Release")
        self.run("gpg", "--batch", "-b", "-o", f"{d}/Release.gpg", f"{d}/Release")
