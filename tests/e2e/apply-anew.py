#!/usr/bin/python3
"""New directories, and those that were removed and made anew: after `rattan apply` the environment shows no change there."""
# timeout: 240
import os
import subprocess

from lib import check, done, here, rattan


def run(*args, stdin=""):
    return subprocess.run([rattan, *args], capture_output=True, text=True, input=stdin)


class Project:
    def __init__(self, name, files):
        self.env, self.host = name, f"{here}/{name}"
        os.makedirs(self.host)
        for path, body in files.items():
            os.makedirs(os.path.dirname(f"{self.host}/{path}"), exist_ok=True)
            self.write(path, body)

    def sh(self, text):
        r = run("run", "-e", self.env, "--overlay", f"{self.host}=/workspace", "-c", f"cd /workspace; {text}")
        check(r.returncode == 0, f"sh: {text[:50]}", r.stderr)
        return r

    def apply(self, *args, **kw):
        return run("apply", "-e", self.env, *args, **kw)

    def names(self):
        return sorted(run("diff", "-e", self.env, "--name-status").stdout.splitlines())

    def read(self, path):
        try:
            return open(f"{self.host}/{path}").read()
        except OSError as e:
            return e.__class__.__name__

    def write(self, path, text):
        open(f"{self.host}/{path}", "w").write(text)


# ---- what was applied is no change ----
p = Project("new", {"other": "o\n"})
p.sh("mkdir -p d/in; echo x > d/y; echo z > d/in/z")
r = p.apply()
check("4 applied" in r.stderr, "a new directory is applied", r.stderr)
check(p.names() == [], "and is no change by then", p.names())
r = run("status", "-e", "new")
check("added" not in r.stdout and "deleted" not in r.stdout, "nor for the status", r.stdout)
r = p.sh("true")
check("changed" not in r.stderr and "added" not in r.stderr, "nor after a run", r.stderr)
os.mkdir(f"{p.host}/d/theirs")
p.write("d/theirs/t", "t\n")
p.write("d/y", "other\n")
check(p.names() == ["D /workspace/d/theirs/", "M /workspace/d/y"], "what only the host has there is hidden, and said so", p.names())
done()
