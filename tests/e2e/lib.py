"""Shared by the end-to-end tests in Python; not a test itself. What lib.sh is for those in shell."""
import json
import os
import shutil
import subprocess
import sys

here = os.getcwd()
rattan = os.environ["RATTAN"]
LONG = "RATTAN_LONG" in os.environ
failed = []


def skip(why):
    print("SKIP:", why)
    sys.exit(77)


def check(cond, what, note=""):
    """Goes on after a failure; done() ends the test."""
    if not cond:
        failed.append(what)
        print("FAIL:", what, str(note)[:300], flush=True)


def done():
    print(f"{len(failed)} failed")
    sys.exit(1 if failed else 0)


def servers(store):
    """Keepers and daemons of the data directory @store alone, by their command lines: other tests have theirs beside."""
    found = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/cmdline", "rb") as f:
                cmd = f.read().split(b"\0")
        except OSError:
            continue
        if store.encode() in cmd and cmd[0].endswith(b"rattan-fs"):
            found.append(int(p))
    return sorted(found)


def listens(pid, fs):
    """Is @pid at the other end of what the working process @fs tells?"""
    try:
        pipe = os.readlink(f"/proc/{fs}/fd/3")
        return pipe in [os.readlink(f"/proc/{pid}/fd/{f}") for f in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return False


def rattan_fs():
    fs = os.path.join(os.path.dirname(rattan), "../libexec/rattan/rattan-fs")
    if not os.path.exists(fs):
        sys.exit("no rattan-fs")
    return fs


# Tests open directories beside their home, too, as a person can allow it.
if "XDG_CONFIG_HOME" in os.environ:
    os.makedirs(os.environ["XDG_CONFIG_HOME"] + "/rattan", exist_ok=True)
    with open(os.environ["XDG_CONFIG_HOME"] + "/rattan/config.json", "w") as conf:
        json.dump({"bind_roots": [here]}, conf)


class Served:
    """The environment 'e' of ./store at ./mnt, with ./host of the host at /workspace/host: `with Served() as pid`."""

    def __enter__(self):
        if not os.access("/dev/fuse", os.W_OK) or not shutil.which("fusermount3"):
            skip("no access to /dev/fuse, or no fusermount3")
        os.makedirs("mnt", exist_ok=True)
        os.makedirs("host", exist_ok=True)
        r, w = os.pipe()
        with open("log", "a") as log:
            self.p = subprocess.Popen([rattan_fs(), "serve", "--foreground", "--data-dir", f"{here}/store", "--env", "e",
                                       "--create", "--dir", f"{here}/mnt", "--overlay", f"{here}/host=/workspace/host",
                                       "--ready-fd", str(w)], pass_fds=(w,), stderr=log)
        os.close(w)
        if not os.read(r, 4096):
            sys.exit("not served: " + open("log").read()[-300:])
        os.close(r)
        return self.p.pid

    def __exit__(self, *_):
        self.p.terminate()
        check(self.p.wait() == 0, "the end of the daemon")
