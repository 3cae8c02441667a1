#!/usr/bin/python3
"""Garbage is collected by other processes while an environment has no daemon, and beside those that come and go: nothing
that only the journal names is taken. The work copies by reference and removes the source, so that what is left of it has been
named by several files, for a moment by memory alone, and by files without a name. Then a commit completes a large host file,
whose blocks no record names before all of them are there."""
# timeout: 900
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

RATTAN, DATA = os.environ["RATTAN"], os.environ["XDG_DATA_HOME"]
ROUNDS, COMPLETED = (60, 30) if os.environ.get("RATTAN_LONG") else (8, 4)
FILE = 80 << 20
JOB = """
import os, random
def content(k, v): return random.Random(k * 1000 + v).randbytes(300000)
def copy(a, b):
    n = 0
    while n < 300000: n += os.copy_file_range(a, b, 300000 - n, n, n)
def same(f, k, v):
    assert os.pread(f, 400000, 0) == content(k, v), (k, v)
held, k = [], 0
print('ready', flush=True)
while not os.path.exists('/workspace/stop'):
    k += 1
    a = os.open('/workspace/a', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(a, content(k, 0))
    os.fsync(a)
    t = os.open('/workspace', os.O_TMPFILE | os.O_RDWR, 0o600)
    b = os.open(f'/workspace/b{k % 9}', os.O_RDWR | os.O_CREAT)
    copy(a, t); copy(a, b)
    if k % 3 == 0:
        # Over a reference, and back to it.
        os.pwrite(b, content(k, 1), 0); same(b, k, 1); copy(t, b)
    os.unlink('/workspace/a'); os.close(a)
    if k % 2: os.unlink(f'/workspace/b{k % 9}')
    held.append((t, b, k))
    if len(held) > 40:
        t, b, was = held.pop(0)
        same(t, was, 0); os.close(t); os.close(b)
    t, b, was = random.choice(held)
    same(t, was, 0)
for t, b, was in held: same(t, was, 0)
print('all there', k, flush=True)
"""


def rt(*args, must=True):
    r = subprocess.run([RATTAN, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
    if must and r.returncode:
        sys.exit(f"FAIL: rattan {args}: {r.returncode} {r.stdout[-300:]}")
    return r.stdout


def pids(*how):
    r = subprocess.run(["pgrep", "-u", str(os.getuid()), *how], capture_output=True, text=True)
    return [int(x) for x in r.stdout.split()]


chunks = 0


def collect():
    global chunks
    m = re.search(r"(\d+) chunks", rt("gc", must=False))
    chunks += int(m[1]) if m else 0


def killed(env):
    """The daemon of @env is killed, and garbage collected before there is another: nobody speaks for what it had."""
    # Beside the keeper there are those that it has forked.
    keeper = pids("-o", "-f", f"rattan-fs env --data-dir {DATA}/.* --env {env} ")[0]
    daemon = pids("-n", "-P", str(keeper))[0]
    os.kill(keeper, signal.SIGSTOP)
    os.kill(daemon, signal.SIGKILL)
    for _ in range(2):
        collect()
    os.kill(keeper, signal.SIGCONT)


def complete():
    """A commit copies what is left of a host file that was written to: killed in the middle of that."""
    host = pathlib.Path("proj").resolve()
    conf = pathlib.Path(os.environ["XDG_CONFIG_HOME"], "rattan")
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "config.json").write_text(json.dumps({"bind_roots": [str(host)]}))  # it lies beside the home
    host.mkdir()
    os.chdir(host)
    for n in range(COMPLETED):
        data = random.Random(n).randbytes(FILE)
        (host / f"big{n}").write_bytes(data)
        want = hashlib.sha256(data[:10] + b"Y" + data[11:]).hexdigest()
        rt("run", "--overlay-cwd", "-e", "part", "--", "sh", "-c",
           f"printf Y | dd of=big{n} bs=1 seek=10 conv=notrunc status=none")
        commit = subprocess.Popen([RATTAN, "commit", "-e", "part", "-m", f"{n}"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        time.sleep(0.05 + random.random() * 0.5)
        killed("part")
        out = commit.communicate(timeout=100)[0]
        is_ = rt("run", "--overlay-cwd", "-e", "part", "--", "sha256sum", f"big{n}")
        if not is_.startswith(want):
            sys.exit(f"FAIL: big{n} is not what it was: {is_} (the commit: {out})")
        rt("commit", "-e", "part", "-m", f"{n} again", must=False)
        (host / f"big{n}").unlink()
        is_ = rt("run", "--overlay-cwd", "-e", "part", "--", "sha256sum", f"big{n}")
        if not is_.startswith(want):
            sys.exit(f"FAIL: big{n}, committed, is not what it was: {is_}")
    os.chdir(host.parent)


stop = False


def beside():
    while not stop:
        collect()


rt("run", "--", "true")
job = subprocess.Popen([RATTAN, "run", "--", "python3", "-c", JOB], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       text=True)
assert job.stdout.readline() == "ready\n"
t = threading.Thread(target=beside)
t.start()
for n in range(ROUNDS):
    time.sleep(1.1 + random.random())
    killed("default")
    if job.poll() is not None:
        sys.exit(f"FAIL: round {n}: the command ended: {job.communicate()}")
rt("run", "--", "touch", "/workspace/stop")
out, err = job.communicate(timeout=100)
stop = True
t.join()
print(out, err, f"{chunks} chunks collected")
if job.returncode or "all there" not in out:
    sys.exit("FAIL: something is not there")
if not chunks:
    sys.exit("FAIL: no garbage was ever found: this test shows nothing")
rt("commit", "-m", "after")
complete()
rt("fsck")
