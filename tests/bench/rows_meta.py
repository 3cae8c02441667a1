"""Metadata rates, and what is answered from the kernel's caches."""
import contextlib
import os
import subprocess
import sys
import time

from rows import Row, Target

FUSE = ("native", "overlayfs", "fuse-overlayfs", "ceiling", "rattan")


def ops(bench, peer, clients, files, *phases):
    """{phase: seconds a file}; of a phase that is done more than once, the last time."""
    out = bench.run([bench.tool("bench_ops"), peer.dir, clients, files, *phases])
    return {k: float(v) / files for k, v in (line.split() for line in out.splitlines())}


@contextlib.contextmanager
def hogs(n):
    """The machine is busy."""
    all_of = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for p in all_of:
            p.kill()
            p.wait()


def metadata(clients, busy):
    def run(bench, peer):
        files = bench.scaled(8000, 800)
        with hogs(os.cpu_count() if busy else 0):
            out = ops(bench, peer, clients, files, "create", "missing", "chmod", "rename", "back")
            if bench.root:
                bench.cold()
                out["stat, cold"] = ops(bench, peer, clients, files, "stat")["stat"]
            out.update(ops(bench, peer, clients, files, "unlink"))
        return out
    return run


def warm(bench, peer):
    files, phases = bench.scaled(8000, 800), ("stat", "read", "list")
    ops(bench, peer, 1, files, "create", *phases, *phases)
    os.sync()
    time.sleep(2)  # what was written goes to the disk a second later, which is not what is measured
    got = ops(bench, peer, 1, files, *phases)
    return {f"{k}, warm": got[k] for k in phases}


# A rate of 0.8 is a time of 1.25; three times the rate is a third of the time.
TARGETS = (Target("*", 1.25, "ceiling"), Target("*", 1 / 3, "fuse-overlayfs", idle=True), Target("*", 1.0, "fuse-overlayfs"))
BUSY = (Target("*", 1.25, "ceiling"), Target("*", 1.0, "fuse-overlayfs"))

ROWS = [Row(f"metadata-{n}", f"seconds a file; {n} client{'s' * (n > 1)}", metadata(n, False), FUSE, TARGETS) for n in (1, 2, 4)]
ROWS += [Row(f"metadata-{n}-busy", f"the same, {n} client{'s' * (n > 1)}, while each CPU has other work", metadata(n, True), FUSE, BUSY)
         for n in (1, 4)]
ROWS += [Row("warm", "seconds a file, from the kernel's caches; a listing is a hundredth of a directory", warm, FUSE,
             (Target("*", 1.1, "native"),))]
