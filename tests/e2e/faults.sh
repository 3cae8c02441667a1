#!/bin/bash
# timeout: 180
# What goes wrong below a live daemon: a full disk, a limit of the size of files, a disk that fails or is read-only,
# few descriptors, a data directory that is taken away. The writer gets the right error, reads go on, and when the cause
# is gone so does everything, without a restart.
. "$RATTAN_SRC/tests/e2e/lib.sh"

# A disk of our own, and mounts that nobody else sees.
if [ "${1:-}" != inside ]; then
	unshare -Ur -m true 2> /dev/null || skip "no user namespace with mounts"
	exec unshare -Ur -m bash "$0" inside
fi
fs=$(dirname "$RATTAN")/../libexec/rattan/rattan-fs
[ -x "$fs" ] || fs=$(find "$(dirname "$RATTAN")/.." -name rattan-fs -type f | head -n 1)
[ -x "$fs" ] || fail "no rattan-fs"
record=$RATTAN_BUILD/power_record.preload
mkdir -p disk mnt

start() {
	: > ready
	"$@" "$fs" serve --foreground --data-dir "$here/disk/store" --env faults --create --dir "$here/mnt" --ready-fd 5 5> ready 2>> log < /dev/null &
	pid=$!
	for _ in $(seq 400); do [ -s ready ] && break; sleep 0.02; done
	mountpoint -q mnt || fail "not served: $(tail -n 3 log)"
}
stop() {
	kill -TERM "$pid"
	wait "$pid" || fail "$1: the end: $(tail -n 3 log)"
}
# write.py FILE MIB [fsync]: bytes until an error; what was written is read again. Prints the error's name, or "none".
cat > write.py <<'PY'
import errno, os, random, sys
path, mib, how = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
r = random.Random(path)
fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
name, done = "none", []
try:
    for _ in range(mib * 8):
        b = r.randbytes(131072)
        n = os.write(fd, b)
        done.append(b[:n])
    if how == "fsync":
        os.fsync(fd)
except OSError as e:
    name = errno.errorcode[e.errno]
have = os.pread(fd, 1 << 30, 0)
want = b"".join(done)
os.close(fd)
print(name if have[:len(want)] == want else f"wrong bytes after {name}")
PY
writes() { same "$(python3 write.py "mnt/w/$1" "$2" fsync)" "$3" "$4"; }
slot() { # slot WHAT AFTER COUNT ERRNO: a fault for the recorder (tests/power/record.h)
	python3 - "$@" <<'PY'
import errno, struct, sys
what, after, count, err = ["write", "sync", "read", "meta"].index(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), getattr(errno, sys.argv[4])
with open("faults", "r+b") as f:
    f.seek(what * 64)
    f.write(struct.pack("<iiii48s", after, count, err, 0, b""))
PY
}

# ---- a full disk ----
mount -t tmpfs -o size=32m none disk || skip "may not mount a tmpfs"
start
mkdir -p mnt/w
echo kept > mnt/w/kept
sync -f mnt/w
size=$(df -k --output=size mnt | tail -n 1 | tr -d ' ')
same "$size" 32768 "df shows the size of the disk"
writes fill 100 ENOSPC "a disk that is full"
same "$(cat mnt/w/kept)" kept "a read beside it"
avail=$(df -k --output=avail mnt | tail -n 1 | tr -d ' ')
[ "$avail" -lt 2048 ] || fail "df: $avail KiB free on a full disk"
files=$(df --output=iavail mnt | tail -n 1 | tr -d ' ')
[ "$files" -lt 2048 ] || fail "df: $files inodes on a full disk"
rm mnt/w/fill || fail "a removal on a full disk"
mount -o remount,size=400m none "$here/disk" || fail "no remount"
sleep 0.3
writes more 20 none "with room again"
avail=$(df -k --output=avail mnt | tail -n 1 | tr -d ' ')
[ "$avail" -gt 200000 ] || fail "df: $avail KiB free with room"
stop "a full disk"

# ---- a limit of the size of files ----
start bash -c 'ulimit -f 81920; exec "$@"' limit
avail=$(df -k --output=avail mnt | tail -n 1 | tr -d ' ')
[ "$avail" -lt 81920 ] || fail "df: $avail KiB free below a limit of 81920"
writes limited 200 ENOSPC "a limit of the size of files"
same "$(cat mnt/w/kept)" kept "a read beside it"
kill -KILL "$pid"
wait "$pid" 2> /dev/null
umount -l mnt

# ---- a disk that fails ----
head -c 256 /dev/zero > faults
start env LD_PRELOAD="$record" POWER_ROOT="$here/disk" POWER_FAULTS="$here/faults"
for what in "sync EIO" "write EIO" "write EROFS" "write EDQUOT"; do
	set -- $what
	: > "mnt/w/$1-$2" # numbers for new files come from the store, some thousand at a time
	slot "$1" 0 -1 "$2"
	writes "$1-$2" 1 "$2" "$what"
	same "$(cat mnt/w/kept)" kept "a read beside $what"
	slot "$1" 0 0 "$2"
	must sync mnt/w/"$1-$2"
	writes "$1-$2-after" 1 none "after $what"
done
stop "a disk that fails"

# ---- few descriptors ----
mkdir host
for i in $(seq 200); do echo "$i" > "host/$i"; done
: > ready
bash -c 'ulimit -n 64; exec "$@"' few "$fs" serve --foreground --data-dir "$here/disk/store" --env few --create --overlay "$here/host=/h" \
	--dir "$here/mnt" --ready-fd 5 5> ready 2>> log < /dev/null &
pid=$!
for _ in $(seq 400); do [ -s ready ] && break; sleep 0.02; done
mountpoint -q mnt || fail "not served with few descriptors: $(tail -n 3 log)"
for i in $(seq 200); do exec {fd}< "mnt/h/$i" || fail "open $i with few descriptors"; done
same "$(cat mnt/h/* | sort -n | tail -n 1)" 200 "host files with few descriptors"
for i in $(seq 100); do echo changed >> "mnt/h/$i" || fail "a write with few descriptors"; done
sync -f mnt/h || fail "sync with few descriptors"
for f in /proc/$$/fd/*; do n=${f##*/}; [ "$n" -gt 9 ] && [ "$n" -lt 255 ] && exec {n}<&-; done
stop "few descriptors"

# ---- a data directory that is taken away ----
start
writes before 1 none "before"
rm -rf disk/store
writes gone 1 EIO "without a data directory"
same "$(cat mnt/w/kept)" kept "a read without a data directory"
kill -KILL "$pid"
wait "$pid" 2> /dev/null
umount -l mnt
start # a new one is made
[ -e mnt/w/kept ] && fail "what was removed is there"
stop "a new store"

# ---- read-only from the start ----
mount -o remount,ro none "$here/disk" || fail "no remount"
"$fs" serve --foreground --data-dir "$here/disk/store" --env faults --create --dir "$here/mnt" > out 2>&1 < /dev/null
rc=$?
[ $rc = 0 ] && fail "served from a read-only disk"
grep -qi "read-only" out || fail "a read-only disk: $(cat out)"
exit 0
