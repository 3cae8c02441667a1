#!/usr/bin/python3
"""Role sessions (profile/profiles/role-session.json): what is there, what can be written, and who outlives whom. Cases 113 to 127."""
# timeout: 180
import fcntl
import json
import os
import pathlib
import select
import signal
import struct
import subprocess
import sys
import termios
import time

RATTAN = os.environ["RATTAN"]
ROLE = os.environ["RATTAN_SRC"] + "/profile/profiles/role-session.json"
TOP = pathlib.Path(os.environ["PWD"])
bad = 0


def check(cond, what, note=""):
    global bad
    print(f"{'ok' if cond else 'not ok'} - {what}")
    if not cond:
        bad += 1
        print("#", str(note)[:600])


def put(path, text="x\n"):
    p = TOP / path
    p.parent.mkdir(parents=True, exist_ok=True)
    p.write_text(text)
    return p


roles = json.load(open(ROLE))
for b in roles["binds"]:
    if b.get("source", "").startswith("{repo}/packages"):
        put(b["source"].replace("{repo}/", "repo/"))
put("repo/node_modules/pi/index.js", "module.exports = 'pi'\n")
put("repo/secret")
put("repo/adapter")
put("bus")
put("launch")
put("run/bundle/settings", "as the host wrote it\n")
put("run/session.json", "{}\n")
put("ws/file", "work\n")
put("other/run/x", "other\n")
(pathlib.Path(os.environ["HOME"]) / ".ssh").mkdir()
node = "/usr/bin/node" if os.path.exists("/usr/bin/node") else "/usr/bin/env"
VALUES = dict(run=TOP / "run", workspace=TOP / "ws", repo=TOP / "repo", node=node, adapter=TOP / "repo/adapter", harness="pi",
              broker_socket=TOP / "bus")


def argv(session, *cmd, **change):
    v = {**VALUES, **change}
    return [RATTAN, "run", "--profile", ROLE, "--session", session, *sum((["--set", f"{k}={x}"] for k, x in v.items() if x), []), "--", *cmd]


def run(text, session="s", timeout=60, **change):
    r = subprocess.run(argv(session, "sh", "-c", text, **change), capture_output=True, text=True, timeout=timeout)
    return r.returncode, r.stdout + r.stderr


# 113, 118: pid 1, and what may be written
rc, out = run(f"echo pid $$; for d in {TOP}/ws {TOP}/run /tmp $HOME; do echo y > $d/made && echo wrote; done; pwd; echo $TMPDIR; ls /proc | grep -c '^[0-9]'")
check("pid 1\n" in out and out.count("wrote") == 4 and f"{TOP}/run\n/tmp\n" in out, "113, 118: writes, pid 1, cwd", out)
check(int(out.split()[-1]) <= 4, "118: only its own processes", out)
check((TOP / "run/tmp/made").exists() and (TOP / "run/home/made").exists(), "113: /tmp and HOME are the run's")
# 114
rc, out = run(f"for p in /x /etc/x /usr/x {TOP}/x {TOP}/run/bundle/x {TOP}/run/bundle/settings {TOP}/run/session.json; do (echo z > $p) 2>&1 && echo WROTE $p; done;"
              f"rm -f {TOP}/run/session.json {TOP}/run/bundle/settings 2>&1; mv {TOP}/run/bundle {TOP}/run/b2 2>&1; mv {TOP}/run/session.json {TOP}/run/s2 2>&1;"
              f"chmod 777 / {TOP} 2>&1; echo done")
check("WROTE" not in out and "done" in out and (TOP / "run/bundle/settings").read_text() == "as the host wrote it\n"
      and (TOP / "run/session.json").read_text() == "{}\n", "114: nothing else is written, renamed or removed", out)
# 115, 117
rc, out = run(f"ls -d {TOP}/other {TOP}/repo/secret {os.environ['HOME']} {os.environ['XDG_DATA_HOME']} /root /var /srv {TOP}/launch 2>/dev/null; ls /; echo end")
check(str(TOP) + "/" not in out and "/root" not in out and "var\n" in out + "var\n", "115, 117: nothing else is there", out)
rc, out = run(f"cat {TOP}/launch", launch_socket=TOP / "launch")
check(rc == 0 and out == "x\n", "117: the launch socket of a role that may launch", out)
# 116
rc, out = run(f"readlink /bin || echo none; git --version; ls {TOP}/repo/node_modules/pi; cat {TOP}/repo/packages/harness/src/runner.mjs")
check(rc == 0 and "git version" in out and "index.js" in out and "x\n" in out, "116: programs, packages, the runner's files", out)
rc, out = run(f"ls {TOP}/repo/node_modules", harness="claude-code")
check(rc != 0, "116: no packages for another harness", out)
# 126
rc, out = run("(echo z > /dev/x) 2>&1; (echo z > /dev/shm/x) && echo shm; echo z > /dev/null && echo null; chmod 777 /dev 2>&1; test -e /dev/ptmx && echo pty")
check("shm\nnull\n" in out and "pty" in out and out.count("Read-only") == 2, "126: /dev is read-only but for shm and the pty", out)
r = subprocess.run([RATTAN, "session", "probe"], capture_output=True, text=True)
check(r.returncode == 0, "122: the probe", r.stderr)
# 119: the bwrap outside is killed


# Each process that must die with its session counts into a file.
BEAT = "n=0; while :; do n=$((n+1)); echo $n > $HOME/%s; sleep 0.05; done"


def beats(*names):
    """Which of the files change within a moment."""
    def read():
        return [(TOP / "run/home" / n).read_text() if (TOP / "run/home" / n).exists() else "" for n in names]
    first = read()
    time.sleep(0.5)
    return [n for n, a, b in zip(names, first, read()) if a != b]


def until(fn, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if fn():
            return True
        time.sleep(0.05)
    return fn()


def sessions():
    return dict(line.split("  pid ") for line in
                subprocess.run([RATTAN, "session"], capture_output=True, text=True).stdout.replace(" " * 10, "").splitlines() if "  pid " in line)


def pid_of(name):
    for k, v in sessions().items():
        if k.strip() == name:
            return int(v)


p = subprocess.Popen(argv("kill", "sh", "-c", f"echo up; ({BEAT % 'k1'}) & {BEAT % 'k2'}"), stdout=subprocess.PIPE, text=True)
check(p.stdout.readline() == "up\n", "a session")
check(until(lambda: len(beats("k1", "k2")) == 2), "119: its processes run")
os.kill(pid_of("kill"), signal.SIGKILL)
time.sleep(0.5)
check(beats("k1", "k2") == [], "119: all gone within a second after the bwrap outside was killed")
check(p.wait(5) == 137, "119: the host sees how it ended", p.returncode)
# 120, 127: the host is killed
p = subprocess.Popen(argv("live", "sh", "-c", f"echo up; {BEAT % 'beat'}"), stdout=subprocess.PIPE, text=True)
check(p.stdout.readline() == "up\n", "another session")
p.kill()
p.wait()
check(beats("beat"), "120, 127: it lives, reads and writes after its host was killed")
check(pid_of("live") is not None, "120: the next host finds it", sessions())
r = subprocess.run(argv("live", "true"), capture_output=True, text=True)
check(r.returncode == 4 and "runs already" in r.stderr, "120: its name is taken", r.stderr)
r = subprocess.run([RATTAN, "session", "attach", "live", "--", "sh", "-c", f"cat {TOP}/ws/file; ls {TOP}/other 2>/dev/null; ls /proc | grep -c '^1$'; grep CapEff /proc/self/status; (echo > /etc/x) 2>&1"],
                   capture_output=True, text=True)
check(r.stdout.startswith("work\n1\n") and "CapEff:\t0000000000000000" in r.stdout and "Read-only" in r.stdout, "120: a command in it, with no more than it has", r.stdout + r.stderr)
r = subprocess.run([RATTAN, "session", "end", "live"], capture_output=True, text=True)
check(r.returncode == 0 and pid_of("live") is None, "120: and ends it", r.stderr)
check(not beats("beat"), "120: its processes are gone")
r = subprocess.run([RATTAN, "session", "end", "live"], capture_output=True, text=True)
check(r.returncode == 3, "120: once", r.stderr)
# an orderly end of the host is the session's
p = subprocess.Popen(argv("term", "sh", "-c", f"echo up; {BEAT % 't'}"), stdout=subprocess.PIPE, text=True)
p.stdout.readline()
p.terminate()
check(p.wait(10) == 143 and not beats("t"), "SIGTERM to the host ends its session", p.returncode)
# A command that gives up the signal it would get with its parent's end: killed by its PID namespace all the same.
STAY = f"""import ctypes, os, sys, time
assert ctypes.CDLL(None).prctl(1, 0) == 0
print("up", flush=True)
n = 0
while True:
    n += 1
    open("{TOP}/run/home/" + sys.argv[1], "w").write(str(n))
    time.sleep(0.05)
"""


def stays(name):
    p = subprocess.Popen(argv(name, "python3", "-c", STAY, name), stdout=subprocess.PIPE, text=True)
    check(p.stdout.readline() == "up\n" and until(lambda: beats(name)), f"{name}: a command that would stay")
    return p


p = stays("stay-end")
r = subprocess.run([RATTAN, "session", "end", "stay-end"], capture_output=True, text=True)
check(r.returncode == 0 and not beats("stay-end"), "session end ends it", r.stderr)
p.wait(10)
p = stays("stay-term")
p.terminate()
check(p.wait(10) == 143 and not beats("stay-term"), "so does an orderly end of the host", p.returncode)
p = stays("stay-outer")
os.kill(pid_of("stay-outer"), signal.SIGKILL)
check(p.wait(10) == 137 and not beats("stay-outer"), "and the host when the bwrap outside was killed", p.returncode)
p = stays("stay-both")
outer = pid_of("stay-both")
p.kill()
p.wait()
os.kill(outer, signal.SIGKILL)
check(until(lambda: pid_of("stay-both") is None) and not beats("stay-both"), "and the next host when both were")
# Who has the number of a process that was recorded is left alone.
dir_ = pathlib.Path(os.environ["XDG_RUNTIME_DIR"]) / "rattan/roles"
other = subprocess.Popen(["sleep", "100"])
boot = open("/proc/sys/kernel/random/boot_id").read().strip()
for name, start, at in (("old", 1, boot), ("boot", open(f"/proc/{other.pid}/stat").read().split()[21], "another")):
    for suffix, text in ((".session", f"{other.pid}\n"), (".inner", f"{other.pid} {start} {at}\n"), (".lock", "")):
        (dir_ / (name + suffix)).write_text(text)
sessions()
check(other.poll() is None and not (dir_ / "old.inner").exists(), "a number that was given again is nobody of the session's")
other.kill()
other.wait()
# The caller's terminal, and what is typed into it, is not the command's.
p = subprocess.Popen(argv("tty", "sh", "-c", f"echo up; {BEAT % 'tty'}"), stdout=subprocess.PIPE, text=True)
check(p.stdout.readline() == "up\n", "a session to attach to")
LOOK = """import fcntl, os, sys, termios, struct
print("size", struct.unpack("hhhh", fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))[:2])
print("rdev", [os.fstat(i).st_rdev for i in range(3)], "controls", os.isatty(os.open("/dev/tty", os.O_RDWR)))
try: fcntl.ioctl(0, termios.TIOCSTI, b"T")
except OSError: pass
print("fds", sorted(os.listdir("/proc/self/fd"))[:3], flush=True)
try: print("read", input(), flush=True); input()
except KeyboardInterrupt: print("interrupted", flush=True)
sys.exit(5)
"""


def on_a_terminal(slave, *cmd):
    """Attached to it, by a caller that ignores SIGINT: so does whatever a shell has put into its background."""
    def prepare():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return subprocess.Popen([RATTAN, "session", "attach", "tty", "--", *cmd], stdin=slave, stdout=slave, stderr=slave,
                            start_new_session=True, preexec_fn=prepare)


def typed_and_never_read():
    """More is typed than a terminal holds, for a command that reads none of it: its code, None where the end was not seen."""
    master, slave = os.openpty()
    os.set_blocking(master, False)
    q = on_a_terminal(slave, "sh", "-c", "stty raw -echo; echo up; sleep 2; exit 6")
    text, left, end = b"", 200000, time.monotonic() + 30
    while q.poll() is None and time.monotonic() < end:
        if select.select([master], [], [], 0.1)[0]:
            text += os.read(master, 4096)
        try:
            while b"up" in text and left:
                left -= os.write(master, b"x" * min(left, 1024))
        except BlockingIOError:
            pass
    if q.poll() is None:
        q.kill()
        q.wait()
        return None
    os.close(master)
    os.close(slave)
    return q.returncode


def child_goes_on_writing():
    """The command ends, and what it has left behind writes without end: its code, None where attach stayed."""
    master, slave = os.openpty()
    q = on_a_terminal(slave, "sh", "-c", "trap '' HUP; yes & yes & sleep 1; exit 7")
    end = time.monotonic() + 60
    while q.poll() is None and time.monotonic() < end:
        if select.select([master], [], [], 0.1)[0]:
            os.read(master, 4096)
            time.sleep(0.005)  # slower than it writes
    if q.poll() is None:
        q.kill()
        q.wait()
        return None
    os.close(master)
    os.close(slave)
    return q.returncode


def attach_on_a_terminal():
    """What the command says, its code, whether the caller's terminal is another one, and what is left to be read from that."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("hhhh", 33, 77, 0, 0))
    before = termios.tcgetattr(slave)
    q = on_a_terminal(slave, "python3", "-c", LOOK)
    text = b""

    def read_until(word, seconds=20):
        nonlocal text
        end = time.monotonic() + seconds
        while word not in text and time.monotonic() < end:
            if select.select([master], [], [], 0.1)[0]:
                text += os.read(master, 4096)
        return word in text

    read_until(b"fds")
    os.write(master, b"hello\n")
    read_until(b"read ")
    # Python may be on its way into its read, and see the key with the next one only.
    for _ in range(20):
        os.write(master, b"\x03")
        if read_until(b"interrupted", 1):
            break
    else:
        q.kill()
    code = q.wait(20)
    own = str(os.fstat(slave).st_rdev)
    same = termios.tcgetattr(slave) == before
    left = select.select([slave], [], [], 0.2)[0]
    os.close(master)
    os.close(slave)
    return text.decode(), code, own, same, left


text, code, own, same, left = attach_on_a_terminal()
check("rdev [" in text and own not in text.split("rdev [")[1].split("]")[0], "an attached command has a terminal of its own", text)
check("size (33, 77)" in text and "controls True" in text, "as large as the caller's, and in control of it", text)
check("hello" in text.split("read ")[-1] and "interrupted" in text and code == 5, "what is typed reaches it, keys as well, and its code comes back", (text, code))
check(same and not left, "the caller's is as it was, and nothing was typed into it", (same, left))
check(typed_and_never_read() == 6, "a command that reads nothing ends all the same, whatever is typed meanwhile")
check(child_goes_on_writing() == 7, "nor does what it has left behind keep the caller, however much that writes")
r = subprocess.run([RATTAN, "session", "attach", "tty", "--", "sh", "-c", "cat; echo err >&2; exit 3"], input="through\n", capture_output=True, text=True)
check((r.returncode, r.stdout, r.stderr) == (3, "through\n", "err\n"), "without terminals its streams are the caller's", r)
r = subprocess.run([RATTAN, "session", "attach", "tty", "--", "sh", "-c", "ps -o sid= -p $$ 2>/dev/null || cut -d' ' -f6 /proc/self/stat"], capture_output=True, text=True)
check(r.stdout.strip() not in ("", "0", str(os.getsid(0))), "and its session is not", r.stdout + r.stderr)
# What lives in the session sees an attached process from its first moment on, and is of the same user.
SPY = f"""out = "{TOP}/run/home/spied"
print("up", flush=True)
last = 1
while True:
    try:
        f = open(f"/proc/{{last + 1}}/stat")
    except OSError: continue
    last += 1
    try:
        while True:
            with open(f"/proc/{{last}}/environ", "rb") as g:
                if b"RATTAN_TEST_SECRET" in g.read(): open(out, "a").write("found\\n")
                else: break
    except PermissionError: last -= 1
    except OSError: pass
"""
q = subprocess.Popen(argv("spy", "python3", "-c", SPY), stdout=subprocess.PIPE, text=True)
check(q.stdout.readline() == "up\n", "one in a session looks at each new process")
for _ in range(150):
    # The more words, the longer the kernel is about it.
    subprocess.run([RATTAN, "session", "attach", "spy", "--", "true", *["x" * 120000] * 14], env={**os.environ, "RATTAN_TEST_SECRET": "x"}, timeout=60)
check(not (TOP / "run/home/spied").exists(), "and finds none of the caller's variables")
q.terminate()
q.wait(10)
# keys
KEYS = """import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if sys.argv[1] == "add":
    if libc.syscall(250, 1, None) < 0 or libc.syscall(248, b"user", b"rattan-test", b"secret", 6, -3) < 0: sys.exit(77)
    os.execvp(sys.argv[2], sys.argv[2:])
print("found" if libc.syscall(250, 10, -3, b"user", b"rattan-test", 0) > 0 else "none")
"""
if os.uname().machine == "x86_64":
    def with_key(*cmd):
        return subprocess.run(["python3", "-c", KEYS, "add", *cmd], capture_output=True, text=True)
    if with_key("python3", "-c", KEYS, "look").stdout == "found\n":
        r = with_key(*argv("keys", "python3", "-c", KEYS, "look"))
        check(r.stdout == "none\n", "no key of the caller's session", r.stdout + r.stderr)
        r = with_key(RATTAN, "session", "attach", "tty", "--", "python3", "-c", KEYS, "look")
        check(r.stdout == "none\n", "nor for an attached command", r.stdout + r.stderr)
    else:
        print("# no keys here")
rc, out = run("cat /proc/keys /proc/key-users 2>/dev/null | wc -c")
check(out.strip() == "0", "nor the names of keys", out)
p.terminate()
p.wait(10)
# From a directory fchdir leads to the host's tree.
SEES = "import os, sys; os.fchdir(int(sys.argv[1])); print(os.listdir('.'), file=open(sys.argv[2], 'w'))"
p = subprocess.Popen(argv("dirs", "sh", "-c", "echo up; sleep 100"), stdout=subprocess.PIPE, text=True)
check(p.stdout.readline() == "up\n", "a session")
for n, how in enumerate(("stdin", "stdout", "stderr")):
    for what, cmd in (("run", argv(f"dir{n}", "python3", "-c", SEES, str(n), f"{TOP}/run/home/saw-run{n}")),
                      ("attach", [RATTAN, "session", "attach", "dirs", "--", "python3", "-c", SEES, str(n), f"{TOP}/run/home/saw-attach{n}"])):
        fd = os.open(TOP / "other", os.O_RDONLY | os.O_DIRECTORY)
        r = subprocess.run(cmd, **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, how: fd}, timeout=60)
        os.close(fd)
        check(r.returncode == 2 and not (TOP / f"run/home/saw-{what}{n}").exists(), f"{what}: a directory as {how} is refused", r.returncode)
p.terminate()
p.wait(10)
# a file without a name of its own
nameless = {k: v for k, v in roles.items() if k != "name"}
put("a role!.json", json.dumps(nameless))
r = subprocess.run([str(TOP / "a role!.json") if x == ROLE else x for x in argv("-", "echo", "ran") if x not in ("--session", "-")], capture_output=True, text=True)
check(r.returncode == 0 and r.stdout == "ran\n", "a profile without a name", r.stderr)
# 124: a source that a run has replaced
put("victim/f", "victim\n")
rc, out = run(f"rm -rf {TOP}/run/tmp 2>/dev/null; mv {TOP}/run/tmp {TOP}/run/t2 2>/dev/null; ln -s {TOP}/victim {TOP}/run/tmp && echo swapped")
# Where it could not, it is done for it.
if not os.path.islink(TOP / "run/tmp"):
    os.rename(TOP / "run/tmp", TOP / "run/t3")
    os.symlink(TOP / "victim", TOP / "run/tmp")
rc, out = run("echo hit > /tmp/f; ls /tmp")
check(rc != 0 and ("link" in out or "no directory of yours" in out) and (TOP / "victim/f").read_text() == "victim\n" and len(os.listdir(TOP / "victim")) == 1,
      "124: refused, and the victim is untouched", out)
os.unlink(TOP / "run/tmp")
os.symlink("../victim", TOP / "run/tmp")
rc, out = run("echo hit > /tmp/f")
check(rc != 0 and (TOP / "victim/f").read_text() == "victim\n", "124: a relative link as well", out)
os.unlink(TOP / "run/tmp")
os.rename(TOP / "ws", TOP / "ws2")
os.symlink(TOP / "ws2", TOP / "ws")
rc, out = run("true")
check(rc == 2 and "leads through a symbolic link" in out, "124: any source that is a link now", out)
os.unlink(TOP / "ws")
os.rename(TOP / "ws2", TOP / "ws")
# rattan's own directories: a session with the control sockets in it would be no confinement
own = pathlib.Path(os.environ["XDG_RUNTIME_DIR"]) / "rattan"
data = pathlib.Path(os.environ["XDG_DATA_HOME"]) / "rattan"
(data / "x").mkdir(parents=True, exist_ok=True)
for place in (own, own.parent, dir_, data, data.parent, data / "x"):
    for kind in ("workspace", "adapter"):
        rc, out = run("echo RAN", **{kind: place})
        check(rc == 2 and "rattan's own data" in out and "RAN" not in out, f"{kind} at {place}: refused", (rc, out))
# the command's own errors, and parameters
rc, out = run("exit 7")
check(rc == 7, "the command's code", rc)
r = subprocess.run(argv("nf", "/no/such/program"), capture_output=True, text=True)
check(r.returncode == 127, "a command that is not there", r.stderr)
rc, out = run("true", workspace=None)
check(rc == 2 and "--set workspace=VALUE" in out, "a parameter that is missing", out)
rc, out = run("true", workspace="ws")
check(rc == 2 and "workspace: 'ws' is not an absolute path" in out, "a relative path", out)
# --explain: every bind in mount order with its reason
r = subprocess.run([RATTAN, "run", "--profile", ROLE, "--explain", *sum((["--set", f"{k}={x}"] for k, x in VALUES.items()), [])], capture_output=True, text=True)
lines = [x for x in r.stdout.splitlines() if x[:5].strip() in ("ro", "rw", "dev", "proc", "link")]
at = {x.split()[1]: i for i, x in enumerate(lines)}
check(r.returncode == 0 and all("  # " in x for x in lines) and at[f"{TOP}/run/bundle"] > at[f"{TOP}/run"] and at["/tmp"] > at[f"{TOP}/run/session.json"]
      and lines[-1].startswith("ro    /  "), "explained in mount order", r.stdout + r.stderr)
# What each left behind is gone with it, however it ended.
check(until(lambda: not sessions()) and not os.listdir(dir_), "nothing is left where sessions are found", os.listdir(dir_))
print(f"1..{bad}")
sys.exit(bad > 0)
