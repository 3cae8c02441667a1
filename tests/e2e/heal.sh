#!/bin/bash
# timeout: 180
# The disk fails at the page that makes a transaction valid, after which LMDB refuses everything until the store is opened
# anew: another daemon does that and goes on with the mount. A command that runs notices nothing: its fsync takes longer.
. "$RATTAN_SRC/tests/e2e/lib.sh"

record=$RATTAN_BUILD/power_record.preload
keeper() { pgrep -o -u "$(id -u)" -f "rattan-fs env --data-dir $XDG_DATA_HOME/"; }
daemon() { pgrep -n -u "$(id -u)" -P "$(keeper)"; }
meta_fault() { # COUNT: of the next writes of that page (tests/power/record.h)
	python3 - "$1" <<'PY'
import errno, struct, sys
with open("faults", "r+b") as f:
    f.seek(3 * 64)
    f.write(struct.pack("<iiii", 0, int(sys.argv[1]), errno.EIO, 0))
PY
}
hits() { python3 -c 'import struct; print(struct.unpack_from("<iiii", open("faults", "rb").read(), 3 * 64)[3])'; }
head -c 256 /dev/zero > faults
: > out

cat > job.py <<'P'
import os
log = os.open("/workspace/log", os.O_CREAT | os.O_RDWR | os.O_APPEND)
orphan = os.open("/workspace/orphan", os.O_CREAT | os.O_RDWR | os.O_APPEND); os.unlink("/workspace/orphan")
print("ready", flush=True)
i = 0
while not os.path.exists("/workspace/stop"):
    i += 1
    for f in log, orphan:
        os.write(f, b"%d\n" % i)
    with open(f"/workspace/new{i % 50}", "w") as f:
        f.write(str(i) * 1000)
    os.fsync(log)
want = "".join(f"{k}\n" for k in range(1, i + 1))
for f in log, orphan:
    assert os.pread(f, 1 << 26, 0).decode() == want, "what was written is not there"
os.fsync(log)
print("all there", flush=True)
P

LD_PRELOAD=$record POWER_ROOT=$XDG_DATA_HOME POWER_FAULTS=$here/faults rt run -e h -- true || fail "the first command"
rt run -e h -- sh -c 'echo kept > f && sync f' || fail "a second one"
rt run -e h -- /usr/bin/python3 -c "$(cat job.py)" > out 2> err &
job=$!
for _ in $(seq 200); do grep -q ready out && break; sleep 0.05; done
grep -q ready out || fail "the command does not run: $(cat err)"

# Once, and then twice in a row.
for count in 1 2; do
	sleep 0.5
	pid=$(daemon)
	meta_fault "$count"
	# Asked once each time: of two faults in a row the second one may end what was just found.
	for _ in $(seq 400); do now=$(daemon); [ "$(hits)" -gt 0 ] && [ -n "$now" ] && [ "$now" != "$pid" ] && break; sleep 0.05; done
	[ "$(hits)" -gt 0 ] || fail "no write of the page failed"
	[ -n "$now" ] && [ "$now" != "$pid" ] || fail "fault of $count: no other daemon"
	kill -0 $job || { wait $job; fail "fault of $count: the command ended with $?: $(cat out err)"; }
done
meta_fault 0
same "$(rt run -e h -- cat f)" kept "a file"
rt run -e h -- touch /workspace/stop || fail "stop"
wait $job || fail "the command failed: $(cat out err)"
grep -q "all there" out || fail "$(cat out err)"
must rt commit -e h -m after
must rt fsck
k=$(keeper)
kill -TERM "$(daemon)"
for _ in $(seq 200); do kill -0 "$k" 2> /dev/null || break; sleep 0.05; done
same "$(rt run -e h -- sh -c 'tail -n 1 log | grep -c .; ls orphan 2> /dev/null')" 1 "the log after a fresh start"
exit 0
