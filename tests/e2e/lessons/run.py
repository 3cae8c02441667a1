"""run.py prepare|run DIR: the content that the lessons start from, or the lessons, each in a directory of its own."""
import os
import sys

import content  # noqa: F401: each adds its lessons
import directories  # noqa: F401
import inodes  # noqa: F401
import programs  # noqa: F401
from lesson import LESSONS

what, top = sys.argv[1:]
failed = 0
for name, prepare, run in LESSONS:
    d = f"{top}/{name}"
    os.makedirs(d, exist_ok=True)
    os.chdir(d)
    if what == "prepare":
        if prepare:
            prepare()
        continue
    try:
        run()
    except Exception as e:
        print(f"FAIL: {name}: {type(e).__name__}: {e}", flush=True)
        failed += 1
print(f"{len(LESSONS)} lessons, {failed} failed", flush=True)
sys.exit(1 if failed else 0)
