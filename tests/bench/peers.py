"""What is measured, and beside what: each is a directory to work in, made fresh for each row of each round."""
import os
import pathlib
import shutil
import subprocess
import time

ALL = ("native", "overlayfs", "fuse-overlayfs", "ceiling", "rattan")
# Only where --peers names them: our tree served without a daemon around it, and the same with the kernel's write-back cache.
EXTRA = ("core", "core-writeback")


class Peer:
    """One file system in a directory of its own. @lower: what it shows of an existing directory, where it can. It is
    entered and left as a context; `dir` is where to work, `base` where @lower is seen."""

    kind = "native"

    def __init__(self, bench, top, lower=None):
        self.bench, self.top, self.lower = bench, pathlib.Path(top), lower
        self.dir = self.top / "m"

    def __enter__(self):
        self.top.mkdir(parents=True)
        for d in ("l", "u", "w", "m"):
            (self.top / d).mkdir()
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.top, ignore_errors=True)

    def start(self):
        self.base = self.dir
        if self.lower:
            shutil.copytree(self.lower, self.dir, symlinks=True, dirs_exist_ok=True)

    def stop(self):
        pass

    def pid(self):
        """Of the process that serves it; None: the kernel does."""
        return None

    def umount(self):
        for _ in range(50):
            if subprocess.run(["umount", self.dir], capture_output=True).returncode == 0 or not os.path.ismount(self.dir):
                return
            time.sleep(0.1)
        subprocess.run(["umount", "-l", self.dir], capture_output=True)


class Overlayfs(Peer):
    kind = "overlayfs"

    def start(self):
        self.base = self.dir
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={self.lower or self.top / 'l'},upperdir={self.top}/u,"
                        f"workdir={self.top}/w", self.dir], check=True)

    def stop(self):
        self.umount()


class Served(Peer):
    """By a process, which is ours to end."""
    p = None

    def stop(self):
        self.umount()
        end(self.p)

    def pid(self):
        return self.p.pid


class FuseOverlayfs(Served):
    kind = "fuse-overlayfs"

    def start(self):
        self.base = self.dir
        self.p = subprocess.Popen(["fuse-overlayfs", "-f", "-o", f"lowerdir={self.lower or self.top / 'l'},upperdir={self.top}/u,"
                                   f"workdir={self.top}/w", self.dir], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_mounted(self.dir, self.p)


class Ceiling(Served):
    kind = "ceiling"

    def start(self):
        self.base = self.dir
        self.p = subprocess.Popen([self.bench.tool("bench_ceiling"), self.dir, str(self.bench.ceiling_threads)])
        wait_mounted(self.dir, self.p)


class Rattan(Peer):
    kind = "rattan"

    def start(self):
        r, w = os.pipe()
        more = ["--overlay", f"{self.lower}=/workspace/base"] if self.lower else []
        with open(self.top / "log", "w") as log:
            self.p = subprocess.Popen([self.bench.rattan_fs, "serve", "--foreground", "--data-dir", self.top / "store", "--env", "bench",
                                       "--create", "--dir", self.dir, "--ready-fd", str(w), *more, *self.bench.serve_args],
                                      pass_fds=(w,), stdout=log, stderr=log)
        os.close(w)
        ready = os.read(r, 4096)
        os.close(r)
        if not ready or not os.path.ismount(self.dir):
            raise RuntimeError("rattan is not served: " + (self.top / "log").read_text()[-300:])
        self.dir = self.dir / "workspace"
        self.base = self.dir / "base" if self.lower else self.dir

    def stop(self):
        end(getattr(self, "p", None))

    def pid(self):
        return self.p.pid


class Core(Served):
    kind, more = "core", ()

    def start(self):
        r, w = os.pipe()
        self.p = subprocess.Popen([self.bench.build / "tests/unit/fuse/ovlrun", "-i", *self.more, self.top / "store", "sh", "-c",
                                   f"echo $MNT >&{w}; exec {w}>&-; cat"], stdin=subprocess.PIPE, pass_fds=(w,), stderr=subprocess.DEVNULL)
        os.close(w)
        with os.fdopen(r) as f:
            at = f.readline().strip()  # not to the end: ovlrun has the pipe as well
        if not at:
            raise RuntimeError("ovlrun did not mount")
        self.dir = self.base = pathlib.Path(at)

    def stop(self):
        if self.p:
            self.p.stdin.close()
            end(self.p, ask=False)


class CoreWriteback(Core):
    kind, more = "core-writeback", ("-w",)


KINDS = {c.kind: c for c in (Peer, Overlayfs, FuseOverlayfs, Ceiling, Rattan, Core, CoreWriteback)}


def wait_mounted(path, p):
    for _ in range(500):
        if os.path.ismount(path):
            return
        if p.poll() is not None:
            break
        time.sleep(0.01)
    raise RuntimeError(f"{p.args[0]} did not mount")


def end(p, ask=True):
    if not p:
        return
    if ask and p.poll() is None:
        p.terminate()
    try:
        p.wait(30)
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()


def usable():
    """The kinds that can be had here, and why the others cannot."""
    root = os.geteuid() == 0
    why = {}
    if not root:
        why.update({k: "needs root" for k in ("overlayfs", "fuse-overlayfs", "ceiling")})
    elif not shutil.which("fuse-overlayfs"):
        why["fuse-overlayfs"] = "scripts/deps bench installs it"
    return [k for k in ALL if k not in why], why
