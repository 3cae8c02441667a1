#!/usr/bin/env python3
# timeout: 600
"""Every example of --help, and so of the man pages, works as it stands there: each line under "Example:" is run by a shell in a project that
has a history, and ends well. So do the lines of the README's "For a person".

Each command finds its own store, with: an environment of the project's directory with a commit and changes, an environment 'scratch', and
what BEFORE makes for it."""
import json
import os
import pathlib
import re
import shutil
import subprocess

from lib import check, done, rattan

SRC = pathlib.Path(os.environ["RATTAN_SRC"])
TOP = pathlib.Path("x").resolve()
PROJECT = {"hello.c": '#include <stdio.h>\nint main(void) { puts("hello"); }\n', "Makefile": "all: src/hello\nsrc/hello: hello.c\n\tcc -o $@ hello.c\n",
           "src/lib.c": "int x;\n", "src/main.c": "int y;\n", "notes.md": "notes\n", "role.json": json.dumps({
               "family": "role", "name": "review", "about": "the least that a shell needs", "parameters": {}, "cwd": "/", "env": {}, "binds": [
                   {"kind": "ro", "source": "/usr", "why": "programs"},
                   *({"kind": "ro", "source": d, "copy_link": True, "may_miss": True, "why": "links into it"} for d in ("/bin", "/lib", "/lib64")),
                   {"kind": "dev", "dest": "/dev", "why": "null"}, {"kind": "proc", "dest": "/proc", "why": "the session's own"}]})}
BEFORE = {
    "show": "rattan commit -m more",
    "umount": "mkdir -p /tmp/view && rattan mount head /tmp/view",
    "import": "tar --zstd -cf rootfs.tar.zst -C ~/rootfs .",
    "base": "rattan import dir ~/rootfs old",
    # Of an environment on the host the whole host would be written.
    "export": "rattan import dir ~/rootfs small && rattan run --base small -c 'echo x > x' && rattan commit -m x",
    "bootstrap": "mkdir -p ~/rootfs/etc && printf '[options]\\n' > ~/rootfs/etc/pacman.conf && touch ~/rootfs/etc/passwd ~/rootfs/etc/group && printf '#!/bin/sh\\necho Pacman v6\\n' > ~/rootfs/usr/bin/pacman"
                 " && chmod 755 ~/rootfs/usr/bin/pacman && tar --zstd -cf archlinux-bootstrap-x86_64.tar.zst -C ~ rootfs"
                 " && printf '{\"archive\": \"%s\", \"sha256\": \"%s\"}' archlinux-bootstrap-x86_64.tar.zst $(sha256sum < archlinux-bootstrap-x86_64.tar.zst | cut -d' ' -f1) > arch.json",
    "push": "rattan import dir ~/rootfs debian && rattan run --base debian -c 'echo x > x' && rattan commit -m x",
    "pull": "rattan import dir ~/rootfs small && rattan export oci small ~/registry",
    "session": "rattan run --profile role.json --session review -- sleep 60 & for i in $(seq 50); do rattan session attach review -- true && break; sleep 0.2; done",
}
# Programs that an example has beside ours, and that are not here or would ask the network: what they are asked for, from what is here.
STAND_INS = {"debootstrap": """#!/bin/sh -e
mkdir -p "$3/etc" && echo 'PRETTY_NAME="a stand-in"' > "$3/etc/os-release"
""", "skopeo": """#!/bin/sh -e
for last; do :; done
case "$*" in
*"inspect --raw docker://registry"*) cat ~/registry/blobs/sha256/$(sed 's/.*"digest":"sha256:\\([0-9a-f]*\\)".*/\\1/' ~/registry/index.json) ;;
*copy*docker://registry*" oci:"*) last=${last#oci:} && cp -r ~/registry/. ${last%:latest}/ ;;
*copy*" oci:"*/layout:latest" docker://"*) ;;
"copy "*)
	rattan import dir ~/rootfs fetched
	rattan run --base fetched -e fetched -c 'echo > /workspace/x'
	rattan commit -e fetched -m fetched
	rattan export oci head alpine -e fetched ;;
"inspect "*)
	at=${2#oci:}
	cat "${at%%:*}/index.json" ;;
esac
"""}


class Place:
    """A person's home, with the project in it."""

    def __init__(self, name):
        self.top = TOP / name
        for d in ("home/project", "run", "tmp", "backup", "bin"):
            (self.top / d).mkdir(parents=True, mode=0o700)
        self.cwd = self.top / "home/project"
        for f, text in PROJECT.items():
            (self.cwd / f).parent.mkdir(exist_ok=True)
            (self.cwd / f).write_text(text)
        for p, text in STAND_INS.items():
            (self.top / "bin" / p).write_text(text)
            (self.top / "bin" / p).chmod(0o755)
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "RATTAN"))}
        self.env = dict(keep, HOME=str(self.top / "home"), XDG_RUNTIME_DIR=str(self.top / "run"), TMPDIR=str(self.top / "tmp"),
                        PATH=f"{self.top}/bin:{os.path.dirname(rattan)}:{os.environ['PATH']}")

    def sh(self, line):
        """/tmp and /backup are everybody's; here they are this place's. A shell gets a terminal, and is left."""
        line = re.sub(r"^rattan shell\b[^#\n]*", lambda m: f"echo exit | script -qec '{m.group().strip()}' /dev/null ", line, flags=re.M)
        line = re.sub(r"(?<=[ '])/tmp/(?=view|project)", f"{self.top}/tmp/", line).replace(" /backup/", f" {self.top}/backup/")
        with open(self.top / "out", "w+") as f:  # not a pipe: what goes on in the background would hold it
            r = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL, stdout=f, stderr=f, timeout=120)
            f.seek(0)
            return r.returncode, f.read()

    def rootfs(self, *more):
        """A root file system with a shell, and nothing else but @more: ~/rootfs."""
        top = self.top / "home/rootfs"
        shell = shutil.which("bash")
        more = [shutil.which(p) for p in more]
        needs = re.findall(r"(/\S+) \(", subprocess.run(["ldd", shell, *more], capture_output=True, text=True).stdout)
        for p in (shell, *more, *needs):
            to = top / p.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(p), to)
        (top / "bin").mkdir(exist_ok=True)
        (top / "bin/sh").symlink_to(shell)

    def history(self):
        for line in ("rattan run --overlay-cwd -- make", "rattan commit -m 'first build'", "rattan run --overlay-cwd -c 'echo more >> notes.md'",
                     "rattan run -e scratch -- true"):
            code, out = self.sh(line)
            check(code == 0, f"{self.top.name}: before: {line}", out)


def load():
    text, at, out = subprocess.run([rattan, "--dump-help"], capture_output=True, text=True, check=True).stdout.strip(), 0, []
    while at < len(text):
        one, at = json.JSONDecoder().raw_decode(text, at)
        out.append(one)
        at += len(text[at:]) - len(text[at:].lstrip())
    return out


MIRROR = "rattan bootstrap debian "


def from_mirror(place, what, line):
    """What would ask a mirror, which need not be within reach: it comes so far as to ask. (debian.py makes such a base.)"""
    code, out = place.sh(line.split("  #")[0] + " --mirror http://localhost:9 --allow-local-binding")
    check(code == 1 and ("fetching and unpacking failed" in out or "install the package mmdebstrap" in out), f"{what}: {line} (code {code})", out)


def run_all(place, what, lines):
    for line in lines:
        if line.startswith(MIRROR):
            from_mirror(place, what, line)
            continue
        code, out = place.sh(line)
        check(code == 0, f"{what}: {line} (code {code})", out)


def configured(place, what, line):
    """What a client is told to start: it answers."""
    server = json.loads(line)["mcpServers"]["rattan"]
    ask = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}
    r = subprocess.run([server["command"], *server["args"]], cwd=place.cwd, env=place.env, input=json.dumps(ask) + "\n", capture_output=True, text=True, timeout=60)
    check(r.stdout.count("\n") == 1 and '"serverInfo"' in r.stdout, f"{what}: {line}", r.stdout + r.stderr)


commands = load()
check(len(commands) > 17, "commands", len(commands))
for c in commands:
    name = c["name"] or "rattan"
    place = Place(name)
    place.history()
    if name in ("import", "export", "base", "push", "pull"):
        place.rootfs()
    if name in ("export", "push"):
        place.cwd = place.top / "home"
    if name == "bootstrap":
        place.rootfs("sed", "grep", "cat", "rm", "mkdir", "chown", "chmod", "find", "touch", "tar", "sort", "tail")
    if name in BEFORE:
        code, out = place.sh(BEFORE[name])
        check(code == 0, f"{name}: before", out)
    parts = re.split(r"^Examples?(, in a client's configuration)?:\n", c["details"], flags=re.M)
    check(len(parts) == 3, f"{name}: has an example", c["details"])
    if len(parts) != 3:
        continue
    lines = [line.strip() for line in parts[2].splitlines() if line.startswith("  ")]
    check(lines, f"{name}: has an example")
    if parts[1]:
        configured(place, name, lines[0])
    else:
        run_all(place, name, lines)
    print(f"{name}: {len(lines)}")

readme = (SRC / "README.md").read_text()
section = readme[readme.index("## For a person"):]
blocks = re.findall(r"^```sh\n(.*?)^```$", section[:section.index("\n## ")], re.M | re.S)
check(blocks, "the README has lines for a person")
place = Place("readme")
place.rootfs()
place.cwd = place.top / "home"
for block in blocks:
    for line in re.findall(f"^{MIRROR}.*", block, re.M):
        from_mirror(place, "README", line)
    block = re.sub(f"^{MIRROR}.*\n", "", block, flags=re.M)
    # In one shell: what one line changes, the next one finds.
    code, out = place.sh("set -ex\n" + block)
    check(code == 0, "README: For a person", out[-300:])
for p in TOP.iterdir():
    if (p / "tmp/view").is_dir():
        subprocess.run(["fusermount3", "-qu", str(p / "tmp/view")], check=False)
done()
