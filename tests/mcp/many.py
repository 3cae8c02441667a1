#!/usr/bin/python3
"""Many at once: parallel calls, servers beside each other on one data directory and on one environment, and a server that is killed in
the middle of a call and started again by its client, which sends the call again."""
# timeout: 240
import os
import re
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402


def together(*calls):
    """Each in a thread of its own; the first failure is the test's."""
    failed = []

    def run(call):
        try:
            call()
        except BaseException as e:  # noqa: BLE001
            failed.append(e)
    threads = [threading.Thread(target=run, args=(c,)) for c in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]


def send(s, rid, tool, **args):
    s.say({"jsonrpc": "2.0", "id": rid, "method": "tools/call", "params": {"name": tool, "arguments": args}})


def answers(s, ids):
    import json
    got = {}
    while set(ids) - set(got):
        m = json.loads(s.p.stdout.readline())
        if m.get("id") in ids:
            got[m["id"]] = (m["result"]["content"][0]["text"], m["result"].get("isError", False))
    return got


# ---- one server, eight calls at once: none waits for another, and edits of one file all land ----
s = Server()
s.call("rattan_write_file", path="shared", content="".join(f"line {i} old\n" for i in range(8)))
ids = [f"p{i}" for i in range(8)]
for i, rid in enumerate(ids):
    send(s, rid, "shell_run", command=f"echo {i} > gate{i}; for k in $(seq 400); do [ $(ls gate* 2>/dev/null | wc -l) = 8 ] && echo all && exit; sleep 0.05; done; echo alone")
got = answers(s, ids)
assert all("\nall\n" in t for t, _ in got.values()), got
ids = [f"e{i}" for i in range(8)]
for i, rid in enumerate(ids):
    send(s, rid, "rattan_edit", path="shared", old_string=f"line {i} old", new_string=f"line {i} new")
got = answers(s, ids)
assert not any(err for _, err in got.values()), got
assert s.call("shell_run", command="grep -c new shared").split("\n")[1] == "8"
ids = [f"m{i}" for i in range(8)]
for i, rid in enumerate(ids):
    tool, args = (("rattan_read_file", {"path": "shared"}), ("rattan_write_file", {"path": f"w{i}", "content": "x\n"}), ("rattan_grep", {"pattern": "new", "path": "."}),
                  ("env_status", {}))[i % 4]
    send(s, rid, tool, **args)
assert not any(err for _, err in answers(s, ids).values())

# ---- a second server of the same environment, and one of another, on one data directory ----
same, other = Server(), Server("serve", "--env", "other")
assert "line 0 new" in same.call("rattan_read_file", path="shared")
assert other.call("rattan_read_file", ok=False, path="shared").startswith("error: ")


def work(server, name, n=12):
    for i in range(n):
        server.call("rattan_write_file", path=f"{name}/{i}", content=f"{name} {i}\n")
        t = server.call("shell_run", command=f"cat {name}/*; echo more >> {name}/{i}")
        assert t.startswith("exit 0") and f"{name} {i}\n" in t, t
        if i % 4 == 3 and name == "c":
            server.call("env_commit", message=f"{name} {i}")


together(lambda: work(s, "a"), lambda: work(same, "b"), lambda: work(other, "c"))
assert s.call("shell_run", command="cat b/* | grep -c more").split("\n")[1] == "12"
assert same.call("shell_run", command="cat a/* | grep -c more").split("\n")[1] == "12"
assert other.call("shell_run", command="ls").split("\n")[1:2] == ["c"], "environments are apart"
same.close()
assert "line 0 new" in s.call("rattan_read_file", path="shared"), "who leaves first takes nothing away"
other.close()

# ---- job ids: another server's are other ones, also after a restart ----
old = re.search(r"j\d+-[0-9a-f]+", s.call("shell_job_start", command="sleep 300"))[0]
s.call("env_commit", message="before the death")
s.p.kill()
s.p.wait()
s = Server()
new = re.search(r"j\d+-[0-9a-f]+", s.call("shell_job_start", command="true"))[0]
assert new.split("-")[1] != old.split("-")[1], (old, new)
t = s.call("shell_job_output", ok=False, job_id=old)
assert t.startswith(f"error: job {old} belonged to an earlier server that ended, and was lost with it") and new in t, t
t = s.call("shell_job_output", ok=False, job_id=new + "0")
assert t.startswith("error: there is no job") and "earlier" not in t and new in t, t

# ---- killed in the middle of a call, started again, and the call sent again: nothing half, nothing twice ----
BIG = "".join(f"{i} {'x' * 60}\n" for i in range(8000))


def killed_in(delay, tool, **args):
    """The server is killed @delay after the call was sent; then another gets the same call. The second answer."""
    global s
    send(s, "k", tool, **args)
    time.sleep(delay)
    s.p.send_signal(signal.SIGKILL)
    s.p.wait()
    s = Server()
    return s.call(tool, ok=False, **args)


for n, delay in enumerate((0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.03)):
    t = killed_in(delay, "rattan_write_file", path=f"big{n}", content=BIG)
    assert re.match(r"(created|unchanged) ", t), t
    assert s.call("shell_run", command=f"md5sum < big{n}; wc -c < big{n}").split("\n")[2] == str(len(BIG)), "whole"
    s.call("rattan_write_file", path="one", content=f"{n} alpha\n" + BIG, mode="overwrite")
    t = killed_in(delay, "rattan_edit", path="one", old_string=f"{n} alpha\n", new_string=f"{n} alpha beta\n")
    assert t.startswith("edited ") or "already applied" in t, t
    assert s.call("shell_run", command="head -n 1 one; grep -c . one").split("\n")[1:3] == [f"{n} alpha beta", "8001"], "once"
    s.call("rattan_write_file", path="note", content=f"{n}\n", mode="overwrite")
    t = killed_in(delay, "env_commit", message=f"kill {n}")
    assert re.match(r"(committed|nothing to commit)", t), t
    assert s.call("env_snapshot_list", automatic=False).count(f"kill {n}") == 1, "one commit of it"
    t = killed_in(delay, "shell_run", command=f"mkdir once{n} && sleep 0.2 && echo {n} >> once{n}/log")
    assert t.startswith("exit "), t
    assert s.call("shell_run", command=f"cat once{n}/log 2>/dev/null | wc -l").split("\n")[1] in ("0", "1"), "a command that was killed did not go on"
left = s.call("shell_run", command="find . -name '.*.rattan-*' | wc -l").split("\n")[1]
assert int(left) <= 2, f"{left} temporary files of killed servers are left"
fsck = subprocess.run([os.environ["RATTAN"], "fsck"], capture_output=True, text=True)
assert fsck.returncode == 0, fsck.stdout + fsck.stderr
assert subprocess.run(["pgrep", "-u", str(os.getuid()), "-f", "sleep 300"], stdout=subprocess.DEVNULL).returncode == 1, "its jobs died with it"
s.close()
print("ok")
