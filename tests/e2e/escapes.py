#!/usr/bin/python3
"""Bait on the host, and a hostile program inside that reaches for it: files, sockets, processes, devices, system calls, places
that are not writable by every road there is to them. Nothing may succeed (F1, F4, R2, R3, R5)."""
# timeout: 120
import os
import pathlib
import socket
import subprocess
import sys

RATTAN = os.environ["RATTAN"]

INSIDE = r'''
import ctypes, errno, fcntl, glob, os, socket, stat, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
bait, port, x86 = sys.argv[1].split(":"), int(sys.argv[2]), os.uname().machine == "x86_64"
bad = []

def no(what, f, *a, **k):
    """Must fail; what it gave tells on it when it does not."""
    try:
        r = f(*a, **k)
    except OSError:
        return
    bad.append(f"{what}: {str(r)[:60]!r}")

def call(f, *a):
    ctypes.set_errno(0)
    r = f(*a)
    if r < 0:
        raise OSError(ctypes.get_errno(), "")
    return r

def read(p):
    return os.listdir(p) if os.path.isdir(p) else open(p, "rb").read(64)

def unix(addr):
    s = socket.socket(socket.AF_UNIX)
    s.connect(addr)
    return addr

# Files, processes, devices.
for p in bait + ["/etc/shadow", "/etc/gshadow", "/proc/1/environ", "/proc/1/maps", "/proc/1/mem", "/proc/1/fd", "/proc/1/root/etc",
                 "/proc/1/cwd/etc", "/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/key-users", "/dev/fuse", "/dev/kmsg", "/dev/mem", "/dev/net/tun", "/dev/kvm"]:
    no(f"read {p}", read, p)
for d in ("/root", "/sys", "/boot", "/opt", "/srv", "/home/user"):
    if os.path.isdir(d) and os.listdir(d):
        bad.append(f"{d} is not empty: {os.listdir(d)[:3]}")
if sorted(os.listdir("/dev")) != sorted(["console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
                                         "stdout", "tty", "urandom", "zero"]) and "console" in os.listdir("/dev"):
    bad.append(f"/dev: {os.listdir('/dev')}")
if len([p for p in os.listdir("/proc") if p.isdigit()]) > 2:
    bad.append("more processes than init and this one")
if any("bait" in v for v in os.environ.values()):
    bad.append("a variable of the host")
for line in open("/proc/self/mountinfo"):
    if any(b and b in line for b in bait if b != "/"):
        bad.append("mountinfo: " + line)

# Network and sockets.
no("tcp out", socket.create_connection, ("192.0.2.1", 80), 2)
no("tcp to the host", socket.create_connection, ("127.0.0.1", port), 2)
no("abstract socket", unix, "\0rattan-bait")
for p in bait + glob.glob("/run/**", recursive=True):
    no(f"socket {p}", unix, p)
links = [n for _, n in socket.if_nameindex()]
if links != ["lo"]:
    bad.append(f"interfaces: {links}")
for family in range(3, 46):
    if family not in (socket.AF_INET6, socket.AF_NETLINK):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
            no(f"family {family}", socket.socket, family, kind)
no("raw socket", socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
no("packet socket", socket.socket, 17, socket.SOCK_RAW)

# System calls; the flags also with something in the upper half, which the kernel does not look at.
if x86:
    hi = ctypes.c_ulong(1 << 63 | 0x10000000 | 17)
    for name, *a in [("unshare user", 272, 0x10000000), ("unshare mount", 272, 0x20000), ("unshare net", 272, 0x40000000),
                     ("clone user", 56, 0x10000000 | 17, 0, 0, 0, 0), ("clone user, high bit", 56, hi, 0, 0, 0, 0), ("clone3", 435, 0, 0),
                     ("setns", 308, 0, 0), ("mount", 165, b"none", b"/tmp", b"tmpfs", 0, 0), ("fsopen", 430, b"tmpfs", 0),
                     ("open_tree", 428, -100, b"/", 1), ("mount_setattr", 442, -100, b"/", 0, 0, 0), ("pivot_root", 155, b"/", b"/"),
                     ("umount", 166, b"/proc", 2), ("chroot", 161, b"/tmp"), ("statmount", 457, 0, 0, 0, 0), ("keyctl", 250, 0, -3, 0),
                     ("add_key", 248, b"user", b"x", b"y", 1, -3), ("request_key", 249, b"user", b"x", 0, 0),
                     ("io_uring", 425, 4, ctypes.create_string_buffer(200)), ("bpf", 321, 0, 0, 0), ("perf", 298, 0, 0, 0, 0, 0),
                     ("userfaultfd", 323, 0), ("ptrace", 101, 0, 0, 0, 0), ("process_vm_readv", 310, 1, 0, 0, 0, 0, 0),
                     ("pidfd_getfd", 438, 0, 0, 0), ("open_by_handle_at", 304, -100, 0, 0), ("syslog", 103, 3, 0, 0), ("reboot", 169, 0, 0, 0, 0),
                     ("memfd_secret", 447, 0), ("fanotify", 300, 0, 0), ("setuid", 105, 0), ("setgid", 106, 0), ("kexec", 246, 0, 0, 0, 0),
                     ("adjtimex", 159, 0), ("modify_ldt", 154, 0, 0, 0), ("TIOCLINUX", 16, 0, 0x541c, b"\3"),
                     ("TIOCSTI", 16, 0, 0x5412, b"x"), ("TIOCSTI, high bit", 16, 0, ctypes.c_ulong(1 << 32 | 0x5412), b"x")]:
        no(name, call, libc.syscall, *a)
no("raise priority", os.setpriority, os.PRIO_PROCESS, 0, -5)
# The init, which ends all and tells the end.
for sig in range(1, 65):
    no(f"signal {sig} to init", os.kill, 1, sig)
for p in ("oom_score_adj", "clear_refs", "coredump_filter", "comm", "attr/current", "timerslack_ns"):
    no(f"write /proc/1/{p}", lambda: os.write(os.open(f"/proc/1/{p}", os.O_WRONLY), b"1"))
for p in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/hostname"):
    no(f"write {p}", os.open, p, os.O_WRONLY)
for kind in (stat.S_IFBLK, stat.S_IFCHR):
    for dev in ((1, 1), (8, 0), (10, 229), (253, 0), (254, 0)):
        no(f"mknod {dev}", os.mknod, "/tmp/dev", 0o600 | kind, os.makedev(*dev))

# What is not writable, by every road.
open("/tmp/f", "w").write("x")
os.makedirs("/tmp/d", exist_ok=True)
def exchange(a, b):
    return call(libc.renameat2, -100, a.encode(), -100, b.encode(), 2)
for d in ("/", "/usr", "/etc", "/home", "/mnt", "/srv", "/data", "/run", "/var", "/dev", "/dev/pts"):
    t = d.rstrip("/") + "/evil"
    for name, f, *a in (("link", os.link, "/tmp/f", t), ("rename", os.rename, "/tmp/f", t), ("symlink", os.symlink, "/tmp/f", t),
                        ("mkdir", os.mkdir, t), ("create", os.open, t, os.O_CREAT | os.O_WRONLY), ("mkfifo", os.mkfifo, t),
                        ("tmpfile", os.open, d, os.O_TMPFILE | os.O_RDWR)):
        no(f"{name} in {d}", f, *a)
r, o = os.open("/etc/passwd", os.O_RDONLY), os.open("/etc/passwd", os.O_PATH)
fd = os.open("/tmp", os.O_TMPFILE | os.O_RDWR)
no("tmpfile linked into /etc", call, libc.linkat, -100, f"/proc/self/fd/{fd}".encode(), -100, b"/etc/evil", 0x400)
for p in ("/etc/passwd", "/usr/bin/env", "/usr/share", "/etc", "/mnt"):
    for name, f, *a in (("link from", os.link, p, "/tmp/l"), ("rename from", os.rename, p, "/tmp/m"), ("exchange", exchange, p, "/tmp/d"),
                        ("exchange", exchange, "/tmp/f", p), ("chmod", os.chmod, p, 0o777), ("chown", os.chown, p, 1000, 1000),
                        ("utime", os.utime, p), ("xattr", os.setxattr, p, "user.a", b"b"), ("truncate", os.truncate, p, 0),
                        ("unlink", os.unlink, p), ("rmdir", os.rmdir, p)):
        no(f"{name} {p}", f, *a)
if x86:  # by the newer calls
    for name, *a in [("fchmodat2", 452, -100, b"/etc/group", 0o777, 0), ("setxattrat", 463, -100, b"/etc/passwd", 0, b"user.a", bytes(16), 16),
                     ("removexattrat", 466, -100, b"/etc/group", 0, b"user.a"), ("file_setattr", 469, -100, b"/etc/passwd", bytes(24), 24, 0)]:
        no(name, call, libc.syscall, *a)
for f in (r, o):
    no("opened again for writing", os.open, f"/proc/self/fd/{f}", os.O_WRONLY)
no("fchmod of what is open", os.fchmod, r, 0o777)
no("ftruncate of what is open", os.ftruncate, r, 0)
no("rename of an ancestor of a mount", os.rename, "/dev", "/tmp/dev")
print("\n".join(bad) or "fine")
'''


def main():
    here = pathlib.Path.cwd()
    secret, lying = pathlib.Path(os.environ["HOME"], "bait.txt"), pathlib.Path(os.environ["TMPDIR"], "bait.txt")
    for p in (secret, lying):
        p.write_text("bait")
        p.chmod(0o644)
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(here / "bait.sock"))
    sock.listen()
    abstract = socket.socket(socket.AF_UNIX)
    try:
        abstract.bind("\0rattan-bait")
        abstract.listen()
    except OSError:
        pass  # another run has it; as good
    tcp = socket.create_server(("127.0.0.1", 0))
    fd = os.open(secret, os.O_RDONLY)
    os.set_inheritable(fd, True)
    bait = [str(secret), str(lying), str(here / "bait.sock"), os.environ["XDG_DATA_HOME"], os.environ["XDG_RUNTIME_DIR"], os.environ["HOME"],
            os.environ["RATTAN"]]
    r = subprocess.run([RATTAN, "run", "--", "/usr/bin/python3", "-c", INSIDE, ":".join(bait), str(tcp.getsockname()[1])],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, close_fds=False, env={**os.environ, "SECRET": "bait"})
    print(r.stdout, r.stderr)
    if r.returncode or r.stdout != "fine\n":
        print("FAIL: see above")
        return 1
    # The program itself is no fence: with all of the view writable some of it succeeds.
    r = subprocess.run([RATTAN, "run", "-e", "open", "--writable-root", "/", "--", "/usr/bin/python3", "-c", INSIDE, ":".join(bait), "1"],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if "create in /usr" not in r.stdout or "exchange /etc" not in r.stdout:
        print("FAIL: the program finds nothing where it should:", r.stdout, r.stderr)
        return 1
    if os.path.exists("/usr/evil") or os.path.exists("/etc/evil"):
        print("FAIL: the host was written to")
        return 1
    return 0


sys.exit(main())
