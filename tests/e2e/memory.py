#!/usr/bin/python3
# The daemon's memory while many files are made, looked at, read, listed and removed, of its own and of a host
# directory: bounded while the kernel holds them, and given back when it forgets them.
# user: root
# timeout: 2400
import os
import shutil
import sys
import threading
import time

from lib import LONG, Served, check, done

N = 1000000 if LONG else 20000
HELD = 262144  # inodes that are held at most (docs/performance.md), where the kernel can be asked (Linux 6.18)
EACH = 1000    # bytes an inode costs at most
# MiB (docs/performance.md): the log of changes 22, buffers of the workers 8, and the pages of the largest transaction of the
# store: 64 with the 65,536 inodes that may be dirty, 18 with the 20,000 of the short run.
FIXED = 22 + 8 + (66 if LONG else 18)

can_ask = tuple(int(x) for x in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 18)


def rss(pid):
    return int(open(f"/proc/{pid}/status").read().split("RssAnon:")[1].split()[0]) // 1024


class Peak(threading.Thread):
    """The most that is seen, between the steps as well."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.most = pid, 0
        self.start()

    def run(self):
        while True:
            try:
                self.most = max(self.most, rss(self.pid))
            except (OSError, IndexError):
                return
            time.sleep(0.1)


def drop_caches():
    try:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("2")
    except OSError:
        return False
    return True


def path(top, i):
    return f"{top}/d{i // 1000}/f{i}"


def make(top, n):
    for i in range(n):
        if i % 1000 == 0:
            os.makedirs(f"{top}/d{i // 1000}")
        fd = os.open(path(top, i), os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(fd, b"x" * 100)
        os.close(fd)


def look(top, n):
    for i in range(n):
        with open(path(top, i), "rb") as f:
            if len(f.read()) != 100:
                sys.exit(f"{path(top, i)} is not what it was")
    for i in range(0, n, 1000):
        if len(os.listdir(f"{top}/d{i // 1000}")) != min(1000, n - i):
            sys.exit("a listing is short")


def remove(top, n):
    for i in range(0, n, 1000):
        shutil.rmtree(f"{top}/d{i // 1000}")


def step(what, bound, fn, *args):
    t = time.monotonic()
    fn(*args)
    took = time.monotonic() - t
    end = time.monotonic() + 10
    while rss(daemon) > bound and time.monotonic() < end:
        time.sleep(0.2)  # what is asked for comes a moment later
    have = rss(daemon)
    print(f"{what}: {took:.1f} s, {have} MiB (at most {bound})", flush=True)
    check(have <= bound, what)


make("host", N)
ws = "mnt/workspace"
held = min(2 * N, HELD) if can_ask else 2 * N
full, empty = FIXED + held * EACH // 2**20, FIXED
with Served() as daemon:
    peak = Peak(daemon)
    step(f"{N} files made", full, make, ws, N)
    step("read and listed", full, look, ws, N)
    step(f"{N} host files read and listed", full, look, ws + "/host", N)
    if drop_caches():
        step("forgotten", empty, lambda: None)
        step("read and listed again", full, look, ws, N)
    step("removed", full, remove, ws, N)
    step("host files removed", full, remove, ws + "/host", N)
    if drop_caches():
        step("forgotten", empty, lambda: None)
    print(f"the most at any time: {peak.most} MiB", flush=True)
check(len(os.listdir("host")) == (N + 999) // 1000, "the host is as it was")
done()
