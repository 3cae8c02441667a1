#!/usr/bin/python3
"""Tools that look at and tend an environment: what can be run, space, terminals, paths under the home."""
# timeout: 180
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402

s = Server("serve", "--writable-root", "/")


def names(**args):
    t = s.call("shell_list", **args)
    return t.split("\n")[0], [line.split("  ") for line in t.split("\n")[1:] if line and not re.match(r"\[\d+ more", line)]


# ---- what can be run: as the shell finds it ----
head, all_names = names(limit=5000)
shown = {n[0] for n in all_names}
assert re.fullmatch(r"\d+ commands", head) and {"sh", "ls"} <= shown, head
found = s.call("shell_run", command='IFS=:; for d in $PATH; do for f in "$d"/*; do [ -f "$f" ] && [ -x "$f" ] && echo "${f##*/}"; done; done | sort -u',
               max_output=204800).split("\n", 1)[1]
theirs = {x for x in found.split("\n") if x and x[0] != "."}
if len(all_names) < 1500:  # else the answer is a page
    extra = shown - theirs
    assert not extra, sorted(extra)[:20]
    missing = {x for x in theirs - shown if not re.match(r"\W", x)}
    assert not missing, sorted(missing)[:20]
# What the package managers have written down is read; the host's is not part of this base.
s.call("shell_run", command="mkdir -p /var/lib/dpkg/info /var/lib/pacman/local/some-tool-1.2-3; echo /usr/bin/env > /var/lib/dpkg/info/core:amd64.list; "
       "printf '%s\\n' /. /usr/share/doc/ls /bin/ls > /var/lib/dpkg/info/lister.list; printf '%s\\n' %FILES% usr/bin/ usr/bin/cat > /var/lib/pacman/local/some-tool-1.2-3/files")
for name, package in (("env", "core"), ("ls", "lister"), ("cat", "some-tool")):
    assert [name, package] in names(pattern=name)[1], names(pattern=name)
t = s.call("shell_list", limit=2)
assert re.search(r"\[\d+ more: offset=2", t) and len(t.strip().split("\n")) == 4, t
assert [n[0] for n in names(limit=2, offset=2)[1]] == [n[0] for n in all_names[2:4]]
assert "rattan-list-a" not in shown
s.call("shell_run", command="printf '#!/bin/sh\\necho ran\\n' > /usr/local/bin/rattan-list-a; cp /usr/local/bin/rattan-list-a /usr/local/bin/rattan-list-b; "
       "chmod +x /usr/local/bin/rattan-list-a; ln -s rattan-list-a /usr/local/bin/rattan-list-link; ln -s /nowhere /usr/local/bin/rattan-list-gone")
assert names(pattern="rattan-list-*")[1] == [["rattan-list-a"], ["rattan-list-link"]], "new ones are seen, and what cannot run is not"
s.call("shell_run", command="chmod +x /usr/local/bin/rattan-list-b")
assert ["rattan-list-b"] in names(pattern="rattan-list")[1], "a mode that changed is seen"
s.call("shell_run", command="rm /usr/local/bin/rattan-list-*")
assert names(pattern="rattan-list")[1] == []

# ---- space ----
t = s.call("env_gc", dry_run=True)
assert re.match(r"(would remove|would drop|nothing to remove)", t), t
t = s.call("env_gc")
assert re.match(r"(removed|dropped|nothing to remove)", t) and "free in the store's files" in t, t
assert s.call("env_gc", ok=False, dry_run=True, shrink=True).startswith("error: ")

# ---- a terminal ----
t = s.call("shell_job_start", tty=True, command="test -t 0 && test -t 1 && test -t 2 && echo 'is a terminal'; stty size; read -r name; echo \"hello $name\"; cat; echo done")
job = re.search(r"j\d+-[0-9a-f]+", t)[0]
t = s.call("shell_job_wait", job_id=job, until="24 80", wait_seconds=20)
assert t.startswith("matched until:") and "is a terminal" in t, t
s.call("shell_job_input", job_id=job, text="you\n")
assert "hello you" in s.call("shell_job_wait", job_id=job, until="hello you", wait_seconds=20)
s.call("shell_job_input", job_id=job, eof=True)
t = s.call("shell_job_wait", job_id=job, wait_seconds=20)
assert t.startswith("exit 0") and "done" in t, t
t = s.call("shell_run", tty=True, command="trap 'echo interrupted; exit 5' INT; echo go; while :; do sleep 0.1; done", wait=0)
job = re.search(r"j\d+-[0-9a-f]+", t)[0]
s.call("shell_job_wait", job_id=job, until="go", wait_seconds=20)
s.call("shell_job_input", job_id=job, text="\x03")
t = s.call("shell_job_wait", job_id=job, wait_seconds=20)
assert t.startswith("exit 5") and "interrupted" in t, t

# A shell of its own: job control, and ^C for what is in the foreground alone.
t = s.call("shell_job_start", tty=True, command="PS1='at> ' exec bash --norc --noprofile -i")
job = re.search(r"j\d+-[0-9a-f]+", t)[0]
for text, until in (("\n", "at> "), ("echo rea''dy; cat\n", "ready"), ("\x1a", r"Stopped +cat"), ("jobs -l; fg\n", r"(?m)^cat\s"), ("\x03", r"\^C"), ("echo st=$?\n", "st=130"),
                    ("sleep 1000 & kill -9 $!; wait $!; echo code=$?\n", "code=137"), ("stty rows 50; stty size\n", "50 80")):
    s.call("shell_job_input", job_id=job, text=text)
    t = s.call("shell_job_wait", job_id=job, until=until, wait_seconds=20)
    assert t.startswith("matched until:"), (text, t)
s.call("shell_job_input", job_id=job, text="exit 9\n")
t = s.call("shell_job_wait", job_id=job, wait_seconds=20)
assert t.startswith("exit 9"), t

# ---- output for reading ----
t = s.call("shell_run", command="echo first; for i in 1 2 3 4 5; do echo same; done; yes other | head -n 3; printf 'x\\nx\\nx\\nx'")
assert t.split("\n")[1:] == ["first", "same", "[repeated 5×]", "other", "other", "other", "x", "x", "x", "x", ""], t
assert "timeout was taken as milliseconds: 120 seconds" in s.call("shell_run", command="true", timeout=120000)

# ---- beside the exit code: the parts of a pipeline, where it ended, what was left ----
def head(*args, **more):
    return s.call("shell_run", command=args[0], **more).split("\n", 1)[0]


assert re.match(r"exit 0 \(pipe: 1 0\) in ", head("false | true")), head("false | true")
assert re.match(r"exit 4 \(pipe: 0 3 4\) in ", head("(exit 0) | (exit 3) | (exit 4)"))
assert re.match(r"exit 1 \(pipe: 1 0\) in ", head("set -o pipefail; false | true"))
for plain in ("true | true", "false | true; true", "false | true; exec true", "trap 'echo bye' EXIT; false | true", "false || true # |", "cat /dev/null; abcd=1"):
    assert "pipe" not in head(plain), plain
assert "bye" in s.call("shell_run", command="trap 'echo bye' EXIT; false | true")
assert "pipe" not in head("false | true", promises="stdio rpath wpath cpath exec proc tmppath")
t = s.call("shell_run", command="true |\n nosuchcommand\nls /proc/self/fd | tr '\\n' ' '; env | grep -c BASH_ENV; bash -c 'echo in | cat'")
assert "line 2: nosuchcommand" in t and "\n0 1 2 3 0\nin\n" in t, "bash has one descriptor and one variable more for nobody: " + t
s.call("rattan_write_file", path="rc", content="echo from the rc\n")
t = s.call("shell_run", command="false | true", env={"BASH_ENV": "/workspace/rc"})
assert "from the rc" in t and "pipe" not in t, t
s.call("shell_run", command="rm rc; mkdir -p /tmp/deep/er; ln -s /tmp/deep /tmp/link")
t = s.call("shell_run", command="cd /tmp/deep && true")
assert t.endswith("[it ended in /tmp/deep, which is not kept: pass cwd to stay there]\n"), t
for cwd, command in (("/tmp/../tmp//deep/", "cd .; pwd"), ("/tmp/link", "cd er/..; pwd"), (None, "cd /tmp; cd -"), (None, "echo cd")):
    t = s.call("shell_run", command=command, **({"cwd": cwd} if cwd else {}))
    assert "ended in" not in t, t
t = s.call("shell_run", command="sleep 300 & sleep 300 & echo x")
assert re.search(r"\nx\n\[2 processes were left running \((sleep|bash)\), killed: leave_running=true keeps them\]\n", t), t
assert "left running" not in s.call("shell_run", command="sleep 0.1 & wait; (true &) ; sleep 0.2")
j = json.loads(s.call("shell_run", command="cd /tmp; sleep 300 & false | true", structured=True))
assert (j["pipe"], j["ended_in"], j["left_running"]) == ("1 0", "/tmp", 1), j
# It is the command's word, and shown as such.
t = s.call("shell_run", command=r"true | true; printf '1 2|/x\n\033[1m' > /dev/shm/.rattan-end; exec true")
assert re.match(r"exit 0 \(pipe: 1 2\)", t) and "[it ended in /x\\n\\x1b[1m, which" in t and "\033" not in t, t
for forged in ("1 2;rm|/", "|", "x", "1 " * 600, "1 2|" + "/d" * 300):
    t = s.call("shell_run", command=f"true | true; printf '%s' '{forged}' > /dev/shm/.rattan-end; exec true")
    assert re.match(r"exit 0 (\(pipe: 1 2\) )?in ", t) and (";rm" not in t), t
assert head("true | true; mkdir /dev/shm/.rattan-end; exec true").startswith("exit 0 in ")
assert head("true | true; ln -s /etc/passwd /dev/shm/.rattan-end; exec true").startswith("exit 0 in ")
assert head("true | true; mkfifo /dev/shm/.rattan-end; exec true").startswith("exit 0 in ")

# ---- several jobs ----
jobs = [re.search(r"j\d+-[0-9a-f]+", s.call("shell_job_start", command=c))[0] for c in ("sleep 300", "sleep 0.3; echo second; exit 7", "sleep 301")]
t = s.call("shell_job_wait", job_ids=jobs, wait_seconds=30)
assert t.startswith(f"first: {jobs[1]}\nexit 7 in ") and "\nsecond\n" in t, t
assert re.search(rf"\n{jobs[0]}: running for .*\n{jobs[2]}: running for ", t), t
t = s.call("shell_job_wait", job_ids=[jobs[0], jobs[2]], wait_seconds=0.2)
assert t.startswith("none of 2 jobs has ended yet\n") and t.count(": running for ") == 2, t
s.call("shell_job_kill", job_id=jobs[2], grace=0)
assert s.call("shell_job_wait", ids=[jobs[0], jobs[2]]).startswith(f"first: {jobs[2]}\nkilled after")
jobs.append(re.search(r"j\d+-[0-9a-f]+", s.call("shell_job_start", command="echo ready; sleep 300"))[0])
t = s.call("shell_job_wait", job_ids=[jobs[0], jobs[3]], until="^rea", wait_seconds=30)
assert t.startswith(f"first: {jobs[3]}\nmatched until: ready\nrunning as job"), t
assert s.call("shell_job_wait", job_ids=[jobs[1]]).startswith("exit 7"), "one is one"
for bad, why in (([], "empty"), ([1], "must be a list"), (["j0-x"], "there is no job"), (jobs * 20, "at most 32")):
    assert why in s.call("shell_job_wait", ok=False, job_ids=bad), bad
assert s.call("shell_job_wait", ok=False).startswith("error: 'job_id' is missing")
for job in (jobs[0], jobs[3]):
    s.call("shell_job_kill", job_id=job, grace=0)

# ---- what has changed since it was read ----
s.call("rattan_write_file", path="seen", content="one\ntwo\n")
assert "since you last saw it" not in s.call("rattan_edit", path="seen", old_string="one", new_string="1")
s.call("shell_run", command="echo three >> seen")
t = s.call("rattan_edit", path="seen", old_string="two", new_string="2")
assert re.search(r"\nnote: it had changed since you last saw it \(v:[0-9a-f]{8}, then v:[0-9a-f]{8}\)\n", t), t
assert "since you last" not in s.call("rattan_edit", path="seen", old_string="1", new_string="one")
s.call("shell_run", command="echo four >> seen")
s.call("rattan_read_file", path="./seen")
assert "since you last" not in s.call("rattan_edit", path="/workspace/seen", old_string="2", new_string="two")
s.call("shell_run", command="echo five >> seen")
assert "since you last" in s.call("rattan_edit", path="seen", old_string="two", new_string="2", dry_run=True)
assert "since you last" not in s.call("rattan_edit", path="seen", old_string="two", new_string="2")
s.call("shell_run", command="echo six >> seen; rm other; echo x > other")
assert "since you last" in s.call("rattan_write_file", path="seen", content="new\n", mode="overwrite")
assert "since you last" not in s.call("rattan_write_file", path="other", content="new\n", mode="overwrite"), "never seen"

# ---- what a command leaves running ----
t = s.call("shell_run", command="(sleep 1; echo late; echo more > later) & echo now", timeout=2)
assert t.startswith("exit 0") and "job" not in t, "without being asked it ends with the command"
t = s.call("shell_run", command="(sleep 1.5; echo late > late; echo late) & echo now; exit 3", leave_running=True, timeout=1)
assert t.startswith("exit 3") and "\nnow\n" in t, t
job = re.search(r"left running is job (j\d+-[0-9a-f]+)", t)[1]
assert re.search(re.escape(job) + r": running for .*s, its command: exit 3", s.call("shell_job_status", job_id=job))
t = s.call("shell_job_wait", job_id=job, wait_seconds=20)
assert t.startswith("exit 3") and "now\nlate\n" in t, t
assert "late" in s.call("rattan_read_file", path="late") and s.call("rattan_read_file", path="later", ok=False).startswith("error: ")
# A machine under load may see it run still, now and then.
assert any("job" not in s.call("shell_run", command="true & echo x", leave_running=True) for _ in range(20)), "nothing was left"
t = s.call("shell_run", command="sleep 300 & echo x", leave_running=True)
job = re.search(r"left running is job (j\d+-[0-9a-f]+)", t)[1]
assert s.call("shell_job_kill", job_id=job, environment="other", ok=False).startswith(f"error: job {job} runs in environment 'default'")
assert "1 running" in s.call("shell_job_list", environment="default") and s.call("shell_job_list", environment="other").startswith("0 jobs")
assert "killed" in s.call("shell_job_kill", job_id=job)

# ---- long output: the file tools open it by path, and no tree has it ----
t = s.call("shell_run", command="seq 100000; echo 'a needle in it' >&2; seq 100001 200000")
path = re.search(r'path="(/run/rattan/out/j\d+-[0-9a-f]+\.log)"', t)[1]
whole = s.call("rattan_read_file", path=path, offset=100001, limit=2)
assert re.match(re.escape(path) + r"  lines 100001-100002 of 200001 ", whole) and "→a needle in it\n" in whole, whole
assert "100001: a needle in it" in s.call("rattan_grep", pattern="needle", path=path)
t = s.call("shell_run", command="seq 50000 >&2; echo short", stderr="separate")
path = re.search(r'path="(/run/rattan/out/j\d+-[0-9a-f]+\.err)"', t)[1]
assert "→49999\n" in s.call("rattan_read_file", path=path, offset=-2)
assert "short" in s.call("rattan_read_file", path=path.replace(".err", ".log"))
assert "none" in s.call("shell_run", command=f"cat {path} 2>/dev/null || echo none") and "/run" not in s.call("env_diff")
for wrong in (path + "x", path.replace("/j", "/j9"), "/run/rattan/out/", "/run/rattan/out/.log", "/run/rattan/out/../../../etc/shadow.log"):
    assert s.call("rattan_read_file", ok=False, path=wrong).startswith("error: "), wrong
assert s.call("rattan_write_file", ok=False, path=path, content="x", mode="overwrite").startswith("error: "), "nobody changes it"
assert "→49999\n" in s.call("rattan_read_file", path=path, offset=-2)

# ---- the home ----
s.call("rattan_write_file", path="~/note", content="in the home\n")
assert "in the home" in s.call("shell_run", command="cat ~/note")
assert "in the home" in s.call("rattan_read_file", path="/home/user/note")
assert "in the home" in s.call("rattan_read_file", path="~//note")
assert s.call("rattan_read_file", ok=False, path="~root/x").startswith("error: ")
s.close()
# ---- output that is limited; a log of one's own ----
s = Server("serve", "--limit", "output=100000")
t = s.call("shell_run", command="yes | head -c 300000", max_output=1024)
assert "\n[the first 97.7 KiB of its output are kept, the rest was discarded]\n" in t, t
s.close()
log = os.environ["TMPDIR"] + "/log"
for n in (1, 2):  # "/" may not be shown, which is logged
    r = subprocess.run([os.environ["RATTAN"], "serve", "--overlay-cwd", "--log", log], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/")
    lines = open(log).read().splitlines()
    assert (r.returncode, r.stdout, r.stderr, len(lines)) == (0, "", "", n), (r, lines)
    assert re.match(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ rattan: warn: ", lines[-1]), lines
r = subprocess.run([os.environ["RATTAN"], "serve", "--log", "/nonexistent/log"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
assert r.returncode == 1 and r.stderr == "rattan: serve: --log /nonexistent/log: No such file or directory\n" and not r.stdout, r
fifo = os.environ["TMPDIR"] + "/fifo"
os.mkfifo(fifo)
r = subprocess.run([os.environ["RATTAN"], "serve", "--log", fifo], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
assert r.returncode == 1 and r.stderr == f"rattan: serve: --log {fifo}: a pipe that nobody reads: start its reader first\n" and not r.stdout, r
print("ok")
