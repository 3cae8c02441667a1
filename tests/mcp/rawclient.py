"""A bare MCP client over stdio for tests and the benchmark: one server process, one call at a time."""
import json
import os
import subprocess
import time


class Server:
    def __init__(self, *args, env=None, rattan=None):
        self.p = subprocess.Popen([rattan or os.environ["RATTAN"], *args], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, env=env)
        self.id = 0
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                "clientInfo": {"name": "test", "version": "1"}})
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def say(self, message):
        self.p.stdin.write(json.dumps(message).encode() + b"\n")
        self.p.stdin.flush()

    def ask(self, method, params):
        self.id += 1
        self.say({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params})
        while True:
            line = self.p.stdout.readline()
            if not line:
                raise EOFError("the server ended")
            m = json.loads(line)
            if m.get("id") == self.id:
                if "error" in m:
                    raise RuntimeError(m["error"])
                return m["result"]

    def call(self, tool, ok=True, **args):
        """The text of a tool's answer; with ok, an error answer raises."""
        r = self.ask("tools/call", {"name": tool, "arguments": args})
        text = "".join(c.get("text", "") for c in r["content"])
        if ok and r.get("isError"):
            raise RuntimeError(f"{tool}: {text}")
        return text

    def timed(self, tool, **args):
        t = time.perf_counter()
        self.call(tool, **args)
        return time.perf_counter() - t

    def close(self):
        self.p.stdin.close()
        return self.p.wait(timeout=10)
