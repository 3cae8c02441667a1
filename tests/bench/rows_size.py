"""Room on the disk, and memory of the daemon."""
import hashlib
import os
import shutil
import subprocess

import inputs
from rows import Row, Target
from rows_calls import rss, server, status_pid


def disk(path):
    return int(subprocess.run(["du", "-s", "-B1", path], capture_output=True, text=True).stdout.split()[0])


def unique_bytes(path, seen=None):
    """Of all files, each content once, and none that is in @seen."""
    seen, total = set() if seen is None else seen, 0
    for d, _, files in os.walk(path):
        for f in files:
            p = os.path.join(d, f)
            if os.path.islink(p):
                continue
            with open(p, "rb") as o:
                h = hashlib.sha256(o.read()).digest()
            if h not in seen:
                seen.add(h)
                total += os.path.getsize(p)
    return total


def store_of(bench, name, n, command, overlay):
    """The store's size after @n environments did @command."""
    data = bench.top / f"size-{name}"
    env = dict(os.environ, RATTAN_DATA_DIR=str(data))
    for i in range(n):
        r = subprocess.run([bench.rattan, "run", "-e", f"s{i}", "--overlay", f"{overlay}=/srv", "--", "sh", "-euc", command.replace("@", str(i))],
                           env=env, capture_output=True, text=True)
        if r.returncode:
            raise RuntimeError(r.stderr[-300:])
        subprocess.run([bench.rattan, "commit", "-e", f"s{i}", "-m", "tree"], env=env, check=True, capture_output=True)
        subprocess.run([bench.rattan, "env", "restart", f"s{i}"], env=env, capture_output=True)
    sizes = sizes_of(bench, data)
    for i in range(n):
        subprocess.run([bench.rattan, "env", "rm", "--force", f"s{i}"], env=env, capture_output=True)
    shutil.rmtree(data, ignore_errors=True)
    return sizes


def sizes_of(bench, data):
    """The store's size without garbage, and when a daemon has had time to compress it; here both are done at once."""
    out = []
    for more in ([], ["--compress"]):
        subprocess.run([bench.rattan, "gc", "--shrink", *more, "--data-dir", data], check=True, capture_output=True)
        out.append(disk(data))
    return out


def put(out, name, copies, stored, unique):
    out[name] = {"native": copies / unique, "rattan": stored[0] / unique}
    out[f"{name}, compressed"] = {"rattan": stored[1] / unique}


def environments(bench):
    """As factors of the unique bytes; what overlayfs would take is a copy for each."""
    n, out = bench.scaled(10, 2), {}
    src = inputs.sources(bench)
    one = bench.top / "unpacked"
    one.mkdir()
    bench.run(["tar", "xf", src / "in.tar"], cwd=one)
    unique = unique_bytes(one)
    put(out, f"{n} times the same tree", n * disk(one), store_of(bench, "tree", n, "tar xf /srv/in.tar; echo @ > own", src), unique)
    shutil.rmtree(one)
    packages = inputs.npm(bench)
    if packages:
        app = bench.top / "app"
        shutil.copytree(packages, app)
        bench.run(["npm", "ci", "--offline", "--cache", app / "npm", "--no-audit", "--no-fund", "--loglevel=error"], cwd=app)
        unique = unique_bytes(app / "node_modules")
        copies = n * disk(app / "node_modules")
        shutil.rmtree(app)
        put(out, f"{n} times the same npm ci", copies, store_of(
            bench, "npm", n, "cp -r /srv/package*.json /srv/npm .; npm ci --offline --cache npm --no-audit --no-fund --loglevel=error --logs-max=0; rm -r npm; echo @ > own",
            packages), unique)
    else:
        bench.leave_out("npm ci ten times", "no npm, or no registry to fill the cache from")
    return out


def builds(bench):
    """A build tree and ten more commits, each after a change of a file and a make; the same done on a native directory says what is unique,
    and what a copy for each would take."""
    n = bench.scaled(10, 2)
    data, beside = bench.top / "size-builds", bench.top / "size-native"
    env = dict(os.environ, RATTAN_DATA_DIR=str(data))
    src = inputs.sources(bench)
    beside.mkdir()
    seen, unique, copies = set(), 0, 0
    for i in range(-1, n):
        command = "tar xf @/in.tar; make -sC tree/csrc -j2" if i < 0 else f"echo '/* {i} */' >> tree/csrc/u00{i % 10}.c; make -sC tree/csrc"
        subprocess.run([bench.rattan, "run", "-e", "b", "--overlay", f"{src}=/srv", "--", "sh", "-euc", command.replace("@", "/srv")], env=env,
                       check=True, capture_output=True)
        subprocess.run([bench.rattan, "commit", "-e", "b", "-m", "x"], env=env, check=True, capture_output=True)
        bench.run(["sh", "-euc", command.replace("@", str(src))], cwd=beside)
        unique += unique_bytes(beside, seen)
        copies += disk(beside)
    subprocess.run([bench.rattan, "env", "restart", "b"], env=env, capture_output=True)
    out = {}
    put(out, f"{n + 1} commits of a build tree", copies, sizes_of(bench, data), unique)
    subprocess.run([bench.rattan, "env", "rm", "--force", "b"], env=env, capture_output=True)
    for d in (data, beside):
        shutil.rmtree(d, ignore_errors=True)
    return out


def memory(bench):
    n = bench.scaled(50000, 5000)
    src = inputs.texts(bench, n)
    with server(bench, "--overlay", f"{src}=/workspace/t") as s:
        s.call("shell_run", command="true")
        pid = status_pid(bench, "bench")
        if not pid:
            raise RuntimeError("status does not tell the daemon's process")
        idle = rss(pid)
        s.call("shell_run", command="find t -printf '%s' > /dev/null", timeout=600)
        out = {"idle, MB": idle / 1e6, f"a file of {n} that are cached, KB": (rss(pid) - idle) / n / 1000}
    return {k: {"rattan": v} for k, v in out.items()}


ROWS = [
    Row("store-size", "bytes on the disk as a factor of the unique ones; native: a copy for each", environments, (),
        (Target("*compressed", 0.6), Target("*[!d]", 1.1)), unit="", once=True),
    Row("store-builds", "the same for commits of a build tree", builds, (), (Target("*compressed", 0.6), Target("*[!d]", 1.1)), unit="", once=True),
    Row("memory", "the daemon's own; of a million files: row commit", memory, (), (Target("idle*", 50.0), Target("a file*", 1.0)), unit="", once=True),
]
