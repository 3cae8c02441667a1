#!/usr/bin/python3
# Root file systems into the store and out of it: directories, archives in every packing, OCI layouts with whiteouts, tags and
# platforms; commands run in them; the same content has the same id and the same bytes; what is hostile, damaged, too large or
# stopped leaves nothing.
# timeout: 600
import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import signal
import stat
import subprocess
import tarfile
import time

from lib import check, done, here, rattan

os.environ["RATTAN_DATA_DIR"] = f"{here}/store"
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def rt(*args, **kw):
    return subprocess.run([rattan, *args], capture_output=True, **kw)


def says(code, words, *args, **kw):
    r = rt(*args, **kw)
    said = (r.stdout + r.stderr).decode(errors="replace")
    check(r.returncode == code and words in said, f"{args} -> {code} '{words}'", f"{r.returncode}: {said[-300:]}")
    return r


def out(*args, **kw):
    r = rt(*args, **kw)
    check(r.returncode == 0, f"{args}", r.stderr.decode(errors="replace"))
    return r.stdout


def imported(kind, src, name, *more, **kw):
    r = rt("import", kind, src, name, "--json", *more, **kw)
    check(r.returncode == 0, f"import {kind} {src}", r.stderr.decode(errors="replace"))
    return json.loads(r.stdout) if r.returncode == 0 else {"id": "?", "reused": -1, "new_bytes": -1, "layers": -1, "skipped": -1}


def names():
    return [b["name"] for b in json.loads(out("base", "list", "--json")) if b["name"] != "host"]


# ---- archives ----

def ent(name, data=None, kind=tarfile.REGTYPE, **kw):
    t = tarfile.TarInfo(name)
    t.type = kind
    t.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    t.mtime = 1000
    for k, v in kw.items():
        setattr(t, k, v)
    if data is not None:
        t.size = len(data)
    return t, data


def tar_of(entries, fmt=tarfile.PAX_FORMAT):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w", format=fmt) as t:
        for e, data in entries:
            t.addfile(e, io.BytesIO(data) if data is not None else None)
    return b.getvalue()


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)
    return path


def tree(name):
    """What a base shows: path -> (type, mode, size or target)."""
    shutil.rmtree("shown", ignore_errors=True)
    out("export", "dir", name, "shown")
    found = {}
    for d, dirs, files in os.walk("shown"):
        for n in dirs + files:
            p = os.path.join(d, n)
            st = os.lstat(p)
            rel = os.path.relpath(p, "shown")
            found[rel] = (os.readlink(p) if os.path.islink(p) else "dir" if os.path.isdir(p) else
                          open(p, "rb").read() if stat.S_ISREG(st.st_mode) else stat.S_IFMT(st.st_mode))
    return found


# ---- a tree in which commands run ----

def runnable(where):
    progs = [shutil.which(p) for p in ("bash", "cat", "ls", "id")]
    for p in progs:
        dst = f"{where}/usr/bin/{os.path.basename(p)}"
        os.makedirs(os.path.dirname(dst), exist_ok=True)
        shutil.copy(p, dst)
        for line in subprocess.run(["ldd", p], capture_output=True, text=True).stdout.splitlines():
            lib = next((w for w in line.split() if w.startswith("/")), None)
            if lib and not os.path.exists(where + lib):
                os.makedirs(os.path.dirname(where + lib), exist_ok=True)
                shutil.copy(os.path.realpath(lib), where + lib)
    os.symlink("usr/bin", f"{where}/bin")
    os.symlink("bash", f"{where}/usr/bin/sh")
    os.makedirs(f"{where}/etc")
    put(f"{where}/etc/motd", b"from the image\n")


runnable("root")
put("root/etc/big", os.urandom(3_000_000))
os.link("root/etc/big", "root/etc/again")
with open("root/etc/holes", "wb") as f:
    f.seek(5 << 20)
    f.write(b"end")
os.mkfifo("root/etc/fifo")
os.symlink("../no/where", "root/etc/link")
os.utime("root/etc/motd", ns=(1, 1234567890123456789))
put("root/etc/" + b"byte-\xff\xfe".decode(errors="surrogateescape"), b"x")
put("root/etc/größe", b"y")

print("== a directory")
one = imported("dir", "root", "one")
check(names() == ["one"], "it is listed", names())
b = [x for x in json.loads(out("base", "list", "--json")) if x["name"] == "one"][0]
check(b["id"] == one["id"] and b["source"] == "dir" and b["bytes"] > 3_000_000 and time.time() - b["created"] < 600, "what is listed", b)
says(0, one["id"][:12], "base", "list")
says(4, "there is a base 'one' already", "import", "dir", "root", "one")
two = imported("dir", "root", "two")
check(two["id"] == one["id"] and two["new_bytes"] < 200_000, "the same again has the same id, and costs nothing", two)
os.utime("root/etc/motd", ns=(1, 1234567890123456788))
three = imported("dir", "root", "one", "--replace")
check(three["id"] != one["id"] and three["new_bytes"] < 200_000, "a nanosecond is a difference", three)
for name in "", ".x", "a/b", "x" * 65:
    says(2, "is no name of a base", "import", "dir", "root", name)
says(2, "is made by rattan", "import", "dir", "root", "host")
says(3, "cannot find", "import", "dir", "no-such", "x")
says(2, "is not dir, tar or oci", "import", "zip", "root", "x")
says(1, "is a directory", "import", "tar", "root", "x")

print("== commands run in it")
says(0, "from the image", "run", "--base", "two", "-e", "e1", "--", "cat", "/etc/motd")
says(0, "uid=1000", "run", "-e", "e1", "--", "id")
says(0, "", "run", "-e", "e1", "--", "sh", "-c", "echo mine > /tmp/f; echo mine > /workspace/f")
check(out("run", "-e", "e1", "--", "cat", "/workspace/f") == b"mine\n", "what is written stays")
says(0, "from the image", "run", "--base", f"two@{two['id'][:12]}", "-e", "e2", "--", "cat", "/etc/motd")
says(4, "is " + two["id"][:16], "run", "--base", "two@00000000", "-e", "e3", "--", "true")
r = rt("run", "--base", "nobody", "-e", "e4", "--", "true")
check(r.returncode != 0 and b"nobody" in r.stderr, "a base that is not there", r.stderr)
says(0, "", "commit", "-e", "e1", "-m", "x")

print("== an environment keeps the base that it has")
two12 = two["id"][:12]
for base in "two", f"two@{two12}", "e1:base", two["id"]:
    r = says(0, "mine", "run", "--base", base, "-e", "e1", "--", "cat", "/workspace/f")
    check(not r.stderr, f"{base} is what it has", r.stderr)
for base in "one", "host", "two@00000000", f"one@{three['id'][:12]}", "e1:head":
    r = says(4, 'environment "e1" exists and has the base two@' + two["id"][:16] + f", not {base}; use another --env, or remove it: rattan env rm e1",
             "run", "--base", base, "-e", "e1", "--", "cat", "/workspace/f")
    check(not r.stdout, "and nothing ran", r.stdout)
    os.kill(json.loads(out("status", "-e", "e1", "--json"))["daemon_pid"], signal.SIGTERM)  # the same from one that begins
    says(4, 'exists and has the base two@', "run", "--base", base, "-e", "e1", "--", "true")
says(125, "no base \"nosuch\"", "run", "--base", "nosuch", "-e", "e1", "--", "true")
says(0, "", "run", "-e", "onhost", "--base", "host", "--", "true")
says(0, "", "run", "-e", "onhost", "--base", "host", "--", "true")
says(4, 'environment "onhost" exists and has the base host, not two;', "run", "-e", "onhost", "--base", "two", "--", "true")
calls = [{"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
         {"method": "notifications/initialized"}, {"id": 2, "method": "tools/call", "params": {"name": "shell_run", "arguments": {"command": "true"}}}]
calls = "".join(json.dumps({"jsonrpc": "2.0", **c}) + "\n" for c in calls)
with subprocess.Popen([rattan, "serve", "--keep", "--base", "one", "-e", "e1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
    server.stdin.write(calls)
    server.stdin.flush()
    said = [server.stdout.readline() for _ in range(2)][1]
    server.stdin.close()
check("exists and has the base two@" in said, "the server's first call is told", said)
imported("dir", "root", "moves")
says(0, "", "run", "-e", "moved", "--base", "moves", "--", "cat", "/etc/motd")
with open("root/etc/motd", "ab") as f:
    f.write(b"newer\n")
newer = imported("dir", "root", "moves", "--replace")
r = says(0, "", "run", "-e", "moved", "--base", "moves", "--", "cat", "/etc/motd")
check(b"stays on the older content of the base moves" in r.stderr and r.stderr.count(b"\n") == 1 and b"newer" not in r.stdout, "the name means newer content: said", r.stderr)
says(4, f"not moves@{newer['id'][:12]}", "run", "-e", "moved", "--base", f"moves@{newer['id'][:12]}", "--", "true")
says(0, "", "run", "-e", "moved", "--base", f"moves@{three['id'][:12]}", "--", "cat", "/etc/motd")

print("== archives")
subprocess.run(["tar", "--format=posix", "--sort=name", "-cf", "root.tar", "-C", "root", "."], check=True)
subprocess.run("gzip -k root.tar; xz -kT1 -1 root.tar; zstd -qk root.tar || true; bzip2 -k root.tar", shell=True, check=True)
ids = {imported("tar", f"root.tar{s}", "t" + s.replace(".", ""))["id"] for s in ("", ".gz", ".xz", ".bz2", ".zst") if os.path.exists("root.tar" + s)}
check(len(ids) == 1, "packing makes no difference", ids)
with open("root.tar.gz", "rb") as f:
    piped = imported("tar", "-", "piped", stdin=f)
check(piped["id"] in ids, "nor does standard input")
out("export", "tar", "two", "two.tar")
out("export", "tar", "two", "two-again.tar")
check(open("two.tar", "rb").read() == open("two-again.tar", "rb").read(), "the same tree, the same bytes")
says(4, "is there already", "export", "tar", "two", "two.tar")
check(imported("tar", "two.tar", "back")["id"] == two["id"], "there and back is the same")
check(out("export", "tar", "two", "-") == open("two.tar", "rb").read(), "standard output")
check(subprocess.run(["tar", "-tf", "two.tar"], capture_output=True).returncode == 0, "GNU tar reads it")
os.makedirs("gnu", exist_ok=True)
r = subprocess.run(["tar", "-xf", "two.tar", "-C", "gnu"], capture_output=True)
check(r.returncode == 0 and os.stat("gnu/etc/holes").st_blocks * 512 < 1 << 20 and os.stat("gnu/etc/again").st_nlink == 2,
      "and unpacks it, holes and links", r.stderr)
check(b"byte-\xff\xfe" in os.listdir(b"gnu/etc") and "größe".encode() in os.listdir(b"gnu/etc"), "names are bytes", os.listdir(b"gnu/etc"))
out("export", "dir", "two", "out")
check(sorted(os.listdir(b"out/etc")) == sorted(os.listdir(b"root/etc")), "a directory", os.listdir(b"out/etc"))
check(os.stat("out/etc/again").st_ino == os.stat("out/etc/big").st_ino, "hard links")
check(os.stat("out/etc/motd").st_mtime_ns == 1234567890123456789, "nanoseconds")
says(4, "is not empty", "export", "dir", "two", "out")
says(3, "no base that rattan base list names", "export", "dir", "nothing-like-it", "out2")
says(125, 'no base "nothing-like-it"; rattan base list', "run", "--base", "nothing-like-it", "-e", "e4", "--", "true")

print("== later entries win, links are not followed")
imported("tar", put("dup.tar", tar_of([ent("a", b"first"), ent("a", b"second"), ent("d", kind=tarfile.DIRTYPE), ent("d/x", b"x"),
                                       ent("d", b"now a file"), ent("l", kind=tarfile.SYMTYPE, linkname="a"), ent("l", b"a file now"),
                                       ent("h", kind=tarfile.LNKTYPE, linkname="a"), ent("deep/er/f", b"f"), ent("/abs", b"abs"),
                                       ent("./dot/./f", b"f")])), "dup")
t = tree("dup")
check(t == {"a": b"second", "d": b"now a file", "l": b"a file now", "h": b"second", "deep": "dir", "deep/er": "dir", "deep/er/f": b"f",
            "abs": b"abs", "dot": "dir", "dot/f": b"f"}, "the tree", t)

print("== hostile archives")
before = set(os.listdir(here))
os.makedirs("outside", exist_ok=True)
before.add("outside")


def hostile(what, words, data, code=1):
    had = names()
    says(code, words, "import", "tar", put("hostile.tar", data), "hostile")
    check(names() == had, f"{what}: nothing is visible", names())
    check(not os.listdir("outside") and not os.path.exists("/rattan-hostile"), f"{what}: nothing is outside")


for path in "../outside/x", "a/../../outside/x", "a/..", "/../rattan-hostile":
    hostile(path, "leads upwards", tar_of([ent("a", kind=tarfile.DIRTYPE), ent(path, b"x")]))
hostile("through a link", "symbolic link", tar_of([ent("l", kind=tarfile.SYMTYPE, linkname=f"{here}/outside"), ent("l/x", b"x")]))
hostile("through a link upwards", "symbolic link", tar_of([ent("l", kind=tarfile.SYMTYPE, linkname="../" * 20 + here + "/outside"), ent("l/d/x", b"x")]))
hostile("hard link outside", "hard link", tar_of([ent("h", kind=tarfile.LNKTYPE, linkname="/etc/passwd")]))
hostile("hard link upwards", "leads upwards", tar_of([ent("h", kind=tarfile.LNKTYPE, linkname="../../etc/passwd")]))
hostile("hard link through a link", "symbolic link", tar_of([ent("l", kind=tarfile.SYMTYPE, linkname="/etc"), ent("h", kind=tarfile.LNKTYPE, linkname="l/passwd")]))
hostile("hard link to a directory", "hard link", tar_of([ent("d", kind=tarfile.DIRTYPE), ent("h", kind=tarfile.LNKTYPE, linkname="d")]))
hostile("below a file", "no directory", tar_of([ent("f", b"x"), ent("f/x", b"x")]))
hostile("long name", "longer than", tar_of([ent("n" * 300, b"x")]))
whole = tar_of([ent("f", b"x" * 100000)])
hostile("cut short", "damaged", whole[:50000])
hostile("no archive", "damaged", os.urandom(100000))
hostile("the root a file", "root", tar_of([ent(".", b"x")]))
bad = bytearray(tar_of([ent("f", b"x" * 1000)], tarfile.USTAR_FORMAT))
bad[124:136] = b"77777777777\0"
bad[148:156] = b"        "
bad[148:156] = b"%06o\0 " % sum(bad[:512])
hostile("a wrong size", "damaged", bytes(bad))
packed = gzip.compress(tar_of([ent(f"f{i}", os.urandom(50000)) for i in range(20)]))
hostile("a packed one that is cut", "damaged", packed[:len(packed) // 2])
check(set(os.listdir(here)) - before <= {"hostile.tar", "shown"}, "nothing was made beside", set(os.listdir(here)) - before)

print("== room")
bomb = io.BytesIO()
with tarfile.open(fileobj=bomb, mode="w:gz") as t:
    for i in range(64):
        e, _ = ent(f"f{i}", kind=tarfile.REGTYPE, size=1 << 20)
        t.addfile(e, io.BytesIO(bytes([i + 1]) * (1 << 20) if i % 2 else os.urandom(1 << 20)))
put("bomb.tgz", bomb.getvalue())
had = names()
says(1, "does not fit", "import", "tar", "bomb.tgz", "bomb", "--limit", "disk=4M")
check(names() == had, "a limit leaves nothing", names())
many = io.BytesIO()
with tarfile.open(fileobj=many, mode="w:gz", compresslevel=1) as t:
    for i in range(20000):
        t.addfile(ent(f"all-in-one/{i:06}", kind=tarfile.REGTYPE)[0])
n = imported("tar", put("many.tgz", many.getvalue()), "many")
check(n.get("entries") == 20000, "many in one directory", n)
says(0, "", "base", "rm", "many")

print("== stopped")
put("large.tar", tar_of([ent(f"f{i}", os.urandom(1 << 20)) for i in range(150)]))
for sig in signal.SIGINT, signal.SIGKILL:
    r, w = os.pipe()
    p = subprocess.Popen([rattan, "import", "tar", "-", "stopped"], stdin=r, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.close(r)
    data = open("large.tar", "rb").read()[:40 << 20]
    try:
        os.write(w, data[:1 << 16])
    except BrokenPipeError:
        check(False, "it reads", p.communicate())
    os.set_blocking(w, False)
    at, until = 1 << 16, time.time() + 3
    while at < len(data) and time.time() < until:
        try:
            at += os.write(w, data[at:at + (1 << 16)])
        except BlockingIOError:
            time.sleep(0.01)
    p.send_signal(sig)
    p.wait(60)
    os.close(w)
    for _ in range(100):  # what it had started ends by itself
        if subprocess.run(["pgrep", "-f", f"rattan-fs admin import.*{here}/store"], capture_output=True).returncode:
            break
        time.sleep(0.2)
    else:
        check(False, f"{sig}: rattan-fs goes on")
    check("stopped" not in names(), f"{sig}: nothing is visible")
says(0, "", "gc")
p = subprocess.Popen([rattan, "import", "tar", "large.tar", "killed"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
victim = b""
for _ in range(200):
    victim = subprocess.run(["pgrep", "-f", f"rattan-fs admin import.*{here}/store"], capture_output=True).stdout
    if victim:
        break
    time.sleep(0.02)
time.sleep(0.2)
if victim:
    try:
        os.kill(int(victim.split()[0]), signal.SIGKILL)
    except ProcessLookupError:
        pass
said = p.communicate(timeout=60)
if p.returncode:
    check("killed" not in names() and b"rattan-fs ended" in said[1], "killed hard: nothing is visible", said)
says(0, "", "gc")
r = rt("fsck")
check(r.returncode == 0, "the store is whole", (r.stdout + r.stderr)[-400:])
check(rt("import", "tar", "large.tar", "killed", "--replace").returncode == 0, "and the next one works")

print("== OCI layouts")


def blob(layout, data):
    d = hashlib.sha256(data).hexdigest()
    os.makedirs(f"{layout}/blobs/sha256", exist_ok=True)
    put(f"{layout}/blobs/sha256/{d}", data)
    return {"digest": "sha256:" + d, "size": len(data)}


def image(layout, layers, tag, arch=ARCH, config=None, packed=gzip.compress):
    ls, diffs = [], []
    for entries in layers:
        raw = tar_of(entries)
        diffs.append("sha256:" + hashlib.sha256(raw).hexdigest())
        ls.append(dict(blob(layout, packed(raw) if packed is not gzip.compress else gzip.compress(raw, mtime=0)),
                       mediaType="application/vnd.oci.image.layer.v1.tar+gzip"))
    c = {"architecture": arch, "os": "linux", "rootfs": {"type": "layers", "diff_ids": diffs}, "config": config or {}}
    m = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
         "config": dict(blob(layout, json.dumps(c).encode()), mediaType="application/vnd.oci.image.config.v1+json"), "layers": ls}
    return dict(blob(layout, json.dumps(m).encode()), mediaType=m["mediaType"], annotations={"org.opencontainers.image.ref.name": tag},
                platform={"architecture": arch, "os": "linux"})


def index(layout, manifests):
    put(f"{layout}/index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}).encode())
    put(f"{layout}/oci-layout", b'{"imageLayoutVersion":"1.0.0"}')


D = tarfile.DIRTYPE
below = [ent("keep", b"k"), ent("gone", b"g"), ent("dir", kind=D), ent("dir/a", b"a"), ent("dir/b", b"b"), ent("op", kind=D),
         ent("op/old", b"o"), ent("op/sub", kind=D), ent("op/sub/x", b"x"), ent("tree", kind=D), ent("tree/t", b"t"), ent("same", b"s")]
above = [ent(".wh.gone", b""), ent("dir/.wh.a", b""), ent("op", kind=D), ent("op/new", b"n"), ent("op/.wh..wh..opq", b""),
         ent(".wh.tree", b""), ent("dir/c", b"c"), ent(".wh.not-there", b""), ent("late", b"l")]
first = image("lay", [below, above], "first", config={"Env": ["A=b"], "Cmd": ["/bin/sh"]})
second = image("lay", [below, [ent("other", b"o")]], "second")
index("lay", [first, second])
says(2, "first, second", "import", "oci", "lay", "oci1")
says(3, "there is first, second", "import", "oci", "lay:third", "oci1")
i1 = imported("oci", "lay:first", "oci1")
check(i1["layers"] == 2 and i1["reused"] == 0, "two layers", i1)
t = tree("oci1")
check(t == {"keep": b"k", "dir": "dir", "dir/b": b"b", "dir/c": b"c", "op": "dir", "op/new": b"n", "same": b"s", "late": b"l"}, "whiteouts", t)
i2 = imported("oci", "lay:second", "oci2")
check(i2["reused"] == 1, "a layer that is there is not read again", i2)
check("gone" in tree("oci2"), "and is what it was")
subprocess.run(["tar", "-cf", "lay.tar", "-C", "lay", "."], check=True)
check(imported("oci", "lay.tar:first", "oci3")["id"] == i1["id"], "an archive of a layout")
shutil.copytree("lay", "lay-zst")
many = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [image("multi", [[ent("for", b"other")]], "x", arch="not-" + ARCH), image("multi", [[ent("for", b"this")]], "x")]}
for m in many["manifests"]:
    del m["annotations"]
index("multi", [dict(blob("multi", json.dumps(many).encode()), mediaType=many["mediaType"])])
imported("oci", "multi", "multi")
check(tree("multi") == {"for": b"this"}, "this machine's platform")
index("foreign", [dict(blob("foreign", json.dumps(dict(many, manifests=many["manifests"][:1])).encode()), mediaType=many["mediaType"])])
says(3, "not for this machine", "import", "oci", "foreign", "x")

print("== damaged images")


def damaged(what, words, change, code=1):
    shutil.rmtree("bad", ignore_errors=True)
    m = image("bad", [below + [ent("only-in-this", what.encode())], above], "t")
    index("bad", [m])
    manifest = json.load(open("bad/blobs/" + m["digest"].replace(":", "/")))
    change(m, manifest)
    had = names()
    says(code, words, "import", "oci", "bad", "damaged")
    check(names() == had, f"{what}: nothing is visible")


def path_of(d):
    return "bad/blobs/" + d["digest"].replace(":", "/")


def edit(path, fn):
    data = bytearray(open(path, "rb").read())
    put(path, bytes(fn(data)))


def flip(d):
    d[len(d) // 2] ^= 1
    return d


damaged("a layer's byte", "other bytes", lambda m, x: edit(path_of(x["layers"][0]), flip))
damaged("the last layer's byte", "other bytes", lambda m, x: edit(path_of(x["layers"][1]), flip))
damaged("a layer that goes on", "other bytes", lambda m, x: edit(path_of(x["layers"][0]), lambda d: d + b"more"))
damaged("a layer that is cut", "other bytes", lambda m, x: edit(path_of(x["layers"][1]), lambda d: d[:-9]))
damaged("a layer with another content", "other bytes", lambda m, x: put(path_of(x["layers"][0]), gzip.compress(tar_of([ent("evil", b"e")]))))
damaged("the configuration", "other bytes", lambda m, x: edit(path_of(x["config"]), flip))
damaged("the manifest", "other bytes", lambda m, x: edit(path_of(m), flip))
damaged("a layer that is missing", "not complete", lambda m, x: os.unlink(path_of(x["layers"][0])))
damaged("no index", "no OCI image layout", lambda m, x: os.unlink("bad/index.json"))
damaged("an index that is none", "no JSON object", lambda m, x: put("bad/index.json", b"[1]"))
damaged("an index of depth", "no JSON object", lambda m, x: put("bad/index.json", b'{"a":' * 100000))
damaged("a digest with a path", "digest that is none", lambda m, x: index("bad", [dict(m, digest="sha256:../../../etc/passwd")]))

print("== export as an image")
out("export", "oci", "oci1", "image")
out("export", "oci", "oci1", "image2")
check(subprocess.run(["diff", "-r", "image", "image2"]).returncode == 0, "the same tree, the same bytes")
check(imported("oci", "image", "again")["layers"] == 2 and tree("again") == tree("oci1"), "there and back, layer by layer")
out("export", "oci", "oci1", "image1", "--squash")
check(imported("oci", "image1", "again1")["layers"] == 1 and tree("again1") == tree("oci1"), "there and back, as one layer")
whites = [n for x in json.load(open("image/blobs/" + json.load(open("image/index.json"))["manifests"][0]["digest"].replace(":", "/")))["layers"]
          for n in tarfile.open("image/blobs/" + x["digest"].replace(":", "/")).getnames() if ".wh." in n]
check(sorted(whites) == [".wh.gone", ".wh.tree", "dir/.wh.a", "op/.wh.old", "op/.wh.sub"], "what is hidden, once", whites)
imported("tar", put("wh.tar", tar_of([ent(".wh.mine", b"x")])), "wh")
says(1, ".wh.mine cannot be in an OCI image", "export", "oci", "wh", "wh-image")
check("wh" not in tree("wh") and tree("wh") == {".wh.mine": b"x"}, "but as a directory")
out("run", "-e", "host-shown", "--", "true")
says(2, "directories of the host", "export", "tar", "host", "host.tar")
check(not os.path.exists("host.tar"), "nothing is written")
out("run", "--base", "two", "-e", "shown", "--overlay", f"{here}/root=/workspace/shown", "--", "sh", "-c", "echo x > /workspace/x")
out("commit", "-e", "shown", "-m", "x")
os.mkdir("root/etc/zz-locked", 0)  # whoever goes on from the first file of the host comes to it
says(2, "directories of the host ('/workspace/shown", "export", "tar", "head", "shown.tar", "-e", "shown")
os.rmdir("root/etc/zz-locked")
out("export", "tar", "head", "shown.tar", "-e", "shown", "--with-host")
check("workspace/shown/etc/motd" in tarfile.open("shown.tar").getnames(), "with --with-host it is there")
m = json.load(open("image/index.json"))["manifests"][0]
m = json.load(open("image/blobs/" + m["digest"].replace(":", "/")))
c = json.load(open("image/blobs/" + m["config"]["digest"].replace(":", "/")))
check(c["config"] == {"Env": ["A=b"], "Cmd": ["/bin/sh"]} and c["architecture"] == ARCH, "the settings of the base", c)
layer = "image/blobs/" + m["layers"][0]["digest"].replace(":", "/")
check("sha256:" + hashlib.sha256(gzip.decompress(open(layer, "rb").read())).hexdigest() == c["rootfs"]["diff_ids"][0], "diff_id")
says(0, "sha256:", "export", "oci", "head", "commit-image", "-e", "e1", "--compress", "zstd", "--tag", "mine")
imported("oci", "commit-image:mine", "commit")
check(tree("commit").get("workspace/f") == b"mine\n", "a commit")
if shutil.which("skopeo"):
    r = subprocess.run(["skopeo", "inspect", "oci:image:latest"], capture_output=True)
    check(r.returncode == 0 and b'"A=b"' in r.stdout, "skopeo inspect", r.stderr)
    r = subprocess.run(["skopeo", "copy", "--insecure-policy", "oci:commit-image:mine", "dir:copied"], capture_output=True)
    check(r.returncode == 0, "skopeo copy", r.stderr)
    r = subprocess.run(["skopeo", "copy", "--insecure-policy", "oci:lay:first", "oci-archive:lay.oci.tar:first"], capture_output=True)
    check(r.returncode == 0 and imported("oci", "lay.oci.tar", "by-skopeo")["id"] == i1["id"], "an archive by skopeo", r.stderr)
if shutil.which("umoci"):
    r = subprocess.run(["umoci", "unpack", "--rootless", "--image", "image:latest", "bundle"], capture_output=True)
    check(r.returncode == 0 and open("bundle/rootfs/dir/c").read() == "c", "umoci unpack", r.stderr)

print("== removal")
size = int(json.loads(out("gc", "--json"))["live_chunks"])
for b in names():
    says(0, "", "base", "rm", b)
check(names() == [], "no names are left", names())
says(3, "there is no base", "base", "rm", "one")
says(4, "rattan's own", "base", "rm", "host")
says(0, "from the image", "run", "-e", "e1", "--", "cat", "/etc/motd")
left = json.loads(out("gc", "--json"))
check(left["live_chunks"] < size, "gc frees what nothing needs", left)
says(0, "from the image", "run", "-e", "e1", "--", "cat", "/etc/motd")
r = rt("fsck")
check(r.returncode == 0, "the store is whole", (r.stdout + r.stderr)[-400:])
done()
