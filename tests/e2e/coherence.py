#!/usr/bin/python3
# What reads, mappings, O_DIRECT, another process and a mounted commit show agree; what changes in a host directory
# below is seen within two seconds, and never half.
# timeout: 400
import mmap
import os
import random
import subprocess
import sys
import threading
import time

from lib import Served, check, done, here, rattan

SEEN_S = 2.0  # docs/architecture.md: a second, and the time to ask
BLOCK = 1 << 17


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def get(path):
    with open(path, "rb") as f:
        return f.read()


def direct(path, size):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        buf = mmap.mmap(-1, (size + 4095) // 4096 * 4096)
        n = os.preadv(fd, [buf], 0)
        return buf[:n]
    finally:
        os.close(fd)


def other(path):
    return subprocess.run(["cat", path], stdout=subprocess.PIPE, check=True).stdout


# ---- one tree, many ways to look at it ----

def views(path, want, what, m):
    check(get(path) == want, f"{what}: read")
    check(m[:len(want)] == want, f"{what}: mapping")
    check(direct(path, len(want)) == want, f"{what}: O_DIRECT")
    check(other(path) == want, f"{what}: another process")


def agree():
    path = "mnt/workspace/f"
    rnd = random.Random(7)
    want = bytearray(rnd.randbytes(3 * BLOCK + 777))
    put(path, want)
    fd = os.open(path, os.O_RDWR)
    m = mmap.mmap(fd, len(want))
    views(path, bytes(want), "written", m)
    dfd = os.open(path, os.O_RDWR | os.O_DIRECT)
    buf = mmap.mmap(-1, 8192)
    for i in range(200):
        at = rnd.choice((0, BLOCK - 3, BLOCK, 2 * BLOCK - 1, rnd.randrange(len(want) - 9000)))
        data = rnd.randbytes(rnd.randrange(1, 5000))
        how = rnd.randrange(4)
        if how == 0:
            os.pwrite(fd, data, at)
        elif how == 1:
            m[at:at + len(data)] = data
        elif how == 2:
            at = at // 4096 * 4096
            buf[:] = data = rnd.randbytes(8192)
            os.pwritev(dfd, [buf], at)
        else:
            with open(path, "r+b") as f:
                f.seek(at)
                f.write(data)
        want[at:at + len(data)] = data
        if i % 10 == 0:
            os.sync() if i % 50 == 0 else None
            views(path, bytes(want), f"step {i} ({how})", m)
        else:
            k = rnd.randrange(3)
            got = (get, lambda p: m[:], other)[k](path)
            check(got == want, f"step {i}: change {how} seen by {k}")
    # Shorter, and longer again: zeros, whichever way one looks.
    os.truncate(path, BLOCK + 1)
    os.truncate(path, 2 * BLOCK)
    want = want[:BLOCK + 1] + bytes(BLOCK - 1)
    m2 = mmap.mmap(fd, len(want))
    views(path, bytes(want), "cut and grown", m2)
    os.close(dfd)
    return fd, m2, want


# ---- a host directory that changes ----

took = []


def seen(what, change, see):
    """@change on the host; @see here says so soon."""
    change()
    began = time.monotonic()
    while not see():
        if time.monotonic() - began > 10:
            break
        time.sleep(0.01)
    t = time.monotonic() - began
    took.append(t)
    check(t <= SEEN_S, f"{what}: seen after {t:.2f} s")


def stat(path):
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def below():
    h, v = "host", "mnt/workspace/host"

    def warm(name, data):
        put(f"{h}/{name}", data)
        seen(f"new {name}", lambda: None, lambda: stat(f"{v}/{name}"))
        check(get(f"{v}/{name}") == data, f"{name} is what the host has")
        os.listdir(v)

    a, b = b"a" * 300000, b"b" * 300000
    warm("same", a)
    seen("changed in place", lambda: put(f"{h}/same", b), lambda: get(f"{v}/same") == b)
    warm("grown", a)
    seen("grown", lambda: open(f"{h}/grown", "ab").write(b), lambda: get(f"{v}/grown") == a + b)
    warm("cut", a)
    seen("cut", lambda: os.truncate(f"{h}/cut", 1000), lambda: get(f"{v}/cut") == a[:1000])
    warm("moved", a)

    def replace():
        put(f"{h}/.new", b)
        os.rename(f"{h}/.new", f"{h}/moved")
    seen("replaced", replace, lambda: get(f"{v}/moved") == b)
    seen("removed", lambda: os.unlink(f"{h}/moved"), lambda: not stat(f"{v}/moved"))
    seen("made again", lambda: put(f"{h}/moved", a), lambda: stat(f"{v}/moved") and get(f"{v}/moved") == a)

    def turn():
        os.unlink(f"{h}/moved")
        os.mkdir(f"{h}/moved")
        put(f"{h}/moved/in", a)
    seen("made a directory", turn, lambda: os.path.isdir(f"{v}/moved") and os.listdir(f"{v}/moved") == ["in"])
    warm("mode", a)
    seen("permissions", lambda: os.chmod(f"{h}/mode", 0o600), lambda: os.stat(f"{v}/mode").st_mode & 0o777 == 0o600)
    seen("listed", lambda: put(f"{h}/listed", a), lambda: "listed" in os.listdir(v))
    seen("not listed", lambda: os.unlink(f"{h}/listed"), lambda: "listed" not in os.listdir(v))
    # One that was opened before, and is read anew without being opened or looked at again.
    os.mkdir(f"{h}/held")
    seen("new directory", lambda: None, lambda: stat(f"{v}/held"))
    fd = os.open(f"{v}/held", os.O_RDONLY | os.O_DIRECTORY)
    check(os.listdir(fd) == [], "an empty directory that is held")
    seen("listed by who holds it", lambda: put(f"{h}/held/a", a), lambda: os.listdir(fd) == ["a"])
    seen("no more", lambda: os.unlink(f"{h}/held/a"), lambda: os.listdir(fd) == [])
    os.close(fd)
    print(f"seen after at most {max(took):.2f} s, on average {sum(took) / len(took):.2f} s", flush=True)


def whole(data):
    return len(set(data)) <= 1


def replaced_while_read():
    """Each version is one letter all over, and comes by rename: no reader ever has two."""
    h, v = "host/versions", "mnt/workspace/host/versions"
    put(h, b"a" * (8 * BLOCK))
    end = time.monotonic() + 6
    stop = threading.Event()
    counts = {"read": 0, "mapped": 0, "slow": 0, "torn": 0, "error": 0}

    def host():
        i = 0
        while not stop.is_set():
            i += 1
            put("host/.v", bytes([97 + i % 26]) * (8 * BLOCK))
            os.rename("host/.v", h)
            time.sleep(0.013)

    def slowly():
        """Each block is asked for when it is read, and the file replaced meanwhile."""
        fd, buf, data = os.open(v, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, BLOCK), b""
        try:
            for i in range(8):
                data += buf[:os.preadv(fd, [buf], i * BLOCK)]
                time.sleep(0.01)
        finally:
            os.close(fd)
        return data

    def at_once():
        with open(v, "rb", buffering=0) as f:
            return b"".join(iter(lambda: f.read(50000), b""))

    def in_memory():
        with open(v, "rb") as f:
            return mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:]

    def reader(how, get_all):
        while time.monotonic() < end:
            try:
                data = get_all()
            except OSError as e:
                counts["error"] += 1
                print(f"{how}: {e}", flush=True)
                time.sleep(0.005)
                continue
            counts[how] += 1
            counts["torn"] += not whole(data)
    threads = [threading.Thread(target=reader, args=a) for a in (("read", at_once), ("mapped", in_memory), ("slow", slowly))]
    threads.append(threading.Thread(target=host))
    for t in threads:
        t.start()
    for t in threads[:-1]:
        t.join()
    stop.set()
    threads[-1].join()
    print(f"replaced while read: {counts}", flush=True)
    check(min(counts["read"], counts["mapped"], counts["slow"]) > 10, "files are read while they are replaced")
    check(counts["error"] == 0, "a file that is open can be read to its end")
    check(counts["torn"] == 0, "a reader had two versions of a file")


def believed(pid):
    """Its name was looked up, and nobody has read it, when the host replaces or removes a file."""
    h, v, n = "host/many", "mnt/workspace/host/many", 300
    os.mkdir(h)
    for i in range(n):
        put(f"{h}/{i}", b"a" * (BLOCK + i))
    seen("new files", lambda: None, lambda: stat(f"{v}/{n - 1}"))
    fds, maps = [], []
    for i in range(n):
        os.stat(f"{v}/{i}")
        if i % 3:
            fds.append((i, os.open(f"{v}/{i}", os.O_RDONLY)))
        if i % 30 == 1:
            maps.append((i, mmap.mmap(fds[-1][1], 0, prot=mmap.PROT_READ)))
    for i in range(n):
        put("host/.n", b"b" * (BLOCK + i))
        os.rename("host/.n", f"{h}/{i}") if i % 2 else os.unlink(f"{h}/{i}")
    for i in range(0, n, 3):
        try:
            data = get(f"{v}/{i}")
        except FileNotFoundError:
            data = b"" if i % 2 == 0 else None
        check(data in (b"", b"a" * (BLOCK + i), b"b" * (BLOCK + i)), f"file {i} by name, replaced or removed")
    time.sleep(SEEN_S)
    for i, fd in fds:
        check(os.fstat(fd).st_size == BLOCK + i, f"file {i} that is open has its attributes")
        check(os.pread(fd, BLOCK + i, 0) == b"a" * (BLOCK + i), f"file {i} that is open is the old one")
    for i, m in maps:
        check(m[:] == b"a" * (BLOCK + i), f"file {i} that is mapped is the old one")
        m.close()
    for i in range(n):
        check(bool(stat(f"{v}/{i}")) == bool(i % 2), f"file {i} is there or not, as on the host")
    for _, fd in fds:
        os.close(fd)
    # What nobody uses any more is not kept from the host.
    try:
        held = f"/proc/{pid}/fd"
        os.listdir(held)
    except PermissionError:
        return
    began = time.monotonic()
    while time.monotonic() - began < 60:
        links = []
        for fd in os.listdir(held):
            try:
                links.append(os.readlink(f"{held}/{fd}"))
            except OSError:
                pass
        left = [x for x in links if "/host/" in x and x.endswith(" (deleted)")]
        if not left:
            break
        time.sleep(0.5)
    check(not left, f"{len(left)} removed host files are held: {left[:3]}")
    print(f"removed host files are let go after {time.monotonic() - began:.1f} s", flush=True)


def partial():
    """What was changed here keeps the bytes of its host file, or says that they are gone; never others."""
    h, v = "host/part", "mnt/workspace/host/part"
    put(h, b"a" * (4 * BLOCK))
    seen("new part", lambda: None, lambda: stat(v))
    with open(v, "r+b") as f:
        f.write(b"X")
    put(h, b"b" * (4 * BLOCK))  # in place: what was not copied is lost, and is told so
    os.sync()
    with open(v, "rb", buffering=0) as f:
        first = f.read(BLOCK)
        try:
            rest = f.read(BLOCK)
        except OSError as e:
            rest = b"" if e.errno == 5 else b"?"
    check(first == b"X" + b"a" * (BLOCK - 1), "the block that was written to is whole")
    check(rest in (b"", b"a" * BLOCK), f"the rest is what it was or refused: {rest[:10]}")
    # Replaced by rename, the old file is whole as long as it is open somewhere.
    put(h + "2", b"a" * (4 * BLOCK))
    seen("new part2", lambda: None, lambda: stat(v + "2"))
    with open(v + "2", "r+b") as f:
        f.write(b"X")
    put("host/.p", b"b" * (4 * BLOCK))
    os.rename("host/.p", h + "2")
    try:
        got = get(v + "2")
    except OSError:
        got = b""
    check(got in (b"", b"X" + b"a" * (4 * BLOCK - 1)), "a changed file whose host file was replaced is not mixed")


# ---- a commit, mounted beside the tree ----

def commits():
    def rt(*args, **kw):
        r = subprocess.run([rattan, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **kw)
        if r.returncode:
            sys.exit(f"rattan {args}: {r.stdout.decode(errors='replace')[-400:]}")
        return r.stdout
    script = ("import mmap,os,time,sys\n"
              "fd=os.open('/workspace/f',os.O_RDWR|os.O_CREAT);os.ftruncate(fd,300000)\n"
              "m=mmap.mmap(fd,300000);m[:]=b'1'*300000\n"
              "print('ready',flush=True);sys.stdin.readline()\n"
              "m[:]=b'2'*300000;print('again',flush=True);sys.stdin.readline()\n")
    p = subprocess.Popen([rattan, "run", "-e", "v", "--", "python3", "-c", script], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
    check(p.stdout.readline() == b"ready\n", "a program has a mapping")
    rt("commit", "-e", "v", "-m", "while it is mapped")
    os.makedirs("view", exist_ok=True)
    rt("mount", "-e", "v", "head", f"{here}/view")
    try:
        mounted(rt, p)
    finally:
        rt("umount", f"{here}/view")
    os.makedirs("below", exist_ok=True)
    beside(rt)


def mounted(rt, p):
    check(get("view/workspace/f") == b"1" * 300000, "what a mapping held is in the commit")
    p.stdin.write(b"\n")
    p.stdin.flush()
    check(p.stdout.readline() == b"again\n", "the mapping goes on")
    check(rt("run", "-e", "v", "--", "cat", "f") == b"2" * 300000, "another command sees what the mapping has")
    check(get("view/workspace/f") == b"1" * 300000, "the mounted commit stays")
    with open("view/workspace/f", "rb") as f:
        views("view/workspace/f", b"1" * 300000, "the mounted commit", mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ))
    p.stdin.close()
    p.wait()
    check(get("view/workspace/f") == b"1" * 300000, "also when the program has ended")


# ---- a commit, mounted beside the tree that goes on ----

LOOK = """
import hashlib, os, sys
for d, ds, fs in os.walk(sys.argv[1]):
    ds.sort()
    for n in sorted(ds + fs):
        p = os.path.join(d, n); st = os.lstat(p)
        what = os.readlink(p) if os.path.islink(p) else hashlib.sha256(open(p, 'rb').read()).hexdigest() if os.path.isfile(p) else ''
        print(os.path.relpath(p, sys.argv[1]), oct(st.st_mode), st.st_nlink, st.st_mtime_ns, what)
"""
CHANGES = """
rm -rf a/b; mv a c; ln f g; truncate -s 1 f; head -c 200000 /dev/zero >> f; chmod 600 f; rm gone; mkdir gone; echo x > gone/in; touch -d @5 big
printf new | dd of=big bs=1 seek=131070 conv=notrunc status=none; setfattr -n user.k -v 2 big 2> /dev/null || true
"""


def beside(rt):
    """Each mount shows its commit, whatever the tree does after it; the tree shows what it is."""
    def live():
        return rt("run", "-e", "w", "--", "python3", "-c", LOOK, "/workspace").decode()

    def view(name):
        return subprocess.run([sys.executable, "-c", LOOK, f"{name}/workspace"], stdout=subprocess.PIPE, check=True).stdout.decode()

    def change(text):
        rt("run", "-e", "w", "--", "sh", "-euc", text)
    put("below/host", b"h" * 200000)
    rt("run", "-e", "w", "--overlay", f"{here}/below=/workspace/below", "--", "sh", "-euc",
       "mkdir -p a/b; seq 50000 > f; seq 100000 > big; echo 1 > a/b/x; echo 2 > a/y; ln -s f l; echo > gone; mkfifo p")
    states = []
    try:
        for i in range(3):
            if i:
                change(CHANGES if i == 1 else "rm -rf gone c; echo back > f; mv big a")
            rt("commit", "-e", "w", "-m", f"state {i}")
            os.makedirs(f"view{i}", exist_ok=True)
            rt("mount", "-e", "w", "head", f"{here}/view{i}")
            fd = os.open(f"view{i}/workspace/f", os.O_RDONLY)
            states.append((live(), get(f"view{i}/workspace/f"), fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ)))
            check(view(f"view{i}") == states[i][0], f"mount {i} shows what the tree is")
            for k, (tree, f, fd, m) in enumerate(states):
                check(view(f"view{k}") == tree, f"mount {k} shows its commit after change {i}")
                views(f"view{k}/workspace/f", f, f"mount {k} after change {i}", m)
                check(os.pread(fd, 1 << 20, 0) == f, f"who had it open in mount {k}")
        # Back, and forward: the tree is another one, the mounts stay what they are.
        for rev, i in (("head~2", 0), ("head", 0)):
            rt("rollback", "-e", "w", rev)
            check(live() == states[i][0], f"the tree after going to {rev}")
            check([view(f"view{k}") == states[k][0] for k in range(3)] == [True] * 3, "the mounts after that")
        rt("gc")
        change("echo uncommitted > f; rm -rf a")
        check([view(f"view{k}") == states[k][0] for k in range(3)] == [True] * 3, "the mounts after a collection")
        # What is the host's in a commit is the host's still, in each of them.
        put("below/.new", b"H" * 100000)
        os.rename("below/.new", "below/host")
        for k in range(3):
            seen(f"a host file in mount {k}", lambda: None, lambda k=k: get(f"view{k}/workspace/below/host") == b"H" * 100000)
    finally:
        for k, s in enumerate(states):
            s[3].close()
            os.close(s[2])
            rt("umount", f"{here}/view{k}")


# ---- the file tools, beside a program that has the file mapped ----

HOLDER = """
import mmap, os, time
fd = os.open('/workspace/t', os.O_RDWR)
m = mmap.mmap(fd, 4096)
dfd = os.open('/workspace/t', os.O_RDWR | os.O_DIRECT)
buf = mmap.mmap(-1, 4096)
i = 0
while True:
    i += 1
    while not os.path.exists(f'/workspace/q{i}'):
        time.sleep(0.005)
    what = open(f'/workspace/q{i}').read().strip()
    if what == 'end':
        break
    if what == 'look':
        os.preadv(dfd, [buf], 0)
        r = ' '.join(x[:4].decode() for x in (m, os.pread(fd, 4096, 0), buf))
    elif what[0] == 'm':
        m[:4] = what[2:6].encode(); r = 'ok'
    else:
        buf[:] = m[:]; buf[:4] = what[2:6].encode(); os.pwritev(dfd, [buf], 0); r = 'ok'
    open('/workspace/tmp', 'w').write(r); os.rename('/workspace/tmp', f'/workspace/r{i}')
"""


def tools():
    sys.path.insert(0, os.path.join(os.environ["RATTAN_SRC"], "tests/mcp"))
    from rawclient import Server
    s = Server("--keep", "--env", "t")
    n = 0

    def holder(what):
        nonlocal n
        n += 1
        s.call("rattan_write_file", path=f"/workspace/q{n}", content=what, mode="overwrite")
        if what == "end":
            return ""
        for _ in range(2000):
            got = s.call("rattan_read_file", ok=False, path=f"/workspace/r{n}")
            if "error" not in got:
                return got
            time.sleep(0.005)
        sys.exit("the holder does not answer")
    s.call("rattan_write_file", path="/workspace/t", content="AAAA" + "." * 4092, mode="overwrite")
    s.call("rattan_write_file", path="/workspace/holder.py", content=HOLDER, mode="overwrite")
    s.call("shell_job_start", command="python3 /workspace/holder.py")
    check("AAAA AAAA AAAA" in holder("look"), "a program sees what a file tool wrote")
    holder("m BBBB")
    check("BBBB" in s.call("rattan_read_file", path="/workspace/t"), "a file tool sees what a mapping has")
    check("BBBB BBBB BBBB" in holder("look"), "and so does the program, each way")
    holder("d CCCC")
    check("CCCC" in s.call("rattan_read_file", path="/workspace/t"), "a file tool sees what O_DIRECT wrote")
    check("CCCC CCCC CCCC" in holder("look"), "and so does the mapping")
    check("CCCC" in s.call("rattan_grep", pattern="CCCC", path="/workspace/t"), "it is found")
    s.call("env_commit", message="held")
    os.makedirs("toolview", exist_ok=True)
    subprocess.run([rattan, "mount", "-e", "t", "head", f"{here}/toolview"], check=True, stdout=subprocess.DEVNULL)
    check(get("toolview/workspace/t")[:4] == b"CCCC", "a mounted commit has what O_DIRECT wrote")
    holder("m DDDD")
    check(get("toolview/workspace/t")[:4] == b"CCCC", "and the mounted commit stays")
    subprocess.run([rattan, "umount", f"{here}/toolview"], check=True)
    check("DDDD" in s.call("shell_run", command="head -c 4 t"), "after a commit the mapping is still the file's")
    check("DDDD" in s.call("rattan_read_file", path="/workspace/t"), "for the file tools as well")
    # An edit puts a new file in the old one's place: who opens it anew has it, who had it open has the old one.
    s.call("rattan_edit", path="/workspace/t", old_string="DDDD", new_string="EEEE")
    check("EEEE" in s.call("shell_run", command="head -c 4 t"), "an edit by a file tool is seen by the next program")
    check("DDDD DDDD DDDD" in holder("look"), "and not half by one that has the file open")
    holder("end")
    check(s.close() == 0, "the end of the server")


with Served() as pid:
    fd, m, want = agree()
    below()
    replaced_while_read()
    believed(pid)
    partial()
    check(m[:] == want and get("mnt/workspace/f") == want, "the first file is as it was")
    m.close()
    os.close(fd)
commits()
tools()
done()
