#!/usr/bin/python3
"""No argument of a call gets more than the server was started with: each argument of each tool is given what would open the host, more
means or another's data. Afterwards the host is as it was, nothing secret has been answered, and a command is confined as at first. Also
the server's memory over all of that, and over a load of large answers."""
# timeout: 300
import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402

SECRET = "canary-" + os.urandom(12).hex()
HOST = pathlib.Path(os.environ["HOME"]) / "own"
FAILED = []


def ok(cond, what, note=""):
    print(("ok - " if cond else "not ok - ") + what, "" if cond else f"({note})", flush=True)
    if not cond:
        FAILED.append(what)


def told(text):
    """Is the secret in it, plain or encoded?"""
    raw = SECRET.encode()
    if SECRET in text or raw.hex() in text.replace(" ", "").lower():
        return True
    return any(base64.b64encode(b"x" * k + raw)[4:-4].decode() in text for k in range(3))


def tree(d):
    out = []
    for p in sorted(d.rglob("*")):
        st = p.lstat()
        out.append((str(p), st.st_mode, st.st_size, st.st_mtime_ns, st.st_nlink,
                    hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() and not p.is_symlink() else ""))
    return out


def start(*args):
    return Server(*args, env=dict(os.environ, SERVER_SECRET=SECRET))


def ask(server, tool, **args):
    r = server.ask("tools/call", {"name": tool, "arguments": args})
    return json.dumps(r, ensure_ascii=False), "".join(c.get("text", "") for c in r["content"]), bool(r.get("isError"))


# What confines a command, in words that do not change between two commands.
LOOK = r"""
grep -E '^(NoNewPrivs|Seccomp|Cap[A-Z][a-z]*|NSpid|Uid|Gid):' /proc/self/status | grep -v NSpid
ulimit -a
ls /sys/class/net 2>/dev/null; cat /proc/net/dev | tail -n +3 | cut -d: -f1
ls -A /workspace /home/user | sort
for f in /etc /usr /bin / /root /var; do touch $f/.w 2>/dev/null && echo "written $f"; done
env | grep -vE '^(PWD|OLDPWD|SHLVL|_)=' | sort
ls /proc/self/fd | sort -n
tail -n +1 /proc/self/mountinfo | cut -d' ' -f5- | sed 's/ - .*//' | sort
unshare -U true 2>/dev/null && echo "a namespace of its own"
"""

HOST.mkdir(mode=0o700, parents=True)
(HOST / "secret").write_text(SECRET + "\n")
(HOST / "secret").chmod(0o600)
(HOST / "link").symlink_to("secret")
# Another project's environment, which the calls are not told of but can name; its content is the user's, not the host's.
own = str(HOST / "secret")
up = "../" * 12 + own[1:]

PATHS = [own, up, f"/proc/self/root{own}", f"/proc/1/root{own}", f"/proc/{os.getpid()}/root{own}", f"/proc/{os.getpid()}/cwd/x",
         f"file://{own}", "~root/.bashrc", "~/../../" + own[1:], "/dev/shm/../.." + own, "/workspace/" + up, "/tmp/out" + own, "/tmp/here",
         "/proc/self/environ", f"/proc/{os.getppid()}/environ", "/etc/shadow", "/", "", ".", "..", "/x\0y", "a" * 5000, "/dev/mem", "/sys/kernel",
         str(HOST), "/etc/widened", "/usr/bin/widened", "-rf", "$(cat %s)" % own, "`id`", "\n", "\ud800"]
ENVS = ["../x", "a/b", "/", ".", "..", "", "x" * 300, "a\0b", own, "host", "-e", "$(id)"]
NUMBERS = [-1, 0, 1, 2**31, 2**53, 2**63, 2**64, 1e300, "9" * 40, "1e9", -2**63, True, None, "all"]
WORDS = ["rw", "write-through", "/", "*", "none", "everything", "stdio rpath wpath cpath ptrace settime mount", "host", "0777", "4755", "07777", "base", "head~9",
         "HEAD", "../../refs", "f" * 64]
OBJECTS = [{"LD_PRELOAD": own, "PATH": str(HOST), "HOME": str(HOST)}, {"A=B": "c"}, {"": "x"}, {"X": {"y": 1}}, {"BASH_ENV": own},
           {f"V{i}": "x" * 1000 for i in range(3000)}, {"RATTAN": "1", "http_proxy": "http://127.0.0.1:1"}]
ARRAYS = [[], [1], [{"old_string": "", "new_string": own}], [{}] * 5000]

# What each tool needs to do something at all.
BASE = {
    "shell_run": {"command": "ls -la; cat x 2>/dev/null; true", "timeout": 20},
    "shell_job_start": {"command": "cat", "timeout": 2},
    "rattan_read_file": {"path": "x"}, "rattan_write_file": {"path": "y", "content": "text", "mode": "overwrite"},
    "rattan_edit": {"path": "x", "old_string": "one", "new_string": "one"},
    "rattan_grep": {"pattern": "canary", "path": "/workspace"}, "rattan_glob": {"pattern": "**/secret*", "path": "/workspace"}, "rattan_list_dir": {},
    "shell_job_status": {"job_id": "j1"}, "shell_job_wait": {"job_id": "j1", "wait_seconds": 0}, "shell_job_output": {"job_id": "j1"},
    "shell_job_input": {"job_id": "j1", "text": "x"}, "shell_job_kill": {"job_id": "j1", "grace": 0}, "shell_job_list": {},
    "bind_host_dir": {"host_path": str(HOST), "mount_point": "/mnt/x"}, "unbind_host_dir": {"mount_point": "/mnt/x"},
}
# It may bind below the home by design; here only what is not the user's to open is tried.
SKIP = {("bind_host_dir", "mode")}


def values(name, kind):
    if name in ("path", "cwd", "host_path", "mount_point", "pattern", "glob"):
        return PATHS
    if name in ("environment", "name"):
        return ENVS
    return {"number": NUMBERS, "integer": NUMBERS, "object": OBJECTS, "array": ARRAYS}.get(kind, PATHS[:12] + WORDS + ENVS[:6])


def attempts(tools):
    for t in tools:
        base = BASE.get(t["name"], {})
        for name, schema in t["inputSchema"]["properties"].items():
            if (t["name"], name) in SKIP or name == "command":
                continue
            for v in values(name, schema.get("type")):
                if t["name"] == "bind_host_dir" and name == "host_path" and isinstance(v, str) and v == str(HOST):
                    continue
                args = dict(base, **{name: v})
                if t["name"] == "bind_host_dir" and name == "mount_point":
                    args["host_path"] = "/etc"
                yield t["name"], name, v, args
        for extra in ("writable_root", "profile", "sandbox", "network", "uid", "root", "limits", "bind", "mounts", "privileged", "_meta", "sandboxPolicy"):
            yield t["name"], extra, True, dict(base, **{extra: {"/": "rw"}})


def rss(server):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{server.p.pid}/status").read_text())[1]) / 1024


s = start()
s.call("shell_run", command="echo one > x; ln -s %s /tmp/here; ln -s / /tmp/out; cat /etc/passwd > /dev/null" % own)
tools = s.ask("tools/list", {})["tools"]
before, first = tree(HOST), s.call("shell_run", command=LOOK)
leaks, tried = [], 0
for tool, name, v, args in attempts(tools):
    try:
        text, _, _ = ask(s, tool, **args)
    except RuntimeError as e:  # a protocol error is an answer as well
        text = str(e)
    except (EOFError, BrokenPipeError):
        ok(False, f"the server is there after {tool} {name}={v!r:.80}")
        sys.exit(1)
    tried += 1
    if told(text) or "root:*:" in text or "root:!:" in text:
        leaks.append(f"{tool} {name}={v!r:.80}")
ok(tried > 800, "each argument of each tool was tried", tried)
ok(not leaks, "no answer has what is the host's", leaks[:8])
ok(tree(HOST) == before, "the host's files are as they were")
s.call("shell_run", command="rm -rf /workspace/* /workspace/.[!.]* /home/user/* 2>/dev/null; echo one > /workspace/x; sleep 2.5")
last = s.call("shell_run", command=LOOK)
same = [x for x in zip(first.split("\n")[1:], last.split("\n")[1:]) if x[0] != x[1]]
ok(not same, "a command is confined as the first one was", same[:6])
for extra in ("writable_root", "profile", "sandbox", "uid"):
    _, text, bad = ask(s, "shell_run", command="true", **{extra: "/"})
    ok(bad and extra in text, f"{extra} is no argument, and the answer says so", text)
_, text, bad = ask(s, "shell_run", command="true", promises="stdio exec mount")
ok(bad and "mount" in text, "an unknown promise is refused", text)
_, text, _ = ask(s, "shell_run", promises="stdio rpath wpath cpath proc exec prot_exec ptrace settime unix inet tty id",
                 command="date -s '1 hour' 2>&1 | grep -c 'cannot set'; unshare -U true 2>&1 | grep -c unshare; touch /etc/.w 2>/dev/null || echo kept")
ok(re.search(r"\n1\n1\nkept", text), "all the promises there are open nothing of the host's", text)

# Would it have been seen? A server that may open the directory answers the secret to the same calls.
c = start("--bind", f"{HOST}=/mnt/own")
ok(told(c.call("rattan_read_file", path="/mnt/own/secret")) and told(c.call("shell_run", command="cat /mnt/own/secret")) and
   told(c.call("rattan_read_file", **{"path": "/mnt/own/secret", "as": "base64"})), "what leaks is seen")
c.close()

# Memory: as much again takes no more.
s.call("shell_run", command="seq 1 400000 > big; mkdir -p many; cd many; for i in $(seq 2000); do echo $i > $i; done")


def load():
    for _ in range(60):
        s.call("shell_run", command="cat big", max_output=204800)
        s.call("rattan_read_file", path="big", limit=20000, max_bytes=262144)
        s.call("rattan_grep", pattern="[0-9]", path="/workspace", max_matches=5000)
        s.call("rattan_glob", pattern="**/*", path="/workspace", limit=5000)
        s.call("rattan_write_file", path="w", content="x" * 1000000, mode="overwrite")


load()
one = rss(s)
load()
two = rss(s)
ok(two < one + 8 and two < 120, "the server's memory does not grow with the calls", f"{one:.1f} MiB, then {two:.1f}")
print(f"# {tried} attempts; memory {one:.1f} MiB, then {two:.1f} MiB")
s.close()
print("FAILED: " + "; ".join(FAILED) if FAILED else "all held")
sys.exit(1 if FAILED else 0)
