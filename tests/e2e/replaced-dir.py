#!/usr/bin/python3
"""A directory that is removed and made anew at the same path is another: what an environment holds of the first one is neither shown nor
lost without a word. Where it holds nothing it begins anew."""
import json
import os
import shutil
import subprocess

from lib import check, done, here, rattan

os.environ["RATTAN_DATA_DIR"] = f"{here}/store"
proj = f"{here}/proj"


def rt(*args, cwd=proj):
    return subprocess.run([rattan, *args], capture_output=True, text=True, cwd=cwd)


def anew(text):
    """Beside the old one, so that no number is given again."""
    os.mkdir(f"{here}/next")
    with open(f"{here}/next/own", "w") as f:
        f.write(text)
    shutil.rmtree(proj, ignore_errors=True)
    os.rename(f"{here}/next", proj)


def name():
    return json.loads(rt("status", "--json").stdout)["environment"]


def serve():
    """What the server says to a first call."""
    calls = [{"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
             {"method": "notifications/initialized"}, {"id": 2, "method": "tools/call", "params": {"name": "shell_run", "arguments": {"command": "cat own"}}}]
    with subprocess.Popen([rattan, "serve", "--overlay-cwd", "--keep"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=proj) as p:
        p.stdin.write("".join(json.dumps({"jsonrpc": "2.0", **c}) + "\n" for c in calls))
        p.stdin.flush()
        said = [p.stdout.readline() for _ in range(2)][1]
        p.stdin.close()
    return said


anew("first")
r = rt("run", "--overlay-cwd", "--", "cat", "own")
check(r.returncode == 0 and r.stdout == "first" and not r.stderr, "the first", r)
env = name()

print("== nothing in it: the next one has it")
anew("second")
r = rt("run", "--overlay-cwd", "--", "sh", "-c", "cat own; ls")
check(r.returncode == 0 and r.stdout == "secondown\n" and not r.stderr, "without a word", r)
check(name() == env, "by the same name", name())

print("== changes in it")
r = rt("run", "--overlay-cwd", "-c", "echo old > old")
check(r.returncode == 0, "the directory that it is used with since", r)
anew("third")
before = rt("diff", "-e", env).stdout
for args in ("cat", "own"), ("true",):
    r = rt("run", "--overlay-cwd", "--", *args)
    check(r.returncode == 4 and not r.stdout and r.stderr.count("\n") == 1 and f'environment "{env}" was made for another directory at {proj}' in r.stderr
          and f"rattan env rm {env}" in r.stderr and f"-e {env} goes on" in r.stderr, "refused, every time", r)
check("was made for another directory" in serve(), "the server's call as well")
check("old" in before and rt("diff", "-e", env).stdout == before, "what it holds can be looked at", before)

print("== going on")
r = rt("run", "--overlay-cwd", "-e", env, "--", "cat", "own", "old")
check(r.returncode == 0 and r.stdout == "thirdold\n" and r.stderr.count("\n") == 1 and "goes on with this one" in r.stderr, "said once", r)
for args in ("run", "--overlay-cwd", "--", "cat", "own"), ("run", "--overlay-cwd", "-e", env, "--", "cat", "own"):
    r = rt(*args)
    check(r.returncode == 0 and r.stdout == "third" and not r.stderr, "and no more", r)
check("third" in serve(), "nor to the server")

print("== a commit in it; the environment is removed")
check(rt("commit", "-e", env, "-m", "old").returncode == 0, "commit")
anew("fourth")
check(rt("run", "--overlay-cwd", "--", "true").returncode == 4, "a commit is something")
check(rt("env", "rm", env).returncode == 0, "as the sentence says")
r = rt("run", "--overlay-cwd", "--", "sh", "-c", "cat own; ls")
check(r.returncode == 0 and r.stdout == "fourthown\n" and not r.stderr, "and begins anew", r)
check(not [f for f in os.listdir(f"{here}/store") if f.endswith(".new")], "nothing is left", os.listdir(f"{here}/store"))
check(rt("env", "rm", env).returncode == 0 and not [f for f in os.listdir(f"{here}/store") if f.startswith(f"env-{env}.dirs")], "nor of one that is removed")
done()
