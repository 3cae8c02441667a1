#!/usr/bin/python3
"""What programs rely on, a lesson each (tests/e2e/lessons): on a tree that is open, on one that was committed, in a fork of it,
and over a host directory."""
# timeout: 400
import os
import shutil
import subprocess
import sys

from lib import here, rattan

failed = []
shutil.copytree(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lessons"), f"{here}/lessons")


def report(name, what, r):
    if r.returncode or what == "run":
        print("\n".join(f"{name}: {x}" for x in r.stdout.decode(errors="replace").splitlines()), flush=True)
    if r.returncode:
        failed.append(name)


def lessons(name, what, *args):
    report(name, what, subprocess.run(
        [rattan, "run", "-e", name, "--overlay", f"{here}/lessons=/mnt", *args, "--", "python3", "-B", "/mnt/run.py", what,
         "/workspace/l"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))


def rt(*args):
    subprocess.run([rattan, *args], check=True, stdout=subprocess.DEVNULL)


lessons("open", "prepare")
lessons("open", "run")
lessons("committed", "prepare")
rt("commit", "-e", "committed", "-m", "prepared")
rt("fork", "fork", "-e", "committed")
lessons("committed", "run")
lessons("fork", "run")
os.makedirs("host/l")
report("host", "prepare", subprocess.run([sys.executable, "-B", "lessons/run.py", "prepare", f"{here}/host/l"],
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
lessons("host", "run", "--overlay", f"{here}/host=/workspace")
sys.exit(1 if failed else 0)
