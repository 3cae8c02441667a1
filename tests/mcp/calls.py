#!/usr/bin/python3
"""What calls of the shell and its jobs answer, over the wire: output made readable, cut and paged, jobs from start to end.

Runs $RATTAN (or the program given) and prints TAP. Needs commands to run, but nothing of what they do.
"""
# timeout: 300
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawlib import Server, ok, run_tests, text  # noqa: E402


def test_output():
    s = Server()
    m = s.call("shell_run", {"command": r"printf 'a\377\000\033[31mred\033[0m\n10%%\r20%%\n'; printf '\342\200\250'"})
    ok("a\\xffred\n20%\n" in text(m), "output is made readable", text(m))
    m = s.call("shell_run", {"command": "head -c 3000000 /dev/zero | tr '\\0' '\\001'", "max_output": 204800})
    ok("result" in m and not s.bad, "output of control characters stays within a line", s.bad)
    m = s.call("shell_run", {"command": "seq 100000"})
    found = re.search(r'job_id="([^"]+)" offset=(\d+)', text(m))
    ok(found and len(text(m)) < 30000 and text(m).rstrip().split("\n")[-2:] != [], "long output is cut in the middle", text(m)[:200])
    m = s.call("shell_job_output", {"job_id": found[1], "offset": int(found[2]), "max_output": 1000})
    ok(re.search(r"next offset=\d+", text(m)) and len(text(m)) < 1300, "and can be paged", text(m)[:200])
    first = int(text(m).split("\n")[1])
    shown = s.call("shell_run", {"command": f"seq 100000 | tail -c +{int(found[2]) + 1} | head -1"})
    ok(str(first) in text(shown), "from where it was cut", first)
    m = s.call("shell_run", {"command": "cat; echo end", "stdin": "given\n"})
    ok("given\nend\n" in text(m), "stdin", text(m))
    m = s.call("shell_run", {"command": "cat; echo end"})
    ok("exit 0" in text(m) and "\nend\n" in text(m), "stdin is empty otherwise", text(m))
    m = s.call("shell_run", {"command": "echo $FOO-$BAR", "env": {"FOO": "a b", "BAR": 1}})
    ok("\na b-1\n" in text(m), "env", text(m))
    m = s.call("shell_run", {"command": "echo out; echo err >&2; exit 4", "structured": True})
    j = json.loads(text(m))
    ok(j["rc"] == 4 and j["stdout"] == "out\n" and j["stderr"] == "err\n" and j["timed_out"] is False
       and j["signal"] is None, "structured", j)
    m = s.call("shell_run", {"command": "kill -SEGV $$"})
    ok(re.match(r"(signal SIGSEGV|exit 139)", text(m)), "a signal", text(m))
    m = s.call("shell_run", {"command": "cd / && bash -c 'kill -SEGV $$'; exit $?"})
    ok(text(m).startswith("exit 139 (SIGSEGV) in "), "of a command in a list", text(m))
    m = s.call("shell_run", {"command": "exit 255"})
    ok(text(m).startswith("exit 255 in "), "a code that is no signal's", text(m))
    m = s.call("shell_run", {"command": "sleep 10", "timeout": 0.3})
    ok(m["result"].get("isError") and text(m).startswith("timed out"), "a timeout", text(m))
    m = s.call("shell_run", {"command": "true", "cwd": "/nonexistent/dir"})
    ok(m["result"].get("isError") and text(m).startswith("not started"), "a missing directory", text(m))
    s.close()


def test_jobs():
    s = Server()
    m = s.call("shell_run", {"command": "echo one; sleep 1; echo two; sleep 1; exit 5", "wait": 0.3})
    found = re.search(r"running as job (j\d+-[0-9a-f]+)", text(m))
    ok(found and "\none\n" in text(m), "a command becomes a job", text(m))
    job = found[1]
    m = s.call("shell_job_wait", {"job_id": job, "wait_seconds": 10, "until": "^tw"})
    ok("matched until: two" in text(m) and "running" in text(m), "wait until a line matches", text(m))
    m = s.call("shell_job_wait", {"job_id": job, "wait": 10})
    ok("exit 5" in text(m) and "one\ntwo\n" in text(m), "wait for its end", text(m))
    m = s.call("shell_job_status", {"job_id": job})
    ok("exit 5" in text(m), "status", text(m))
    m = s.call("shell_job_kill", {"job_id": job})
    ok(not m["result"].get("isError") and "already ended" in text(m), "kill of an ended job", text(m))
    m = s.call("shell_job_start", {"command": "cat; echo closed", "interactive": True})
    job = re.search(r"j\d+-[0-9a-f]+", text(m))[0]
    s.call("shell_job_input", {"job_id": job, "text": "typed\n"})
    m = s.call("shell_job_wait", {"job_id": job, "wait_seconds": 5, "until": "typed"})
    ok("typed" in text(m), "input", text(m))
    s.call("shell_job_input", {"job_id": job, "eof": True})
    m = s.call("shell_job_wait", {"job_id": job, "wait_seconds": 5})
    ok("exit 0" in text(m) and "closed" in text(m), "end of input", text(m))
    m = s.call("shell_job_input", {"job_id": job, "text": "x"})
    ok(m["result"].get("isError"), "input to an ended job is refused", text(m))
    m = s.call("shell_job_start", {"command": "exec sleep 600", "interactive": True})
    job = re.search(r"j\d+-[0-9a-f]+", text(m))[0]
    for i in range(3):
        s.start("shell_job_input", {"job_id": job, "text": "x" * 800000}, f"input{i}")
    m = s.call("shell_job_kill", {"job_id": job, "grace": 0}, "kill")
    ok(m and "killed" in text(m), "a job that reads none of its input is killed", m)
    ok(all(i in s.seen or s.get(i) for i in ("input0", "input1", "input2")), "and who sends it any is answered", s.seen)
    m = s.call("shell_job_start", {"command": "trap '' TERM; sleep 60 & sleep 60"})
    job = re.search(r"j\d+-[0-9a-f]+", text(m))[0]
    m = s.call("shell_job_kill", {"job_id": job, "grace": 0.3})
    ok("killed" in text(m), "a job that ignores SIGTERM is killed", text(m))
    m = s.call("shell_job_start", {"command": "sleep 60", "timeout": 0.3})
    job = re.search(r"j\d+-[0-9a-f]+", text(m))[0]
    m = s.call("shell_job_wait", {"job_id": job, "wait_seconds": 5})
    ok("timed out" in text(m), "a job's timeout", text(m))
    m = s.call("shell_job_wait", {"job_id": job, "until": "("})
    ok(m["result"].get("isError") and "regular expression" in text(m), "a bad pattern", text(m))
    for tool in ("status", "wait", "output", "input", "kill"):
        m = s.call(f"shell_job_{tool}", {"job_id": "j1-00000000"})
        ok(m["result"].get("isError") and "no job" in text(m), f"{tool}: unknown id", text(m))
    m = s.call("shell_job_list")
    ok(re.match(r"\d+ jobs, 0 running", text(m)), "list", text(m))
    s.close()


run_tests(globals())
