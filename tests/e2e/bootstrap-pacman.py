#!/usr/bin/python3
"""rattan bootstrap arch without an archive: this host's pacman resolves, fetches and checks packages of a signed repository of the test's
own, and runs nothing of them; pacman of the new tree installs them, with scripts and hooks. The same packages are the same base; who did
not sign, or lies, or is stopped, leaves nothing."""
# timeout: 600
import json
import os
import signal
import subprocess

from lib import check, done, here, rattan

import archmirror
from archmirror import mirror, package, publish, sh, top

archmirror.tree(more=("pacman-key", "pacman-conf", "vercmp", "gpg-agent", "awk", "gettext", "mktemp", "basename", "dirname", "wc", "uname", "head"))
sh(f"""mkdir -p {top}/usr/share/makepkg {top}/usr/share/keyrings {top}/usr/share/pacman; cp -rL /usr/share/makepkg/util* {top}/usr/share/makepkg/
cp signer.gpg {top}/usr/share/keyrings/test.gpg; echo {archmirror.key}:4: > {top}/usr/share/keyrings/test-trusted; ln -s ../keyrings {top}/usr/share/pacman/keyrings""")
HOOK = "[Trigger]\nOperation = Install\nType = Package\nTarget = *\n[Action]\nWhen = PostTransaction\nExec = /usr/bin/note hook\n"
# What a script sees of where it runs: a line each time, so that a second run shows, too.
NOTE = "#!/bin/sh\necho \"$1 $(id -u) $(ls -d /proc/self /workspace/root /etc/debian_version 2>/dev/null) $([ -c /dev/null ] && echo devices)\" >> /var/lib/base/noted\n"
package("base", "1.0", "base", content=top, more="depend = dep-rattan\nbackup = etc/base.conf\n",
        files={".INSTALL": ("post_install() { note script; }\n", 0o644, 0, 0), "usr/bin/note": (NOTE, 0o755, 0, 0), "usr/share/libalpm/hooks/note.hook": (HOOK, 0o644, 0, 0),
               "etc/base.conf": ("a setting\n", 0o600, 0, 0), "var/lib/base/given": ("", 0o4750, 7, 8)})
package("dep-rattan", "1.0", "dep")
package("more-rattan", "1.0", "more", repo="extra")
publish()
publish("extra")
sh("touch -d '2026-01-15 12:00' repo/*/os/x86_64/*.db*")  # a mirror of a day


def rt(*args, **kw):
    return subprocess.run([rattan, *args], capture_output=True, text=True, **kw)


def left():
    """Bases, environments, and what is on its way."""
    return ([b["name"] for b in json.loads(rt("base", "list", "--json").stdout or "[]") if b["name"] != "host"],
            [e["name"] for e in json.loads(rt("env", "list", "--json").stdout or "[]")], os.listdir(f"{here}/tmp"))


def boot(name, *args, **plan):
    plan = {**dict(mirrors=[mirror], keyring=f"{here}/signer.gpg", packages=["more-rattan"]), **plan}
    json.dump({k: v for k, v in plan.items() if v is not None}, open("plan.json", "w"))
    return rt("bootstrap", "arch", name, "--config", "plan.json", *args)


def refused(code, words, *args, **plan):
    was = left()
    r = boot("x", *args, **plan)
    check(r.returncode == code and words in r.stderr, f"{args} {plan} -> {code} '{words}'", f"{r.returncode}: {r.stderr[-900:]}")
    check(left() == was, f"{words}: nothing is left", left())


print("== a base")
r = boot("arch", "--json")
check(r.returncode == 0, "made", r.stdout + r.stderr)
id1 = json.loads(r.stdout or '{"id": ""}')["id"]
check(left()[:2] == (["arch"], []), "one base, and nothing beside it", left())


def inside(text, *more):
    r = rt("run", "--base", f"arch@{id1[:12]}", "-e", "e", *more, "-c", text)
    check(r.returncode == 0, text, r.stdout + r.stderr)
    return r.stdout


out = inside("more-rattan; dep-rattan; cat /var/lib/more-rattan/installed /var/lib/base/noted /etc/base.conf; cat /etc/pacman.d/mirrorlist; grep user: /etc/passwd")
check(out == f"more\ndep\nmore\nscript 0 /proc/self devices\nhook 0 /proc/self devices\na setting\nServer = {mirror}/$repo/os/$arch\nuser:x:1000:1000::/home/user:/bin/bash\n",
      "programs, scripts and hooks that ran once, in the tree, mirrors, user", out)
out = inside("pacman -Qe 2>/dev/null; pacman -Qd 2>/dev/null; pacman -Qk 2>/dev/null | grep -v ' 0 missing'; pacman -Qi base 2>/dev/null | grep -E 'Validated|Install Date'; ls -a /etc/*.pacnew /.PKGINFO /.MTREE /.INSTALL 2>/dev/null; true", "--provision")
check(out.splitlines()[:3] == ["base 1.0-1", "more-rattan 1.0-1", "dep-rattan 1.0-1"] and "Signature" in out and "Jan  1 00:00:00 2000" in out and len(out.splitlines()) == 5,
      "who was asked for, what came along, by whose signature, and whole", out)
out = inside("stat -c '%u:%g %a' /var/lib/more-rattan/data /var/lib/base/given /home/user; ls -A /tmp /var/cache/pacman/pkg /var/log", "--provision")
check(out == "33:44 640\n7:8 4750\n1000:1000 700\n/tmp:\n\n/var/cache/pacman/pkg:\n\n/var/log:\n", "owners and modes, and nothing of today", out)
r = rt("run", "-e", "e", "--provision", "--", "pacman", "-Q")
check("dep-rattan 1.0-1" in r.stdout, "pacman of it knows them", r.stdout + r.stderr)

print("== the same again")
r = boot("again", "--json", packages=["more-rattan"])
one, two = (archmirror.look(rattan, n) for n in ("arch", "again"))
check(r.returncode == 0 and json.loads(r.stdout)["id"] == id1, "the same packages, the same id", {n for n in {*one, *two} if one.get(n) != two.get(n)} or r.stderr)
r = boot("less", "--json", packages=[])
check(r.returncode == 0 and json.loads(r.stdout)["id"] != id1, "base alone", r.stdout + r.stderr)
r = rt("run", "--base", "less", "-e", "less", "--", "pacman", "-Q")
check(r.stdout == "base 1.0-1\ndep-rattan 1.0-1\n", "is what that needs", r.stdout + r.stderr)

print("== what is refused")
refused(2, "packages come from a mirror", mirrors=[])
refused(2, "is refused", mirrors=["https://evil.example.com"])
refused(2, "--signature is an archive's", "--signature", "x")
refused(1, "  error: target not found: no-such-package\nrattan: bootstrap: fetching and unpacking failed, in the part \"fetching and checking packages (pacman -Syw)\", with exit code 1; packages and mirrors",
        packages=["no-such-package"])
refused(3, f"{here}/none", keyring=f"{here}/none")
if not any(map(os.path.exists, ("/etc/pacman.d/gnupg/trustdb.gpg", "/usr/share/pacman/keyrings/archlinux.gpg", "/usr/share/keyrings/archlinux.gpg"))):
    refused(1, "this host has no keyring to check the packages with: install", keyring=None)
sh(f"export GNUPGHOME={here}/gpg; gpg --batch --quiet --passphrase '' --quick-gen-key 'Other <other@example.com>' ed25519 sign never; gpg --export other@example.com > other.gpg")
refused(1, "is unknown", keyring=f"{here}/other.gpg")
lie = f"{here}/repo/extra/os/x86_64/more-rattan-1.0-1-any.pkg.tar.zst"
sh(f"cp {lie} kept; cp {lie}.sig kept.sig; printf x >> {lie}")
refused(1, "more-rattan")
sh(f"cp kept {lie}; gpg --batch --quiet --yes -u other@example.com --detach-sign {lie}; cd repo/extra/os/x86_64; rm -f extra.*; repo-add --quiet extra.db.tar.gz *.zst")
refused(1, "more-rattan")
sh(f"rm {lie}.sig; cd repo/extra/os/x86_64; rm -f extra.*; repo-add --quiet extra.db.tar.gz *.zst")
refused(1, "more-rattan")
sh(f"cp kept.sig {lie}.sig")
publish("extra")

print("== a base has no keyring, whose key would be everybody's; the first installation makes one, with gpg's agent, while it has a network")
package("late-rattan", "1.0", "late")
publish()
server = subprocess.Popen([rattan, "serve", "--env", "k", "--base", "arch", "--keep"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
for n, (method, params) in enumerate((("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
                                      ("tools/call", {"name": "pacman_install", "arguments": {"packages": ["late-rattan"]}}))):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": params}) + "\n")
    server.stdin.flush()
    said = next(json.loads(line) for line in server.stdout if json.loads(line).get("id") == n)
text = said.get("result", {}).get("content", [{"text": json.dumps(said)}])[0]["text"]
check("Locally signing trusted keys" in text and "installing late-rattan" in text and text.startswith("done in "), "installed by a keyring of its own", text[:60] + text[-240:])
server.stdin.close()
server.wait(60)
check(rt("run", "-e", "k", "-c", "late-rattan").stdout == "late\n", "and it runs")

print("== a script that is stopped")
package("slow-rattan", "1.0", "slow; sleep 600", repo="extra")
publish("extra")
was = left()
json.dump(dict(mirrors=[mirror], keyring=f"{here}/signer.gpg", packages=["slow-rattan"]), open("plan.json", "w"))
p = subprocess.Popen([rattan, "bootstrap", "arch", "x", "--config", "plan.json", "-v"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
said = ""
for line in p.stdout:
    said += line
    if "installing slow-rattan" in line:
        p.send_signal(signal.SIGINT)
check(p.wait() == 130 and "nothing is left of it" in said, "stopped", said[-600:])
check(left() == was, "nothing is left", left())
r = rt("fsck")
check(r.returncode == 0, "the store is whole", r.stdout + r.stderr)
sh("gpgconf --kill all")
done()
