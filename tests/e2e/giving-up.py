#!/usr/bin/python3
"""A mount that no daemon can go on with: who waits on it gets an error at once, the client says so within a second, the next
call starts anew from the last flush, and nothing is left of the old one."""
# timeout: 180
# alone
import ctypes
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.environ["RATTAN_SRC"], "tests/mcp"))
from rawclient import Server  # noqa: E402

RATTAN, DATA = os.environ["RATTAN"], os.environ["XDG_DATA_HOME"]
failed = []
old = set() # processes that have to end


def check(cond, what, note=""):
    if not cond:
        failed.append(what)
        print("FAIL:", what, str(note)[:600], flush=True)


def rt(*args, **env):
    r = subprocess.run([RATTAN, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       env=dict(os.environ, **env))
    return r.returncode, r.stdout


def must(*args, **env):
    rc, out = rt(*args, **env)
    if rc:
        sys.exit(f"rattan {args}: {rc} {out[-600:]}")
    return out


def stalled():
    """Seconds in which somebody waited for a processor, memory or the disk (Documentation/accounting/psi.rst)."""
    try:
        return sum(int(re.search(r"^some .*total=(\d+)", pathlib.Path(f"/proc/pressure/{of}").read_text(), re.M)[1]) / 1e6
                   for of in ("cpu", "memory", "io"))
    except (OSError, TypeError):
        return None


def late(since, was):
    """What "within a second" is, in seconds, when the machine had to let others wait: nobody is served in time there."""
    now = stalled()
    busy = os.getloadavg()[0] > os.cpu_count() if now is None else now - was > 0.2 * (time.monotonic() - since)
    return 10.0 if busy else 1.0


def pids(*how):
    r = subprocess.run(["pgrep", "-u", str(os.getuid()), *how], capture_output=True, text=True)
    return [int(x) for x in r.stdout.split()]


def state(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""


def keeper(env):
    return (pids("-o", "-f", f"rattan-fs env --data-dir {DATA}/.*--env {env}( |$)") or [None])[0]


def child(pid):
    """Without another process: the daemons of `deaths` live for a moment only."""
    for p in filter(str.isdigit, os.listdir("/proc")):
        of = state(p).rsplit(")", 1)[-1].split()
        if of and of[0] != "Z" and of[1] == str(pid):
            return int(p)
    return None


def daemon(env):
    return child(keeper(env))


def kill(env):
    os.kill(daemon(env), signal.SIGKILL)


def gone(pid):
    """Reaped, too; what has lost its parent is init's, which may take a moment."""
    for _ in range(1000):
        if not state(pid):
            return True
        time.sleep(0.02)
    return False


# ---- the ways to lose a mount ----

def without_resend(env):
    kill(env)


def three_deaths(env):
    end = time.monotonic() + 30
    first, seen = keeper(env), set()
    while state(first) and time.monotonic() < end:
        d = child(first)
        if d and d not in seen:
            seen.add(d)
            old.add(d)
            try:
                os.kill(d, signal.SIGKILL)
            except ProcessLookupError:
                pass
    # Fewer than two: not three deaths with the first one's. Many: each lived for more than a second on a slow machine.
    check(len(seen) >= 2 and not state(first), f"{env}: as many deaths in a row", len(seen))


def journal_of(env):
    """The memory that the keeper holds. Its process lets nobody look in before it has executed itself once."""
    fds = pathlib.Path(f"/proc/{keeper(env)}/fd")
    for fd in fds.iterdir():
        if "rattan-journal" in os.readlink(fd):
            return os.open(fd, os.O_RDWR)
    raise AssertionError("no journal")


def other_version(env):
    fd = journal_of(env)
    os.pwrite(fd, struct.pack("<I", 999), 8)
    os.close(fd)
    kill(env)


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    while any(state(f"{pid}/task/{t}").rsplit(")", 1)[1].split()[0] not in "Tt" for t in os.listdir(f"/proc/{pid}/task")):
        time.sleep(0.001)


def not_whole(env):
    """The end of a log where there is none. While the daemon stands still, or it would mend it."""
    fd = journal_of(env)
    stop(daemon(env))
    head = os.pread(fd, 256, 0)
    # magic, version, units, high, broken, layer, seed, life, pad, written, then {cur, {first, last, end} twice} for each log
    at = 8 + 4 * 4 + 8 * 2 + 4 * 2 + 8
    cur = struct.unpack_from("<I", head, at)[0]
    end = at + 8 + 16 * cur + 8
    os.pwrite(fd, struct.pack("<Q", struct.unpack_from("<Q", head, end)[0] + (1 << 30)), end)
    os.close(fd)
    kill(env)


def broken(env):
    """What says that there was no memory for a record."""
    fd = journal_of(env)
    stop(daemon(env))
    os.pwrite(fd, struct.pack("<I", 1), 20)
    os.close(fd)
    kill(env)


def in_namespace(env, flags):
    """umount2(2) of the mount by its owner, as an administrator could do it. In a child: only it enters."""
    libc = ctypes.CDLL(None, use_errno=True)
    k = keeper(env)
    user, mnt = (os.open(f"/proc/{k}/ns/{ns}", os.O_RDONLY) for ns in ("user", "mnt"))
    top = re.search(r"--run-dir\0([^\0]*)", pathlib.Path(f"/proc/{k}/cmdline").read_text())[1]
    pid = os.fork()
    if pid == 0:
        ok = libc.setns(user, 0) == 0 and libc.setns(mnt, 0) == 0
        for d in os.listdir(top + "/mnt") if ok else []:
            libc.umount2(f"{top}/mnt/{d}".encode(), flags)
        os._exit(not ok)
    check(os.waitpid(pid, 0)[1] == 0, f"{env}: cannot enter the namespaces")
    os.close(user)
    os.close(mnt)


def aborted(env):
    in_namespace(env, 1)


def detached(env):
    in_namespace(env, 2)


# ---- what is seen of it ----

JOB = """
import os, sys, time
fd = os.open('/workspace/loop', os.O_RDWR | os.O_CREAT)
print('ready', flush=True)
n = 0
while True:
    n += 1
    os.pwrite(fd, b'x' * 4096, n % 64 * 4096)
    os.listdir('/workspace')
"""


class Reader(threading.Thread):
    """File tools and commands of a server, one after another: how long the longest took, and what went wrong."""

    def __init__(self, env):
        super().__init__()
        self.s = Server("--env", env)
        self.s.call("shell_run", command="true")
        self.longest, self.errors, self.stop, self.after = 0, [], False, 0

    def run(self):
        while not self.stop:
            t = time.monotonic()
            try:
                self.s.call("rattan_read_file", path="/workspace/committed")
                self.after += 1
            except RuntimeError as e:
                self.errors.append(str(e))
                self.after = 0
            self.longest = max(self.longest, time.monotonic() - t)


def lose(env, how, restart=False, goes_on=False, **vars):
    must("run", "-e", env, "--", "sh", "-c", "echo c > committed", **vars)
    must("commit", "-e", env, "-m", "c")
    if restart:
        must("env", "restart", env)
    k, was = keeper(env), daemon(env)
    old.update((k, was))
    reader = Reader(env)
    job = subprocess.Popen([RATTAN, "run", "-e", env, "--", "python3", "-c", JOB], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    check(job.stdout.readline() == "ready\n", f"{env}: the command runs")
    waiting = threading.Thread(target=lambda: setattr(reader, "said", server_call(env)))
    waiting.start()
    reader.start()
    time.sleep(1)
    must("run", "-e", env, "--", "python3", "-c",
         "import os; f = open('synced', 'w'); f.write('s'); f.flush(); os.fsync(f.fileno())")
    t, stall = time.monotonic(), stalled()
    how(env)
    done = time.monotonic()
    try:
        out, err = job.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        job.kill()
        out, err = job.communicate()
        check(False, f"{env}: the command hangs")
    took = time.monotonic() - done
    waiting.join(20)
    check(not waiting.is_alive(), f"{env}: the server's call hangs")
    limit = late(t, stall)
    reader.stop = True
    reader.join(20)
    check(not reader.is_alive(), f"{env}: a file tool hangs")
    said, at = getattr(reader, "said", ("", done + 99))
    print(f"{env}: lost in {done - t:.2f} s; command ended after {took:.3f} s, server after {at - done:.3f} s, "
          f"longest file tool {reader.longest:.3f} s, {len(reader.errors)} errors {set(reader.errors)}\n"
          f"  command: {job.returncode} {err.strip()!r}\n  server: {said.strip()!r}", flush=True)
    check(took < limit and at - done < limit, f"{env}: told within a second", (took, at - done))
    check(job.returncode not in (0, None) and "file system" in err, f"{env}: what the command line says", err)
    check("file system" in said, f"{env}: what the server says", said)
    check(reader.longest < 1 + limit and reader.after > 0, f"{env}: file tools go on", (reader.longest, reader.errors))
    # The next call is of another daemon; what was synced and committed is there.
    out = must("run", "-e", env, "--", "sh", "-c", "cat committed synced")
    check(out == "c\ns", f"{env}: from the last flush", out)
    check(keeper(env) != k and daemon(env) != was, f"{env}: another daemon")
    old.update((keeper(env), daemon(env)))
    must("run", "-e", env, "--", "sh", "-c", "echo again > committed")
    must("commit", "-e", env, "-m", "again")
    reader.s.close()


def unheard(env):
    """The command ends by the error before anybody else can have heard of the mount's end: its keeper and its daemon stand
    still."""
    must("run", "-e", env, "--", "true")
    servers = keeper(env), daemon(env)
    old.update(servers)
    job = subprocess.Popen([RATTAN, "run", "-e", env, "--", "python3", "-c", JOB], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    check(job.stdout.readline() == "ready\n", f"{env}: the command runs")
    for pid in servers:
        stop(pid)
    aborted(env)
    time.sleep(1)  # a slow machine's command is told, then: it sees less, and does not fail
    for pid in servers:
        os.kill(pid, signal.SIGCONT)
    try:
        err = job.communicate(timeout=20)[1]
    except subprocess.TimeoutExpired:
        job.kill()
        err = job.communicate()[1]
        check(False, f"{env}: the command hangs")
    check(job.returncode and "its file system ended" in err, f"{env}: what the command line says", (job.returncode, err))


def server_call(env):
    s = Server("--env", env)
    text = s.call("shell_run", ok=False, command="sleep 30")
    at = time.monotonic()
    s.close()
    return text, at


WAYS = [("noresend", without_resend, {"RATTAN_NO_RESEND": "1"}), ("deaths", three_deaths, {}),
        ("version", other_version, {"restart": True}), ("notwhole", not_whole, {"restart": True}),
        ("broken", broken, {"restart": True}), ("aborted", aborted, {"restart": True}), ("detached", detached, {"restart": True})]
for env, how, o in WAYS:
    if not sys.argv[1:] or env in sys.argv[1:]:
        lose(env, how, **o)
if not sys.argv[1:] or "unheard" in sys.argv[1:]:
    unheard("unheard")
for env, _, _ in WAYS:
    if daemon(env):
        os.kill(daemon(env), signal.SIGTERM)
for _ in range(600): # each puts away what was not flushed yet
    if not pids("-f", DATA + "/"):
        break
    time.sleep(0.05)
left = subprocess.run(["pgrep", "-a", "-u", str(os.getuid()), "-f", DATA + "/"], capture_output=True, text=True).stdout
check(not left, "processes are left", left)
check(all(gone(p) for p in old), "processes are not reaped", [state(p) for p in old])
top = os.path.dirname(DATA)
check(top not in pathlib.Path("/proc/self/mounts").read_text(), "mounts are left")
print(f"{len(failed)} failed")
sys.exit(1 if failed else 0)
