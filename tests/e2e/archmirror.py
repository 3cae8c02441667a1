"""A little repository of Arch packages, signed with a key of its own, and served on loopback, and a tree of this machine's programs that
has pacman; for tests, not one itself."""
import functools
import hashlib
import http.server
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading

from lib import check, here, skip

for t in "pacman", "repo-add", "gpg", "gpgv", "bsdtar", "zstd":
    if not shutil.which(t):
        skip(f"there is no {t}")
os.environ.update(RATTAN_DATA_DIR=f"{here}/store", HOME=f"{here}/home", GNUPGHOME=f"{here}/gpg", TMPDIR=f"{here}/tmp")
for d in "home", "tmp", "repo/core/os/x86_64", "repo/extra/os/x86_64":
    os.makedirs(d)
os.makedirs("gpg", mode=0o700)
top = "arch/root.x86_64"
THEN = 1700000000


def sh(line, **kw):
    r = subprocess.run(["bash", "-ec", line], capture_output=True, text=True, **kw)
    check(r.returncode == 0, line, r.stdout + r.stderr)
    return r.stdout


def look(rattan, name):
    """All that a base has."""
    with tarfile.open(fileobj=io.BytesIO(subprocess.run([rattan, "export", "tar", name, "-"], capture_output=True).stdout)) as t:
        return {m.name: (m.mode, m.uid, m.gid, m.mtime, m.type, m.linkname, m.isreg() and hashlib.sha256(t.extractfile(m).read()).hexdigest())
                for m in t}


def package(name, version, text, repo="core", content=None, more="", files=None):
    """What makepkg makes, without the minute that its shell takes on a busy machine. @content: a directory that goes into it; @more: of
    .PKGINFO."""
    made = {".PKGINFO": (f"pkgname = {name}\npkgbase = {name}\npkgver = {version}-1\npkgdesc = a test\nurl = https://example.com\nbuilddate = {THEN}\n"
                         f"packager = Signer <signer@example.com>\nsize = 100\narch = any\nlicense = MIT\n{more}", 0o644, 0, 0),
            ".INSTALL": (f"post_install() {{ echo {text} > /var/lib/{name}/installed; }}\n", 0o644, 0, 0),
            f"usr/bin/{name}": (f"#!/bin/sh\necho {text}\n", 0o755, 0, 0), f"var/lib/{name}/data": ("data\n", 0o640, 33, 44), **(files or {})}

    def then(e):
        e.uid = e.gid = 0
        e.uname = e.gname = ""
        e.mtime = THEN
        return e

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as t:
        for n in sorted(os.listdir(content)) if content else ():
            t.add(f"{content}/{n}", n, filter=then)
        for path, (data, mode, uid, gid) in made.items():
            parts = path.split("/")
            for n in range(1, len(parts)):
                d = tarfile.TarInfo("/".join(parts[:n]))
                d.type, d.mode, d.mtime = tarfile.DIRTYPE, 0o755, THEN
                if d.name not in t.getnames():
                    t.addfile(d)
            e = tarfile.TarInfo(path)
            e.size, e.mode, e.uid, e.gid, e.mtime = len(data), mode, uid, gid, THEN
            t.addfile(e, io.BytesIO(data.encode()))
    at = f"{here}/repo/{repo}/os/x86_64/{name}-{version}-1-any.pkg.tar.zst"
    r = subprocess.run(["zstd", "-q", "-f", "-o", at], input=raw.getvalue(), capture_output=True)
    check(r.returncode == 0, f"pack {name}", r.stderr)
    sh(f"gpg --batch --quiet --yes --detach-sign {at}")


def publish(repo="core"):
    sh(f"cd repo/{repo}/os/x86_64 && rm -f {repo}.* && repo-add --quiet --sign {repo}.db.tar.gz *.pkg.tar.zst")


PROGRAMS = ("bash", "pacman", "sed", "grep", "cat", "rm", "mkdir", "chown", "chmod", "gpg", "gpgconf", "gpgsm", "ls", "stat", "tar", "bsdtar", "id", "sleep", "cp", "tail", "find",
            "touch", "date", "cksum", "mv", "sort")


def tree(more=()):
    """At @top."""
    os.makedirs(f"{top}/usr/bin")
    for p in *PROGRAMS, *more:
        src = shutil.which(p)
        if not src:
            continue
        shutil.copy(os.path.realpath(src), f"{top}/usr/bin/{p}")
        for line in subprocess.run(["ldd", src], capture_output=True, text=True).stdout.splitlines():
            lib = next((w for w in line.split() if w.startswith("/")), None)
            if lib and not os.path.exists(top + lib):
                os.makedirs(os.path.dirname(top + lib), exist_ok=True)
                shutil.copy(os.path.realpath(lib), top + lib)
    os.symlink("usr/bin", f"{top}/bin")
    os.symlink("bash", f"{top}/usr/bin/sh")
    for d in "etc/pacman.d/gnupg", "var/lib/pacman/local", "var/cache/pacman/pkg", "root", "tmp", "var/log", "dev", "proc", "sys", "run":
        os.makedirs(f"{top}/{d}")
    for name, text in {"pacman.conf": "[options]\nHoldPkg = pacman\nArchitecture = x86_64\nCheckSpace\nSigLevel = Required\n[core]\nInclude = /etc/pacman.d/mirrorlist\n",
                       "passwd": "root:x:0:0::/root:/bin/bash\n", "group": "root:x:0:\n", "shadow": "root:!:::::::\n", "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
                       "pacman.d/mirrorlist": "#Server = https://geo.mirror.pkgbuild.com/$repo/os/$arch\n"}.items():
        with open(f"{top}/etc/{name}", "w") as f:
            f.write(text)
    os.link(f"{top}/etc/passwd", f"{top}/etc/passwd-")
    sh(f"[ ! -d /usr/lib/locale/C.utf8 ] || {{ mkdir -p {top}/usr/lib/locale; cp -r /usr/lib/locale/C.utf8 {top}/usr/lib/locale/; }}")


def keys():
    """Of the signer alone, where pacman of the tree looks."""
    os.makedirs("kr", mode=0o700)  # a short path: a socket is made in it
    sh(f"export GNUPGHOME={here}/kr; gpg --batch --quiet --import signer.gpg; "
       f"echo {key}:6: | gpg --batch --quiet --import-ownertrust; gpgconf --kill all; rm -f kr/S.* kr/*~ kr/.#*; rmdir {top}/etc/pacman.d/gnupg; mv kr {top}/etc/pacman.d/gnupg")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *a):
        pass


sh("gpg --batch --quiet --passphrase '' --quick-gen-key 'Signer <signer@example.com>' ed25519 sign never; gpg --export > signer.gpg")
key = re.search(r"fpr:+([0-9A-F]+):", sh("gpg --with-colons --fingerprint")).group(1)
web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=f"{here}/repo"))
threading.Thread(target=web.serve_forever, daemon=True).start()
mirror = f"http://127.0.0.1:{web.server_port}"
conf = os.environ["XDG_CONFIG_HOME"] + "/rattan/config.json"
settings = json.load(open(conf))
json.dump(dict(settings, pacman_mirrors=[mirror]), open(conf, "w"))
