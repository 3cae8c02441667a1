#!/usr/bin/python3
"""The client is killed while another process still holds its end of the server's input: the server ends by itself, after a minute without a
client and without input; not while a call is under way."""
# timeout: 300
# long
import json
import os
import subprocess
import sys
import time

# A client that starts the server with a pipe that its own parent holds, waits for an answer, and dies.
CLIENT = """
import os, subprocess, sys
p = subprocess.Popen([os.environ["RATTAN"]], stdin=int(sys.argv[1]), stdout=int(sys.argv[2]))
print(p.pid, flush=True)
sys.stdin.readline()
os._exit(0)
"""


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


in_r, in_w = os.pipe()
out_r, out_w = os.pipe()
client = subprocess.Popen([sys.executable, "-c", CLIENT, str(in_r), str(out_w)], pass_fds=(in_r, out_w), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True)
server = int(client.stdout.readline())
os.close(in_r)
os.close(out_w)
answers = os.fdopen(out_r)


def ask(rid, method, **params):
    os.write(in_w, json.dumps({"jsonrpc": "2.0", "id": rid, "method": method, "params": params}).encode() + b"\n")


ask(1, "initialize", protocolVersion="2025-06-18")
assert json.loads(answers.readline())["id"] == 1
client.communicate("\n")
assert alive(server), "the server ended with its client, while its input was open"
# Twelve calls wait at once, a thirteenth has its turn after them: it is answered when the minute is long over.
for rid in range(2, 15):
    ask(rid, "tools/call", name="shell_run", arguments={"command": "sleep 200", "wait": 55})
began = time.monotonic()
got = [json.loads(answers.readline()) for _ in range(13)]
assert sorted(m["id"] for m in got) == list(range(2, 15)), got
assert all("running as job" in m["result"]["content"][0]["text"] for m in got), got
assert time.monotonic() - began > 70, "the last call did not wait for the others"
end = time.monotonic() + 150
while alive(server) and time.monotonic() < end:
    time.sleep(0.5)
assert not alive(server), "the server lives on without a client"
