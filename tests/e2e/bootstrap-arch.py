#!/usr/bin/python3
# rattan bootstrap arch: from a bootstrap archive and a signed repository of the test's own, built with the distribution's pacman
# tools and served on loopback; wrong digests, signatures, mirrors, packages and repositories leave nothing; the base is sealed.
# timeout: 900
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time

from lib import check, done, here, rattan

import archmirror
from archmirror import mirror, package, publish, sh, top


def rt(*args):
    return subprocess.run([rattan, *args], capture_output=True, text=True)


def says(code, words, *args):
    r = rt(*args)
    said = r.stdout + r.stderr
    check(r.returncode == code and words in said, f"{args} -> {code} '{words}'", f"{r.returncode}: {said[-900:]}")
    return r.stdout


def left():
    """Bases, environments, and what is on its way."""
    return ([b["name"] for b in json.loads(rt("base", "list", "--json").stdout or "[]") if b["name"] != "host"],
            [e["name"] for e in json.loads(rt("env", "list", "--json").stdout or "[]")], os.listdir(f"{here}/tmp"))


package("hello-rattan", "1.0", "hello-one")
package("other-rattan", "1.0", "other-one")
publish()

# ---- an archive as Arch makes them: one directory, in which there is pacman ----

archmirror.tree()
archmirror.keys()
with open("arch/pkglist.x86_64.txt", "w") as f:
    f.write("pacman\n")
sh("tar --sort=name --owner=0 --group=0 --numeric-owner -I zstd -cf boot.tar.zst -C arch pkglist.x86_64.txt root.x86_64; gpg --batch --quiet --yes --detach-sign boot.tar.zst")
digest = hashlib.sha256(open("boot.tar.zst", "rb").read()).hexdigest()
os.makedirs("repo/iso")
sh("for n in boot bad unsigned; do cp boot.tar.zst repo/iso/$n.tar.zst; done; for n in boot bad; do cp boot.tar.zst.sig repo/iso/$n.tar.zst.sig; done; printf x >> repo/iso/bad.tar.zst")
os.makedirs("skel/deep")
with open("skel/deep/f", "w") as f:
    f.write("mine\n")


def plan(name, **kw):
    json.dump(dict(dict(archive=f"{here}/boot.tar.zst", sha256=digest, mirrors=[mirror], packages=["hello-rattan"],
                        directories=[{"from": f"{here}/skel", "to": "/opt/skel"}]), **kw), open(f"{name}.json", "w"))
    return "--config", f"{name}.json"


print("== what is refused")
nothing = left()
ok = plan("ok")
for words, code, args in (
        ("or arch and a name", 2, ["arch"]), ("neither debian nor arch", 2, ["gentoo", "x"]), ("--mirror is for debian", 2, ["arch", "x", "--mirror", "http://x"]),
        ("--archive is for arch", 2, ["debian", "x", "--archive", "x"]), ("--sha256 is an archive's", 2, ["arch", "x", "--sha256", "0" * 64]),
        ("is refused", 2, ["arch", "x", "--archive", "https://evil.example.com/a.tar.zst"]),
        ("fetching failed", 1, ["arch", "x", "--archive", f"{mirror}/iso/none.tar.zst", "--sha256", "0" * 64]),
        ("fetching failed", 1, ["arch", "x", "--archive", f"{mirror}/iso/unsigned.tar.zst", "--keyring", f"{here}/signer.gpg"]),
        ("not the archive that was meant", 1, ["arch", "x", "--archive", f"{mirror}/iso/boot.tar.zst", "--sha256", "0" * 64]),
        ("iso/bad.tar.zst does not hold: it was made for other bytes", 1, ["arch", "x", "--archive", f"{mirror}/iso/bad.tar.zst", "--keyring", f"{here}/signer.gpg"]),
        ("who says that", 2, ["arch", "x", "--archive", "boot.tar.zst"]),
        ("is no SHA-256", 2, ["arch", "x", "--archive", "boot.tar.zst", "--sha256", "12"]),
        ("not the archive that was meant", 1, ["arch", "x", "--archive", "boot.tar.zst", "--sha256", "0" * 64]),
        ("cannot open the archive", 3, ["arch", "x", "--archive", "none.tar.zst", "--sha256", "0" * 64]),
        ("does not hold", 1, ["arch", "x", "--archive", "boot.tar.zst", "--signature", "signer.gpg", "--keyring", f"{here}/signer.gpg"]),
        ("is refused", 2, ["arch", "x", *plan("m1", mirrors=["https://evil.example.com"])]),
        ("is refused", 2, ["arch", "x", *plan("m2", mirrors=["http://127.0.0.1:1"])]),
        ("packages come from a mirror", 2, ["arch", "x", *plan("m3", mirrors=[])]),
        ("no name of a package", 2, ["arch", "x", *plan("p1", packages=["--root"])]),
        ("nothing that a bootstrap knows", 2, ["arch", "x", *plan("k1", more=1)]),
        ("each of \"directories\"", 2, ["arch", "x", *plan("d1", directories=[{"from": "skel", "to": "relative"}])]),
        (f"{here}/none", 3, ["arch", "x", *plan("d2", packages=[], mirrors=[], directories=[{"from": f"{here}/none", "to": "/x"}])]),
        ("rattan: bootstrap: it said last:\n", 1, ["arch", "x", *plan("p2", packages=["no-such-package"])]),
        ("  error: target not found: no-such-package\nrattan: bootstrap: setting up failed, in the part \"installing packages (pacman -Syu)\", with exit code 1; packages and mirrors are those of --config",
         1, ["arch", "x", *plan("p2", packages=["no-such-package"])])):
    says(code, words, "bootstrap", *args)
    check(left() == nothing, f"{words}: nothing is left", left())
shutil.copy("boot.tar.zst", "bad.tar.zst")
with open("bad.tar.zst", "r+b") as f:
    f.seek(5000)
    f.write(b"\0")
says(1, "made for other bytes", "bootstrap", "arch", "x", "--archive", "bad.tar.zst", "--signature", "boot.tar.zst.sig", "--keyring", f"{here}/signer.gpg")
check(left() == nothing, "nothing is left", left())

print("== a base")
made = says(0, "is", "bootstrap", "arch", "arch", *ok, "--signature", "boot.tar.zst.sig", "--keyring", f"{here}/signer.gpg")
check(left()[0] == ["arch"] and left()[1:] == nothing[1:], "one base, and nothing beside it", left())
id1 = next(b["id"] for b in json.loads(rt("base", "list", "--json").stdout) if b["name"] == "arch")
says(4, "there is a base \"arch\"; --replace", "bootstrap", "arch", "arch", *ok)


def inside(text, *more):
    r = rt("run", "--base", f"arch@{id1[:12]}", "-e", "e", *more, "-c", text)
    check(r.returncode == 0, text, r.stdout + r.stderr)
    return r.stdout


check(inside("hello-rattan; pacman -Q; cat /var/lib/hello-rattan/installed /opt/skel/deep/f; cat /etc/pacman.d/mirrorlist; grep user: /etc/passwd /etc/passwd-")
      == f"hello-one\nhello-rattan 1.0-1\nhello-one\nmine\nServer = {mirror}/$repo/os/$arch\n/etc/passwd:user:x:1000:1000::/home/user:/bin/bash\n"
      "/etc/passwd-:user:x:1000:1000::/home/user:/bin/bash\n", "package, its script, directory, mirrors, user, a link that stays one")
out = inside("stat -c '%u:%g' /var/lib/hello-rattan/data /home/user /opt/skel/deep/f", "--provision")
check(out == "33:44\n1000:1000\n0:0\n", "owners", out)
check(inside("ls /var/cache/pacman/pkg /var/log").split() == ["/var/cache/pacman/pkg:", "/var/log:"], "nothing of today is in it")
says(4, "", "run", "--base", "arch@00000000", "-e", "x", "--", "true")
r = rt("fsck")
check(r.returncode == 0, "the store is whole", r.stdout + r.stderr)

says(0, "is", "bootstrap", "arch", "again", *ok)
one, two = (archmirror.look(rattan, n) for n in ("arch", "again"))
check(one == two and len(one) > 100, "made again it is the same", {n for n in one if one[n] != two.get(n)})

print("== stopped")
package("slow-rattan", "1.0", "slow; sleep 600")
publish()
for sig in signal.SIGINT, signal.SIGTERM, signal.SIGKILL:
    before = left()
    p = subprocess.Popen([rattan, "bootstrap", "arch", "x", *plan("slow", packages=["slow-rattan"]), "-v"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    for line in p.stdout:
        said += line
        if "installing slow-rattan" in line:
            p.send_signal(sig)
    check(p.wait() == (-sig if sig == signal.SIGKILL else 128 + sig), f"{sig.name} ends it", (p.returncode, said[-500:]))
    until = time.monotonic() + 60
    while subprocess.run(["pgrep", "-u", str(os.getuid()), "-f", "slee[p] 600$"], capture_output=True).returncode == 0 and time.monotonic() < until:
        time.sleep(0.1)
    check(time.monotonic() < until, f"{sig.name}: no process is left")
    if sig == signal.SIGKILL:
        was = left()
        check("x" not in was[0] and len(was[0]) == len(before[0]) + 1 and len(was[1]) > len(before[1]), "no half base has the name", was)
        for n in was[1]:
            pid = int(n.split(".")[1]) if n.startswith("bootstrap.") else p.pid
            check(pid == p.pid, "what is left has the name of who left it", n)
        # The next one removes it, though it comes to nothing itself; not what another makes just now.
        at_work = subprocess.Popen([rattan, "bootstrap", "arch", "y", *plan("slow", packages=["slow-rattan"]), "-v"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = ""
        for line in at_work.stdout:
            said += line
            if "installing slow-rattan" in line:
                break
        check("removed bootstrap.%d." % p.pid in said, "the next one removes what is left", said[:300])
        busy = left()
        check(not any(f".{p.pid}." in n for n in busy[0] + busy[1]) and any(f".{at_work.pid}." in n for n in busy[1]), "all of it", busy)
        r = rt("bootstrap", "arch", "z", *plan("p3", packages=["no-such-package"]))
        check("removed" not in r.stderr and left() == busy, "and what another is making stays", (r.stderr[:200], left()))
        at_work.send_signal(signal.SIGTERM)
        at_work.stdout.read()
        at_work.wait()
        check(not [f for f in os.listdir("store") if f.startswith("bootstrap.")], "and no lock is left", os.listdir("store"))
    check(left() == before, f"{sig.name}: nothing is left", left())
r = rt("fsck")
check(r.returncode == 0, "the store is whole", r.stdout + r.stderr)
sh("rm repo/core/os/x86_64/slow-rattan*")
publish()

print("== without packages it is the same again")
ids = set()
for n in "one", "two":
    time.sleep(1.1)  # another second of the clock, which must not show
    says(0, "is", "bootstrap", "arch", n, *plan("plain", packages=[], mirrors=[]))
    ids.add(next(b["id"] for b in json.loads(rt("base", "list", "--json").stdout) if b["name"] == n))
check(len(ids) == 1, "the same id", ids)
print("== from a mirror")
before = left()
for n, more in ("digest", {"sha256": digest}), ("signed", {"sha256": None}), ("both", {"signature": f"{mirror}/iso/boot.tar.zst.sig"}):
    config = {k: v for k, v in dict(json.load(open("plain.json")), archive=f"{mirror}/iso/boot.tar.zst", **more).items() if v}
    json.dump(config, open("web.json", "w"))
    says(0, "is", "bootstrap", "arch", n, "--config", "web.json", "--keyring", f"{here}/signer.gpg")
    ids.add(next(b["id"] for b in json.loads(rt("base", "list", "--json").stdout) if b["name"] == n))
check(len(ids) == 1, "the same id as of the file", ids)
check(left()[1:] == before[1:], "nothing beside the bases", left())

print("== the tools")
sh(f"mkdir -p bare; cp -r {top}/usr bare/; rm bare/usr/bin/pacman; ln -s usr/bin bare/bin; for d in lib lib64; do [ ! -e {top}/$d ] || cp -r {top}/$d bare/; done")
says(0, "is", "import", "dir", "bare", "bare")
ids = iter(range(1, 1000))


def ask(method, params):
    n = next(ids)
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": params}) + "\n")
    server.stdin.flush()
    for line in server.stdout:
        m = json.loads(line)
        if m.get("id") == n:
            return m
    check(False, f"{method}: an answer")
    done()


def call(name, **args):
    r = ask("tools/call", {"name": name, "arguments": args})
    r = r.get("result") or {"isError": True, "content": [{"text": json.dumps(r)}]}
    return bool(r.get("isError")), r["content"][0]["text"]


def serve(*args):
    global server
    server = subprocess.Popen([rattan, "serve", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
    server.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')


serve("--env", "m", "--base", "arch", "--keep")
size = len(json.dumps(ask("tools/list", {})["result"], separators=(",", ":"), ensure_ascii=False).encode())
check(size < 24 * 1024, "the list of tools is short", size)
e, t = call("pacman_run", args=["-Q"])
check(not e and "hello-rattan 1.0-1" in t and "other" not in t, "-Q", t)
e, t = call("pacman_run", args=["-Q", "other-rattan"])
check(not e and t.startswith("exit 1 ") and "not found" in t, "what is not there", t)
e, t = call("pacman_run", args=["-Sy", "other-rattan"])
check(e and "pacman_install" in t, "an installation is refused", t)
e, t = call("pacman_run", args=["-Q", "--config", "/workspace/x"])
check(e and "refused" in t, "another configuration", t)
for bad, words in (({"packages": []}, "1 to "), ({"packages": ["-Rns"]}, "is none"), ({"packages": ["x"], "mirror": "https://evil.example.com"}, "refused"),
                   ({"packages": ["x"], "mirror": "http://127.0.0.1:1"}, "refused"), ({"packages": [1]}, "is none"), ({}, "packages")):
    e, t = call("pacman_install", **bad)
    check(e and words in t, f"{bad}", t)
e, t = call("pacman_install", packages=["no-such-package"])
check(e and "nothing is changed" in t and "not found" in t, "a package that is not there", t)
e, t = call("pacman_install", packages=["other-rattan"], mirror=mirror)
check(not e and t.startswith("done in "), "installed", t)
e, t = call("shell_run", command="other-rattan; cat /etc/pacman.d/mirrorlist; ls /tmp/.mirrorlist 2>&1 | tail -1")
check("other-one" in t and t.count("Server") == 1 and "cannot access" in t, "it is there, and the list is what it was", t)
package("hello-rattan", "2.0", "hello-two")
package("third-rattan", "1.0", "third-one")
os.remove(f"{here}/repo/core/os/x86_64/hello-rattan-1.0-1-any.pkg.tar.zst")
publish()
e, t = call("pacman_install", packages=["third-rattan"], refresh=False)
check(e and "nothing is changed" in t, "by the old list it is not known", t)
e, t = call("pacman_install", packages=["third-rattan"])
check(not e, "with a fresh one it is", t)
e, t = call("shell_run", command="hello-rattan; third-rattan")
check("hello-two" in t and "third-one" in t, "and all else was upgraded with it", t)
package("slow-rattan", "1.0", "slow; sleep 600")
publish()
e, t = call("pacman_install", packages=["slow-rattan"], timeout=6)
check(e and "6 s" in t and "nothing is changed" in t, "what takes too long is ended", t)
e, t = call("pacman_run", args=["-Q", "slow-rattan"])
check(not e and t.startswith("exit 1 ") and "not found" in t, "and taken back", t)
check(subprocess.run(["pgrep", "-u", str(os.getuid()), "-f", "slee[p] 600$"], capture_output=True).returncode != 0, "with all its processes")
server.stdin.close()
server.wait(60)
serve("--env", "plain", "--base", "bare")
names = {t["name"] for t in ask("tools/list", {})["result"]["tools"]}
check("shell_run" in names and not any("pacman" in n for n in names), "on another base there is none", names)
server.stdin.close()
server.wait(60)

print("== a repository that lies")
sh("cd repo/core/os/x86_64 && printf x >> $(ls other-rattan*.zst)")
before = left()
says(1, "setting up failed", "bootstrap", "arch", "x", *plan("lie", packages=["other-rattan"]))
check(left() == before, "nothing of it is left", left())
sh("gpgconf --kill all")
done()
