#!/usr/bin/python3
"""A command that the policy refuses something is told what, and by which rule; others are told nothing."""
# timeout: 60
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402

s = Server()
got = json.loads(s.call("shell_run", command="chmod 600 /etc/passwd; chmod 600 /etc/group; exit 3", structured=True))
assert got["rc"] == 3 and got["denials_total"] == 2, got
assert sorted(d["path"] for d in got["denials"]) == ["/etc/group", "/etc/passwd"], got
assert got["denials"][0]["operation"] == "change of attributes", got
assert got["denials"][0]["rule"] == "read, as no rule names it", got
text = s.call("shell_run", command="chmod 600 /etc/passwd")
assert "[refused by the sandbox's policy: change of attributes /etc/passwd (read, as no rule names it)]" in text, text
got = json.loads(s.call("shell_run", command="exit 1", structured=True))
assert "denials" not in got, got
assert "refused" not in s.call("shell_run", command="chmod 600 /etc/passwd 2>/dev/null; true")
# Landlock tells nobody what it refused: where one may write is said instead, and only then.
HINT = "[commands may write below /workspace /tmp /var/tmp /home/user and what is bound read-write; the server's --writable-root opens more]"
assert HINT in s.call("shell_run", command="touch /etc/new")
assert HINT in s.call("shell_run", command="echo x > /usr/new", stderr="separate")
assert "may write" not in s.call("shell_run", command="echo 'Permission denied'")
assert "may write" not in s.call("shell_run", command="cat missing")
s.close()
