#!/usr/bin/python3
"""A client that starts the server where nothing may be shown (its own folder, /): the server answers, lists its tools, and each call that
wants an environment says what is wrong. Nothing is opened, and nothing runs."""
# timeout: 60
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawlib import Server, is_error, ok, run_tests, text  # noqa: E402

HOME = pathlib.Path(os.environ["HOME"])
CALLS = [("shell_run", {"command": "touch /workspace/ran"}), ("shell_job_start", {"command": "touch /workspace/ran"}),
         ("rattan_read_file", {"path": "x"}), ("rattan_write_file", {"path": "x", "content": "x"}), ("env_status", {}),
         ("env_commit", {"message": "x"}), ("shell_run", {"command": "true", "environment": "another"}),
         ("bind_host_dir", {"host_path": str(HOME / "project"), "mount_point": "/workspace/p"})]


def test_elsewhere():
    hidden = HOME / ".client"
    hidden.mkdir()
    (HOME / "project").mkdir()
    for where in (hidden, HOME, pathlib.Path("/")):
        for option in ("--overlay-cwd", "--bind-cwd"):
            s = Server(args=(option,), cwd=where)
            ok(len(s.ask("tools/list")["result"]["tools"]) > 20, f"{option} in {where}: the tools are listed")
            for name, args in CALLS:
                m = s.call(name, args)
                ok(is_error(m) and str(where) in text(m) and "not opened" in text(m) and "--overlay " in text(m), f"{name} says why, and what to do", m)
            rc, _, err = s.close()
            ok(rc == 0 and str(where) in err, "it ends well, and has told whoever reads standard error", (rc, err))
    r = subprocess.run([os.environ["RATTAN"], "env", "list"], capture_output=True, text=True)
    ok(r.stdout.strip() == "" or "client" not in r.stdout, "no environment was made", r.stdout)
    ok(not list(hidden.iterdir()) and not list((HOME / "project").iterdir()), "nothing was written")
    r = subprocess.run([os.environ["RATTAN"], "serve", "--overlay-cwd", "--bind-cwd"], cwd=hidden, stdin=subprocess.DEVNULL, capture_output=True)
    ok(r.returncode != 0, "what is wrong on the command line ends it at once")


def test_wrong_directory():
    p = HOME / "project"
    p.mkdir(exist_ok=True)
    for args in (("--overlay", f"{HOME}/nosuch=/workspace"), ("--bind", f"{HOME}/nosuch=/workspace/n:rw"), ("--bind-ro", f"{HOME}/.ssh=/mnt/n"),
                 ("--overlay", f"{p}=/etc"), ("--overlay", str(p)), ("--overlay", f"{p}=/workspace", "--bind", f"{HOME}/nosuch=/mnt/n"),
                 ("--overlay", f"{p}=/workspace", "--bind", f"{p}=/workspace")):
        s = Server(args=(*args, "--env", "project"), cwd=p)
        ok(len(s.ask("tools/list")["result"]["tools"]) > 20, f"{args}: the tools are listed")
        for name, words in CALLS:
            m = s.call(name, words)
            ok(is_error(m) and "started with" in text(m) and (args[-1] in text(m) or "cannot be both" in text(m)), f"{name} says what is wrong, and where", m)
        rc, _, err = s.close()
        ok(rc == 0 and str(HOME) in err, "it ends well, and has told whoever reads standard error", (rc, err))
    ok(not list(p.iterdir()), "nothing was written")


run_tests(globals())
