#!/usr/bin/python3
# How provisioning ends when somebody comes between: another daemon, a forced move, a kill right behind the end, a request that the
# store could never take. It stays whole, or nothing of it does, and what is said of it is true.
# timeout: 240
import os
import signal
import subprocess
import time

from lib import check, done, here, rattan, servers

os.environ["RATTAN_DATA_DIR"] = f"{here}/store"


def rt(*args, **kw):
    return subprocess.run([rattan, *args], capture_output=True, text=True, **kw)


def agent(env, text):
    return rt("run", "-e", env, "-c", text).stdout.strip()


def ours():
    return servers(f"{here}/store")


def kill_all():
    for pid in ours():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def begin(env, text, *args):
    p = subprocess.Popen([rattan, "run", "--provision", "-e", env, *args, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    check(p.stdout.readline() == "go\n", "it has begun")
    return p


# ---- what the store could never take is refused ----

r = rt("run", "--provision", "-e", "p", "-c", """set -e; mkdir -p /workspace/d; cd /workspace/d
python3 -c '
import os, stat, struct, ctypes
for extra in (0x10000, 0x80000000):
    try:
        os.setxattr(".", "system.rattan.node", struct.pack("II", stat.S_IFCHR | 0o644 | extra, 0x103) + b"bad\\0")
        print("taken")
    except OSError as e:
        print(e.errno)
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(ctypes.c_long(259 if os.uname().machine == "x86_64" else 33), ctypes.c_int(-100), b"high",
                   ctypes.c_long(stat.S_IFCHR | 0o644 | 0x10000), ctypes.c_long(0x103)))
'; stat -c '%F %a' high; ls""")
check(r.returncode == 0, "it ends well", r.stderr[-300:])
check(r.stdout == "22\n22\n0\ncharacter special file 644\nhigh\n", "a mode of more bits than there are", r.stdout)
r = rt("commit", "-e", "p", "-m", "one")
check(r.returncode == 0, "and all can be written", r.stderr)

# ---- kept is kept, whatever dies behind it ----

r = rt("run", "--provision", "-e", "k", "-c", """set -e; mkdir /usr/many; for i in $(seq 300); do echo $i > /usr/many/$i; done
python3 -c '
import mmap
f = open("/usr/many/mapped", "w+b"); f.truncate(1 << 20); m = mmap.mmap(f.fileno(), 0); m[:] = b"m" * (1 << 20)'""")
kill_all()
check(r.returncode == 0, "it ends well", r.stderr[-300:])
check(agent("k", "ls /usr/many | wc -l; tail -c 1 /usr/many/mapped; cat /usr/many/300") == "301\nm300", "all of it is there")

# ---- another daemon ----

for said, code, there in (("on", 0, "/usr/kept"), ("off", 1, "")):
    rt("run", "-e", "k", "-c", "true")
    p = begin("k", f"touch /usr/{'kept' if code == 0 else 'lost'}; echo go; read -r x; [ $x = on ]")
    r = rt("env", "restart", "k")
    check(r.returncode == 0, "another daemon goes on with it", r.stderr)
    check("in use" in rt("run", "-e", "k", "-c", "true").stderr, "nobody else meanwhile, as before")
    # The command ends a while before its client hears of it.
    os.kill(p.pid, signal.SIGSTOP)
    p.stdin.write(said + "\n")
    p.stdin.flush()
    time.sleep(4)
    r = rt("run", "-e", "k", "-c", "true")
    check(r.returncode == 4, "nor before that is decided", r.stderr)
    os.kill(p.pid, signal.SIGCONT)
    err = p.communicate()[1]
    check(p.returncode == code, "it ends as it would have", f"{p.returncode} {err}")
    check(("taken back" in err) == (code != 0), "and says what is so", err)
    r = rt("run", "-e", "k", "-c", "ls /usr/kept /usr/lost 2>/dev/null")
    check(r.stdout.strip() == "/usr/kept", "whole, or not at all", f"{r.stdout} {r.stderr}")
p = begin("k", "touch /usr/lost; echo go; exec sleep 600")
check(rt("env", "restart", "k").returncode == 0, "another daemon goes on with it")
p.kill()
p.communicate()
end = time.monotonic() + 120
while (r := rt("run", "-e", "k", "-c", "ls /usr/lost")).returncode == 4 and time.monotonic() < end:
    time.sleep(0.3)
check("No such file" in r.stderr, "nobody is left to keep it: taken back", r.stderr)

# ---- a move that is forced ----

agent("m", "echo 1 > /workspace/one")
check(rt("commit", "-e", "m", "-m", "one").returncode == 0, "commit")
agent("m", "echo 0 > /workspace/none")
check(rt("reset", "-e", "m").returncode == 0, "something that could be undone")
agent("m", "echo 2 > /workspace/two")
p = begin("m", "touch /usr/half; echo go; exec sleep 600")
r = rt("undo", "-e", "m", "--force")
check(r.returncode == 4 and "cannot" in r.stderr, "an undo would bring half of it", r.stderr)
r = rt("rollback", "-e", "m", "--force", "base")
check(r.returncode == 0, "a rollback ends it", r.stderr)
err = p.communicate()[1]
check(p.returncode not in (0, None) and "taken back" in err, "it was ended", f"{p.returncode} {err}")
check(agent("m", "echo at; ls /workspace/one /workspace/two /usr/half 2>/dev/null") == "at", "and the rollback stays")
check(rt("undo", "-e", "m").returncode == 0, "undone")
check(agent("m", "ls /workspace/one /workspace/two /usr/half 2>/dev/null") == "/workspace/one\n/workspace/two", "to what was before both")
p = begin("m", "touch /usr/half; echo go; exec sleep 600")
check(rt("reset", "-e", "m", "--force").returncode == 0, "a reset ends it")
p.communicate()
check(agent("m", "ls /workspace/one /workspace/two /usr/half 2>/dev/null") == "/workspace/one", "and stays")

# ---- what is said ----

r = rt("run", "--provision", "-e", "m", "-c", "touch /usr/half; exit 3")
check(r.returncode == 3 and "taken back" in r.stderr, "a failure", r.stderr)
check(agent("m", "ls /usr/half 2>/dev/null") == "", "and so it is")
for env in ("p", "k", "m"):
    rt("env", "rm", env, "--force")
done()
