"""Whole trees: unpacking, copying, removing, searching."""
import os
import shutil
import subprocess
import time

import inputs
import peers
import rows_calls
from rows import Row, Target


def timed(cmd, cwd, ok=(0,), env=None):
    t = time.perf_counter()
    r = subprocess.run([str(c) for c in cmd], cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    t = time.perf_counter() - t
    if r.returncode not in ok:
        raise RuntimeError(f"{cmd[0]}: {r.returncode}: {r.stderr[-300:].decode(errors='replace')}")
    return t


def trees(bench, peer):
    out = {"untar": timed(["tar", "xf", inputs.sources(bench) / "in.tar"], peer.dir)}
    out["find, just unpacked"] = timed(["find", "tree", "-printf", "%s %m %T@\n"], peer.dir)
    out["find, warm"] = timed(["find", "tree", "-printf", "%s %m %T@\n"], peer.dir)
    out["cp -a"] = timed(["cp", "-a", "tree", "copy"], peer.dir)
    out["rm -rf"] = timed(["rm", "-rf", "copy"], peer.dir)
    if bench.cold():
        out["rm -rf, cold"] = timed(["rm", "-rf", "tree"], peer.dir)
    return out


def shared_chunks(bench, peer):
    """Two sizes, so that time by chunk can be told from what a copy costs at all."""
    out = {}
    for mib in (bench.scaled(128, 8), bench.scaled(512, 32)):
        with open(peer.dir / f"a{mib}", "wb") as f:
            for _ in range(mib):
                f.write(os.urandom(1 << 20))
            os.fsync(f.fileno())
        out[f"cp of {mib} MiB"] = timed(["cp", f"a{mib}", f"b{mib}"], peer.dir)
    return out


def search(n):
    def run(bench, peer):
        out = {}
        if not shutil.which("rg"):
            bench.leave_out("rg", "not installed")
            return out
        src = inputs.texts(bench, bench.scaled(n, n // 10))
        timed(["cp", "-r", src, "t"], peer.dir)
        for what in ("grep -r", "rg"):
            cmd = ["grep", "-rc", "zz_", "t"] if what == "grep -r" else ["rg", "-c", "zz_", "t"]
            timed(cmd, peer.dir, (0, 1))
            out[f"{what}, warm"] = timed(cmd, peer.dir, (0, 1))
            if bench.cold():
                out[f"{what}, cold"] = timed(cmd, peer.dir, (0, 1))
        return out
    return run


def search_host(bench, peer):
    """The same over a directory of the host that is shown."""
    out = {}
    if shutil.which("rg"):
        timed(["rg", "-c", "zz_", "."], peer.base, (0, 1))
        out["rg, warm"] = timed(["rg", "-c", "zz_", "."], peer.base, (0, 1))
        if bench.cold():
            out["rg, cold"] = timed(["rg", "-c", "zz_", "."], peer.base, (0, 1))
    return out


def grep_tool(bench):
    """rattan_grep over the same files as rg on a native directory."""
    out = {}
    for n in (10000, 100000):
        src = inputs.texts(bench, bench.scaled(n, n // 10))
        with rows_calls.server(bench, "--overlay", f"{src}=/workspace/t") as s:
            s.call("rattan_grep", pattern="zz_none", path="/workspace/t")
            ours = [s.timed("rattan_grep", pattern="zz_none", path="/workspace/t") for _ in range(3)]
            out[f"{n} files, warm"] = {"rattan": ours}
            if bench.cold():
                out[f"{n} files, cold"] = {"rattan": s.timed("rattan_grep", pattern="zz_none", path="/workspace/t")}
        if shutil.which("rg"):
            timed(["rg", "zz_none", src], "/", (0, 1))
            out[f"{n} files, warm"]["native"] = [timed(["rg", "zz_none", src], "/", (0, 1)) for _ in range(3)]
            if bench.cold():
                out[f"{n} files, cold"]["native"] = timed(["rg", "zz_none", src], "/", (0, 1))
    return out


SEARCH = (Target("rg, warm", 1.1, "native"), Target("rg, cold", 1.5, "native"))
ROWS = [
    Row("trees", "untar, cp -a and rm -rf of 10,000 files", trees, peers.ALL,
        targets=[Target(m, 2.0, "overlayfs") for m in ("untar", "cp -a", "rm -rf*")]),
    Row("shared-chunks", "cp of a file whose bytes are in the store", shared_chunks, targets=(Target("*", 0.1, "native"),)),
    Row("search-10k", "10,000 files that were copied there", search(10000), targets=SEARCH),
    Row("search-100k", "100,000 files", search(100000), ("native", "overlayfs", "rattan"), SEARCH, once=True),
    Row("search-host", "10,000 files of a host directory", search_host, targets=SEARCH,
        lower=lambda b: inputs.texts(b, b.scaled(10000, 1000))),
    Row("grep-tool", "rattan_grep, beside rg on a native directory", grep_tool, (),
        (Target("*warm", 1.1, "native"), Target("*cold", 1.5, "native"))),
]
