#!/usr/bin/python3
# timeout: 300
"""rattan shell with the options of rattan run, on a terminal: what they give the shell, and that it stays one; under a profile, what that
closes is closed to whoever types, and job control, the window's size and ^C are what they are elsewhere."""
import json
import os
import re
import shutil
import signal

import lib
from lib import check, here
from termlib import Terminal, until

if not shutil.which("bash"):
    lib.skip("no bash")
shown = os.path.join(here, "work")
os.makedirs("work/sub")
os.makedirs("work/secret")
for name, text in (("work/secret/key", "sesame\n"), ("work/f", "of the host\n"), ("vars", "# from a file\nFROM=file here\n")):
    with open(name, "w") as f:
        f.write(text)


def profile(name, *entries):
    path = {"root": {"type": "special", "value": {"kind": "root"}}, "proj": {"type": "special", "value": {"kind": "project_roots"}}, "tmp": {"type": "special", "value": {"kind": "slash_tmp"}}}
    with open(name, "w") as f:
        json.dump({"permissionProfile": {"type": "managed", "network": "restricted", "file_system": {"type": "restricted", "entries": [
            {"access": a, "path": path.get(p) or {"type": "path", "path": p}} for a, p in entries]}}}, f)


profile("p.json", ("read", "root"), ("write", "proj"), ("none", f"{shown}/secret"))
profile("no-shell.json", ("read", shown))
with open("agent.json", "w") as f:
    f.write(open(os.environ["RATTAN_SRC"] + "/profile/profiles/agent.json").read())

t = Terminal()
before = t.command("stty -g")


def as_a_terminal(prompt):
    """Size, job control and ^C of the shell that shows @prompt."""
    t.resize(41, 117)
    t.line("until [ \"$(stty size)\" = '41 117' ]; do sleep 0.1; done; echo re'sized'")
    t.expect("resized", "a window that is resized")
    t.expect(prompt)
    t.line("echo rea''dy; cat")
    t.expect("ready\r\n")
    t.type("word\r")
    t.expect("word\r\nword\r\n")
    t.type("\x1a")
    t.expect(re.compile(r"\[1\]\+ +Stopped +cat"), "^Z stops the job")
    t.expect(prompt)
    t.line("fg")
    t.expect("fg\r\ncat\r\n")
    t.type("more\r")
    t.expect("more\r\nmore\r\n", "and fg lets it go on")
    t.type("\x03")
    t.expect(prompt, "^C ends it and not the shell")
    t.line("echo st=$?")
    t.expect("st=130")
    t.line("sleep 1000 & kill -9 $!; wait $!; echo st=$?")
    t.expect("st=137")


def ends(code=0):
    t.line(f"exit {code}")
    t.expect("HOST> ")
    check(f"st={code}" in t.command("echo st=$?"), "the exit code of the shell")
    check(t.command("stty -g") == before, "the modes are back")


print("== options", flush=True)
t.line("$R shell -e opt --cwd /tmp -E GIVEN=yes --env-file ../vars --limit file-size=64K --limit processes=60 --timeout 3000")
t.expect("(opt) ", "the prompt names the environment")
t.line("echo \"$PWD $GIVEN $FROM $(ulimit -f)\"; head -c 100000 /dev/zero > big; wc -c big")
t.expect("/tmp yes file here 64\r\n", "directory, variables and limits")
t.expect(re.compile(r"File (size limit )?(exceeded|too large)", re.I), "a limit holds")
t.expect("65536 big\r\n")
as_a_terminal("(opt) ")
t.line("echo x > /etc/of-mine; echo st=$?")
t.expect("st=1", "what is not writable is not")
ends(3)
check("st=124" in t.command("$R shell -e opt --timeout 1; echo st=$?"), "a shell whose time is over")
check(t.command("stty -g") == before, "the modes are back after that")
for args, said in (("--cwd rel", "must be absolute"), ("-E NO-NAME=1", "is not NAME=VALUE"), ("--limit nosuch=1", "limit"), ("-- ls", "too much"), ("-c ls", "a command is for rattan run"),
                   ("--env-flie ../vars", "--env-file"), ("--profile ../nowhere.json", "there is no profile"), ("--cwd /nowhere", "/nowhere")):
    out = t.command(f"$R shell -e opt {args}; echo st=$?")
    check(said in out and re.search(r"st=(2|3|125)\b", out), f"shell {args}", out)
out = t.command("$R shell -e opt --cwd rel")
check("rattan: shell: " in out and "run:" not in out, "by its own name", out)

print("== under a profile", flush=True)
t.line("$R shell --profile ../p.json -e prof -E GIVEN=yes")
t.expect("(prof) ", "the prompt names the environment")
t.line("echo \"in $PWD $GIVEN\"; cat f; echo mine >> f; cat f")
t.expect(f"in {shown} yes\r\nof the host\r\nof the host\r\nmine\r\n", "the host's places, copy-on-write")
t.line("cat secret/key; echo st=$?; ls secret; cd secret; echo st=$?; echo > /etc/x; echo st=$?; exec 5<> /dev/tcp/127.0.0.1/1; echo st=$?")
for _ in range(2):
    t.expect(re.compile(r"secret.*denied|denied.*secret", re.I), "what is denied is denied")
t.expect("st=1", "also to go to")
t.expect("st=1", "what may be read alone is not written")
t.expect("st=1", "and there is no network")
as_a_terminal("(prof) ")
check("sesame" not in t.seen, "what is denied was never shown")
t.line("vi=$(command -v vi); kill -STOP $$")
t.expect(re.compile(r"Stopped +\$R shell"), "a shell that stops itself")
t.expect("HOST> ")
t.line("fg")
t.expect("shell --profile")
t.line("echo ba'ck'")
t.expect("back\r\n")
ends(5)
check(open("work/f").read() == "of the host\n" and not os.path.exists("/etc/x"), "the host's files are as they were")
out = t.command("$R diff -e prof --name-status")
check(f"M {shown}/f" in out, "what was changed is in the environment", out)
t.line("$R shell --profile ../agent.json -e ag")
t.expect("(ag) ", "a profile of the agent's family")
t.line("pwd; touch /etc/x; echo st=$?")
t.expect("/workspace\r\n")
t.expect("st=1")
as_a_terminal("(ag) ")
ends()
out = t.command("$R shell --profile ../no-shell.json -e none; echo st=$?")
check("st=125" in out and "rattan: " in out, "a profile without a shell says so", out)
out = t.command("$R shell --profile $RATTAN_SRC/profile/profiles/role-session.json; echo st=$?")
check("st=2" in out and "rattan: shell: " in out, "a role has no shell of its own", out)
out = t.command("$R shell --profile ../p.json --explain")
check("deny" in out and "secret" in out and "rattan: " not in out, "--explain says what it comes to, and starts nothing", out)

print("== written through", flush=True)
t.line("$R shell --profile ../p.json --write-through -e wt")
t.expect("(wt) ")
t.line("echo through >> f; cat secret/key; echo st=$?")
t.expect("st=1")
as_a_terminal("(wt) ")
ends()
check(open("work/f").read() == "of the host\nthrough\n", "what is written goes to the host")
t.end()
lib.done()
