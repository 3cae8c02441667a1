#!/usr/bin/python3
"""Options of the server: from the command line and from the settings, of which the command line wins."""
# timeout: 120
import json
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402

CONFIG = pathlib.Path(os.environ["HOME"], ".config/rattan/config.json")
os.environ.pop("XDG_CONFIG_HOME", None)


def settings(o):
    CONFIG.parent.mkdir(parents=True, exist_ok=True)
    CONFIG.write_text(json.dumps(o))


def tools(*args):
    s = Server(*args)
    names = [t["name"] for t in s.ask("tools/list", {})["tools"]]
    s.close()
    return names


def refused(*args):
    r = subprocess.run([os.environ["RATTAN"], *args], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert r.returncode == 2, (args, r)
    return r.stderr


def reaching_out(*args):
    s = Server(*args)
    names = {t["name"] for t in s.ask("tools/list", {})["tools"] if t["annotations"]["openWorldHint"]}
    s.close()
    return names - {"bind_host_dir"}


assert reaching_out() == set(), "no network, no open world"
assert reaching_out("--allow-domain", "example.org") == {"shell_run", "shell_job_start"}
full = tools("serve")
assert "shell_run" in full and "rattan_edit" in full
looking = tools("--read-only")
assert set(looking) < set(full) and "rattan_read_file" in looking and "env_diff" in looking, looking
assert not [n for n in looking if re.match("shell|.*write|.*edit|env_(commit|roll|reset|disc|fork|gc)|.*bind", n)], looking
s = Server("--read-only")
assert "root" in s.call("rattan_read_file", path="/etc/passwd")
try:
    s.call("shell_run", command="true")
    raise AssertionError("a tool that is not offered ran")
except RuntimeError as e:
    assert "-32602" in str(e), e
s.close()

s = Server("serve", "--max-wait", "1")
t = time.monotonic()
assert s.call("shell_run", command="sleep 8").startswith("running as job")
job = re.search(r"j\d+-[0-9a-f]+", s.call("shell_job_list"))[0]
s.call("shell_job_wait", job_id=job, wait_seconds=40)
took = time.monotonic() - t
s.close()
assert took < 7, f"two calls that may block for a second each took {took:.1f} s"

assert "did you mean --max-wait?" in refused("serve", "--max-wai", "3")
assert "did you mean --keep?" in refused("serve", "--kepp")
for bad in ("0", "x", "-1", "1x"):
    assert "--max-wait is a number" in refused("serve", "--max-wait", bad)

settings({"serve": {"tool-prefix": "box_", "read-only": True, "env": "chosen"}})
assert "box_read_file" in tools() and "shell_run" not in tools()
assert "other_read_file" in tools("--tool-prefix", "other_")
s = Server()
assert s.call("env_status").startswith("environment chosen ")
s.close()
s = Server("--env", "mine")
assert s.call("env_status").startswith("environment mine ")
s.close()
for wrong, why in (({"serve": {"tool-prefixx": "a"}}, "serve.tool-prefixx is not an option; did you mean tool-prefix?"),
                   ({"serve": {"keep": "yes"}}, "serve.keep must be true or false"),
                   ({"serve": {"limit": "cpu=2"}}, "serve.limit must be a list of texts"),
                   ({"serve": {"max-wait": 3}}, "serve.max-wait must be a text"),
                   ({"serve": []}, "must be an object")):
    settings(wrong)
    got = refused("serve")
    assert why in got, got
settings({"serve": {"limit": ["cpu=1"], "keep": True}})
s = Server()
s.call("rattan_write_file", path="kept", content="x\n")
s.close()
s = Server()
assert "x" in s.call("rattan_read_file", path="kept"), "keep, from the settings"
s.close()
print("ok")
