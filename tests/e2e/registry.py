#!/usr/bin/python3
# rattan push and pull against a registry on loopback: commits go as layers, come back in another data directory as they were,
# only what is missing is sent and fetched; what is refused, dead, wrong, stopped or fails in the middle says so and leaves nothing.
# timeout: 600
import calendar
import contextlib
import glob
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

from lib import check, done, here, rattan

if not shutil.which("docker-registry") or not shutil.which("skopeo"):
    print("there is no docker-registry, or no skopeo")
    sys.exit(77)

A, B = f"{here}/a", f"{here}/b"
os.makedirs(f"{here}/tmp")
os.environ["TMPDIR"] = f"{here}/tmp"
os.environ["HOME"] = f"{here}/home"
os.makedirs(os.environ["HOME"])


def rt(data, *args, **kw):
    return subprocess.run([rattan, *args], capture_output=True, env=dict(os.environ, RATTAN_DATA_DIR=data), **kw)


def out(data, *args, **kw):
    r = rt(data, *args, **kw)
    check(r.returncode == 0, f"{args}", (r.stdout + r.stderr).decode(errors="replace"))
    return r.stdout


def says(code, words, data, *args, **kw):
    r = rt(data, *args, **kw)
    said = (r.stdout + r.stderr).decode(errors="replace")
    check(r.returncode == code and words in said, f"{args} -> {code} '{words}'", f"{r.returncode}: {said[-500:]}")
    check(not os.listdir(f"{here}/tmp"), "nothing is left on the way", os.listdir(f"{here}/tmp"))


# ---- the registry ----

with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
with open("registry.yml", "w") as f:
    f.write(f"""version: 0.1
log: {{level: info}}
storage: {{filesystem: {{rootdirectory: {here}/registry}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
""")
registry_log = open("registry.log", "wb")
registry = None


def up():
    global registry
    registry = subprocess.Popen(["docker-registry", "serve", "registry.yml"], stdout=registry_log, stderr=registry_log)
    for _ in range(600):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5).read()
        except OSError:
            time.sleep(0.1)
    check(False, "the registry starts", open("registry.log").read()[-2000:])
    done()


def blobs():
    return {p.split("/")[-2]: os.path.getsize(p) for p in glob.glob(f"{here}/registry/docker/registry/v2/blobs/sha256/*/*/data")}


def image(name, tag):
    q = urllib.request.Request(f"http://127.0.0.1:{port}/v2/{name}/manifests/{tag}", headers={"Accept": "application/vnd.oci.image.manifest.v1+json"})
    return json.load(urllib.request.urlopen(q, timeout=60))


def fetched():
    """Blobs that somebody asked for, by digest."""
    n = {}
    for line in open("registry.log", errors="replace"):
        for d in ([line.split("/blobs/sha256:")[1][:64]] if 'method=GET' in line and "/blobs/sha256:" in line and "response completed" in line else []):
            n[d] = n.get(d, 0) + 1
    return n


def config(m, name):
    return json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/{name}/blobs/{m['config']['digest']}", timeout=60))


at = f"oci:127.0.0.1:{port}"
up()

# ---- a tree with all that a file can have ----

os.makedirs("root/bin")
os.makedirs("root/lib/deep/er")
for p in "bash", "cat", "ln", "mv", "rm", "mkdir", "chmod", "setfattr", "touch":
    src = shutil.which(p)
    shutil.copy(src, f"root/bin/{p}")
    for line in subprocess.run(["ldd", src], capture_output=True, text=True).stdout.splitlines():
        lib = next((w for w in line.split() if w.startswith("/")), None)
        if lib and not os.path.exists("root" + lib):
            os.makedirs(os.path.dirname("root" + lib), exist_ok=True)
            shutil.copy(os.path.realpath(lib), "root" + lib)
os.symlink("bash", "root/bin/sh")
for n in "one", "two", "three":
    with open(f"root/lib/deep/{n}", "w") as f:
        f.write(n)
    with open(f"root/lib/deep/er/{n}", "w") as f:
        f.write("er " + n)
os.link("root/lib/deep/one", "root/lib/first")
os.link("root/lib/deep/two", "root/lib/second")
with open("root/lib/large", "wb") as f:
    f.write(os.urandom(4_000_000))
os.chmod("root/lib/deep/three", 0o6751)
os.utime("root/lib/deep/three", ns=(1, 1111111111222222222))
subprocess.run(["setfattr", "-n", "user.note", "-v", "kept", "root/lib/deep/one"], check=True)
os.mkfifo("root/lib/fifo")
out(A, "import", "dir", "root", "base")


def run(text):
    out(A, "run", "-e", "e", "--writable-root", "/", "--", "sh", "-c", text)


out(A, "run", "--base", "base", "-e", "e", "--writable-root", "/", "--", "sh", "-c", """
ln /lib/deep/one /lib/third; echo changed >> /lib/deep/two
rm /lib/deep/er/one; setfattr -n user.more -v x /lib/deep/three""")
out(A, "commit", "-e", "e", "-m", "links and \"quotes\" of the first")
run("""
rm -r /lib/deep/er; mkdir /lib/deep/er; echo new > /lib/deep/er/new; mv /lib/second /lib/moved
mkdir -m 1770 /workspace/dir; touch -d @123456789.987654321 /workspace/dir/f; ln /workspace/dir/f /workspace/g; ln -s ../no/where /workspace/l""")
out(A, "commit", "-e", "e", "-m", "a directory anew")
run("mv /lib/deep /lib/shallow; rm /lib/fifo; mkdir /lib/fifo; rm /lib/third; echo x > /lib/third")
out(A, "commit", "-e", "e", "-m", "a directory moved")


def tar(data, rev, *more):
    return hashlib.sha256(out(data, "export", "tar", rev, "-", *more)).hexdigest()


print("== there and back")
before = set(blobs())
p1 = json.loads(out(A, "push", "head", f"{at}/team/tools:v1", "-e", "e", "--json"))
first = blobs()
m = image("team/tools", "v1")
check(p1["layers"] == 4 and len(m["layers"]) == 4, "a layer for the base and each commit", p1)
history = config(m, "team/tools")["history"]
check([h.get("comment") for h in history] == [None, 'links and "quotes" of the first', "a directory anew", "a directory moved"] and
      all(h["created"].endswith("Z") for h in history[1:]), "messages and times", history)
sizes = [x["size"] for x in m["layers"]]
check(sizes[0] > 4_000_000 and max(sizes[1:]) < 20_000, "only the first is large", sizes)
l1 = json.loads(out(B, "pull", "tools", f"{at}/team/tools:v1", "--json"))
check(l1["layers"] == 4 and l1["reused"] == 0, "all came", l1)
want = tar(A, "head", "-e", "e")
check(tar(B, "tools") == want, "modes, owners, times, links, attributes: the same bytes as an archive")
if tar(B, "tools") != want:
    out(A, "export", "tar", "head", "was.tar", "-e", "e")
    out(B, "export", "tar", "tools", "is.tar")
    for t in "was", "is":
        subprocess.run(f"tar -tvf {t}.tar | sort > {t}.txt", shell=True)
    print(subprocess.run(["diff", "was.txt", "is.txt"], capture_output=True, text=True).stdout)
says(0, "x", B, "run", "--base", "tools", "-e", "there", "--", "cat", "/lib/third")
log = out(B, "log", "-e", "there").decode().splitlines()
told = ["a directory moved", "a directory anew", 'links and "quotes" of the first']
there = [c for c in json.loads(out(A, "log", "-e", "e", "--json")) if not c["automatic"]]
check([c["message"] for c in there] == told, "what was pushed", there)
stamp = lambda c: time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(calendar.timegm(time.strptime(c["time"], "%Y-%m-%dT%H:%M:%SZ"))))
lines = [f"{c['id'][:12]}  {stamp(c)}  [base] {c['message']}" for c in there]
check(log == ["no commits yet: there is at its base", *lines, f"-             -                    [base] rattan import", f"{l1['id'][:12]}  (base/tools)"],
      "the log tells the history of the base, names it, and nothing that the store keeps for itself", log)
log = out(B, "log", "-e", "there", "-n", "2").decode().splitlines()
check(log[1:3] == lines[:2] and len(log) == 4, "at most so many", log)
came = json.loads(out(B, "base", "log", "tools", "--json"))
check([(c["id"], c["message"], c["time"]) for c in came[:3]] == [(c["id"], c["message"], c["time"]) for c in there] and [c["id"] for c in came[3:]] == [""],
      "ids, messages and times of the commits", came)
check(out(B, "base", "log", "tools").decode().splitlines()[:3] == [x.replace("[base] ", "") for x in lines], "base log")
check(b"is of no image that tells" in out(A, "base", "log", "base"), "a base of a directory")
says(3, "there is no base 'nothing'", A, "base", "log", "nothing")
says(2, "give the name of a base", A, "base", "log")
says(4, "there is a base 'tools' already", B, "pull", "tools", f"{at}/team/tools:v1")

print("== one more commit")
p2 = json.loads(out(A, "push", "head", f"{at}/team/tools:v1", "-e", "e", "--json"))
check(p2["digest"] == p1["digest"] and blobs() == first, "the same again is the same, and sends nothing")
run("echo more > /workspace/more")
out(A, "commit", "-e", "e", "-m", "more")
p3 = json.loads(out(A, "push", "head", f"{at}/team/tools:v2", "-e", "e", "--json"))
new = {d: n for d, n in blobs().items() if d not in first}
check(p3["layers"] == 5 and len(new) == 3 and max(new.values()) < 20_000, "a small layer, a configuration, a manifest", new)
had = fetched()
l2 = json.loads(out(B, "pull", "tools", f"{at}/team/tools:v2", "--replace", "--json"))
check(l2["layers"] == 5 and l2["reused"] == 4 and l2["not_fetched"] > 4_000_000 and l2["new_bytes"] < 100_000, "what is there is not fetched", l2)
now = fetched()
check(all(now.get(x["digest"][7:]) == had.get(x["digest"][7:]) for x in m["layers"]), "nor asked for", (had, now))
check(tar(B, "tools") == tar(A, "head", "-e", "e"), "equal again")
says(0, "tools2 is", B, "pull", f"{at}/team/tools@sha256:{p1['digest']}", "tools2")
check(tar(B, "tools2") == want, "by its digest, the older one")

print("== on from there, and back")
out(B, "run", "--base", "tools", "-e", "mine", "--writable-root", "/", "--", "sh", "-c", "echo b > /workspace/b")
out(B, "commit", "-e", "mine", "-m", "from the other side")
p4 = json.loads(out(B, "push", "head", f"{at}/team/tools:v3", "-e", "mine", "--json"))
m3 = image("team/tools", "v3")
same = sum(x in image("team/tools", "v2")["layers"] for x in m3["layers"])
check(same >= 1 and m3["layers"][0] in m["layers"], "the large layer is the same from another machine", same)
check([h.get("comment") for h in config(m3, "team/tools")["history"]][1:] ==
      ['links and "quotes" of the first', "a directory anew", "a directory moved", "more", "from the other side"], "with the whole history")
out(A, "pull", "back", f"{at}/team/tools:v3")
check(tar(A, "back") == tar(B, "head", "-e", "mine"), "equal on the way back")

log = out(B, "log", "-e", "mine").decode().splitlines()
check("from the other side" in log[0] and [x.split("[base] ")[1] for x in log if "[base]" in x] == ["more", *told, "rattan import"], "its own commits, and those of the base", log)
out(B, "pull", "tools", f"{at}/team/tools:v1", "--replace")
check("[base]" not in out(B, "log", "-e", "mine").decode(), "the name is another tree's now: its history is not told")
out(B, "pull", "tools", f"{at}/team/tools:v2", "--replace")

print("== an image of somebody else")
out(A, "export", "oci", "head", "foreign", "-e", "e")
index = json.load(open("foreign/index.json"))
manifest = json.load(open(f"foreign/blobs/sha256/{index['manifests'][0]['digest'][7:]}"))


def blob(o):
    text = json.dumps(o).encode()
    d = hashlib.sha256(text).hexdigest()
    with open(f"foreign/blobs/sha256/{d}", "wb") as f:
        f.write(text)
    return {"digest": f"sha256:{d}", "size": len(text)}


conf = json.load(open(f"foreign/blobs/sha256/{manifest['config']['digest'][7:]}"))
conf["history"] = [{"created": "2026-03-01T10:00:00.5+02:00", "created_by": "/bin/sh -c #(nop) ADD file:1 in / \nsecond line\x1b[31m", "author": "Some One"},
                   {"created": "2026-03-01T08:00:01Z", "created_by": "CMD", "comment": "x" * 300, "empty_layer": True}, {"created": "tomorrow", "created_by": "rattan commit " + "z" * 64},
                   {}, {"created_by": 5}, {"comment": "the last"}]
manifest["config"].update(blob(conf))
index["manifests"][0].update(blob(manifest))
json.dump(index, open("foreign/index.json", "w"))
out(A, "import", "oci", "foreign", "foreign")
h = json.loads(out(A, "base", "log", "foreign", "--json"))
check([(x["message"][:8], x["created_by"][:6], x["author"], x["time"], x["id"], x["empty"]) for x in h] ==
      [("the last", "", "", "", "", False), ("", "", "", "", "", False), ("", "", "", "", "", False), ("", "rattan", "", "", "", False),
       ("x" * 8, "CMD", "", "2026-03-01T08:00:01Z", "", True), ("", "/bin/s", "Some One", "2026-03-01T08:00:00Z", "", False)], "what it says, and nothing that it does not", h)
text = out(A, "base", "log", "foreign").decode()
check("ADD file:1 in / ...  (Some One)\n" in text and "\x1b" not in text and "second" not in text and "x" * 200 + "...\n" in text and "x" * 201 not in text, "first lines, shown as text", text)

print("== an image that shares layers")
out(A, "fork", "f", "-e", "e")
out(A, "run", "-e", "f", "--writable-root", "/", "--", "sh", "-c", "echo fork > /workspace/fork")
out(A, "commit", "-e", "f", "-m", "fork")
out(A, "push", "head", f"{at}/other/name", "-e", "f")
l3 = json.loads(out(B, "pull", "other", f"{at}/other/name", "--json"))
check(l3["reused"] == 5 and l3["new_bytes"] < 100_000, "costs what is new", l3)
p5 = json.loads(out(A, "push", "head", f"{at}/one/layer", "-e", "e", "--squash", "--json"))
check(p5["layers"] == 1, "as one layer", p5)
out(B, "pull", "squashed", f"{at}/one/layer")
check(tar(B, "squashed") == tar(A, "head", "-e", "e"), "which is the same tree")
if shutil.which("umoci"):
    out(A, "export", "oci", "head", "unpack", "-e", "e")
    r = subprocess.run(["umoci", "unpack", "--rootless", "--image", "unpack:latest", "bundle"], capture_output=True)
    check(r.returncode == 0 and open("bundle/rootfs/lib/shallow/er/new").read() == "new\n", "umoci unpacks the layers", r.stderr)

print("== by skopeo alone")
out(A, "export", "oci", "head", "lay", "-e", "e", "--tag", "v4")
for source, to in ("oci:lay:v4", f"docker://{at[4:]}/by/skopeo:v4"), (f"docker://{at[4:]}/by/skopeo:v4", "oci:came:v4"):
    tls = [f"--{x}-tls-verify=false" for x, y in (("src", source), ("dest", to)) if y.startswith("docker:")]
    r = subprocess.run(["skopeo", "copy", "--insecure-policy", *tls, source, to], capture_output=True, text=True)
    check(r.returncode == 0, f"skopeo copy {source} {to}", r.stderr)
l4 = json.loads(out(f"{here}/d", "import", "oci", "came:v4", "came", "--json"))
check(l4["layers"] == 5 and tar(f"{here}/d", "came") == tar(A, "head", "-e", "e"), "a layout, pushed and pulled, imported: equal", l4)

print("== what cannot be")
names = out(B, "base", "list")
for bad, words in (("oci:nohost/name", "no registry"), ("oci:127.0.0.1:1", "no image in a registry"), (f"{at}/Upper", "no name of an image"),
                   (f"{at}/a:b:c", "no tag"), (f"{at}/a//b", "no name of an image"), (f"{at}/a/", "no name of an image"),
                   (f"{at}/a@sha256:12", "no tag"), (f"{at}/a:-x", "no tag"), ("oci:a b.c/n", "no registry"), (f"{at}/a;rm", "no name")):
    says(2, words, B, "pull", "x", bad)
says(2, "pushed to a tag", A, "push", "head", f"{at}/a@sha256:" + "0" * 64, "-e", "e")
says(3, "there is no image", B, "pull", "x", f"{at}/team/tools:v9")
says(3, "there is no image", B, "pull", "x", f"{at}/team/nothing")
says(3, "", A, "push", "nothing-like-it", f"{at}/team/tools:v9", "-e", "e")
says(1, "does not answer", B, "pull", "x", "oci:127.0.0.1:1/team/tools")
says(1, "does not answer", A, "push", "head", "oci:127.0.0.1:1/team/tools", "-e", "e")
out(A, "run", "--", "true")
says(2, "directories of the host", A, "push", "host", f"{at}/team/host")
bin_only = f"{here}/few"
os.makedirs(bin_only)
for p in "sh", "bwrap", "fusermount3":
    if shutil.which(p):
        os.symlink(shutil.which(p), f"{bin_only}/{p}")
path = os.environ["PATH"]
os.environ["PATH"] = bin_only
says(1, "install the package skopeo", B, "pull", "x", f"{at}/team/tools:v1")
os.environ["PATH"] = path
check(out(B, "base", "list") == names, "nothing came of it", names)

print("== a layer that is not what the manifest says")
d = next(x["digest"][7:] for x in image("other/name", "latest")["layers"][-1:])
hit = f"{here}/registry/docker/registry/v2/blobs/sha256/{d[:2]}/{d}/data"
data = open(hit, "rb").read()
with open(hit, "r+b") as f:
    f.seek(len(data) // 2)
    f.write(bytes([data[len(data) // 2] ^ 1]))
says(1, "", f"{here}/c", "pull", "x", f"{at}/other/name")
check(json.loads(out(f"{here}/c", "base", "list", "--json")) == [], "nothing came of it")
with open(hit, "wb") as f:
    f.write(data)

print("== a registry that fails in the middle")


class Fails(threading.Thread):
    """The registry, behind something that ends all connections, and takes no more, when so many bytes have come @by it: "push" those of clients,
    "pull" the registry's."""

    def __init__(self, by, after):
        super().__init__(daemon=True)
        self.by, self.left, self.lock, self.over = by, after, threading.Lock(), False
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.at = f"oci:127.0.0.1:{self.socket.getsockname()[1]}"
        self.start()

    def run(self):
        while True:
            client, _ = self.socket.accept()
            if self.over:
                client.close()
                continue
            there = socket.create_connection(("127.0.0.1", port))
            for of, to, by in (client, there, "push"), (there, client, "pull"):
                threading.Thread(target=self.copy, args=(of, to, by), daemon=True).start()

    def copy(self, of, to, by):
        with contextlib.suppress(OSError):
            while not self.over and (data := of.recv(16384)):
                with self.lock:
                    self.left -= len(data) if by == self.by else 0
                    self.over = self.left < 0
                if not self.over:
                    to.sendall(data)
        for s in of, to:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


names, had = out(B, "base", "list"), blobs()
broken = Fails("pull", 1_500_000)
says(1, "", f"{here}/cut", "pull", "x", f"{broken.at}/team/tools:v1")
check(broken.over and broken.left < 0, "it was in the middle of a layer", broken.left)
check(json.loads(out(f"{here}/cut", "base", "list", "--json")) == [], "no half base")
says(0, "x is", f"{here}/cut", "pull", "x", f"{at}/team/tools:v1")
check(tar(f"{here}/cut", "x") == want, "the same again, from one that does not fail, is whole")
broken = Fails("push", 1_500_000)
says(1, "", A, "push", "head", f"{broken.at}/team/cut", "-e", "e")
check(broken.over, "it was in the middle of a layer", broken.left)
says(3, "there is no image", B, "pull", "y", f"{at}/team/cut")
says(0, "", A, "push", "head", f"{at}/team/cut", "-e", "e")
says(0, "y is", B, "pull", "y", f"{at}/team/cut")
check(tar(B, "y") == tar(A, "head", "-e", "e"), "pushed again it is whole")

print("== stopped")
for args in ("push", "head", f"{at}/team/stopped", "-e", "e"), ("pull", "x", f"{at}/team/tools:v1"):
    registry.send_signal(signal.SIGSTOP)  # it answers no more
    p = subprocess.Popen([rattan, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, RATTAN_DATA_DIR=A))
    for _ in range(600):
        if subprocess.run(["pgrep", "-P", str(p.pid), "skopeo"], capture_output=True).returncode == 0:
            break
        time.sleep(0.1)
    p.send_signal(signal.SIGINT)
    try:
        said = p.communicate(timeout=120)
    finally:
        registry.send_signal(signal.SIGCONT)
    check(p.returncode == -signal.SIGINT and not os.listdir(f"{here}/tmp") and said[1].startswith(b"rattan: interrupted; no"), f"{args[0]}: ended, and nothing is left", (p.returncode, said))
check(b"x " not in out(A, "base", "list"), "no half base")
r = rt(A, "fsck")
check(r.returncode == 0, "the store is whole", (r.stdout + r.stderr)[-400:])
registry.terminate()
registry.wait(60)

print("== a registry that wants to know who asks")
with open("registry.yml", "a") as f:
    f.write(f'auth: {{htpasswd: {{realm: here, path: {here}/htpasswd}}}}\n')
open("htpasswd", "w").write("me:$2y$05$abcdefghijklmnopqrstuuXNmPRIK4qaFVqNHlWv6tbGGSbkFqXqS\n")
registry = subprocess.Popen(["docker-registry", "serve", "registry.yml"], stdout=registry_log, stderr=registry_log)
for _ in range(600):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5)
    except urllib.error.HTTPError:
        break
    except OSError:
        time.sleep(0.1)
says(1, "skopeo login", A, "push", "head", f"{at}/team/tools:v9", "-e", "e")
says(1, "skopeo login", B, "pull", "x", f"{at}/team/tools:v1")
registry.terminate()
registry.wait(60)
done()
