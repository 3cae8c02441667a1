#!/usr/bin/python3
"""1,000 commits in a row; any of them, and the base, can be gone back to and forward again."""
# timeout: 300
import random
import re
import statistics
import sys
import os

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402

N = 1000
s = Server("--keep")
ids, took = [], []
for i in range(N):
    s.call("rattan_write_file", path=f"/workspace/f{i % 50}", content=f"state {i}\n", mode="overwrite")
    took.append(s.timed("env_commit", message=f"commit {i}"))
    # The newest commit's id, from the first line that names one.
    text = s.call("env_snapshot_list", limit=1)
    ids.append(re.search(r"\b[0-9a-f]{10,64}\b", text)[0])
assert len(set(ids)) == N, "commit ids repeat"

r = random.Random(5)
back = []
for i in [0, N - 1, 1, N // 2, N - 2, *(r.randrange(N) for _ in range(40))]:
    back.append(s.timed("env_rollback", to_commit_id=ids[i]))
    got = s.call("shell_run", command=f"cat f{i % 50}; ls | wc -l")
    assert f"state {i}\n" in got, (i, got)
    assert re.search(rf"^{min(i + 1, 50)}$", got, re.M), (i, got)
s.call("env_rollback", to_commit_id="base")
assert "state" not in s.call("shell_run", command="cat f* 2>/dev/null; true")
s.call("env_rollback", to_commit_id=ids[-1])
assert f"state {N - 1}\n" in s.call("shell_run", command=f"cat f{(N - 1) % 50}")
assert s.close() == 0


def ms(x):
    return f"{statistics.median(x) * 1000:.2f} ms"


print(f"commit p50: first hundred {ms(took[:100])}, last hundred {ms(took[-100:])}; rollback p50 {ms(back)}")
