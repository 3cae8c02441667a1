#!/usr/bin/python3
"""rattan run --write-through: ordinary programs work on the host's own files, nothing outside of what the profile opens
changes, by whatever road, and what an environment would keep is refused with a sentence. Unprivileged."""
# timeout: 300
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

from lib import check, done, rattan

HERE = pathlib.Path(os.environ.get("PWD", "."))
W, OUT = HERE / "w", HERE / "out"
ENV = ["-e", "thr"]

PROGRAMS = r'''
set -e
cd "$1"
if command -v git >/dev/null; then
	git init -q repo; cd repo
	git config user.email a@b; git config user.name a
	for i in 1 2 3; do echo $i > f$i; git add .; git commit -qm $i; done
	git checkout -q -b other HEAD~1; git gc -q; git fsck --strict >/dev/null; git status --short | grep . && exit 1
	cd ..
fi
if command -v make >/dev/null && command -v cc >/dev/null; then
	mkdir build; cd build
	printf 'int main(void){return 0;}\n' > a.c
	printf 'a: a.c\n\tcc -o a a.c\n' > Makefile
	make -s; ./a; make -s | grep . && exit 1
	cd ..
fi
mkdir tree; for i in $(seq 30); do mkdir -p tree/node_modules/p$i/lib; for j in $(seq 10); do echo $i $j > tree/node_modules/p$i/lib/$j.js; done
	ln -s ../p$i/lib/1.js tree/node_modules/p$i/bin; done
ln tree/node_modules/p1/lib/1.js tree/linked; truncate -s 10M tree/sparse; echo end >> tree/sparse
tar -cSf tree.tar tree; mkdir copy; tar -xpSf tree.tar -C copy; diff -r tree copy/tree
[ "$(stat -c %h copy/tree/linked)" = 2 ]; [ "$(stat -c %b copy/tree/sparse)" -lt 1000 ]
mv tree/node_modules tree/nm; rm -rf copy
(umask 027; echo > masked; mkdir maskdir)
[ "$(stat -c %a masked)" = 640 ]; [ "$(stat -c %a maskdir)" = 750 ]
touch -d '2001-02-03 04:05:06.123456789' dated; [ "$(stat -c %y dated | cut -c1-29)" = '2001-02-03 04:05:06.123456789' ]
python3 - <<'EOP'
import fcntl, mmap, os, sqlite3, threading, time
for journal in ("wal", "delete"):
    db = sqlite3.connect("db-" + journal); db.execute("pragma journal_mode=" + journal); db.execute("create table t(x)")
    for i in range(200):
        db.execute("insert into t values (?)", (i,))
        if i % 50 == 0: db.commit()
    db.commit(); assert db.execute("select sum(x) from t").fetchone()[0] == 19900; db.close()
f = open("mapped", "w+b"); f.truncate(100000); m = mmap.mmap(f.fileno(), 100000); m[50000:50005] = b"hello"; m.flush(); m.close(); f.close()
assert open("mapped", "rb").read()[50000:50005] == b"hello"
def add(k):
    fd = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for i in range(200): os.write(fd, b"%d\n" % k)
ts = [threading.Thread(target=add, args=(k,)) for k in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]
assert len(open("log").read().split()) == 800
fd = os.open(".", os.O_TMPFILE | os.O_RDWR); os.write(fd, b"nameless"); os.link(f"/proc/self/fd/{fd}", "named", src_dir_fd=os.open("/", os.O_RDONLY), follow_symlinks=True)
fd = os.open("made-ro", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o444); os.write(fd, b"written by who made it"); os.ftruncate(fd, 7); os.fsync(fd)
fd = os.open("direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT); os.write(fd, b"d" * 5000); fcntl.flock(fd, fcntl.LOCK_EX)
os.unlink("direct"); os.lseek(fd, 0, 0); assert os.read(fd, 5000) == b"d" * 5000
os.posix_fallocate(os.open("alloc", os.O_RDWR | os.O_CREAT), 0, 1 << 20)
os.setxattr("made-ro", "user.k", b"v") if os.geteuid() == 0 else None
# Deeper than a path can be told: each name above is looked for, at once and when what is known of it is too old.
for i in range(600):
    os.mkdir(f"d{i:08}"); os.chdir(f"d{i:08}")
open("x", "w").write("deep"); time.sleep(1.5); assert open("x").read() == "deep"
os.rename("x", "y"); os.mkdir("z"); assert sorted(os.listdir(".")) == ["y", "z"]; os.unlink("y")
EOP
rm -r d00000000
'''

ROADS = r'''
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
w, closed, hidden = sys.argv[1], sys.argv[2].split(":"), sys.argv[3].split(":")
bad = []
def no(what, f, *a, **k):
    try:
        r = f(*a, **k)
    except OSError:
        return
    bad.append(f"{what}: {str(r)[:60]!r}")
def call(f, *a):
    if f(*a) < 0:
        raise OSError(ctypes.get_errno(), "")
def exchange(a, b):
    call(libc.renameat2, -100, a.encode(), -100, b.encode(), 2)
f, d = w + "/mine", w + "/minedir"
open(f, "w").write("x"); os.makedirs(d, exist_ok=True)
tmp = os.open(w, os.O_TMPFILE | os.O_RDWR)
for p in closed + hidden:
    for what, c, *a in (("link to", os.link, f, p + "/evil"), ("link over", os.link, f, p), ("link from", os.link, p, w + "/l"), ("rename from", os.rename, p, w + "/m"),
                        ("rename to", os.rename, f, p + "/evil"), ("exchange", exchange, p, d), ("exchange", exchange, f, p), ("symlink", os.symlink, f, p + "/evil"),
                        ("mkdir", os.mkdir, p + "/evil"), ("create", os.open, p + "/evil", os.O_CREAT | os.O_WRONLY), ("chmod", os.chmod, p, 0o777), ("chown", os.chown, p, os.getuid(), os.getgid()),
                        ("utime", os.utime, p), ("xattr", os.setxattr, p, "user.a", b"b"), ("truncate", os.truncate, p, 0), ("unlink", os.unlink, p), ("rmdir", os.rmdir, p),
                        ("tmpfile", os.open, p, os.O_TMPFILE | os.O_RDWR), ("write", os.open, p, os.O_WRONLY),
                        ("linkat of what is nameless", call, libc.linkat, -100, f"/proc/self/fd/{tmp}".encode(), -100, (p + "/evil").encode(), 0x400)):
        no(what + " " + p, c, *a)
for p in hidden:
    no("read " + p, lambda: os.listdir(p) if os.path.isdir(p) else open(p).read())
    os.symlink(p, w + "/lead"); no("through a link " + p, lambda: os.listdir(w + "/lead") if os.path.isdir(w + "/lead") else open(w + "/lead").read()); os.unlink(w + "/lead")
for p in closed:
    if os.path.isfile(p):
        fd = os.open(p, os.O_RDONLY); o = os.open(p, os.O_PATH)
        for x in (fd, o):
            no("again for writing " + p, os.open, f"/proc/self/fd/{x}", os.O_WRONLY)
        no("fchmod " + p, os.fchmod, fd, 0o777); no("fchown " + p, os.fchown, fd, os.getuid(), os.getgid())
for n in (".git", ".agents", ".codex", ".GIT"):
    no("protected mkdir", os.mkdir, f"{w}/{n}"); no("protected rename", os.rename, d, f"{w}/{n}"); no("protected link", os.link, f, f"{w}/{n}"); no("protected symlink", os.symlink, f, f"{w}/{n}")
no("a device", os.mknod, w + "/dev", 0o600 | 0o020000, os.makedev(1, 3))
os.path.isfile(f) and os.unlink(f); os.path.isdir(d) and not os.listdir(d) and os.rmdir(d)
print("\n".join(bad) or "fine")
'''


def profile(entries, name="p"):
    es = [{"access": a, "path": {"type": "glob_pattern", "pattern": p[2:]} if p.startswith("g:")
           else {"type": "special", "value": {"kind": p[1:]}} if p.startswith(":") else {"type": "path", "path": p}} for a, p in entries]
    f = HERE / f"{name}.json"
    f.write_text(json.dumps({"permissionProfile": {"type": "managed", "network": "restricted", "file_system": {"type": "restricted", "entries": es}}, "sandboxCwd": str(W)}))
    return str(f)


def run(*args, through=("--write-through",), env=ENV, **kw):
    return subprocess.run([rattan, "run", "--profile", PROFILE, *through, *env, "--", *args], capture_output=True, text=True, **kw)


def listing(top):
    out = {}
    for d, dirs, files in os.walk(top):
        for n in dirs + files:
            p = os.path.join(d, n)
            s = os.lstat(p)
            out[p] = (s.st_mode, s.st_ino, s.st_nlink, s.st_mtime_ns, s.st_ctime_ns, s.st_size)
    return out


def said(r, text):
    return r.returncode != 0 and text in r.stderr


W.mkdir()
(W / "ro").mkdir(), (W / "vault").mkdir(), OUT.mkdir()
for p, t in ((W / "ro/f", "fixed"), (W / "vault/key", "secret"), (W / "x.env", "secret"), (OUT / "f", "outside"), (W / "in", "from the host")):
    p.write_text(t)
PROFILE = profile([("read", ":root"), ("write", str(W)), ("write", ":tmpdir"), ("read", str(W / "ro")), ("deny", str(W / "vault")), ("deny", "g:" + str(W) + "/**/*.env")])
others = listing(OUT), listing(W / "ro"), listing(W / "vault")

# Programs, and what they leave on the host.
r = run("bash", "-c", PROGRAMS, "programs", str(W))
check(r.returncode == 0, "programs work", r.stdout[-500:] + r.stderr[-1500:])
check((W / "ro").stat().st_uid == os.getuid() and (W / "masked").stat().st_uid == os.getuid(), "files are the user's")
check((W / "named").read_text() == "nameless" and (W / "mapped").read_bytes()[50000:50005] == b"hello", "what was mapped and what had no name is on the host")
if shutil.which("git"):
    g = subprocess.run(["git", "-C", W / "repo", "fsck", "--strict"], capture_output=True, text=True)
    check(g.returncode == 0, "the host's git finds a whole repository", g.stderr)

# Every road to what is closed.
r = run("python3", "-c", ROADS, str(W), ":".join(map(str, (W / "ro", W / "ro/f", OUT, OUT / "f", HERE, "/etc/passwd", "/usr"))), ":".join(map(str, (W / "vault", W / "vault/key", W / "x.env"))))
check(r.stdout == "fine\n", "no road leads to what is closed", r.stdout + r.stderr)
check((listing(OUT), listing(W / "ro"), listing(W / "vault")) == others, "nothing else changed on the host")
plain = profile([("read", ":root"), ("write", str(W))], "plain")
r = subprocess.run([rattan, "run", "--profile", plain, "--write-through", *ENV, "--", "python3", "-c", ROADS, str(W), str(W / "ro"), str(W / "vault")], capture_output=True, text=True)
check("rename from " + str(W / "ro") in r.stdout and "exchange " + str(W / "vault") in r.stdout, "and the program that tries them finds something where it can", r.stdout + r.stderr)
for p in (W / "ro", W / "vault"):
    subprocess.run(["bash", "-c", f"chmod u+rwx {p} 2>/dev/null; rm -rf {p}"], check=True)
(W / "ro").mkdir(), (W / "vault").mkdir(), (W / "vault/key").write_text("secret"), (W / "ro/f").write_text("fixed")

# The host changes what is looked at.
p = subprocess.Popen([rattan, "run", "--profile", PROFILE, "--write-through", *ENV, "--", "bash", "-c",
                      f"cd {W}; mkdir sub; echo open > sub/f; exec 5< sub/f 6>> sub/f; echo ready; read x; cat new in 2>&1; cat <&5 2>&1; echo evil >&6; cat sub/f 2>&1; echo end"],
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
check(p.stdout.readline() == "ready\n", "a command runs")
(W / "new").write_text("made by the host\n")
(W / "save").write_text("saved by the host\n"), os.rename(W / "save", W / "in")
os.rename(W / "sub", W / "vault/sub")
time.sleep(1.3)
out, _ = p.communicate("\n")
check("made by the host" in out and "saved by the host" in out, "it sees what the host made and replaced", out)
check("open\n" not in out.replace("an open", "") and (W / "vault/sub/f").read_text() == "open\n", "what was moved to a closed place is closed, also where it was open", out)

# What was moved is met at its new place before what lies below it is used; and a file that got its name late.
p = subprocess.Popen([rattan, "run", "--profile", PROFILE, "--write-through", *ENV, "--", "python3", "-uc", f"""
import os
os.chdir({str(W)!r}); os.mkdir("up"); open("up/f", "w").write("open"); fd = os.open("up/f", os.O_RDWR)
tmp = os.open(".", os.O_TMPFILE | os.O_RDWR); os.write(tmp, b"open"); os.link(f"/proc/self/fd/{{tmp}}", "late", src_dir_fd=os.open("/", 0), follow_symlinks=True)
print("ready"); input(); os.stat("ro/up")
for f in (fd, tmp):
    for how in (lambda: os.pwrite(f, b"evil", 0), lambda: os.open(f"/proc/self/fd/{{f}}", os.O_RDWR), lambda: os.truncate(f"/proc/self/fd/{{f}}", 0), lambda: os.fchmod(f, 0o777)):
        try: print("done:", how())
        except OSError as e: print(e.strerror)
"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
check(p.stdout.readline() == "ready\n", "a command has two files open")
os.rename(W / "up", W / "ro/up"), os.rename(W / "late", W / "ro/late")
out, _ = p.communicate("\n")
check(out == "Permission denied\n" * 8 and (W / "ro/up/f").read_text() + (W / "ro/late").read_text() == "openopen", "neither is changed where the host has moved it", out)

# The kernel's own file systems, wherever the host has them: through them the daemon could be reached. Another one of the host's is shown.
for n in ("kern", "data"):
    (W / n).mkdir()
mounts = f"mount --rbind /sys {W}/kern && mount -t tmpfs none {W}/data && echo shown > {W}/data/f && exec \"$@\""
r = subprocess.run(["unshare", "-Urm", "sh", "-c", mounts, "sh", rattan, "run", "--profile", PROFILE, "--write-through", "-e", "mounts", "--",
                    "sh", "-c", f"cat {W}/data/f; ls {W}; ls -a {W}/kern {W}/kern/kernel {W}/kern/fs; echo x > {W}/kern/new"], capture_output=True, text=True)
check(r.stdout.startswith("shown\n") and "kernel" not in r.stdout and r.stderr.count("No such file") >= 3, "what is the kernel's is not there", r.stdout + r.stderr)

# Nothing is kept, and it says so.
for cmd in (["commit", "-m", "x"], ["diff"], ["reset"], ["rollback", "base"], ["undo"]):
    r = subprocess.run([rattan, cmd[0], *ENV, *cmd[1:]], capture_output=True, text=True)
    check(said(r, "writes through") and "straight to the host" in r.stderr, f"{cmd[0]} says that nothing is kept", r.stdout + r.stderr)
check(said(run("true", through=()), "writes through"), "whoever does not ask for it is not let in")
r = subprocess.run([rattan, "run", *ENV, "--", "touch", str(W / "plain")], capture_output=True, text=True)
check(r.returncode != 0 and not (W / "plain").exists(), "nor is a plain command", r.stderr)
run("true", through=(), env=["-e", "kept"])
check(said(run("true", env=["-e", "kept"]), "keeps what is written"), "an environment that keeps is none that writes through")
r = subprocess.run([rattan, "run", "--write-through", *ENV, "--", "true"], capture_output=True, text=True)
check(r.returncode == 2 and "--profile" in r.stderr, "without a profile it is refused", r.stderr)
r = run("bash", "-c", f"echo x > {W}/ro/f")
check(said(r, f"refused: open for writing {W}/ro/f"), "a refusal is told with its rule", r.stderr)

# The server's tools.
calls = [{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
         {"jsonrpc": "2.0", "method": "notifications/initialized"},
         *({"jsonrpc": "2.0", "id": i, "method": "tools/call", "params": {"name": n, "arguments": a}} for i, (n, a) in enumerate(
             (("rattan_write_file", {"path": str(W / "tool"), "content": "by a tool"}), ("rattan_write_file", {"path": str(W / "y.env"), "content": "no"}),
              ("shell_run", {"command": f"cat {W}/tool; echo ' and a command' > {W}/cmd"})), 1))]
p = subprocess.Popen([rattan, "serve", "--profile", PROFILE, "--write-through", *ENV], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
answers = []
for c in calls:
    p.stdin.write(json.dumps(c) + "\n"), p.stdin.flush()
    if "id" in c:
        answers.append(p.stdout.readline())
p.stdin.close(), p.wait()
check((W / "tool").exists() and (W / "tool").read_text() == "by a tool", "a file tool writes to the host", answers[1:])
check(not (W / "y.env").exists() and (W / "cmd").exists(), "under the same rules, as does a command", answers)

# What each call brings, and another profile in between.
def meta(access):
    es = [{"access": a, "path": {"type": "special", "value": {"kind": k}}} for a, k in (("read", "root"), (access, "project_roots"))]
    return {"codex/sandbox-state-meta": {"permissionProfile": {"type": "managed", "network": "restricted", "file_system": {"type": "restricted", "entries": es}}, "sandboxCwd": str(W)}}


p = subprocess.Popen([rattan, "serve", "--sandbox", "inherit", "--write-through", *ENV], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
answers = []
for c in [*calls[:2], *({"jsonrpc": "2.0", "id": i, "method": "tools/call", "params": {"name": "shell_run", "arguments": {"command": f"echo > {W}/call{i}"}, "_meta": meta(a)}}
                        for i, a in enumerate(("write", "read", "write"), 1))]:
    p.stdin.write(json.dumps(c) + "\n"), p.stdin.flush()
    if "id" in c:
        answers.append(p.stdout.readline())
p.stdin.close(), p.wait()
check([(W / f"call{i}").exists() for i in (1, 2, 3)] == [True, False, True], "each call writes as its own profile says", answers[1:])

# The daemon dies: an error at once, and what was written is there.
p = subprocess.Popen([rattan, "run", "--profile", PROFILE, "--write-through", *ENV, "--", "bash", "-c", f"cd {W}; echo promised > p; echo ready; while cat p >/dev/null; do sleep 0.05; done; echo over"],
                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
check(p.stdout.readline() == "ready\n", "a command runs again")
fs = subprocess.run(["pgrep", "-u", str(os.getuid()), "-f", f"rattan-fs env --data-dir {os.environ['XDG_DATA_HOME']}/rattan .*--env thr"], capture_output=True, text=True).stdout.split()
parents = {p: open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[1] for p in fs}
daemons = [p for p in fs if parents[p] in fs]
check(len(daemons) == 1, "its daemon is found", parents)
t = time.time()
for d in daemons:
    os.kill(int(d), signal.SIGKILL)
p.wait(20)
check(time.time() - t < 10, "the command ends at once", time.time() - t)
check((W / "p").read_text() == "promised\n", "what was written is on the host")
check(run("cat", str(W / "p")).stdout == "promised\n", "and the next command runs")
done()
