#!/usr/bin/python3
# Provisioning: root of the tree, to whom owners, devices, set-id bits and capabilities are what they would be to a real root, and
# who has no right outside; packages installed by dpkg; what fails, or is killed with whatever serves it, is taken back whole.
# timeout: 300
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time

from lib import check, done, here, rattan, servers

os.environ["RATTAN_DATA_DIR"] = f"{here}/store"
os.environ["HOST_SECRET"] = "of the host"  # no command sees it


def rt(*args, **kw):
    return subprocess.run([rattan, *args], capture_output=True, text=True, **kw)


def prov(text, *args, code=0):
    r = rt("run", "--provision", "-e", "p", *args, "-c", text)
    check(r.returncode == code, f"code {code} of: {text[:60]}", f"{r.returncode}: {r.stdout[-200:]} {r.stderr[-400:]}")
    return r.stdout


def agent(text):
    r = rt("run", "-e", "p", "-c", text)
    return r.stdout.strip()


def until(cond, what, seconds=60):
    end = time.monotonic() + seconds
    while not cond():
        if time.monotonic() > end:
            check(False, what)
            return False
        time.sleep(0.05)
    return True


def ours():
    return servers(f"{here}/store")


# ---- owners and devices ----

said = prov("""set -e; umask 022; mkdir /workspace/d; cd /workspace/d; echo a > f; chown 33:44 f; stat -c '%u:%g' f
ln -s f l; chown -h 7:8 l; stat -c '%u:%g %F' l; ln f h; stat -c '%u:%g' h
mknod null c 1 3; stat -c '%F %t,%T %a' null; mknod -m 640 blk b 8 17; stat -c '%F %t,%T %a' blk
mknod null c 1 3 2>/dev/null && echo twice; (echo x > null) 2>/dev/null && echo opened; (cat null) 2>/dev/null && echo opened
chmod 4755 f; stat -c %a f; chown 0:0 f; stat -c '%a %u' f; chmod 6755 f; chown 33:44 f; chmod 6755 f
mkdir o; chown 9:9 o; (cd o; echo r > rel; chown 10:11 rel; stat -c '%u:%g' rel)
python3 -c 'import os; fd=os.open("h",os.O_RDONLY); os.fchown(fd,50,-1); s=os.fstat(fd); print(s.st_uid,s.st_gid); s=os.stat("/proc/self/fd/%d"%fd); print(s.st_uid)'
(exec 5< h; stat -L -c %u /dev/fd/5)
chroot / stat -c %u /workspace/d/o; id -u; chown 4294967294:5 o; stat -c %u o
""" if shutil.which("python3") else "exit 1")
check(said.split("\n") == ["33:44", "7:8 symbolic link", "33:44", "character special file 1,3 644", "block special file 8,11 640",
                           "4755", "755 0", "10:11", "50 44", "50", "50", "9", "0", "4294967294", ""], "what root sees", said)
if shutil.which("setcap"):
    check("cap_net_raw=ep" in prov("cd /workspace/d; cp /bin/true cap; setcap cap_net_raw+ep cap; getcap cap"), "capabilities of a file")
check(prov("cd /workspace/d; tar cf t.tar --exclude t.tar .; mkdir x; tar -C x -xpf t.tar; cd x; stat -c '%n %u:%g %a' h; "
           "stat -c '%F %t' null; ls -ld o | cut -c1-10")
      == "h 50:44 755\ncharacter special file 1\ndrwxr-xr-x\n", "tar as root brings everything back")
# What names the caller itself by a link is the caller, whatever leads there: not whoever serves the call.
said = prov("""set -e; mkdir /workspace/way; cd /workspace/way; touch f; mkdir sub; touch sub/f
ln -s /proc/self/cwd a; ln -s ../way/a b; ln -s self/cwd /workspace/c; ln -s /proc p; ln -s /proc/thread-self/cwd t
chown 61:1 a/f; stat -c %u f; chown 62:2 b/f; stat -c %u f; chown 63:3 p/self/cwd/f; stat -c %u f; chown 64:4 t/f; stat -c %u f
cd sub; chown 65:5 ../a/f; stat -c %u f ../f ../b/f; cd /proc; chown 66:6 self/cwd/../workspace/way/f; stat -c %u self/cwd/../workspace/way/f
cd /workspace/way; ln -s /proc/self/fd/7 d; chown 67:7 d 7<f; stat -L -c %u d /dev/fd/7 7<f; mknod a/n c 1 3; stat -c %F n
chown 68:8 a/ && stat -c %u . ; chown 0:0 .; chown -h 69:9 a; stat -c %u a .
ln -s loop loop; stat -L loop 2>/dev/null || stat -c %F f/ 2>/dev/null || echo none""")
check(said.split("\n") == ["61", "62", "63", "64", "65", "64", "65", "66", "67", "67", "character special file", "68", "69", "0", "none", ""],
      "links to the caller itself", said)
said = prov("""cd /workspace/way; python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("f", os.O_PATH)
print(libc.fchown(fd, 1, 1), ctypes.get_errno())
print(libc.fchownat(-100, b"f", 1, 1, 0x40000000), ctypes.get_errno())
print(libc.fchownat(fd, b"", 71, 1, 0x1000), os.stat("f").st_uid)'; rm -rf /workspace/way""")
check(said == "-1 9\n-1 22\n0 71\n", "what the kernel refuses is refused", said)
# In another root, a link leads within it.
prov("set -e; mkdir -p /workspace/root/etc /workspace/root/bin; cd /workspace/root; cp /bin/busybox bin 2>/dev/null || exit 0; echo in > etc/f; "
     "chown 21:22 etc/f; ln -s /etc/f l; ./bin/busybox chroot . /bin/busybox stat -c %u /l | grep -qx 21; "
     "./bin/busybox chroot . /bin/busybox chown 5:5 /l; [ $(stat -c %u etc/f) = 5 ]; [ $(stat -c %u /etc) = 0 ]")
check(agent("stat -c '%u:%g' /workspace/d/f; id -u") == "1000:1000\n1000", "an agent's view is an agent's")
check(agent("python3 -c 'import os; print(os.getxattr(\"/workspace/d/f\",\"system.rattan.owner\"))' 2>&1 | tail -1").startswith("OSError"),
      "nobody else is told, or may say, owners")
check("Operation not" in agent("python3 -c 'import os; os.setxattr(\"/workspace/d/f\",\"system.rattan.owner\",bytes(8))' 2>&1 | tail -1"),
      "nobody else may say owners")
# ---- what is in the layer, of a tree that is small enough to be exported ----

def small():
    """An archive with a shell, a few programs, and what they are linked with."""
    paths = [shutil.which(x) for x in ("bash", "chown", "mknod", "stat", "mkdir", "touch", "cat")] + \
        [shutil.which(x) for x in ("setcap",) if shutil.which(x)]
    for path in list(paths):
        paths += [w for w in subprocess.run(["ldd", path], capture_output=True, text=True).stdout.split() if w.startswith("/")]
    with tarfile.open("small.tar", "w", dereference=True) as t:
        for path in sorted(set(paths)):
            t.add(path, arcname=path)
            if "/bin/" in path or "/sbin/" in path:
                t.add(path, arcname="/bin/" + os.path.basename(path))


small()
check(rt("import", "tar", "small.tar", "small").returncode == 0, "a small base")
r = rt("run", "--provision", "-e", "q", "--base", "small", "-c", "set -e; mkdir /d; cd /d; touch f o; chown 50:44 f; mknod blk b 8 17; chown 3:4 blk; "
       "type setcap >/dev/null 2>&1 && { cat /bin/cat > cap; setcap cap_net_raw+ep cap; }; stat -c %u f")
check(r.returncode == 0 and r.stdout == "50\n", "root of an imported base", r.stderr)
check(rt("commit", "-e", "q", "-m", "x").returncode == 0, "commit")
subprocess.run([rattan, "export", "tar", "head", "q.tar", "-e", "q"], check=True)
got = {m.name.removeprefix("./"): m for m in tarfile.open("q.tar", errors="surrogateescape")}
check((got["d/f"].uid, got["d/f"].gid) == (50, 44), "the layer has the owners", got["d/f"].uid)
check((got["d/blk"].type, got["d/blk"].devmajor, got["d/blk"].devminor, got["d/blk"].uid) == (tarfile.BLKTYPE, 8, 17, 3), "and the devices")
check(got["d"].uid == got["d/o"].uid == 0, "what root makes is root's")
if "d/cap" in got:
    caps = got["d/cap"].pax_headers.get("SCHILY.xattr.security.capability", "")
    check(len(caps.encode("utf-8", "surrogateescape")) == 20, "capabilities are the tree's root's", repr(caps))
rt("env", "rm", "q", "--force")

# ---- no right outside ----

bad = prov("""mount -t tmpfs x /mnt 2>/dev/null && echo mounted; unshare -m true 2>/dev/null && echo unshared
python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)' 2>/dev/null && echo raw
hostname other 2>/dev/null && echo named; cat /proc/1/environ >/dev/null 2>&1 && echo init; kill -9 1; date -s 2001-01-01 >/dev/null 2>&1 && echo date
echo 1 > /proc/sys/kernel/hostname 2>/dev/null && echo proc; mknod /dev/shm/n c 1 3 2>/dev/null && echo shm; true""")
check(bad == "", "no right outside the tree", bad)
tcp = socket.create_server(("127.0.0.1", 0))
abstract = socket.socket(socket.AF_UNIX)
abstract.bind(f"\0rattan-test-{os.getpid()}")
abstract.listen()
TRY = f"""import socket
for family, at in (socket.AF_INET, ("127.0.0.1", {tcp.getsockname()[1]})), (socket.AF_UNIX, "\\0rattan-test-{os.getpid()}"):
    try: socket.socket(family).connect(at); print("reached", at)
    except OSError: pass
"""
check(subprocess.run(["python3", "-c", TRY], stdout=subprocess.PIPE, text=True).stdout.count("reached") == 2, "the host's sockets answer")
check(prov(f"python3 - <<'E'\n{TRY}E\n") == "", "the host's sockets, from what provisions")
said = prov("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; tr '\\0' '\\n' < /proc/self/environ | grep HOST_SECRET; true").split()
check(said == ["NoNewPrivs:", "1", "Seccomp:", "2"], "confined as every command", said)
check("provision" in rt("run", "--provision", "--bind-cwd", "-c", "true").stderr, "not with what is the host's")

if shutil.which("python3"):
    talk = """python3 - <<'P'
import socket
s = socket.socket(socket.AF_UNIX); s.bind("/workspace/socket"); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect("/workspace/socket"); print("talks")
P"""
    check(prov(talk, "--allow-domain", "example.com") == "talks\n", "scripts talk to what they start, also with a network")
    audit = """python3 - <<'P'
import socket
try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)
except OSError as e: print(e.errno)
P"""
    said = [rt("run", "-e", "t", *more, "-c", audit).stdout for more in (["--provision"], ["--provision", "--allow-domain", "example.com"], ["--allow-domain", "example.com"])]
    check(said == ["93\n", "93\n", "97\n"], "who would note something for the audit goes on without: there is none", said)
    check(rt("run", "-e", "t", "--allow-domain", "example.com", "-c", talk).stdout == "", "commands with a network do not: a socket could be the host's")

# ---- nothing half ----

prov("rm -rf /workspace/d; touch /usr/half; exit 3", code=3)
check(agent("ls -d /usr/half /workspace/d 2>/dev/null") == "/workspace/d", "what fails is taken back")
prov("touch /usr/half; sleep 600", "--timeout", "2", code=124)
check(agent("ls /usr/half 2>/dev/null") == "", "what takes too long is taken back")


def begin(text):
    p = subprocess.Popen([rattan, "run", "--provision", "-e", "p", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    check(p.stdout.readline() == "go\n", "it has begun")
    return p


p = begin("touch /usr/half; echo go; sleep 600")
check("in use" in rt("run", "-e", "p", "-c", "true").stderr, "nobody else meanwhile")
check("being installed" in rt("commit", "-e", "p", "-m", "half").stderr, "what is half done cannot be committed")
check("command" in rt("rollback", "-e", "p", "base").stderr, "nor be moved away from")
p.kill()
p.communicate()
until(lambda: agent("echo yes; ls /usr/half 2>/dev/null") == "yes", "its runner killed: taken back")
p = begin("touch /usr/half; sync; echo go; sleep 600")
for pid in ours():
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
check(p.wait() != 0, "all that serves it killed")
p.communicate()
until(lambda: agent("echo yes; ls /usr/half 2>/dev/null") == "yes", "taken back by the next one")
check(agent("stat -c %F /workspace/d/null") == "character special file", "and nothing but that")
p = subprocess.Popen([rattan, "run", "--provision", "-e", "p", "-c", "touch /usr/whole; echo go; read -r x; test -e /usr/whole"], stdin=subprocess.PIPE,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
check(p.stdout.readline() == "go\n", "it has begun")
for more in ((), ("--provision",)):
    r = rt("run", *more, "-e", "p", "-c", "true")
    check(r.returncode == 4 and "in use" in r.stderr, "who comes meanwhile is refused, and takes nothing back", r.stderr)
p.communicate("on\n")
check(p.returncode == 0, "the first goes on", p.returncode)
check(agent("ls /usr/whole") == "/usr/whole", "what goes well stays")

# ---- dpkg ----

if shutil.which("dpkg-deb") and shutil.which("dpkg"):
    for part in ("DEBIAN", "usr/share/rattan-test"):
        os.makedirs(f"pkg/{part}")
    open("pkg/usr/share/rattan-test/file", "w").write("packed\n")
    open("pkg/DEBIAN/control", "w").write("Package: rattan-test-pkg\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n")
    open("pkg/DEBIAN/postinst", "w").write("#!/bin/sh\nset -e\nchown 33:33 /usr/share/rattan-test/file\nchmod 4711 /usr/share/rattan-test/file\n"
                                            "[ \"$(id -u)\" = 0 ]\necho configured > /usr/share/rattan-test/mark\n[ ! -e /workspace/break ]\n")
    os.chmod("pkg/DEBIAN/postinst", 0o755)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", "pkg", "p.deb"], check=True, stdout=subprocess.DEVNULL)
    deb = open("p.deb", "rb").read()
    subprocess.run([rattan, "run", "-e", "p", "-c", "cat > /workspace/p.deb"], input=deb, check=True)
    said = prov("mkdir -p /var/lib/dpkg/updates /var/lib/dpkg/info /var/lib/dpkg/triggers /var/log; touch /var/lib/dpkg/status /var/lib/dpkg/available; "
                "dpkg --force-depends -i /workspace/p.deb && stat -c '%u %a' /usr/share/rattan-test/file")
    check(said.endswith("33 4711\n"), "dpkg -i", said[-300:])
    check(agent("cat /usr/share/rattan-test/mark") == "configured", "its script ran")
    prov("dpkg --force-depends -P rattan-test-pkg")
    agent("touch /workspace/break")
    prov("dpkg --force-depends -i /workspace/p.deb", code=1)
    check(agent("ls /usr/share/rattan-test/file 2>/dev/null") == "", "a script that fails takes the package with it")
rt("env", "rm", "p", "--force")
done()
