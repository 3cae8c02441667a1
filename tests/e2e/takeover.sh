#!/bin/bash
# kill -9 of the daemon under a command that runs: another goes on with the mount, and the command notices nothing; its open
# files, files without a name, working directory and locks are as they were, as is what was not flushed.
# timeout: 120
. "$RATTAN_SRC/tests/e2e/lib.sh"

keeper() { pgrep -o -u "$(id -u)" -f "rattan-fs env --data-dir $XDG_DATA_HOME/"; }
daemon() { pgrep -n -u "$(id -u)" -P "$(keeper)"; }

cat > job.py <<'P'
import ctypes, fcntl, mmap, os, sys, time
os.makedirs("/workspace/d/sub")
os.chdir("/workspace/d/sub")
os.rmdir("/workspace/d/sub")            # a working directory that is gone
orphan = open("/workspace/orphan", "w+"); os.unlink("/workspace/orphan")
tmp = os.open("/workspace", os.O_TMPFILE | os.O_RDWR, 0o600)
lock = open("/workspace/lock", "w"); fcntl.flock(lock, fcntl.LOCK_EX)
m = open("/workspace/map", "w+b"); m.truncate(1 << 20); mm = mmap.mmap(m.fileno(), 1 << 20)
log = open("/workspace/log", "w")
i = 0
os.makedirs("/workspace/many")
for k in range(3000): open(f"/workspace/many/{k:05}-{'x' * 60}", "w").close()
scan = os.scandir("/workspace/many"); seen = [next(scan).name for _ in range(5)]
# With a buffer of 300 bytes, as small as none of libc: the kernel was given all of it, and asks again for what did not fit.
os.makedirs("/workspace/few"); os.listdir("/workspace/few")
for k in range(200): open(f"/workspace/few/x{k}", "w").close(); os.unlink(f"/workspace/few/x{k}")
for k in range(22): open(f"/workspace/few/{k:02}", "w").close()
few, buf, part = os.open("/workspace/few", os.O_RDONLY), ctypes.create_string_buffer(300), []
def getdents():
    n, at = ctypes.CDLL(None).syscall(217, few, buf, 300), 0 # x86-64
    while at < n:
        size = int.from_bytes(buf.raw[at + 16:at + 18], "little")
        part.append(buf.raw[at + 19:at + size].split(b"\0")[0].decode()); at += size
    return n
getdents(); assert 5 < len(part) < 20, part
# Names that go and come again while somebody lists stand behind.
os.makedirs("/workspace/again")
def fill():
    for k in range(900): open(f"/workspace/again/{k:03}-{'x' * 60}", "w").close()
fill(); next(os.scandir("/workspace/again"))
for name in os.listdir("/workspace/again"): os.unlink(f"/workspace/again/{name}")
fill(); again = os.scandir("/workspace/again"); seen2 = [next(again).name for _ in range(5)]
print("ready", flush=True)
while not os.path.exists("/workspace/stop"):
    i += 1
    log.write(f"{i}\n"); log.flush()
    orphan.write(f"{i}\n"); orphan.flush()
    os.pwrite(tmp, str(i).encode().ljust(10), 0)
    mm[i % (1 << 20)] = i & 255
    os.mkdir(f"/workspace/x{i}"); os.rename(f"/workspace/x{i}", f"/workspace/y{i}"); os.rmdir(f"/workspace/y{i}")
    fd = os.open(f"/workspace/excl{i % 7}", os.O_CREAT | os.O_EXCL | os.O_WRONLY); os.write(fd, b"a" * 200000); os.close(fd)
    os.unlink(f"/workspace/excl{i % 7}")
log.close()
assert open("/workspace/log").read() == "".join(f"{k}\n" for k in range(1, i + 1)), "log"
orphan.seek(0); assert orphan.read() == "".join(f"{k}\n" for k in range(1, i + 1)), "orphan"
assert os.pread(tmp, 10, 0).strip() == str(i).encode(), "tmpfile"
assert all(mm[k % (1 << 20)] == k & 255 for k in range(max(1, i - 1000), i + 1)), "map"
seen += [e.name for e in scan]
assert sorted(seen) == sorted(os.listdir("/workspace/many")) and len(seen) == 3000, "listing"
for k in range(0, 22, 2): os.unlink(f"/workspace/few/{k:02}")
while getdents() > 0: pass
assert all(part.count(f"{k:02}") == 1 for k in range(1, 22, 2)), f"a listing with a small buffer: {part}"
os.link(str(tmp), "/workspace/linked", src_dir_fd=os.open("/proc/self/fd", os.O_RDONLY))
assert os.path.exists("/workspace/linked")
seen2 += [e.name for e in again]
assert sorted(seen2) == sorted(os.listdir("/workspace/again")) and len(seen2) == 900, f"a listing of names that came again: {len(seen2)}"
print("all there", i, flush=True)
P

must rt run -e t -- sh -c 'echo kept > f'
rt run -e t -- /usr/bin/python3 -c "$(cat job.py)" > out 2> err &
job=$!
for _ in $(seq 200); do grep -q ready out && break; sleep 0.05; done
grep -q ready out || fail "the command does not run: $(cat err)"
for round in $(seq ${ROUNDS:-8}); do
	sleep "1.$((RANDOM % 10))"
	pid=$(daemon)
	kill -KILL "$pid" || fail "round $round: no daemon"
	for _ in $(seq 100); do [ -n "$(daemon)" ] && [ "$(daemon)" != "$pid" ] && break; sleep 0.05; done
	kill -0 $job || fail "round $round: the command ended: $(cat out err)"
	[ -n "$(daemon)" ] || fail "round $round: no other daemon"
	code 4 rt reset -e t # it runs: its lease is still known
done
rt run -e t -- touch /workspace/stop || fail "stop"
wait $job || fail "the command failed: $(cat out err)"
grep -q "all there" out || fail "$(cat out err)"
# On purpose, too: `rattan env restart` under a command.
rt run -e t -- sh -c "echo up; read x; cat f; echo \$x" < <(sleep 2; echo line) > out2 2> err2 &
job=$!
sleep 0.7
pid=$(daemon)
must rt env restart t
[ "$(daemon)" != "$pid" ] || fail "restart left the daemon as it was"
wait $job || fail "a command did not outlive a restart: $(cat out2 err2)"
same "$(tr "\n" " " < out2)" "up kept line " "what it printed"
same "$(rt run -e t -- cat f)" kept "a file"
must rt commit -e t -m after
exit 0
