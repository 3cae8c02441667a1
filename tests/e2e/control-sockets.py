#!/usr/bin/python3
"""The control sockets and who is near them: other users of the host, what they plant where a user's runtime directory would be, and
processes in a sandbox that sees all of the host that it may."""
# user: root
# timeout: 180
import json
import os
import pathlib
import pwd
import socket
import struct
import subprocess

from lib import check, done, here, rattan, skip

try:
    me = pwd.getpwnam("rattan-test")
except KeyError:
    skip("no user rattan-test")
OTHER = me.pw_uid + 1000  # nobody's
top = pathlib.Path(here)
run_dir = pathlib.Path(os.environ["XDG_RUNTIME_DIR"])
for d in (top, *(pathlib.Path(os.environ[k]) for k in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "TMPDIR"))):
    subprocess.run(["chown", "-R", f"{me.pw_uid}:{me.pw_gid}", str(d)], check=True)


def mine(*args, timeout=60, **env):
    r = subprocess.run([rattan, *args], user=me.pw_uid, group=me.pw_gid, extra_groups=[], capture_output=True, text=True, timeout=timeout,
                       env={k: v for k, v in {**os.environ, **env}.items() if v})
    return r.returncode, r.stdout + r.stderr


def as_other(fn, uid=OTHER):
    """What fn returns, as text, in a process of another user."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        try:
            text = str(fn())
        except OSError as e:
            text = type(e).__name__
        os.write(w, text.encode())
        os._exit(0)
    os.close(w)
    with os.fdopen(r) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return text


# {"v": 2, "id": 1, "op": "status", "args": {}}
ASK = b"\x84\xa1v\x02\xa2id\x01\xa2op\xa6status\xa4args\x80"
ASK = struct.pack(">I", len(ASK)) + ASK


def answer(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect(str(path))
    s.sendall(ASK)
    return s.recv(4096)


rc, out = mine("run", "-c", "echo runs > /workspace/f")
check(rc == 0, "an environment", out)
socks = list((run_dir / "rattan").glob("*/sock"))
check(len(socks) == 1, "its socket", socks)
sock = socks[0]
# Its own user, for the rest would say nothing otherwise.
got = as_other(lambda: len(answer(sock)), me.pw_uid)
check(got.isdigit() and int(got) > 20, "answers its user", got)
check(as_other(lambda: answer(sock)) == "PermissionError", "which no other user can reach")
modes = {}
for d in (run_dir, run_dir.parent, sock.parent.parent, sock.parent, sock):
    modes[d] = d.stat().st_mode
    d.chmod(0o777)
got = as_other(lambda: answer(sock))
check(got in ("b''", "ConnectionResetError", "BrokenPipeError"), "nor, where somebody opened the directories, be answered by", got)
try:
    got = answer(sock)
except OSError as e:
    got = b""
check(got == b"", "root is another user, too", got)
# The next client closes what was opened.
rc, out = mine("run", "-c", "cat /workspace/f")
check(rc == 0 and "runs" in out, "its user goes on", out)
check((run_dir / "rattan").stat().st_mode & 0o77 == 0, "in a directory that is closed again")
for d, mode in modes.items():
    d.chmod(mode)

# From a sandbox that sees the whole of the host and writes to it, under the host's network: by any name.
INSIDE = """
import glob, os, socket, sys
tried = 0
for at in sys.argv[1:] + [root + p for root in ("/proc/self/root", "/proc/1/root", "/proc/self/cwd/../../../../../..") for p in sys.argv[1:]]:
    for where in (at, *glob.glob(at + "/*/sock"), *glob.glob(at + "/rattan/*/sock")):
        s = socket.socket(socket.AF_UNIX)
        tried += 1
        try:
            s.connect(where)
            print("REACHED", where)
        except OSError as e:
            pass
        try:
            print("SEEN", os.listdir(where))
        except OSError:
            pass
print("tried", tried, [x for x in open("/proc/net/unix") if "rattan" in x])
"""
profile = top / "all.json"
ENTRY = {"path": {"type": "special", "value": {"kind": "root"}}, "access": "write"}
profile.write_text(json.dumps({"family": "managed", "permissionProfile": {
    "type": "managed", "network": "enabled", "file_system": {"type": "restricted", "entries": [ENTRY]}}}))
for how in ((), ("--write-through",)):
    rc, out = mine("run", "--profile", str(profile), *how, "--", "/usr/bin/python3", "-c", INSIDE, str(sock), str(run_dir / "rattan"), str(sock.parent))
    check(rc == 0 and "tried" in out and "REACHED" not in out and "SEEN" not in out, f"from a sandbox {how}", out)

# Somebody else's socket in the place of one of ours: nothing is said to it.
place = sock.parent.parent / (sock.parent.name.split("-")[0] + "-planted")
place.mkdir(mode=0o700)
planted = socket.socket(socket.AF_UNIX)
planted.bind(str(place / "sock"))
os.chmod(place / "sock", 0o777)
os.chown(place, me.pw_uid, me.pw_gid)
as_other(lambda: planted.listen())
planted.settimeout(0.5)
rc, out = mine("run", "-e", "planted", "-c", "echo RAN")
check(rc != 0 and "RAN" not in out and "another user" in out, "a socket that somebody else serves: refused", (rc, out))
said = b""
try:
    s = planted.accept()[0]
    s.settimeout(0.5)
    said = s.recv(4096)
except OSError:
    pass
check(said == b"", "and told nothing", said)
planted.close()

# Where the runtime directory is in /tmp, anybody may have been there before.
fallback = pathlib.Path(f"/tmp/rattan-{OTHER}")
victim = top / "victim"
victim.mkdir(mode=0o777)
victim.chmod(0o777)
home = top / "home-of-other"
home.mkdir()
os.chown(home, OTHER, OTHER)
top.chmod(0o755)


def as_planted(what, make):
    def go():
        r = subprocess.run([rattan, "run", "-c", "echo RAN"], capture_output=True, text=True, timeout=60,
                           env={**os.environ, "XDG_RUNTIME_DIR": "", "HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home)})
        return f"{r.returncode} {r.stdout}{r.stderr}"
    make()
    try:
        out = as_other(go)
    finally:
        fallback.rmdir() if fallback.is_dir() and not fallback.is_symlink() else fallback.unlink()
    check(not out.startswith("0") and "RAN" not in out and str(fallback) in out and not any(victim.iterdir()), f"{what}: refused", out)


if not os.path.lexists(fallback):
    as_planted("a directory of another user", lambda: (fallback.mkdir(), fallback.chmod(0o777), os.chown(fallback, me.pw_uid, -1)))
    as_planted("a link to one of the user's own", lambda: (os.chown(victim, OTHER, -1), fallback.symlink_to(victim)))
    as_planted("a file", lambda: (fallback.touch(), os.chown(fallback, OTHER, -1)))
done()
