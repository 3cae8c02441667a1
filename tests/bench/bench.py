#!/usr/bin/python3
"""Measures rattan beside a native directory, kernel overlayfs, fuse-overlayfs and a FUSE file system that does nothing but answer,
in turn, and says which targets are met. A table, and JSON with --json FILE.

    tests/bench/bench.py --build build [--only PATTERN]... [--rounds N] [--minutes N] [--quick] [--json FILE] [--into FILE] [--list]

In each round every row is done on every peer, in random order, in a fresh directory; figures are medians over the rounds, with half the distance
between the quartiles. With --minutes no row begins after that time: what has not had its first round by then is left out. As root everything is measured (what is cold, and the mounts of others, need it); as another user the rest is.
`scripts/deps bench` installs the peers and the tools; a program that is not there is left out, and that is said. Quote the load line
with every figure: what else the machine does changes ratios, too.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "mcp")]
import peers  # noqa: E402
import rows  # noqa: E402
import rows_build  # noqa: E402
import rows_calls  # noqa: E402
import rows_history  # noqa: E402
import rows_image  # noqa: E402
import rows_io  # noqa: E402
import rows_meta  # noqa: E402
import rows_size  # noqa: E402
import rows_tree  # noqa: E402
import tell  # noqa: E402

MODULES = (rows_meta, rows_io, rows_build, rows_history, rows_size, rows_tree, rows_calls, rows_image)


class Bench:
    """What rows are given: options, programs, and a place for what is made once."""

    def __init__(self, o, top):
        self.o, self.top, self.quick = o, top, o.quick
        self.build = pathlib.Path(o.build).resolve()
        self.rattan, self.rattan_fs = str(self.build / "cli/rattan"), str(self.build / "fs/rattan-fs")
        self.ceiling_threads, self.serve_args, self.root = 1, [], os.geteuid() == 0
        self.made, self.left_out = {}, []

    def tool(self, name):
        return str(self.build / "tests/bench" / name)

    def once(self, name, make):
        """The directory @name, filled by make(path) at its first use."""
        if name not in self.made:
            path = self.top / "made" / name
            path.mkdir(parents=True)
            make(path)
            self.made[name] = path
        return self.made[name]

    def scaled(self, n, quick):
        return quick if self.quick else n

    def leave_out(self, what, why):
        if (what, why) not in self.left_out:
            self.left_out.append((what, why))
            print(f"  left out: {what}: {why}", flush=True)

    def run(self, cmd, cwd=None, env=None):
        r = subprocess.run([str(c) for c in cmd], cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           errors="replace")
        if r.returncode:
            raise RuntimeError(f"{cmd[0]}: {r.returncode}: {(r.stdout + r.stderr)[-400:]}")
        return r.stdout

    def cold(self):
        """Nothing is in the kernel's caches. False: only root can ask for that."""
        if not self.root:
            return False
        os.sync()
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        return True


def one(bench, row, kind, n):
    """One row on one peer, in one round: {metric: figure}, or None where it failed."""
    lower = row.lower(bench) if row.lower else None
    try:
        with peers.KINDS[kind](bench, bench.top / f"p{n}-{kind}", lower) as p:
            return row.run(bench, p)
    except (OSError, RuntimeError, subprocess.SubprocessError) as e:
        bench.leave_out(f"{row.name} on {kind}", str(e))
        return None


def measure(bench, row, kinds, n, figures):
    """Round @n of @row, added to @figures: {metric: {peer: [value of each round]}}."""
    if not row.peers:
        for metric, by in row.run(bench).items():
            for k, v in by.items():
                figures.setdefault(metric, {}).setdefault(k, []).extend(v if isinstance(v, list) else [v])
        return
    turn = [k for k in row.peers + (() if row.lower else peers.EXTRA) if k in kinds]
    random.shuffle(turn)
    for k in turn:
        for metric, v in (one(bench, row, k, n) or {}).items():
            figures.setdefault(metric, {}).setdefault(k, []).append(v)


def run_rounds(bench, kinds, todo, out):
    """All rows, then all of them again; a row that fails is not tried again."""
    end = time.monotonic() + bench.o.minutes * 60 if bench.o.minutes else None
    failed = set()
    for n in range(bench.o.rounds):
        for row in todo:
            if row.name in failed or (n and row.once):
                continue
            if end and time.monotonic() > end:
                if n == 0:
                    bench.leave_out(row.name, f"the {bench.o.minutes:g} minutes were over")
                continue
            here = out.setdefault(row.name, {"unit": row.unit, "rounds": 0, "seconds": 0.0, "load": [], "figures": {}})
            here["load"].append(os.getloadavg()[0])
            t = time.monotonic()
            try:
                measure(bench, row, kinds, n, here["figures"])
                here["rounds"] += 1
            except (OSError, RuntimeError, subprocess.SubprocessError) as e:
                bench.leave_out(row.name, str(e))
                failed.add(row.name)
            here["seconds"] += time.monotonic() - t
            print(f"  round {n + 1}: {row.name}, {time.monotonic() - t:.0f} s", file=sys.stderr, flush=True)


def chosen(o):
    all_rows = [r for m in MODULES for r in m.ROWS]
    return [r for r in all_rows if not o.only or any(fnmatch.fnmatchcase(r.name, p) or p in r.name for p in o.only)]


def options():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--build", help="the build directory")
    a.add_argument("--rounds", type=int)
    a.add_argument("--only", action="append", default=[], help="rows whose name matches or contains this")
    a.add_argument("--peers", default=",".join(peers.ALL), help=f"also {', '.join(peers.EXTRA)}: the write-back cache beside itself")
    a.add_argument("--minutes", type=float, help="no row begins after that time")
    a.add_argument("--json")
    a.add_argument("--into", metavar="FILE", help="put the table into that text, in place of the one between its marks (tell.py)")
    a.add_argument("--quick", action="store_true", help="a tenth of the work, two rounds: whether all of it runs")
    a.add_argument("--list", action="store_true", help="the rows, and what each is")
    o = a.parse_args()
    o.rounds = o.rounds or (2 if o.quick else 5)
    if not o.build and not o.list:
        a.error("--build is needed")
    return o


def report(bench, o, kinds, why):
    load = os.getloadavg()
    out = {"load": load, "cpus": os.cpu_count(), "kernel": os.uname().release, "rounds": o.rounds, "quick": o.quick,
           "peers": kinds, "rows": {}, "verdicts": []}
    print(f"load {load[0]:.2f} {load[1]:.2f}, {out['cpus']} CPUs, Linux {out['kernel']}, {o.rounds} rounds{', quick' if o.quick else ''}")
    for k, w in why.items():
        bench.leave_out(k, w)
    todo = []
    for row in chosen(o):
        if row.root and not bench.root:
            bench.leave_out(row.name, "needs root")
        else:
            todo.append(row)
    run_rounds(bench, kinds, todo, out["rows"])
    for row in todo:
        if row.name in out["rows"]:
            rows.print_row(row, out["rows"][row.name]["figures"], peers.ALL + peers.EXTRA + ("bwrap",))
            out["verdicts"] += rows.verdicts(row, out["rows"][row.name]["figures"])
    rows.print_verdicts(out["verdicts"])
    out["left_out"] = bench.left_out
    out["load_after"] = os.getloadavg()
    print(f"load {out['load_after'][0]:.2f} at the end")
    return out


def main():
    o = options()
    if o.list:
        for r in chosen(o):
            print(f"{r.name:24} {r.what}")
        return
    if os.geteuid() == 0 and not os.environ.get("RATTAN_BENCH_NS"):
        # Mounts of others end with us, whatever happens.
        os.execvpe("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv],
                   dict(os.environ, RATTAN_BENCH_NS="1"))
    top = pathlib.Path(tempfile.mkdtemp(prefix="rattan-bench.", dir="/var/tmp"))
    for d in ("data", "r", "config/rattan"):
        (top / d).mkdir(parents=True, mode=0o700)
    os.environ.update(XDG_DATA_HOME=str(top / "data"), XDG_RUNTIME_DIR=str(top / "r"), XDG_CONFIG_HOME=str(top / "config"), RATTAN_IDLE_S="60")
    (top / "config/rattan/config.json").write_text(json.dumps({"bind_roots": [str(top), str(HERE)]}))
    bench = Bench(o, top)
    usable, why = peers.usable()
    kinds = [k for k in (*usable, *(peers.EXTRA if bench.root else ())) if k in o.peers.split(",")]
    try:
        out = report(bench, o, kinds, why)
        if o.json:
            pathlib.Path(o.json).write_text(json.dumps(out, indent=1))
        if o.into:
            tell.put_into(o.into, tell.table(out))
    finally:
        rows_calls.end_daemons(bench)
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
