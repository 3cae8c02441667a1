#!/usr/bin/python3
# What hostile images, and trees that an unprivileged user can hardly write, do: whiteouts of every shape, attributes and devices that no
# kernel takes, directories that let nobody through, sources that are no files, layers that a replaced image leaves, two imports at once,
# a stop at the very end.
# timeout: 600
import hashlib
import io
import json
import os
import signal
import stat
import subprocess
import tarfile
import time

from lib import check, done, here, rattan

os.environ["RATTAN_DATA_DIR"] = f"{here}/store"
D, L, H = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def rt(*args, **kw):
    return subprocess.run([rattan, *args], capture_output=True, **kw)


def says(code, words, *args, **kw):
    r = rt(*args, **kw)
    said = (r.stdout + r.stderr).decode(errors="replace")
    check(r.returncode == code and words in said, f"{args} -> {code} '{words}'", f"{r.returncode}: {said[-300:]}")
    return r


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)
    return path


def ent(name, data=None, kind=tarfile.REGTYPE, **kw):
    t = tarfile.TarInfo(name)
    t.type = kind
    t.mode = 0o755 if kind == D else 0o644
    t.mtime = 1000
    t.size = len(data or b"")
    for k, v in kw.items():
        setattr(t, k, v)
    return t, data


def tar_of(entries):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w", format=tarfile.PAX_FORMAT) as t:
        for e, data in entries:
            t.addfile(e, io.BytesIO(data) if data is not None else None)
    return b.getvalue()


def blob(layout, data):
    d = hashlib.sha256(data).hexdigest()
    os.makedirs(f"{layout}/blobs/sha256", exist_ok=True)
    put(f"{layout}/blobs/sha256/{d}", data)
    return {"digest": "sha256:" + d, "size": len(data)}


def image(layout, layers, config=b"{}"):
    m = {"schemaVersion": 2, "config": blob(layout, config), "layers": [blob(layout, tar_of(x)) for x in layers]}
    put(f"{layout}/index.json", json.dumps({"schemaVersion": 2, "manifests": [blob(layout, json.dumps(m).encode())]}).encode())
    return layout


def shown(name):
    """The paths of a base."""
    says(0, "", "export", "tar", name, f"{name}.shown")
    with tarfile.open(f"{name}.shown") as t:
        return sorted(os.path.normpath(n) for n in t.getnames() if os.path.normpath(n) != ".")


def bases():
    return {b["name"]: b for b in json.loads(rt("base", "list", "--json").stdout)}


print("== whiteouts")
below = [ent("keep", b"k"), ent("op", kind=D), ent("op/old", b"o"), ent("gone", kind=D), ent("gone/x", b"x")]
every = ["gone", "gone/x", "keep", "op", "op/old"]
for n, (above, want) in enumerate([
        ([ent(".wh..wh..opq", b""), ent("new", b"n")], ["new"]),
        ([ent("new", b"n"), ent("./.wh..wh..opq", b"")], ["new"]),
        ([ent(".wh.gone", kind=D)], ["keep", "op", "op/old"]),
        ([ent("op/.wh..wh..opq", kind=D)], ["gone", "gone/x", "keep", "op"]),
        ([ent(".wh..wh.plnk", kind=D), ent("op/.wh..wh.orph", b"")], every),
        ([ent("op", b"a file"), ent("op", kind=D), ent("op/.wh..wh..opq", b"")], ["gone", "gone/x", "keep", "op"])]):
    says(0, "", "import", "oci", image(f"wh{n}", [below, above]), f"wh{n}")
    got = shown(f"wh{n}")
    check(got == want, f"whiteouts {n}", got)
for name in ".wh.", ".wh..", ".wh...", "op/.wh.", "op/.wh..":
    says(1, "hides nothing", "import", "oci", image("bad" + name.replace("/", ""), [below, [ent(name, b"")]]), "bad")
says(1, "leads upwards", "import", "oci", image("up", [below, [ent("../.wh.gone", b"")]]), "bad")
says(1, "symbolic link", "import", "oci", image("via", [below + [ent("l", kind=L, linkname="gone")], [ent("l/.wh.x", b"")]]), "bad")

print("== what no kernel takes")
odd = [ent("cap", b"x", pax_headers={"SCHILY.xattr.security.capability": "short", "SCHILY.xattr.user.a": "1"}),
       ent("acl", b"x", pax_headers={"SCHILY.acl.default": "user::rwx,group::r--,other::---"}),
       ent("dev", kind=tarfile.BLKTYPE, devmajor=70000, devminor=3), ent("dev2", kind=H, linkname="dev"), ent("end", b"e")]
says(0, "left out", "import", "tar", put("odd.tar", tar_of(odd)), "odd")
says(0, "could not be given", "export", "dir", "odd", "odd")
says(0, "left out", "import", "tar", put("names.tar", tar_of([ent("x", b"", pax_headers={f"SCHILY.xattr.user.{i}": "v" for i in range(20000)})])), "names")
check({"cap", "acl", "end"} <= set(os.listdir("odd")), "the rest is there", os.listdir("odd"))
says(0, "", "import", "oci", image("words", [below], b'{"a":"' + b'\x01' * 2000000 + b'"}'), "words")
check(bases()["words"]["source"] == "oci" and bases()["words"]["entries"], "a configuration of escapes is read again", bases()["words"])

print("== directories that let nobody through, files that nobody writes")
shut = [ent("r", kind=D, mode=0o444), ent("r/sub", kind=D, mode=0), ent("r/x", b"x", mode=0), ent("w", b"w", mode=0o444, pax_headers={"SCHILY.xattr.user.a": "1"}),
        ent("d", kind=D, mode=0o555, pax_headers={"SCHILY.xattr.user.a": "1"}), ent("z", b"z")]
says(0, "", "import", "tar", put("shut.tar", tar_of(shut)), "shut")
says(0, "", "export", "dir", "shut", "shut")
check(stat.S_IMODE(os.lstat("shut/r").st_mode) == 0o444 and stat.S_IMODE(os.lstat("shut/d").st_mode) == 0o555 and os.path.exists("shut/z"), "all of it")
try:
    check(os.getxattr("shut/w", "user.a") == b"1" and os.getxattr("shut/d", "user.a") == b"1", "attributes of what is closed")
except OSError as e:
    check(False, "attributes of what is closed", e) if e.errno != 95 else print("no attributes here")
os.chmod("shut/r", 0o755)
os.chmod("shut/r/sub", 0o755)
os.makedirs("src/empty")
os.chmod("src/empty", 0o444)
says(0, "2 files", "import", "dir", "src", "empty")
if os.geteuid():
    says(4, "another user", "export", "dir", "empty", "/usr")
    says(4, "another user", "export", "oci", "empty", "/usr")

print("== sources that are no files")
os.mkfifo("fifo")
says(1, "no directory and no file", "import", "oci", "fifo", "bad", timeout=60)
os.unlink(image("pipes", [below]) + "/index.json")
os.mkfifo("pipes/index.json")
says(1, "is no file", "import", "oci", "pipes", "bad", timeout=60)
says(1, "too long", "import", "tar", put("deep.tar", tar_of([ent("a/" * 400000 + "f", b"x")])), "bad")

print("== what a replaced image leaves")
before = json.loads(rt("gc", "--json").stdout)["live_chunks"]
says(0, "", "import", "oci", image("one", [[ent("big", os.urandom(1_000_000))], [ent("y", b"1")]]), "rep")
says(0, "", "import", "oci", "wh0", "rep", "--replace")
left = json.loads(rt("gc", "--json").stdout)["live_chunks"]
check(left <= before, "gc frees it", (before, left))
r = json.loads(rt("import", "oci", "wh0", "again", "--json").stdout)
check(r["reused"] == 2, "what others need is still known", r)

print("== two at once, with gc beside")
put("same.tar", tar_of([ent(f"f{i}", os.urandom(200_000)) for i in range(40)]))
ps = [subprocess.Popen([rattan, "import", "tar", "same.tar", n], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for n in ("two", "two", "other")]
gc = subprocess.Popen([rattan, "gc"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
said = [p.communicate(timeout=300)[0].decode() for p in ps]
check(any(p.returncode == 0 for p in ps) and all(p.returncode in (0, 4) for p in ps), "one wins, the others are told", [(p.returncode, s) for p, s in zip(ps, said)])
check("two" in bases() or "other" in bases(), "it is there")
gc.communicate(timeout=300)

print("== stopped at the very end")
r, w = os.pipe()
p = subprocess.Popen([rattan, "import", "tar", "-", "late"], stdin=r, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
os.close(r)
time.sleep(1)
p.send_signal(signal.SIGTERM)
p.wait(60)
try:
    os.write(w, tar_of([ent("f", b"x")]))
except BrokenPipeError:
    pass  # it has ended
os.close(w)
for _ in range(100):
    if subprocess.run(["pgrep", "-f", f"rattan-fs admin import.*{here}/store"], capture_output=True).returncode:
        break
    time.sleep(0.2)
check("late" not in bases() and "bad" not in bases(), "nobody waited for it")
p = subprocess.Popen([rattan, "export", "tar", "two" if "two" in bases() else "other", "cut.tar"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
p.send_signal(signal.SIGTERM)
p.wait(60)
for _ in range(100):
    if subprocess.run(["pgrep", "-f", f"rattan-fs admin export.*{here}"], capture_output=True).returncode:
        break
    time.sleep(0.2)
check(not [n for n in os.listdir(".") if n.startswith("cut.tar.")], "no part is left", os.listdir("."))
r = rt("fsck")
check(r.returncode == 0, "the store is whole", (r.stdout + r.stderr)[-400:])
done()
