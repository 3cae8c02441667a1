#!/usr/bin/python3
"""The file tools see what the shell sees: each planted path is looked at, read and written by both, and both come to the same."""
# timeout: 180
import os
import pathlib
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import Server  # noqa: E402

HOME = pathlib.Path(os.environ["HOME"])
SECRET = f"secret of the host {os.getpid()}"
(HOME / "secret").write_text(SECRET + "\n")
bound = HOME / "bound"
(bound / "sub").mkdir(parents=True)
(bound / "inside").write_text("from the bound directory\n")
(bound / "out").symlink_to(HOME / "secret")
(bound / "up").symlink_to("../secret")

s = Server("serve", "--bind", f"{bound}=/mnt/b:rw", "--bind-ro", f"{bound / 'sub'}=/mnt/ro")


def shell(command):
    t = s.call("shell_run", ok=False, command=command)
    body = [line for line in t.split("\n")[1:] if not line.startswith("[")]
    return t.startswith("exit 0"), "\n".join(body).rstrip("\n")


PLANT = r"""
mkdir -p d/e locked; echo plain > plain; echo deep > d/e/deep; ln -s plain link; ln -s /workspace/plain abs; ln -s link link2; ln -s loop loop
ln -s /etc/passwd etc; ln -s ../../../../../../etc/hostname climb; ln -s %s/secret home; ln -s /proc/self/root/%s/secret magic; ln -s /proc/1/root proc1
ln -s / root; ln -s d dlink; ln -s nowhere dangling; echo none > none; chmod 000 none; echo wonly > wonly; chmod 200 wonly; echo ronly > ronly; chmod 444 ronly
echo shut > locked/in; chmod 000 locked; ln -s /mnt/b/inside viabind; ln -s /mnt/b/out viaout; ln plain hard; mkfifo fifo; printf 'a\0b' > nul
printf 'caf\351\n' > "$(printf 'latin\351')"; echo odd > "$(printf 'new\nline')"; echo dash > -dash; echo blank > ' blank '
""" % (HOME, str(HOME).lstrip("/"))
assert shell(PLANT)[0]

READ = ["plain", "link", "abs", "link2", "loop", "etc", "climb", "home", "magic", "proc1/etc/hostname", "root/etc/hostname", "root/workspace/plain", "dlink/e/deep",
        "d/../plain", "d/e/../../plain", "dangling", "none", "wonly", "ronly", "locked/in", "viabind", "viaout", "hard", "missing", "plain/x", "/mnt/b/inside", "/mnt/b/out",
        "/mnt/b/up", "/mnt/ro/x", "/etc/passwd", "/etc/shadow", "/root/x", f"{HOME}/secret", "../../../etc/hostname", "-dash", " blank ", "//workspace//plain", "/workspace/../workspace/plain"]
for path in READ:
    fine, text = shell(f"cat -- '{path}'")
    got = s.call("rattan_read_file", ok=False, path=path, line_numbers=False)
    assert SECRET not in text and SECRET not in got, f"{path}: a file of the host is reached"
    if fine:
        lines = got.split("\n")[1:]
        assert not got.startswith("error: ") and "\n".join(x for x in lines if not x.startswith("[")).rstrip("\n") == text, (path, text[:200], got[:300])
    else:
        assert got.startswith("error: "), (path, text, got)

for path in ("fifo", "nul"):
    t = time.monotonic()
    assert s.call("rattan_read_file", ok=False, path=path).startswith("error: ") and time.monotonic() - t < 5, path

# Writing: where a shell may, and nowhere else; through links, to where a shell's ">" would go.
WRITE = ["plain", "link", "abs", "dangling", "ronly", "none", "locked/new", "d/e/new", "etc", "home", "viabind", "viaout", "/mnt/b/new", "/mnt/ro/new", "/etc/new", "/usr/bin/new",
         f"{HOME}/new", "root/etc/new", "root/tmp/new", "loop", "fifo", "/tmp/new", "/home/user/new", "/new"]
for path in WRITE:
    got = s.call("rattan_write_file", ok=False, path=path, content="by the tool\n", mode="overwrite")
    if path == "fifo":
        assert got.startswith("error: "), got
        continue
    fine, text = shell(f"cat -- '{path}'")
    wrote = not got.startswith("error: ")
    fine2, why = shell(f"echo by the shell > '{path}'")
    assert wrote == fine2, (path, got, why)
    if wrote and fine:
        assert text == "by the tool", (path, text)
assert (HOME / "secret").read_text() == SECRET + "\n" and not (HOME / "new").exists(), "nothing of the host was written"
assert (bound / "new").read_text() == "by the shell\n", "but for what is bound to be"
assert shell("stat -c %a ronly; readlink link abs viabind; stat -c %h plain")[1].split("\n") == ["444", "plain", "/workspace/plain", "/mnt/b/inside", "2"], "links and modes stay"

# Listing and finding: the same names.
fine, text = shell("find . -mindepth 1 -printf '%f\\0' 2>/dev/null | tr '\\n\\0' '?\\n' | LC_ALL=C grep -av '[^ -~]' | grep -v '?' | sort -u")
got = s.call("rattan_glob", pattern="*", limit=5000)
names = {x.rstrip("/").split("/")[-1] for x in got.split("\n")[1:] if x}
missing = {x for x in text.split("\n") if x and x not in names and "\\" not in x}
assert not missing, missing
assert "latin\\xe9" in got and "new\\nline" in got, "odd names stay on their line"
assert s.call("rattan_list_dir", ok=False, path="locked").startswith("error: ") == (not shell("ls locked")[0])

# What a running job has just written is there, and what it holds open.
t = s.call("shell_job_start", command="exec 3> live; for i in 1 2 3 4 5 6 7 8 9 10; do echo step $i >&3; echo $i; sleep 0.1; done; sleep 1; rm live; echo gone; sleep 1")
job = re.search(r"j\d+-[0-9a-f]+", t)[0]
s.call("shell_job_wait", job_id=job, until="^5$", wait_seconds=20)
assert "step 5" in s.call("rattan_read_file", path="live"), "written without being closed"
assert "5: step 5" in s.call("rattan_grep", pattern="step 5$", path="live")
s.call("shell_job_wait", job_id=job, until="^gone$", wait_seconds=20)
assert s.call("rattan_read_file", ok=False, path="live").startswith("error: ")

# The engine's own limits: a pattern that never ends is told of, and the answer comes.
s.call("rattan_write_file", path="bad", content="a" * 5000 + "b\n" + "fine\n")
t = time.monotonic()
got = s.call("rattan_grep", ok=False, pattern="^(a+)+$|fine", path="bad", case="sensitive")
assert time.monotonic() - t < 20 and ("too many steps" in got or "fine" in got), got
s.close()
print("ok")
