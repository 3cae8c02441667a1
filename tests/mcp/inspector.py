#!/usr/bin/python3
"""The inspector's command line against the server: are its schemas portable, its errors seen as such, and what does it do under load?"""
# timeout: 300
import json
import os
import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
BIN = here / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
FAILED = []

if not BIN.exists():
    print("the inspector is not installed (npm ci in tests/mcp)")
    sys.exit(77)


def ok(cond, what, note=""):
    print(("ok - " if cond else "not ok - ") + what, "" if cond else f"({note})", flush=True)
    if not cond:
        FAILED.append(what)


def inspect(*args, era):
    """(exit code, what it printed as JSON or None, what it complained about). It hands the server only what -e names."""
    env = [x for k in ("HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "TMPDIR") for x in ("-e", f"{k}={os.environ[k]}")]
    r = subprocess.run(["node", BIN, "--cli", *env, "--protocol-era", era, "--format", "json", os.environ["RATTAN"], *args],
                       capture_output=True, text=True, timeout=200)
    try:
        return r.returncode, json.loads(r.stdout), r.stderr
    except ValueError:
        return r.returncode, None, r.stderr + r.stdout


def call(tool, era, **args):
    return inspect("--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(args), era=era)


def unwrap(out):
    return (out or {}).get("result", out or {})


for era in ("legacy", "modern", "auto"):
    rc, out, err = inspect("--method", "tools/list", "--strict", era=era)
    ok(rc == 0 and len(unwrap(out).get("tools", [])) >= 20, f"{era}: every schema is portable", (rc, err))
    ok(not err.strip(), f"{era}: and there is nothing to say about them", err)
    rc, out, err = call("shell_run", era, command="echo seen; exit 3")
    ok(rc == 0 and "\nseen\n" in unwrap(out)["content"][0]["text"], f"{era}: a command that fails is an answer", (rc, out, err))
    rc, out, err = call("rattan_read_file", era, path="/workspace/nothing")
    ok(rc == 5 and "isError" in err, f"{era}: an error is one", (rc, out, err))
    rc, out, err = call("nope", era)
    ok(rc == 5 and "tool_not_found" in err, f"{era}: an unknown tool", (rc, out, err))

rc, out, err = inspect("--method", "initialize", era="legacy")
ok(rc == 0 and unwrap(out)["serverInfo"]["name"] == "rattan", "initialize", (rc, out, err))
for method, args in (("resources/list", []), ("prompts/list", []), ("logging/setLevel", ["--log-level", "debug"])):
    rc, out, err = inspect("--method", method, *args, era="legacy")
    ok(rc != 0 or not any(unwrap(out).values()), f"{method}: there is none", (rc, out, err))

for era in ("legacy", "modern"):
    for tool, args in (("shell_run", {"command": "echo x >> log; tail -n 1 log"}), ("rattan_grep", {"pattern": "x", "max_matches": 5})):
        rc, out, err = inspect("--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(args),
                               "--load", "--load-requests", "60", "--load-concurrency", "8", era=era)
        got = unwrap(out)
        ok(rc == 0 and got.get("requests") == got.get("ok") == 60, f"{era}: 60 calls of {tool}, 8 at a time", (rc, out, err))
        print(f"# {got.get('throughput', 0):.0f} a second, p99 {got.get('latencyMs', {}).get('p99', 0):.0f} ms")

print(f"{len(FAILED)} failed")
sys.exit(len(FAILED) > 0)
