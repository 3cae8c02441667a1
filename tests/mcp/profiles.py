#!/usr/bin/python3
"""The server under profiles: each call's own (--sandbox inherit), or one whatever a client sends. Cases 1, 15 to 17, and what does not stick."""
# timeout: 180
import json
import os
import pathlib
import subprocess
import sys
import time

RATTAN = os.environ["RATTAN"]
TOP = pathlib.Path(os.environ["PWD"])
KEY = "codex/sandbox-state-meta"
bad = 0


def check(cond, what, note=""):
    global bad
    print(f"{'ok' if cond else 'not ok'} - {what}", flush=True)
    if not cond:
        bad += 1
        print("#", str(note)[:500], flush=True)


class Server:
    def __init__(self, *args):
        self.p = subprocess.Popen([RATTAN, "serve", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=TOP / "w")
        self.n = 0
        self.hello = self.ask("initialize", {"protocolVersion": "2025-11-25"})

    def ask(self, method, params):
        self.n += 1
        self.p.stdin.write(json.dumps({"jsonrpc": "2.0", "id": self.n, "method": method, "params": params}) + "\n")
        self.p.stdin.flush()
        while True:
            m = json.loads(self.p.stdout.readline())
            if m.get("id") == self.n:
                return m["result"]

    def call(self, name, meta=None, **args):
        p = {"name": name, "arguments": args}
        if meta is not None:
            p["_meta"] = {KEY: meta, "other": "ignored"}
        r = self.ask("tools/call", p)
        return r.get("isError", False), r["content"][0]["text"]

    def sh(self, command, meta=None, **args):
        return self.call("shell_run", meta, command=command, **args)

    def end(self):
        self.p.stdin.close()
        return self.p.wait(20)


def special(kind, access):
    return {"access": access, "path": {"type": "special", "value": {"kind": kind}}}


def profile(*entries, **more):
    return {"permissionProfile": {"type": "managed", "network": "restricted", "file_system": {"type": "restricted", "entries": list(entries)}},
            "sandboxCwd": f"file://{TOP}/w", "useLegacyLandlock": False, "codexLinuxSandboxExe": None, **more}


ROOT, PROJ = special("root", "read"), special("project_roots", "write")
WS, RO = profile(ROOT, PROJ), profile(ROOT)
DENY = profile(ROOT, PROJ, {"access": "deny", "path": {"type": "path", "path": f"{TOP}/w/secret"}})
(TOP / "w").mkdir()
(TOP / "w/f").write_text("text\n")
(TOP / "w/secret").write_text("hush\n")

s = Server("--sandbox", "inherit")
check(s.hello["capabilities"].get("experimental") == {KEY: {"version": "1.0.0"}}, "inherit is told", s.hello["capabilities"])
for name, args in (("shell_run", {"command": "touch /tmp/ran"}), ("shell_job_start", {"command": "touch /tmp/ran"}), ("rattan_read_file", {"file_path": "f"}),
                   ("rattan_write_file", {"file_path": "g", "content": "x"})):
    e, t = s.call(name, None, **args)
    check(e and KEY in t, f"1: {name} without the object", t)
for meta, says in (("read-only", "must be an object"), ({**WS, "sandboxCwd": None}, "sandboxCwd"), ({**WS, "sandboxCwd": "w"}, "sandboxCwd"),
                   ({**WS, "sandboxPolicy": {"type": "danger-full-access"}}, "both given"), ({**WS, "useLegacyLandlock": True}, "Landlock alone")):
    e, t = s.sh("touch /tmp/ran", meta)
    check(e and says in t, f"2, 3, 11, 83: refused: {says}", t)
e, t = s.sh("ls /tmp/ran; pwd; cat f; echo x > g && echo wrote; touch .git; touch /etc/x; echo $TMPDIR", WS)
check(not e and f"{TOP}/w\ntext\nwrote\n" in t and "/tmp/rattan-session" in t and "ran\n" not in t.replace("/tmp/ran", ""), "under its profile, and nothing ran before", t)
check("cannot touch '.git'" in t and "cannot touch '/etc/x'" in t and not (TOP / "w/g").exists(), "what it may not; the host is as it was", t)
e, t = s.call("rattan_read_file", WS, file_path="g")
check(not e and "x" in t, "file tools see the same, from the project", t)
e, t = s.call("rattan_write_file", RO, file_path="h", content="no")
check(e, "a file tool under a narrower profile", t)
e, t = s.sh("echo y > h", RO)
check("exit 1" in t, "another profile, another verdict", t)
e, t = s.sh("echo y > h && echo wrote", WS)
check("wrote" in t and "under another profile" in t, "nothing sticks, and the change is told", t)
e, t = s.sh("true", WS)
check("under another profile" not in t, "the same again is no change", t)
e, t = s.call("rattan_read_file", DENY, file_path="secret")
check(e and "hush" not in t, "denied to the file tools", t)
e, t = s.sh("cat secret", DENY)
check("hush" not in t and "exit 1" in t, "denied to commands", t)
e, t = s.sh("cat secret", WS)
check("hush" in t, "and not, under one that does not deny", t)
e, t = s.sh("echo more >> secret", WS)
e, t = s.call("env_diff", WS, path=f"{TOP}/w/secret")
check(not e and "+more" in t, "env_diff shows content that may be read", t)
e, t = s.call("env_diff", DENY, path=f"{TOP}/w/secret")
check(e and "more" not in t and "hush" not in t, "and not what is denied", t)
e, t = s.call("env_diff", None, path=f"{TOP}/w/secret")
check(e and KEY in t, "nor without the object", t)
# 16, 17
e, t = s.call("shell_job_start", WS, command="n=0; while :; do n=$((n+1)); echo $n > beat; sleep 0.1; done")
check(not e and "started job" in t, "16: a job", t)
time.sleep(0.5)
e, t = s.sh("cat beat", {**WS, "sandboxCwd": 3})
check(e and "sandboxCwd" in t, "17: a bad object runs nothing", t)
e, t = s.call("shell_job_list", WS)
check("running" in t, "17: and ends nothing", t)
e, t = s.sh("cat beat; sleep 0.5; cat beat", RO)
lines = [x for x in t.splitlines() if x.isdigit()]
check("under another profile" in t and len(lines) == 2 and lines[0] == lines[1], "16: the job was ended before the next profile's call", t)
e, t = s.sh("true", WS, environment="other")
check(e, "no other environment under a profile", t)
e, t = s.call("bind_host_dir", WS, host_path=str(TOP / "w"), mount_point="/mnt/x")
check(e and "under a profile" in t, "no binds beside a profile", t)
check(s.end() == 0, "an orderly end")

# 15: an explicit mode looks at no metadata
s = Server("--sandbox", "workspace-write")
check("experimental" not in s.hello["capabilities"], "an explicit mode tells nothing")
full = {"permissionProfile": {"type": "disabled"}, "sandboxCwd": f"file://{TOP}/w"}
e, t = s.sh("touch /etc/x; echo ok > i && echo wrote; touch .codex", full)
check("cannot touch '/etc/x'" in t and "wrote" in t and "cannot touch '.codex'" in t, "15: metadata that is wider is ignored", t)
e, t = s.sh("cat i")
check("ok" in t, "15: and is not needed", t)
s.end()
s = Server("--sandbox", "read-only")
e, t = s.sh("touch j; touch $TMPDIR/x && echo tmp", full)
check("cannot touch 'j'" in t and "tmp\n" in t, "read-only", t)
s.end()
s = Server("--sandbox", "danger-full-access")
e, t = s.sh("touch .git /etc/x && echo wrote")
check("wrote" in t and not (TOP / "w/.git").exists(), "danger-full-access is all of the copy-on-write view", t)
s.end()
# the directory for temporary files is this session's in the tree after a rollback, too: another one of the same environment does not empty it
(TOP / "ws.json").write_text(json.dumps(WS))
s = Server("--profile", str(TOP / "ws.json"), "--env", "scratch", "--keep")
e, t = s.sh("echo old > $TMPDIR/f")
e, t = s.call("env_rollback", rev="base")
check(not e, "a rollback", t)
e, t = s.sh("ls $TMPDIR; echo mine > $TMPDIR/f")
check(not e and "f" not in t.split(), "the directory is made anew", t)
r = subprocess.run([RATTAN, "run", "--profile", str(TOP / "ws.json"), "-e", "scratch", "--", "true"], capture_output=True, text=True, cwd=TOP / "w")
check(r.returncode == 0, "another session of the same environment and profile", r.stderr)
e, t = s.sh("cat $TMPDIR/f")
check("mine" in t, "has not emptied it", t)
s.end()
# a local setting holds whatever is sent
conf = pathlib.Path(os.environ["XDG_CONFIG_HOME"]) / "rattan"
conf.mkdir(parents=True, exist_ok=True)
(conf / "config.json").write_text('{"landlock_only": true}')
s = Server("--sandbox", "inherit")
e, t = s.sh("true", WS)
check(e and "Landlock alone" in t, "90: a local choice is not undone by useLegacyLandlock false", t)
e, t = s.sh("true", RO)
check(not e, "and a profile that fits it runs", t)
s.end()
(conf / "config.json").unlink()
for args in (("--sandbox", "open"), ("--sandbox", "inherit", "--bind-cwd"), ("--profile", "/no/such"), ("--sandbox", "inherit", "--profile", "x")):
    r = subprocess.run([RATTAN, "serve", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=TOP / "w")
    check(r.returncode in (2, 3) and r.stderr.startswith("rattan: "), f"refused: {' '.join(args)}", r.stderr)
sys.exit(bad > 0)
