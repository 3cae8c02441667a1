#!/usr/bin/python3
"""`rattan apply` and `unapply` killed with -9 at random moments: the next run finds the directory as it was before or as it was to be, whole, and
nothing else; status says that something waits to be put in order."""
# timeout: 900
import json
import os
import pathlib
import random
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import applylib
from lib import LONG, check, done, here, rattan

SEED = int(os.environ.get("RATTAN_SEED", time.time_ns() % 10**9))
ROUNDS = 200 if LONG else 12
rng = random.Random(SEED)
host, env = f"{here}/project", "killed"
SRC = open(applylib.__file__).read()


def run(*args):
    return subprocess.run([rattan, *args], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)


def inside(*args):
    r = subprocess.run([rattan, "run", "-e", env, "--overlay", f"{host}=/workspace", "--", "python3", "-", *map(str, args)], input=SRC,
                       capture_output=True, text=True, errors="replace")
    if r.returncode:
        sys.exit("inside: " + r.stderr[-800:])
    return r.stdout


def killed(word, longest):
    p = subprocess.Popen([rattan, word, "-e", env], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        p.wait(rng.random() * longest)
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()
        return True
    return False


applylib.grow(host, SEED, 900)
before = applylib.snapshot(host)
for k in range(3):
    inside("change", SEED + k)
after = eval(inside("snapshot"))
t = time.monotonic()
r = run("apply", "-e", env)
took = time.monotonic() - t
check(r.returncode == 0 and applylib.snapshot(host) == after, f"seed {SEED}: applied", f"{r.stderr[-300:]} {applylib.differ(applylib.snapshot(host), after)}")
r = run("unapply", "-e", env)
check(applylib.snapshot(host) == before, f"seed {SEED}: taken back", f"{r.stderr[-300:]} {applylib.differ(applylib.snapshot(host), before)}")
kills = waiting = 0
for i in range(ROUNDS):
    # At first what stands is what was; then what was to be.
    kills += killed("apply", took)
    s = json.loads(run("status", "-e", env, "--json").stdout)
    waiting += s["apply_pending"]
    if i % 2 and s["apply_pending"]:
        # At once: what the killed run had brought already is brought again.
        r = run("apply", "-e", env)
        now = applylib.snapshot(host)
        check(r.returncode == 0 and now == after, f"seed {SEED}, round {i}: an apply after a kill brings all", (r.stderr[-300:], applylib.differ(now, after)))
    else:
        r = run("apply", "-e", env, "--dry-run")
    now = applylib.snapshot(host)
    check(now in (before, after), f"seed {SEED}, round {i}: after a kill one or the other", applylib.differ(now, before) + ["/"] + applylib.differ(now, after))
    if now not in (before, after):
        print(r.stderr, os.listdir(host))
        break
    if now == before:
        r = run("apply", "-e", env)
        check(applylib.snapshot(host) == after, f"seed {SEED}, round {i}: then it goes through", f"{r.stderr[-300:]}")
    kills += killed("unapply", took)
    run("apply", "-e", env, "--dry-run")
    now = applylib.snapshot(host)
    check(now in (before, after), f"seed {SEED}, round {i}: after a killed unapply one or the other", applylib.differ(now, before) + ["/"] + applylib.differ(now, after))
    if now == after:
        r = run("unapply", "-e", env)
        now = applylib.snapshot(host)
        check(now == before, f"seed {SEED}, round {i}: then it is taken back", f"{r.stderr[-300:]} {applylib.differ(now, before)}")
    if now != before:
        break
check(not [n for n in os.listdir(host) if n.startswith(".rattan")], "nothing of ours is left in the directory")
print(f"{kills} kills, {waiting} of them left something to put in order; an apply took {took:.2f} s")
done()
