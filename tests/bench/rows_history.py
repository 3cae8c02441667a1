"""What commits, and going to other states, cost: by the change, by the tree, by the distance, by the history."""
import os
import subprocess
import time

from rows import Row, Target
from rows_calls import clock, long_shell, rss, server, status_pid

MAKE = """
import os, sys
n, start = int(sys.argv[1]), int(sys.argv[2])
for i in range(start, start + n):
    if i % 1000 == 0 or i == start:
        os.makedirs(f"tree/d{i // 1000}", exist_ok=True)
    with open(f"tree/d{i // 1000}/f{i}", "w") as f:
        f.write(sys.argv[3])
"""


def make_files(s, n, start=0, text="a"):
    s.call("rattan_write_file", path="/workspace/make.py", content=MAKE, mode="overwrite")
    long_shell(s, f"/usr/bin/python3 make.py {n} {start} {text}")


def sizes(bench):
    return (10, 1000) if bench.quick else (10, 10000, 1000000)


def commit_cost(bench):
    out = {}
    for tree in sizes(bench):
        with server(bench) as s:
            make_files(s, tree)
            if tree == sizes(bench)[-1]:
                out[f"memory, {tree} files made, MB"] = {"rattan": rss(status_pid(bench, "bench")) / 1e6}
            s.call("env_commit", message="tree")
            for changes in (1, 1000, bench.scaled(100000, 2000)):
                if changes > tree:
                    continue
                took = []
                for i in range(3 if changes > 1 else bench.scaled(30, 5)):
                    make_files(s, changes, 0, f"b{i}") if changes > 1 else s.call(
                        "rattan_write_file", path="/workspace/one", content=f"{i}\n", mode="overwrite")
                    took.append(s.timed("env_commit", message="m"))
                out[f"{changes} changed of {tree}"] = {"rattan": took}
            if tree == sizes(bench)[-1] and bench.cold():
                out["memory, the kernel has forgotten them, MB"] = {"rattan": settled(status_pid(bench, "bench"), 30)}
    with server(bench) as s:
        mib = bench.scaled(1024, 64)
        long_shell(s, f"head -c {mib}M /dev/urandom > big")
        out[f"after {mib} MiB written"] = {"rattan": s.timed("env_commit", message="m")}
    return out


def settled(pid, seconds):
    """The least, in MB, that a process's own memory comes to within that time."""
    least = rss(pid)
    for _ in range(seconds):
        time.sleep(1)
        least = min(least, rss(pid))
    return least / 1e6


def moves(bench):
    """Rollback, undo, fork and a mount of a commit, from the last commit and from the farthest."""
    out, far = {}, bench.scaled(1000, 30)
    for tree in sizes(bench)[:2]:
        with server(bench) as s:
            make_files(s, tree)
            s.call("env_commit", message="tree")
            for i in range(far):
                s.call("rattan_write_file", path="/workspace/one", content=f"{i}\n", mode="overwrite")
                s.call("env_commit", message=f"{i}")
            n = bench.scaled(20, 3)
            for name, rev in (("head", "head"), (f"head~{far}", f"head~{far}")):
                took, back = [], []
                for i in range(n):
                    s.call("rattan_write_file", path="/workspace/one", content=f"r{i}\n", mode="overwrite")
                    took.append(s.timed("env_rollback", to_commit_id=rev))
                    back.append(clock(bench.run, [bench.rattan, "undo", "-e", "bench"]))
                out[f"rollback to {name}, {tree} files"] = {"rattan": took}
                out[f"undo of it, {name}, {tree} files"] = {"rattan": back}
                out[f"fork at {name}, {tree} files"] = {"rattan": [fork(bench, rev, i) for i in range(n)]}
                out[f"mount of {name}, {tree} files"] = {"rattan": [mount(bench, rev) for i in range(n)]}
    return out


def fork(bench, rev, i):
    """With the start of the program, which is most of it."""
    t = clock(bench.run, [bench.rattan, "fork", f"fork{i}", rev, "-e", "bench"])
    bench.run([bench.rattan, "env", "rm", "--force", f"fork{i}"])
    return t


def mount(bench, rev):
    at = bench.top / "view"
    at.mkdir(exist_ok=True)
    t = clock(bench.run, [bench.rattan, "mount", rev, at, "-e", "bench"])
    bench.run([bench.rattan, "umount", at])
    return t


def look(bench, env):
    """A fresh mount of head: each name of a directory looked up, and all of it listed, from the store alone."""
    at = bench.top / "view"
    at.mkdir(exist_ok=True)
    bench.run([bench.rattan, "mount", "head", at, "-e", env])
    try:
        d = at / "workspace/tree/d0"
        t = time.perf_counter()
        for i in range(1000):
            os.stat(d / f"f{i}")
        looked = time.perf_counter() - t
        bench.run([bench.rattan, "umount", at])
        bench.run([bench.rattan, "mount", "head", at, "-e", env])
        return looked, clock(lambda: [e.stat() for e in os.scandir(d)])
    finally:
        bench.run([bench.rattan, "umount", at])


def history(bench):
    """1,000 files of one directory, of which some were changed in each of 10,000 commits; beside the same without a history."""
    n = bench.scaled(10000, 100)
    out = {"1,000 names looked up": {"native": [], "rattan": []}, "listed with attributes": {"native": [], "rattan": []}}
    with server(bench, env="fresh") as fresh, server(bench, env="old") as old:
        for s in (fresh, old):
            make_files(s, 1000)
            s.call("env_commit", message="tree")
        for i in range(n):
            old.call("rattan_write_file", path=f"/workspace/tree/d0/f{i * 7 % 1000}", content=f"{i}\n", mode="overwrite")
            old.call("env_commit", message=f"{i}")
        for _ in range(bench.scaled(9, 3)):
            for env, who in (("fresh", "native"), ("old", "rattan")):
                looked, listed = look(bench, env)
                out["1,000 names looked up"][who].append(looked)
                out["listed with attributes"][who].append(listed)
    return out


def first_write_commit(bench):
    """One byte into a file of 1 GiB that a commit has, and what the store grows by: a block takes a page more than its bytes."""
    mib = bench.scaled(1024, 64)
    write = "import os,time;f=os.open('big',os.O_WRONLY);t=time.perf_counter();os.pwrite(f,b'x',5000000);print(time.perf_counter()-t)"
    with server(bench) as s:
        long_shell(s, f"head -c {mib}M /dev/urandom > big")
        s.call("env_commit", message="big")
        before = disk(bench)
        text = s.call("shell_run", command=f'/usr/bin/python3 -c "{write}"')
        took = next(float(w) for w in text.split() if w.replace(".", "").replace("e-", "").isdigit() and "." in w)
        s.call("env_commit", message="one byte")
        return {f"one byte into {mib} MiB": {"rattan": took}, "blocks of store": {"rattan": (disk(bench) - before) / 131072}}


def disk(bench):
    return int(subprocess.run(["du", "-s", "-B1", bench.top / "data"], capture_output=True, text=True).stdout.split()[0])


ROWS = [
    Row("commit", "by files changed and files there", commit_cost, (),
        (Target("1 changed*", 0.010), Target("100000 changed*", 1.0), Target("memory* made*", 370.0), Target("memory*forgotten*", 100.0)), once=True,
        unit={"memory*": "", "*": "s"}),
    Row("moves", "rollback, undo, fork, mount; all but the first with the program's start", moves, (),
        (Target("rollback*", 0.010), Target("undo*", 0.010), Target("fork*", 0.010), Target("mount*", 0.010)), once=True),
    Row("history", "10,000 commits in one directory (rattan), and none (native)", history, (), (Target("*", 1.2, "native"),), once=True),
    Row("first-write-commit", "into a file of 1 GiB of a commit", first_write_commit, (),
        (Target("one byte*", 0.002), Target("blocks*", 1.1)), once=True, unit={"blocks*": ""}),
]
