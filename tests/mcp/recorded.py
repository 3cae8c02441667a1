#!/usr/bin/python3
"""Recorded sessions, replayed: what an agent asked in a day's work, and each revision's opening, with the answers that it got.

A recording has the client's lines as they were sent ("C> "), and under each the server's, made the same for every run ("S< ", texts as
lines with a bar). <1>, <2>... are ids that the server made up, in the order in which they came; a request may name one. When answers
are meant to be others now: RATTAN_RECORD=1 RATTAN_SRC=. tests/mcp/recorded.py writes them, and the difference is for a person to judge.
"""
# timeout: 300
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(os.environ["RATTAN_SRC"]) / "tests/mcp/recorded"
# What differs from run to run, and what of this machine shows. Content has no place here: a version is a digest of it, and stays.
VARIES = [
    (r"\b(in|after|for) \d+(\.\d+)?s\b", r"\1 Ts"),
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?Z?\b", "TIME"),
    (r"\b\d+s ago\b", "Ts ago"),
    (r"\b(j\d+)-[0-9a-f]{8}\b", r"\1-N"),
    (r"\bsed[A-Za-z0-9]{6}\b", "sedN"),
]
DROPPED = {"seconds", "max_rss", "enforced"}


class Ids:
    """Commits by their order; a shorter form of one is the same."""

    def __init__(self):
        self.known = []

    def hide(self, text):
        def name(m):
            for i, k in enumerate(self.known):
                if k.startswith(m[0]):
                    return f"<{i + 1}>"
                if m[0].startswith(k):
                    self.known[i] = m[0]
                    return f"<{i + 1}>"
            self.known.append(m[0])
            return f"<{len(self.known)}>"
        return re.sub(r"\b(?=[0-9a-f]*\d)(?:[0-9a-f]{64}|[0-9a-f]{12})\b", name, text)

    def show(self, text):
        return re.sub(r"<(\d+)>", lambda m: self.known[int(m[1]) - 1] if int(m[1]) <= len(self.known) else m[0], text)


def plain(text, ids):
    for pattern, instead in VARIES:
        text = re.sub(pattern, instead, text)
    return ids.hide(text)


def shape(value, ids):
    if isinstance(value, dict):
        return {k: shape(v, ids) for k, v in value.items() if k not in DROPPED}
    if isinstance(value, list):
        return [shape(v, ids) for v in value]
    return plain(value, ids) if isinstance(value, str) else value


def show(m, ids):
    """An answer as lines of a recording."""
    r = m.get("result", {})
    texts = [c.pop("text") for c in r.get("content", []) if "text" in c]
    if "tools" in r:
        texts = ["\n".join(t["name"] for t in r.pop("tools"))]
    for info in (r, r.get("_meta", {})):
        for key in ("serverInfo", "io.modelcontextprotocol/serverInfo"):
            if key in info:
                info[key]["version"] = "VERSION"
    head = "S< " + json.dumps(shape(m, ids), ensure_ascii=False)
    return [head, *("  |" + (" " + x if x else "") for t in texts for x in plain(t, ids).removesuffix("\n").split("\n"))]


def replay(name, lines):
    p = subprocess.Popen([os.environ["RATTAN"], "--env", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ids, out = Ids(), []
    for line in lines:
        if line.startswith("#") or not line:
            out.append(line)
        if not line.startswith("C> "):
            continue
        out.append(line)
        p.stdin.write(ids.show(line[3:]).encode() + b"\n")
        p.stdin.flush()
        if "id" not in json.loads(line[3:]):
            continue
        answer = p.stdout.readline()
        if not answer:
            break
        out += show(json.loads(answer), ids)
    p.stdin.close()
    out.append(f"# exit {p.wait(60)}")
    return out


failed = 0
for path in sorted(FOLDER.glob("*.txt")):
    want = path.read_text().splitlines()
    got = replay(f"recorded-{path.stem}", [x for x in want if not x.startswith("# exit")])
    if os.environ.get("RATTAN_RECORD"):
        path.write_text("\n".join(got) + "\n")
        continue
    diff = list(difflib.unified_diff(want, got, str(path.name), "now", lineterm="", n=1))
    failed += bool(diff)
    print(f"{'not ' if diff else ''}ok - {path.stem}: {sum(x.startswith('C> ') for x in want)} lines")
    print("\n".join(diff[:60]))
sys.exit(failed)
