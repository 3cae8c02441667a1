#!/usr/bin/python3
# timeout: 900
"""A terminal of the command's own: `rattan shell` and `rattan run` under a shell with job control, on a pseudo-terminal. Waits for what
is shown and for states of processes, never for a time."""
import os
import re
import select
import shutil
import signal
import subprocess
import termios
import time

import lib
from lib import check, rattan
from termlib import LIMIT, Terminal, until

if not shutil.which("bash"):
    lib.skip("no bash")
# Reads lines, tells of ^C and of going on, and ends with 5 at the line 'end'. A signal wakes it by a pipe: Python's own wait for a line
# misses one that comes just before the call.
PROGRAM = r"""import os, select, signal, sys
def tell(what): signal.signal(getattr(signal, what), lambda *_: os.write(1, what[3:].lower().encode() + b"\n"))
woken, wake = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(wake)
tell("SIGCONT"); tell("SIGINT"); os.write(1, b"rea" b"dy\n")
line = None
while line != "end\n":
  if woken in select.select([0, woken], [], [])[0]: os.read(woken, 64)
  else: line = os.read(0, 4096).decode(); os.write(1, b"got:" + line.encode())
sys.exit(5)"""
PROGRAM = "python3 -c $'" + PROGRAM.replace("\\", "\\\\").replace("\n", "\\n") + "'"


def of_rattan(name):
    """Pids of rattan processes of ours that run the command @name."""
    found = []
    for p in os.listdir("/proc"):
        try:
            words = open(f"/proc/{p}/cmdline", "rb").read().split(b"\0") if p.isdigit() else []
            if words and words[0] == rattan.encode() and words[1:2] == [name.encode()] and open(f"/proc/{p}/stat").read().split()[3] == str(t.pid):
                found.append(int(p))
        except OSError:
            pass
    return found


def state(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def raw(term):
    return not term.modes()[3] & termios.ICANON


# ---- a shell ----
t = Terminal()
# The shell sets its own modes at its prompt: what is compared is what a command sees.
before = t.command("stty -g")
t.line("$R shell -e e")
t.expect("(e) ", "the prompt names the environment")
check(raw(t), "raw modes while the command has the terminal")
t.line("stty size; echo $((6*7)) $RATTAN_ENV $-")
t.expect("30 100\r\n42 e ", "the size of the window, and the environment")
check("i" in t.expect(re.compile(r"\w+\r\n")).group(), "it is interactive")
t.resize(40, 120)
t.line("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.1; done; echo re'sized'")
t.expect("resized", "a window that is resized")
t.line(PROGRAM)
t.expect("ready\r\n")
t.type("\x1a")
t.expect(re.compile(r"\[1\]\+ +Stopped +python3"), "job control: ^Z stops the job, not the shell")
t.line("jobs; echo jo'bs'")
t.expect("jobs\r\n")
t.line("fg")
t.expect("cont\r\n", "fg")
t.type("\x03")
t.expect("int\r\n", "^C reaches what is in the foreground")
t.line("end")
t.expect("(e) ")
t.line("echo st=$?; echo > /tmp/made; echo al'ive'")
t.expect("st=5\r\n")
t.expect("alive\r\n")
t.expect("(e) ")
t.line("kill -STOP $$")
t.expect(re.compile(r"Stopped +\$R shell -e e"), "a shell that stops itself stops its caller")
t.expect("HOST> ")
check(t.command("stty -g") == before, "the modes are back while it is stopped")
t.line("fg")
t.expect("shell -e e\r\n")
t.line("echo ba'ck'")
t.expect("back\r\n", "and goes on")
t.expect("(e) ")
t.line("exit 7")
t.expect("rattan: e: ", "what was changed is said")
t.expect("HOST> ")
check("st=7" in t.command("echo st=$?"), "the exit code of the shell")
check(t.command("stty -g") == before, "the modes are back")

# ---- a command ----
t.line(f"$R run -e e -- {PROGRAM}")
t.expect("ready\r\n")
t.type("\x03")
t.expect("int\r\n", "^C reaches the command")
for n in range(5):
    t.type("\x1a")
    t.expect("Stopped", f"^Z stops the whole, {n}")
    t.expect("HOST> ")
    check(t.command("stty -g") == before, "the modes are back while it is stopped")
    t.line("fg")
    t.expect("cont\r\n", f"fg, {n}")
t.type("\x1a")
t.expect("Stopped")
t.expect("HOST> ")
t.line("bg")
t.expect("cont", "in the background it waits for the keyboard")
t.line("")
t.expect("HOST> ")
t.line("fg")
t.line("word")
t.expect("got:word\r\n", "and it reads")
(me,) = of_rattan("run")
os.kill(me, signal.SIGTSTP)
t.expect("Stopped", "SIGTSTP from elsewhere stops it and the command")
t.expect("HOST> ")
t.line("fg")
t.expect("cont\r\n")
os.kill(me, signal.SIGSTOP)
t.expect("Stopped", "SIGSTOP")
t.expect("HOST> ")
t.line("fg")
until(lambda: raw(t), "raw again")
t.line("end")
t.expect("HOST> ", "and it goes on")
check("st=5" in t.command("echo st=$?"), "its exit code")
check(t.command("stty -g") == before, "the modes are back")

# ---- what the command can reach ----
out = t.command("$R run -e e -- python3 -c 'import fcntl,termios,os\nprint(\"own\", os.tcgetpgrp(0) == os.getpgrp())\n"
                "try: fcntl.ioctl(0, termios.TIOCSTI, b\"x\"); print(\"pushed\")\nexcept OSError as e: print(\"refused\", e.errno)'".replace("\n", "\\n").replace("-c '", "-c $'").replace("\\n", "\\n"))
check("own True" in out and "refused" in out, "nothing can be typed into a terminal", out)
out = t.command("A=$(readlink /proc/self/fd/2); $R run -e e -c 'readlink /proc/self/fd/2' > name; grep -qx \"$A\" name; echo same=$?")
check("same=1" in out, "another terminal than the caller's", out)

# ---- pipelines, redirections ----
out = t.command("$R run -e e -c 'echo text; echo err >&2' | tr a-z A-Z")
check("TEXT\r\n" in out and "err\r\n" in out, "a pipe gets what is the command's, the terminal the rest", out)
t.line("$R run -e e -c 'read x; echo got:$x' | tr a-z A-Z")
until(lambda: raw(t), "the keyboard is taken when it is read from")
t.line("word")
t.expect("GOT:WORD", "a command that reads in a pipeline")
t.expect("HOST> ")
out = t.command("echo piped | $R run -e e -c 'cat; [ -t 0 ] || echo no; [ -t 1 ] && echo yes'")
check("piped\r\nno\r\nyes\r\n" in out, "what is piped in", out)
t.line("$R run -e e -c 'echo rea\"\"dy; exec sleep 1000' | cat")
t.expect("ready\r\n")
check(not raw(t), "who does not read leaves the keyboard alone")
t.type("\x1a")
t.expect("Stopped", "^Z there")
t.expect("HOST> ")
t.line("fg")
until(lambda: os.tcgetpgrp(t.fd) != t.pid, "fg")  # the shell says so before it does
t.type("\x03")
t.expect("HOST> ", "^C there")
check("st=130 0" in t.command("$R run -e e -c 'kill -INT $$' | cat; echo st=${PIPESTATUS[*]}"), "ended by ^C as by nature")
t.line("$R run -e e -c 'echo x > /tmp/bg; read x; echo got:$x' &")
t.expect(re.compile(r"\[1\] \d+"))
t.expect("HOST> ")
until(lambda: any(state(p) == "T" for p in of_rattan("run")), "a job in the background that reads is stopped")
t.line("fg")
t.line("late")
t.expect("got:late\r\n", "until it is in the foreground")
t.expect("HOST> ")

out = t.command("script -qec \"$R run -e e -c 'cat; echo e''nd'\" /dev/null < /dev/null")
check("end\r" in out and "^@" not in out, "an end of input that was typed ahead", out)

# ---- much ----
out = t.command("$R run -e e -- seq 200000 | tail -c 1; $R run -e e -- seq 60000")
check("".join(f"{n}\r\n" for n in range(1, 60001)) in out, "all of much output, to the last line", (out.count("\r\n"), out[:200], out[-200:]))
big = "x" * 200
t.line("$R run -e e -c 'stty raw -echo; echo rea\"\"dy; head -c 100000 | cksum'")
t.expect("ready")
sent = 0
while sent < 100000:  # a command that is slow is waited for
    select.select([], [t.fd], [], LIMIT)
    sent += os.write(t.fd, (big * 500)[sent:sent + 4096].encode())
crc = subprocess.run(["cksum"], input=(big * 500).encode(), stdout=subprocess.PIPE, check=True).stdout.split()[0].decode()
t.expect(crc, "all of much input")
t.expect("HOST> ")

# ---- the ways out ----
for sig, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, 137), (signal.SIGSEGV, 139)):
    t.line("$R run -e e -c 'trap : TERM; stty raw; echo rea\"\"dy; while :; do read x; done'")
    t.expect("ready")
    (me,) = of_rattan("run")
    until(lambda: raw(t), "raw")
    os.kill(me, sig)
    t.expect("HOST> ")
    check(f"st={code}" in t.command("echo st=$?"), f"the code after {sig.name}")
    check(t.command("stty -g") == before, f"the modes are back after {sig.name}")
# A shell that does not put modes right by itself: a program that starts it and is not bash.
out = t.command("python3 -c $'import os,subprocess,termios,sys,time\\nw=termios.tcgetattr(0)\\n"
                "p=subprocess.Popen([os.environ[\"R\"],\"run\",\"-e\",\"e\",\"-c\",\"echo up; sleep 1000\"])\\n"
                "while termios.tcgetattr(0)==w: time.sleep(0.02)\\np.kill(); p.wait()\\n"
                "while termios.tcgetattr(0)!=w: time.sleep(0.02)\\nprint(\"re\"+\"stored\")'")
check("restored" in out, "killed, and the modes come back by themselves", out)

# ---- the terminal goes ----
t.line("$R run -e e -c 'echo rea\"\"dy; sleep 1000'")
t.expect("ready")
(me,) = of_rattan("run")
os.close(t.fd)
until(lambda: state(me) in ("gone", "Z"), "rattan ends with its terminal")

r = subprocess.run([rattan, "shell", "-e", "e"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
check(r.returncode == 2 and "not a terminal" in r.stdout, "a shell without a terminal says what to do", r)
lib.done()
