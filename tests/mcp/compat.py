#!/usr/bin/python3
"""The calls that models send which were trained on other tools, as those tools' schemas have them: each is understood as it is.

compat.json is the table: whose call it is, the call, what the answer says (a regular expression over all of it), and what a command
finds afterwards. Each call meets the same four files.
"""
# timeout: 240
import json
import os
import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))
from rawclient import Server  # noqa: E402

PLACE = (r"rm -rf ./*; mkdir src; printf 'one\ntwo\nthree\n' > src/a.txt; printf 'int main(void)\n{\n\treturn 0;\n}\n' > src/main.c; "
         r"printf 'def f(): pass\n' > b.py; seq 3000 > long")
failed = 0
s = Server()
for n, case in enumerate(json.loads((here / "compat.json").read_text())):
    s.call("shell_run", command=PLACE, cwd="/workspace")
    args = case["args"]
    if "job" in case:
        more = {"interactive": True} if "interactive" in case else {}
        job = re.search(r'job_id="([^"]+)"', s.call("shell_job_start", command=case["job"], **more))[1]
        if "until" in case:
            s.call("shell_job_wait", job_id=job, until=case["until"])
        args = {k: job if v == "JOB" else v for k, v in args.items()}
    got = s.call(case["tool"], ok=False, **args)
    good = re.search(case["says"], got, re.S) and len(got) < case.get("shorter", len(got) + 1)
    if good and "then" in case:
        got = s.call("shell_run", command=case["then"])
        good = got.split("\n", 1)[1] == case["gives"]
    failed += not good
    print(f"{'ok' if good else 'not ok'} {n + 1} - {case['of']}: {case['tool']} {json.dumps(case['args'])}", flush=True)
    if not good:
        print("#", repr(got[:700]))
assert s.close() == 0
print(f"1..{n + 1}")
sys.exit(failed > 0)
