#!/usr/bin/env python3
# timeout: 180
"""One table is behind --help, the man pages and the completions: whatever a command's help names is in all of them, and each of them
is sound in the eyes of its reader (man, bash, zsh, fish; those that are installed)."""
import os
import pathlib
import re
import shutil
import subprocess

from lib import check, done, rattan

PREFIX = pathlib.Path(rattan).resolve().parent.parent
SHARE = PREFIX / "share"


def out(*cmd, **kw):
    return subprocess.run(cmd, capture_output=True, text=True, **kw)


def plain(text):
    """What a page shows: without fonts and escapes."""
    for a, b in ((r"\\f[BIP]", ""), (r"\\-", "-"), (r"\\&", ""), (r"\\\(aq", "'"), (r"\\\(ga", "`"), (r"\\\(ti", "~"), (r"\\\(ha", "^"),
                 (r"\\\(dq", '"'), (r"\\e", r"\\")):
        text = re.sub(a, b, text)
    return text


def squeezed(text):
    return re.sub(r"\s+", " ", text)


# From the text for people, not from what the pages are made of.
usage = out(rattan, "--help").stdout
commands = re.findall(r"^  ([a-z]+) +\S", usage.split("\n  -")[0].split("\n      --")[0], re.M)
check(len(commands) >= 17, "commands of rattan --help", commands)
text = {s: (SHARE / p).read_text() for s, p in (("bash", "bash-completion/completions/rattan"), ("zsh", "zsh/site-functions/_rattan"),
                                                ("fish", "fish/vendor_completions.d/rattan.fish"))}
pages = sorted(p.name for p in (SHARE / "man/man1").iterdir())
check(pages == sorted(["rattan.1", *(f"rattan-{c}.1" for c in commands)]), "a page for each command, and no other", pages)
first = plain((SHARE / "man/man1/rattan.1").read_text())

for c in commands:
    told = out(rattan, c, "--help").stdout
    page = squeezed(plain((SHARE / f"man/man1/rattan-{c}.1").read_text()))
    check(f"rattan-{c} (1)" in first, f"{c}: in rattan(1)")
    of = {"bash": re.search(rf"^\t{c}\) options='([^\n]*)$", text["bash"], re.M),
          "zsh": re.search(rf"^\t{c}\)\n(.*?)^\t\t;;", text["zsh"], re.M | re.S),
          "fish": re.search(rf"^complete -c rattan -n __rattan_none -a {c} -d .*?(?=\n\n|\Z)", text["fish"], re.S | re.M)}
    check(all(of.values()), f"{c}: in each completion", of)
    options = re.findall(r"^  (?:-(\w), |    )--([\w-]+)(?: (\S+))? +(\S.*)$", told, re.M)
    check(any(o[1] == "help" for o in options), f"{c}: --help")
    for letter, name, value, help in options:
        if name == "help":
            check("--help" in page, f"{c} --help: man")
            continue
        check(f"--{name}{' ' + value if value else ''} {help}" in page, f"{c} --{name}: man", help)
        check(of["bash"] and f"--{name}" in of["bash"][1].replace("'", " ").split(), f"{c} --{name}: bash")
        check(of["zsh"] and f"--{name}[" in of["zsh"][1], f"{c} --{name}: zsh")
        check(of["fish"] and f" -l {name} " in of["fish"][0], f"{c} --{name}: fish")
        if letter:
            check(f"-{letter}, --{name}" in page, f"{c} -{letter}: man")
            check(of["bash"] and f"-{letter}" in of["bash"][1].replace("'", " ").split(), f"{c} -{letter}: bash")
    # Whatever else the help says, in the same words.
    for line in told.split("\n\n")[-1].splitlines():
        check(line.startswith("Example") or squeezed(line.strip()) in page, f"{c}: '{line}' in its page")
for name in re.findall(r"--([a-z]+)", usage.split("\n\n")[2]):
    check(f"--{name}" in first and all(re.search(rf"(--|-l ){name}\b", t) for t in text.values()), f"--{name} of rattan: everywhere")

# ---- what their readers say ----
for p in sorted((SHARE / "man/man1").iterdir()):
    for tool in (["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-man", "-ww", "-z", "-Tutf8"]):
        if shutil.which(tool[0]):
            r = out(*tool, str(p))
            check(r.returncode == 0 and not r.stdout + r.stderr, f"{tool[0]}: {p.name}", r.stdout + r.stderr)
for shell, path in (("bash", "bash-completion/completions/rattan"), ("zsh", "zsh/site-functions/_rattan"),
                    ("fish", "fish/vendor_completions.d/rattan.fish")):
    if shutil.which(shell):
        r = out(shell, "-n", str(SHARE / path))
        check(r.returncode == 0 and not r.stderr, f"{shell} -n", r.stderr)

# ---- completing ----
env = dict(os.environ, PATH=f"{PREFIX}/bin:{os.environ['PATH']}")
subprocess.run([rattan, "run", "-e", "alpha", "--", "sh", "-c", "echo a > a"], check=True)
subprocess.run([rattan, "commit", "-e", "alpha", "-m", "one"], check=True, stdout=subprocess.DEVNULL)
commit = out(rattan, "log", "-e", "alpha").stdout.split()[0]
pathlib.Path("some-file").write_text("")


def bash(*words):
    script = f". {SHARE}/bash-completion/completions/rattan; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($#-1)); _rattan 2>/dev/null; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return out("bash", "-c", script, "bash", *words, env=env).stdout.split()


def fish(*words):
    r = out("fish", "-c", f"source {SHARE}/fish/vendor_completions.d/rattan.fish; complete -C'{' '.join(words)}'", env=env)
    return [w.split("\t")[0] for w in r.stdout.splitlines()]


for shell, complete in (("bash", bash), ("fish", fish)):
    if not shutil.which(shell):
        continue
    for words, want in (((("rattan", "comm"), {"commit"}), (("rattan", "run", "--overlay-c"), {"--overlay-cwd"}),
                         (("rattan", "status", "-e", "al"), {"alpha"}), (("rattan", "env", "rm", "al"), {"alpha"}),
                         (("rattan", "rollback", "-e", "alpha", ""), {"head", "base", commit}),
                         (("rattan", "run", "--profile", "some-f"), {"some-file"}), (("rattan", "run", "--", "cat", "some-f"), {"some-file"}),
                         (("rattan", "--overlay-c"), {"--overlay-cwd"}))):
        got = complete(*words)
        check(set(got) == want if len(want) == 1 else want <= set(got), f"{shell}: {' '.join(words)}", got)

# ---- the other files ----
if shutil.which("systemd-analyze"):
    units = [str(p) for p in (PREFIX / "lib/systemd/user").iterdir()]
    check(len(units) == 2, "a unit and its timer", units)
    for u in units:
        # The program is not where it will be, and there may be no man here.
        made = pathlib.Path(u).read_text().replace("=/usr/local/bin/rattan", f"={rattan}")
        pathlib.Path(os.path.basename(u)).write_text(made)
    r = out("systemd-analyze", "--user", "--man=no", "verify", *(os.path.abspath(os.path.basename(u)) for u in units))
    check(r.returncode == 0 and "rattan" not in r.stderr, "systemd-analyze verify", r.stderr)
done()
