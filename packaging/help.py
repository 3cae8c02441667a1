#!/usr/bin/env python3
"""Makes the man pages and the completions of bash, zsh and fish from what `rattan --dump-help` says.

    packaging/help.py RATTAN man DIR VERSION DATE     rattan.1 and a rattan-COMMAND.1 for each command, into DIR
    packaging/help.py RATTAN bash|zsh|fish FILE

RATTAN is the built program; its tables are the only source. A command or an option that is added there needs nothing here.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import completions  # noqa: E402
import manpages  # noqa: E402


def load(rattan):
    """A stream of JSON objects: the program, then its commands."""
    r = subprocess.run([rattan, "--dump-help"], stdout=subprocess.PIPE, text=True, check=True)
    out, at, decoder = [], 0, json.JSONDecoder()
    text = r.stdout.strip()
    while at < len(text):
        one, at = decoder.raw_decode(text, at)
        out.append(one)
        while at < len(text) and text[at].isspace():
            at += 1
    return out[0], out[1:]


def main():
    if len(sys.argv) not in (4, 6):
        sys.exit(__doc__)
    rattan, what, to = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    program, commands = load(rattan)
    if what == "man":
        # Anew, so that none is left of a command that was there once.
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        for name, text in manpages.pages(program, commands, *sys.argv[4:]):
            (to / name).write_text(text)
    else:
        to.write_text(getattr(completions, what)(program, commands))


if __name__ == "__main__":
    main()
