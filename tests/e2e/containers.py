#!/usr/bin/python3
# A commit, exported as an OCI image, is run by crun and by podman, as an ordinary user: what commands see in it is the tree that was
# committed (names, kinds, modes, owners, links, times, capabilities, bytes) with the settings of the image it came of; what a container changed
# and podman made an image of comes back as a base.
# timeout: 300
import getpass
import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile

from lib import check, done, here, rattan, skip

if not shutil.which("crun") or not shutil.which("umoci"):
    skip("there is no crun, or no umoci")
os.environ["RATTAN_DATA_DIR"] = f"{here}/store"


def run(*args, **kw):
    return subprocess.run(args, capture_output=True, text=True, **kw)


def out(*args, **kw):
    r = run(rattan, *args, **kw)
    check(r.returncode == 0, f"{args}", r.stdout + r.stderr)
    return r.stdout


# ---- the tree: programs, and all that a file can be ----

top = io.BytesIO()
tar = tarfile.open(fileobj=top, mode="w")


def add(name, data=None, kind=None, mode=0o644, **kw):
    t = tarfile.TarInfo(name)
    t.type = kind or (tarfile.DIRTYPE if data is None else tarfile.REGTYPE)
    t.mode, t.mtime, t.size = mode, 1234567890, len(data or b"")
    for k, v in kw.items():
        setattr(t, k, v)
    tar.addfile(t, io.BytesIO(data) if data else None)


had = set()
for d in "", "etc", "dir", "dir/sub", "gone", "usr", "usr/bin", "tmp":
    add("./" + d, mode=0o1777 if d == "tmp" else 0o755)
for p in map(shutil.which, ("bash", "cat", "find", "sha256sum", "id", "rm", "mkdir", "ln", "chmod", "mv", "cp", "chown", "mknod", "setcap", "getcap")):
    if not p:
        skip("there is no setcap")
    add("usr/bin/" + os.path.basename(p), open(p, "rb").read(), mode=0o755)
    for lib in (w for line in run("ldd", p).stdout.splitlines() for w in line.split() if w.startswith("/")):
        if lib not in had:
            had.add(lib)
            add(lib[1:], open(lib, "rb").read(), mode=0o755)
add("bin", kind=tarfile.SYMTYPE, linkname="usr/bin", mode=0o777)
add("usr/bin/sh", kind=tarfile.SYMTYPE, linkname="bash", mode=0o777)
add("etc/passwd", b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
add("etc/group", b"root:x:0:\nuser:x:1000:\n")
add("etc/secret", b"s", mode=0o640, uid=0, gid=42)
add("etc/by-others", b"o", mode=0o4755, uid=7, gid=8)
add("dir/able", b"came with a capability", mode=0o755, pax_headers={"SCHILY.xattr.security.capability": struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0).decode()})
add("devices", mode=0o755)
add("devices/null", kind=tarfile.CHRTYPE, mode=0o666, devmajor=1, devminor=3)
add("dir/one", b"two names\n")
add("dir/two", kind=tarfile.LNKTYPE, linkname="dir/one")
add("dir/sub/below", b"below")
add("dir/größe", b"name")
add("gone/file", b"gone")
tar.close()
with open("root.tar", "wb") as f:
    f.write(top.getvalue())

out("import", "tar", "root.tar", "plain")
out("export", "oci", "plain", "settings")
r = run("umoci", "config", "--image", "settings:latest", "--config.env", "WORD=from the image", "--config.workingdir", "/dir", "--config.user", "1000:1000",
        "--config.entrypoint", "sh", "--config.entrypoint", "-c", "--config.cmd", "echo $WORD; cat one; id -u")
check(r.returncode == 0, "umoci config", r.stderr)
out("import", "oci", "settings", "base")
for what, change in (("files", "cat /etc/hosts > /workspace/hosts; echo 127.0.0.1 localhost mine > /etc/hosts; rm -r /gone; echo more >> /dir/one; ln /dir/one /workspace/three; chmod 2711 /etc/by-others; mknod -m 640 /devices/disk b 8 17; chown 0:6 /devices/disk; cp /bin/cat /dir/mine; setcap cap_net_bind_service=ep /dir/mine; ln -s ../no/where /dir/link"),
                     ("directories", "rm -r /dir/sub; mkdir -m 1770 /dir/sub; echo new > /dir/sub/new; mkdir /moved; mv /dir/two /moved/; echo last > '/workspace/a name'")):
    out("run", "--base", "base", "-e", "e", "--provision", "-c", change)
    out("commit", "-e", "e", "-m", what)
out("export", "oci", "head", "image", "-e", "e")
out("export", "tar", "head", "want.tar", "-e", "e")

# What the runtimes put over the tree is not the image's.
OVER = ("dev", "proc", "sys", "run", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab")
SHOW = r"""find / -path /proc -prune -o -path /dev -prune -o -path /sys -prune -o -printf '%y %m %U:%G %n %Ts %s "%P" %l\n'
find / -path /proc -prune -o -path /dev -prune -o -path /sys -prune -o -type f -exec sha256sum {} +"""


def wanted():
    """path -> (kind, mode, owner, names, time, size, where a link leads, digest of the bytes), as an archive of the commit has it."""
    found, first, names = {}, {}, {}
    with tarfile.open("want.tar") as t:
        for m in t:
            target = first.setdefault(m.linkname if m.islnk() else m.name, m)
            names[target.name] = names.get(target.name, 0) + 1
            found[m.name.removeprefix("./").strip("./") if m.name in (".", "./") else m.name.removeprefix("./")] = target
        return {p: (("d" if m.isdir() else "l" if m.issym() else "f"), m.mode, f"{m.uid}:{m.gid}", names[m.name], int(m.mtime), m.size if m.isreg() else -1,
                    m.linkname if m.issym() else "", hashlib.sha256(t.extractfile(m).read()).hexdigest() if m.isreg() else "")
                for p, m in found.items() if not p.startswith(OVER)}


def seen(text):
    """The same of what SHOW has said."""
    found = {}
    for line in text.splitlines():
        if '"' in line:
            (kind, mode, owner, names, at, size), rest = line.split('"')[0].split(), line.split('"')
            found[rest[1]] = [kind, int(mode, 8), owner, int(names) if kind != "d" else 1, int(at), int(size) if kind == "f" else -1, rest[2].strip(), ""]
        elif line[:1] != "\\" and line[64:67] == "  /":
            found[line[67:]][7] = line[:64]
    return {p: tuple(v) for p, v in found.items() if not p.startswith(OVER)}


def compare(what, text, leave=()):
    """@leave: what of a file cannot be the same there."""
    def of(tree):
        return {p: tuple(x for i, x in enumerate(v) if i not in leave and not (v[0] == "d" and i == 4)) for p, v in tree.items()}
    a, b = of(wanted()), of(seen(text))
    diff = [(p, a.get(p), b.get(p)) for p in sorted(a.keys() | b.keys()) if a.get(p) != b.get(p)]
    check(len(a) > 30 and not diff, f"{what} shows what was committed", diff[:6])


# crun of some distributions refuses a machine on which version 2 of control groups is mounted beside version 1, whether it shall make
# one or not. In namespaces of its own it does not see that it is such a machine.
os.makedirs("bin")
with open("bin/crun", "w") as f:
    f.write(f"""#!/bin/sh
! grep -q ' /sys/fs/cgroup/unified ' /proc/self/mountinfo || mount -t tmpfs none /sys/fs/cgroup/unified || exit 1
exec {shutil.which('crun')} "$@"
""")
os.chmod("bin/crun", 0o755)

w = wanted()
check(w["etc/by-others"][1:3] == (0o2711, "7:8") and w["etc/secret"][1:3] == (0o640, "0:42") and w["dir/one"][3] == w["workspace/three"][3] == 3 and
      w["moved/two"] == w["dir/one"] and w["dir/sub"][1] == 0o1770 and not {"gone", "dir/sub/below", "dir/two"} & w.keys(), "what was committed", w)

with tarfile.open("want.tar") as t:
    files = {m.name.removeprefix("./"): m for m in t}
    had_hosts = t.extractfile(files["workspace/hosts"]).read()
check(had_hosts == b"127.0.0.1\tlocalhost rattan\n::1\tlocalhost ip6-localhost ip6-loopback\n", "a tree without /etc/hosts has one, as those who run images bring it along", had_hosts)
able = [files[f"dir/{n}"].pax_headers.get("SCHILY.xattr.security.capability", "").encode("utf-8", "surrogateescape") for n in ("able", "mine")]
check(able[0] == able[1] == struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0), "capabilities, that came with it and that were set in it", able)
kept = [(m.type, m.devmajor, m.devminor, m.mode, m.uid, m.gid) for m in (files["devices/null"], files["devices/disk"])]
check(kept == [(tarfile.CHRTYPE, 1, 3, 0o666, 0, 0), (tarfile.BLKTYPE, 8, 17, 0o640, 0, 6)], "devices, that came with it and that were made in it", kept)
out("import", "oci", "image", "again")
out("export", "tar", "again", "again.tar")
check(open("again.tar", "rb").read() == open("want.tar", "rb").read(), "the image, imported, is the commit to the byte")
check(out("run", "--base", "again", "-e", "again", "-c", "cat /etc/hosts") == "127.0.0.1 localhost mine\n", "one that has its own keeps it")

print("== crun, with one id")
# The bundle is made in the namespace that it is run in: there the user is 0, the one id that there is.
make = f"""umoci unpack --rootless --image image:latest bundle >/dev/null 2>&1 || exit 90
python3 - <<'end'
import json
c = json.load(open("bundle/config.json"))
c["process"]["terminal"] = False
c["process"]["user"] = {{"uid": 0, "gid": 0}}
print(json.dumps([c["process"]["args"], c["process"]["env"], c["process"]["cwd"]]))
json.dump(c, open("bundle/config.json", "w"))
c["process"]["args"] = ["sh", "-c", {SHOW!r}]
json.dump(c, open("bundle/show.json", "w"))
end
for c in config show; do {here}/bin/crun --root {here}/crun --cgroup-manager=disabled run -b bundle -f bundle/$c.json rattan-$c || exit 91; echo ----; done
"""
r = run("unshare", "-Urm", "sh", "-c", make)
check(r.returncode == 0 and r.stdout.count("----") == 2, "crun runs it", f"{r.returncode} {r.stdout[-300:]} {r.stderr[-500:]}")
if r.returncode == 0:
    said, listing = r.stdout.split("----\n")[:2]
    args, env, cwd = json.loads(said.splitlines()[0])
    check(args[:2] == ["sh", "-c"] and "WORD=from the image" in env and cwd == "/dir", "with the image's settings", (args, env, cwd))
    check(said.splitlines()[1:] == ["from the image", "two names", "more", "0"], "its command", said)
    # Set-id bits go where files are not given away to whom they are of; times of links are a matter of the unpacking.
    compare("crun", listing, leave=(2,))

print("== podman, with a range of ids")


def ranged(path):
    try:
        return any(x.split(":")[0] in (getpass.getuser(), str(os.getuid())) for x in open(path))
    except OSError:
        return False


if not shutil.which("podman") or not shutil.which("newuidmap") or not ranged("/etc/subuid") or not ranged("/etc/subgid"):
    print("not tried: there is no podman, no newuidmap, or no range of ids for this user")
    done()


# podman waits until who watched a container is away, for 20 seconds where nobody takes note of the ends of orphans. This does.
REAP = """import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
main = os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
while (ended := os.wait())[0] != main:
    pass
sys.exit(os.waitstatus_to_exitcode(ended[1]) & 255)"""


def podman(*args, **kw):
    return run("/usr/bin/python3", "-c", REAP, "podman", "--runtime", f"{here}/bin/crun", "--cgroup-manager", "cgroupfs", "--storage-driver", "vfs", "--events-backend", "file", *args, env=dict(os.environ, XDG_RUNTIME_DIR=short), **kw)


def container(*args):
    r = podman("run", "--cgroups=disabled", "--network=none", *args)
    check(r.returncode == 0, f"podman run {args}"[:80], r.stderr[-500:])
    return r.stdout


# Its sockets lie below: a name of a test's own directory would be too long for them, and podman be told of no end.
short = tempfile.mkdtemp(dir="/var/tmp")
try:
    said = container("--rm", "oci:image:latest")
    check(said.splitlines() == ["from the image", "two names", "more", "1000"], "podman runs its command, as its user", said)
    compare("podman", container("--rm", "--user", "0", "oci:image:latest", SHOW))
    said = container("--rm", "--user", "0", "oci:image:latest", "getcap /dir/able /dir/mine")
    check(said == "/dir/able cap_net_bind_service=ep\n/dir/mine cap_net_bind_service=ep\n", "with the capabilities", said)
    container("--name", "mine", "--user", "0", "oci:image:latest", "rm -r /moved; echo there > /dir/sub/there; chmod 600 /etc/secret; echo again > /workspace/three")
    r = podman("commit", "-q", "-f", "oci", "mine", "localhost/mine:v1")
    r = podman("save", "-q", "--format", "oci-archive", "-o", "mine.tar", "localhost/mine:v1") if r.returncode == 0 else r
    check(r.returncode == 0, "podman makes an image of a container", r.stderr[-500:])
    listing = container("--rm", "--user", "0", "localhost/mine:v1", SHOW)
    out("import", "oci", "mine.tar", "back")
    os.unlink("want.tar")
    out("export", "tar", "back", "want.tar")
    tree = wanted()
    compare("podman's image, imported,", listing)
    check("moved" not in tree and "dir/sub/there" in tree and tree["etc/secret"][1:3] == (0o600, "0:42"), "with what the container changed", tree.get("etc/secret"))
    check(out("run", "--base", "back", "-e", "b", "--provision", "-c", "cat /dir/sub/there /dir/one").splitlines() == ["there", "again"], "commands run in it")
finally:
    # What it keeps is of other ids than this user's, and a process of it waits for the next call.
    podman("unshare", "rm", "-rf", os.path.expanduser("~/.local/share/containers"))
    podman("system", "migrate")
    shutil.rmtree(short, ignore_errors=True)
done()
