#!/usr/bin/python3
"""What was committed in a sandbox's repository: apply keeps it back in one line and says the way, which docs/apply.md has in these words;
what was pulled is nothing to apply, and no conflict."""
# timeout: 120
import os
import pathlib
import subprocess

from lib import check, done, here, rattan

SRC = pathlib.Path(os.environ["RATTAN_SRC"])


def sh(text):
    return subprocess.run(["sh", "-ec", text], capture_output=True, text=True, cwd=f"{here}/p", env=dict(os.environ, PATH=f"{os.path.dirname(rattan)}:{os.environ['PATH']}"))


os.mkdir("p")
r = sh("git init -q . -b main; git config user.email a@b; git config user.name n; echo 1 > f; echo k > kept; git add f kept; git commit -qm one")
check(r.returncode == 0, "a repository", r.stderr)
r = sh("rattan run --overlay-cwd -c 'cd /workspace; echo 2 >> f; echo n > new; mkdir d; echo x > d/x; git add -A; git commit -qm two; rm kept; mkdir .codex; echo c > .codex/c'")
check(r.returncode == 0, "a commit in the sandbox", r.stderr)
r = sh("rattan apply --dry-run")
kept = [x for x in r.stderr.splitlines() if "kept back: " in x]
check(len(kept) == 2 and kept[1].endswith(" changes in .git: the policy says no: the protected name .git") and " 2 changes in .codex: " in kept[0],
      "one line for all that is in a protected directory", r.stderr)
check("\nA new\n" in r.stdout and "\nM f\n" in r.stdout, "the files would be applied", r.stdout)

text = (SRC / "docs/apply.md").read_text()
steps = [x.split("  #")[0].strip() for x in text.split("**Kept back.**")[1].split("```")[1].strip().splitlines()]
check(len(steps) == 3, "docs/apply.md says how commits come", steps)
check("git pull DIR/workspace\n" in r.stderr, "with the repository's place", r.stderr)
said = [x for x in r.stderr.splitlines() if "rattan mount" in x]
check(len(said) == 1 and all(s.split(" && ")[-1].split(" DIR")[0].split(" -m")[0] in said[0] for s in steps), "and so does apply", r.stderr)
for s in steps:
    r = sh(s.replace("DIR", f"{here}/view"))
    check(r.returncode == 0, s, r.stdout + r.stderr)
check(sh("git log --format=%s").stdout == "two\none\n" and open("p/d/x").read() == "x\n", "the commit has come")
r = sh("rattan apply --dry-run")
check(r.returncode == 0 and r.stdout == "D kept\n" and "conflict" not in r.stderr, "what was pulled is nothing to apply, and no conflict", (r.returncode, r.stdout, r.stderr))
r = sh("rattan apply")
check(r.returncode == 0 and not os.path.exists("p/kept") and "1 applied" in r.stderr, "the rest is applied", r.stdout + r.stderr)
sh(f"rattan umount {here}/view")
done()
