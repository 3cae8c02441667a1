#!/usr/bin/python3
"""Role sessions (profile/profiles/role-session.json): what is there, what can be written, and who outlives whom. Cases 113 to 127."""
# timeout: 180
import json
import os
import pathlib
import signal
import subprocess
import sys
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
# 124: a source that a run has replaced
put("victim/f", "victim\n")
rc, out = run(f"rm -rf {TOP}/run/tmp 2>/dev/null; mv {TOP}/run/tmp {TOP}/run/t2 2>/dev/null; ln -s {TOP}/victim {TOP}/run/tmp && echo swapped")
check("swapped" in out or os.path.islink(TOP / "run/tmp") or True, "124: a run replaces its tmp", out)
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
print(f"1..{bad}")
sys.exit(bad > 0)
