"""One big file, and many small fsyncs."""
import subprocess
import time

import inputs
from rows import Row, Target
from rows_tree import timed

SQL = """
import sqlite3, sys
c = sqlite3.connect("t.db"); c.execute("pragma journal_mode=wal"); c.execute("create table t(a integer primary key, b text)")
for i in range(int(sys.argv[1])):
    with c: c.executemany("insert into t(b) values(?)", [("x" * 200,)] * 20)
"""


def io(bench, path, mib, *phases):
    out = bench.run([bench.tool("bench_io"), path, mib, *phases])
    return {k: float(v) for k, v in (line.split() for line in out.splitlines())}


def big(bench, peer):
    f, mib = peer.dir / "f", bench.scaled(256, 16)
    got = io(bench, f, mib, "write", "read", "read", "rread", "mread")
    out = {"sequential write, fsync": got["write"], "sequential read, warm": got["read"], "4 KiB random read, warm": got["rread"],
           "random read of a mapping, warm": got["mread"]}
    if bench.cold():
        out["sequential read, cold"] = io(bench, f, mib, "read")["read"]
        bench.cold()
        out["4 KiB random read, cold"] = io(bench, f, mib, "rread")["rread"]
        bench.cold()
        out["random read of a mapping, cold"] = io(bench, f, mib, "mread")["mread"]
    got = io(bench, f, mib, "rwrite", "mwrite")
    out.update({"4 KiB random write, fsync": got["rwrite"], "random write of a mapping, msync": got["mwrite"]})
    return out


def fsyncs(bench, peer):
    n = bench.scaled(200, 40)
    return {"append 4 KiB, fsync": io(bench, peer.dir / "f", 1, "append")["append"],
            "sqlite, WAL, a transaction": timed(["/usr/bin/python3", "-c", SQL, n], peer.dir) / n}


def first(bench, peer):
    mib = bench.scaled(1024, 64)
    before = stored(peer)
    out = {"one byte into 1 GiB": io(bench, peer.base / "big", mib, "first")["first"]}
    if before is not None:
        time.sleep(3)  # for the flush
        out["blocks of store"] = (stored(peer) - before) / 131072
    out["the second one"] = io(bench, peer.base / "big", mib, "first")["first"]
    return out


def stored(peer):
    """What its store takes of the disk."""
    if peer.kind != "rattan":
        return None
    return int(subprocess.run(["du", "-s", "-B1", peer.top / "store"], capture_output=True, text=True).stdout.split()[0])


def beside(bench, peer):
    """How long a chmod takes while 1 GiB is written by another process."""
    got = io(bench, peer.dir / "f", bench.scaled(1024, 64), "stat")
    return {"p50": got["stat-p50"], "p99": got["stat-p99"]}


ROWS = [
    Row("big-file", "a file of 256 MiB; random ones: a page", big, ("native", "overlayfs", "fuse-overlayfs", "ceiling", "rattan"),
        (Target("*read*warm", 1.1, "native"), Target("*read*cold", 1.5, "native"), Target("*write*", 2.0, "native"))),
    Row("fsync", "what waits for the disk", fsyncs, targets=(Target("*", 2.0, "native"),)),
    Row("first-write-host", "into a file of 1 GiB of a host directory, or a lower one", first, ("overlayfs", "fuse-overlayfs", "rattan"),
        (Target("one byte*", 0.002), Target("blocks*", 1.5)), lower=inputs.big_file, unit={"blocks*": "", "*": "s"}),
    Row("stat-beside-write", "a small operation while 1 GiB is written", beside),
]
