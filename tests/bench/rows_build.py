"""Programs that developers run all day."""
import os
import shutil

import inputs
import peers
from rows import Row, Target
from rows_tree import timed

GIT = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1", GIT_AUTHOR_NAME="b", GIT_AUTHOR_EMAIL="b@example.invalid",
           GIT_COMMITTER_NAME="b", GIT_COMMITTER_EMAIL="b@example.invalid",
           # A commit starts one in the background, which is then in the way of the one that is measured.
           GIT_CONFIG_COUNT="2", GIT_CONFIG_KEY_0="gc.auto", GIT_CONFIG_VALUE_0="0", GIT_CONFIG_KEY_1="maintenance.auto",
           GIT_CONFIG_VALUE_1="false")


def unpack(bench, peer):
    timed(["tar", "xf", inputs.sources(bench) / "in.tar"], peer.dir)
    return peer.dir / "tree"


def make(bench, peer):
    src = unpack(bench, peer) / "csrc"
    out = {"make -j2": timed(["make", "-j2"], src), "make with nothing to do": timed(["make"], src)}
    if bench.cold():
        out["make with nothing to do, cold"] = timed(["make"], src)
        timed(["make", "-q"], src)
        for f in src.glob("*.o"):
            f.unlink()
        bench.cold()
        out["make -j2, cold"] = timed(["make", "-j2"], src)
    return out


def git(bench, peer):
    src = unpack(bench, peer)

    def g(*args):
        return timed(["git", *args], src, env=GIT)
    out = {"add and commit": g("init", "-q", ".") * 0 + g("add", "-A") + g("commit", "-qm", "one")}
    g("status", "--porcelain")
    out["status"] = g("status", "--porcelain")
    g("switch", "-qc", "two")
    for f in src.glob("pkg00*/sub1/*.txt"):
        with open(f, "a") as t:
            t.write("x\n")
    out["commit of some"] = g("commit", "-qam", "two")
    out["switch, forth and back"] = g("switch", "-q", "-") + g("switch", "-q", "two")
    out["gc"] = g("gc", "-q")
    if bench.cold():
        out["status, cold"] = g("status", "--porcelain")
    return out


def python(bench, peer):
    """Modules that lie in the tree, with their compiled files."""
    lib = os.path.dirname(os.__file__)
    names = [n for n in ("json", "email", "http", "xml", "asyncio", "unittest", "concurrent", "multiprocessing", "logging", "urllib", "html",
                         "sqlite3", "importlib", "collections", "encodings") if os.path.isdir(f"{lib}/{n}")]
    for n in names:
        shutil.copytree(f"{lib}/{n}", peer.dir / "lib" / n, ignore=shutil.ignore_patterns("__pycache__", "test*"))
    for f in os.listdir(lib):
        if f.endswith(".py"):
            shutil.copy(f"{lib}/{f}", peer.dir / "lib")
    env = dict(os.environ, PYTHONPATH=str(peer.dir / "lib"))
    what = "import asyncio, email.message, http.client, xml.dom.minidom, unittest, logging.config, urllib.request, html.parser, multiprocessing"
    cmd = ["/usr/bin/python3", "-c", what]
    out = {"first import, compiling": timed(cmd, peer.dir, env=env)}
    timed(cmd, peer.dir, env=env)
    out["import"] = timed(cmd, peer.dir, env=env)
    if bench.cold():
        out["import, cold"] = timed(cmd, peer.dir, env=env)
    return out


def npm(bench, peer):
    src = inputs.npm(bench)
    if not src:
        bench.leave_out("npm ci", "no npm, or no registry to fill the cache from")
        return {}
    shutil.copytree(src, peer.dir / "app")
    cmd = ["npm", "ci", "--offline", "--cache", peer.dir / "app/npm", "--no-audit", "--no-fund", "--loglevel=error"]
    out = {"npm ci": timed(cmd, peer.dir / "app")}
    if bench.cold():
        out["npm ci, cold"] = timed(cmd, peer.dir / "app")
    out["rm -rf node_modules"] = timed(["rm", "-rf", "node_modules"], peer.dir / "app")
    return out


def builder(tool, source, cmd, env):
    """A build from nothing, one with nothing to do, and both when nothing is cached."""
    def run(bench, peer):
        if not shutil.which(tool):
            bench.leave_out(f"{tool} build", "not installed")
            return {}
        shutil.copytree(source(bench), peer.dir / "src")
        e = dict(os.environ, **{k: str(peer.dir / v) for k, v in env.items()})
        out = {"from nothing": timed(cmd, peer.dir / "src", env=e), "nothing to do": timed(cmd, peer.dir / "src", env=e)}
        if bench.cold():
            out["nothing to do, cold"] = timed(cmd, peer.dir / "src", env=e)
        return out
    return run


TARGETS = (Target("*cold", 1.5, "overlayfs"), Target("*[!d]", 1.15, "overlayfs"))  # no name but those of what is cold ends in d
ROWS = [
    Row("make", "a C program of 150 files", make, targets=TARGETS),
    Row("git", "10,000 files", git, peers.ALL, TARGETS),
    Row("python", "modules of the standard library in the tree", python, targets=TARGETS),
    Row("npm", "npm ci from a warm cache that lies in the tree", npm, targets=TARGETS),
    Row("go", "go build, its cache in the tree", builder("go", inputs.go_module, ["go", "build", "-o", "prog", "."],
                                                         {"GOCACHE": "gocache", "GOPATH": "gopath"}), targets=TARGETS),
    Row("cargo", "cargo build of 13 crates", builder("cargo", inputs.cargo_workspace, ["cargo", "build", "-q", "--offline"],
                                                     {"CARGO_TARGET_DIR": "target"}), targets=TARGETS),
]
