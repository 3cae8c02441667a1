#!/usr/bin/python3
"""Random trees with random changes: what `rattan apply` leaves on the host is what the sandbox shows, with modes, times and attributes; and
`rattan unapply` brings back what was there, byte for byte. Then the same again, on top. Many seeds; one that fails is printed."""
# timeout: 900
import os
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import applylib
from lib import LONG, check, done, here, rattan

import subprocess

SRC = open(applylib.__file__).read()
FIRST = int(os.environ.get("RATTAN_SEED", time.time_ns() % 10**9))
ROUNDS = 60 if LONG else 6


def run(*args):
    return subprocess.run([rattan, *args], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)


def inside(env, host, *args):
    r = subprocess.run([rattan, "run", "-e", env, "--overlay", f"{host}=/workspace", "--", "python3", "-", *map(str, args)], input=SRC,
                       capture_output=True, text=True, errors="replace")
    if r.returncode:
        print("inside:", r.stderr[-800:])
        sys.exit(1)
    return r.stdout


def one(seed):
    env, host = f"r{seed}", f"{here}/p{seed}"
    applylib.grow(host, seed)
    before = applylib.snapshot(host)
    for step in range(2):
        inside(env, host, "change", seed * 10 + step)
        want = eval(inside(env, host, "snapshot"))
        was = applylib.snapshot(host)
        r = run("apply", "-e", env)
        now = applylib.snapshot(host)
        check(r.returncode == 0 and now == want, f"seed {seed}, step {step}: the host is what the sandbox showed",
              f"{r.returncode} {r.stderr[-300:]} {applylib.differ(now, want)}")
        check(eval(inside(env, host, "snapshot")) == want, f"seed {seed}, step {step}: the sandbox shows the same as before")
        run("commit", "-e", env, "-m", "applied") # in a fork nobody has anything open, or cached
        run("fork", f"{env}f", "-e", env)
        now = eval(inside(f"{env}f", host, "snapshot")) | {"": want[""]} # a commit keeps no times of directories alone
        check(now == want, f"seed {seed}, step {step}: that is in the store, or still on the host", str(applylib.differ(now, want)))
        run("env", "rm", f"{env}f")
        r = run("unapply", "-e", env)
        if now == was: # nothing was to be done
            continue
        now = applylib.snapshot(host)
        check(r.returncode == 0 and now == was, f"seed {seed}, step {step}: taken back", f"{r.returncode} {r.stderr[-300:]} {applylib.differ(now, was)}")
        r = run("apply", "-e", env)
        now = applylib.snapshot(host)
        check(r.returncode == 0 and now == want, f"seed {seed}, step {step}: applied again", f"{r.returncode} {r.stderr[-300:]} {applylib.differ(now, want)}")
        check(not [n for n in os.listdir(host) if n.startswith(".rattan")], f"seed {seed}: nothing of ours is left in the directory")
    for _ in range(2):
        r = run("unapply", "-e", env)
    now = applylib.snapshot(host)
    check(now == before, f"seed {seed}: all taken back", f"{r.returncode} {r.stderr[-300:]} {applylib.differ(now, before)}")
    run("env", "rm", env)
    subprocess.run(["chmod", "-R", "u+rwx", host])
    shutil.rmtree(host)


for i in range(ROUNDS):
    one(FIRST + i)
done()
