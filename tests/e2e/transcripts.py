#!/usr/bin/env python3
# timeout: 300
"""What the documentation shows is what happens: each ```console block of README.md and docs/*.md is typed again, in order, and prints the
same but for ids, times and sizes.

    tests/e2e/transcripts.py --write FILE...      (RATTAN set) puts in what is printed now

In a block "$ command" is typed on a terminal in the home directory or where the last cd led; what follows is its output, and a line "..."
stands for any lines. All blocks of a file are one session; $HOME is fresh for each."""
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import threading

MASKS = ((r"[0-9a-f]{64}", r"[0-9a-f]{64}"), (r"[0-9a-f]{12}", r"[0-9a-f]{12}"), (r"-[0-9a-f]{8}\b", r"-[0-9a-f]{8}"),
         (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?", r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?"), (r"\d+(?:\.\d+)? (?:[KMG]i?B|bytes)", r"[\d.]+ \w+"),
         (r"pid \d+, up \d+ s", r"pid \d+, up .*"))


class Session:
    """A terminal of one person."""

    def __init__(self, top):
        self.home = pathlib.Path(top)
        for d in ("home", "run", "tmp"):
            (self.home / d).mkdir(parents=True, mode=0o700)
        self.cwd = str(self.home / "home")
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "RATTAN"))}
        self.env = dict(keep, HOME=self.cwd, XDG_RUNTIME_DIR=str(self.home / "run"), TMPDIR=str(self.home / "tmp"), TERM="dumb",
                        PATH=os.path.dirname(os.environ["RATTAN"]) + ":" + os.environ["PATH"], LC_ALL="C.UTF-8")

    def type(self, line):
        """What it prints, on a terminal, standard output and error together."""
        ours, theirs = pty.openpty()
        where, told = os.pipe()
        got = []

        def read():
            while True:
                try:
                    b = os.read(ours, 65536)
                except OSError:
                    return
                if not b:
                    return
                got.append(b)

        t = threading.Thread(target=read)
        t.start()
        # /tmp/view is everybody's; here it is this session's.
        line = line.replace("/tmp/", f"{self.env['TMPDIR']}/")
        subprocess.run(["bash", "-c", f"{line}\npwd >&{told}"], cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL,
                       stdout=theirs, stderr=theirs, pass_fds=[told], timeout=120)
        os.close(told)
        os.close(theirs)
        t.join(10)
        self.cwd = os.read(where, 4096).decode().strip() or self.cwd
        os.close(where)
        os.close(ours)
        text = b"".join(got).decode(errors="replace").replace("\r\n", "\n")
        return text.replace(f"{self.env['TMPDIR']}/", "/tmp/").replace(self.env["HOME"], "~")


def masked(line):
    """A line as a pattern."""
    out, at = "", 0
    for m in re.finditer("|".join(f"({a})" for a, _ in MASKS), line):
        out += re.escape(line[at:m.start()]) + MASKS[m.lastindex - 1][1]
        at = m.end()
    return out + re.escape(line[at:])


def pattern(lines):
    return "".join("(?:.*\n)*?" if line == "..." else masked(line) + "\n" for line in lines)


def blocks(text):
    return list(re.finditer(r"^```console\n(.*?)^```$", text, re.M | re.S))


def steps(block):
    """[command, [expected lines]]; a command that ends in a backslash goes on in the next line."""
    out = []
    for line in block.splitlines():
        if line.startswith("$ "):
            out.append([line[2:], []])
        elif out and out[-1][0].endswith("\\"):
            out[-1][0] += "\n" + line
        else:
            out[-1][1].append(line)
    return out


def replay(path, top):
    s, bad, n = Session(top), 0, 0
    for b in blocks(path.read_text()):
        for command, want in steps(b[1]):
            got, n = s.type(command), n + 1
            if not re.fullmatch(pattern(want), got):
                bad += 1
                print(f"FAIL: {path.name}: $ {command}\n--- it says\n" + "\n".join(want) + f"\n--- and it was\n{got}")
    print(f"{path.name}: {n} commands")
    return bad, n


def write(path, top):
    s, text, at, out = Session(top), path.read_text(), 0, ""
    for b in blocks(text):
        body = ""
        for command, want in steps(b[1]):
            got = s.type(command)
            keep = re.fullmatch(pattern(want), got)
            body += f"$ {command}\n" + ("".join(line + "\n" for line in want) if keep else got)
        out += text[at:b.start(1)] + body
        at = b.end(1)
    path.write_text(out + text[at:])


def main():
    top = pathlib.Path("t").resolve()
    shutil.rmtree(top, ignore_errors=True)
    if sys.argv[1:2] == ["--write"]:
        for i, f in enumerate(sys.argv[2:]):
            write(pathlib.Path(f), top / str(i))
        return
    src = pathlib.Path(os.environ["RATTAN_SRC"])
    total = [replay(p, top / str(i)) for i, p in enumerate(sorted([src / "README.md", *src.glob("docs/*.md")])) if blocks(p.read_text())]
    if {"README.md", "tutorial.md"} - {p.name for p in [src / "README.md", *src.glob("docs/*.md")] if blocks(p.read_text())}:
        sys.exit("README.md or docs/tutorial.md shows nothing")
    sys.exit(1 if sum(b for b, _ in total) else 0)


if __name__ == "__main__":
    main()
