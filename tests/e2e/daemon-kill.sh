#!/bin/bash
# kill -9 of the daemon and of a collector, twenty times, while two writers work, commits are taken and garbage is collected:
# all that fsync and commit acknowledged is there afterwards (S2, S5; of the rounds before the last two an eighth is looked at
# after each, all at the end), fsck finds nothing, the mount can be taken away and
# the next daemon starts at once. Three hundred times in the long run.
# timeout: 5400
. "$RATTAN_SRC/tests/e2e/lib.sh"

fs=
for f in "$(dirname "${RATTAN:-/none}")/../libexec/rattan/rattan-fs" "$RATTAN_BUILD/fs/rattan-fs"; do
	[ -x "$f" ] && { fs=$f; break; }
done
[ -n "$fs" ] || fail "no rattan-fs"
[ -w /dev/fuse ] || skip "no access to /dev/fuse"
command -v fusermount3 > /dev/null || skip "no fusermount3"
mkdir -p mnt

cat > writer.py <<'PY'
import os, random, sys
# One line on the log for each version that fsync acknowledged; rounds continue where the last ended.
root, log, start = sys.argv[1], open(sys.argv[2], "a", buffering=1), int(sys.argv[3])
os.makedirs(root, exist_ok=True)
n = start
rnd = random.Random(start)
while True:
    n += 1
    name = f"f{n % 17}"
    data = (f"{n}\n" * rnd.choice((1, 10, 5000, 60000))).encode()
    tmp = f"{root}/{name}.{n}"
    fd = os.open(tmp, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    log.write(f"file {name}.{n} {len(data)}\n")
    if n % 3 == 0:
        os.rename(tmp, f"{root}/{name}")
        d = os.open(root, os.O_RDONLY)
        os.fsync(d)
        os.close(d)
        log.write(f"renamed {name} {n} {len(data)}\n")
PY
cat > check.py <<'PY'
import os, sys
# Of what was written before number FROM only each eighth, another one each time; all without it.
root, log = sys.argv[1], sys.argv[2]
since, part = (int(sys.argv[3]), int(sys.argv[3]) // 100000 % 8) if len(sys.argv) > 3 else (0, 0)
newest, plain, moved, bad = {}, {}, set(), 0
for line in open(log):
    w = line.split()
    if w[0] == "file":
        plain[w[1]] = int(w[2])
    else:
        newest[w[1]] = (int(w[2]), int(w[3]))
        moved.add(f"{w[1]}.{w[2]}")
def content(path, size, least):
    global bad
    try:
        data = open(path, "rb").read()
    except OSError as e:
        print("lost:", path, e); bad += 1; return
    n = int(data.split(b"\n")[0] or b"-1")
    if n < least or data != f"{n}\n".encode() * (len(data) // len(f"{n}\n")) or (n == least and len(data) != size):
        print("wrong:", path, n, least, len(data), size); bad += 1
for name, size in plain.items():
    base, n = name.rsplit(".", 1)
    if name in moved or (int(n) % 3 == 0 and not os.path.exists(f"{root}/{name}")):
        continue # its rename may have happened unacknowledged
    if int(n) < since and int(n) % 8 != part:
        continue
    content(f"{root}/{name}", size, int(n))
for name, (n, size) in newest.items():
    content(f"{root}/{name}", size, n)
print(len(plain), "files,", len(newest), "renamed")
sys.exit(bad != 0)
PY

rounds=20
[ -n "${RATTAN_LONG:-}" ] && rounds=300
# Where the command line looks for the daemon's socket.
mkdir -p store
export RATTAN_DATA_DIR=$here/store
place=$(runtime_place store kill)
mkdir -p -m 700 "$XDG_RUNTIME_DIR/rattan" "$place"

# Commits; each id on the log when it was reported.
committer() {
	local n=0 id
	while kill -0 "$pid" 2> /dev/null && id=$(rt commit -e kill -m "$1.$((n += 1))" 2> commit.err); do
		grep -oE '[0-9a-f]{12,64}' <<< "$id" | head -n 1 >> commits
		sleep 0.1
	done
}

start() {
	: > ready
	"$fs" serve --foreground --run-dir "$place" --data-dir "$here/store" --env kill --create --dir "$here/mnt" --ready-fd 5 5> ready 2>> log < /dev/null &
	pid=$!
	for _ in $(seq 400); do [ -s ready ] && break; sleep 0.02; done
	[ -d mnt/workspace ] || fail "not served: $(tail -n 3 log)"
}
collector() {
	while :; do "$fs" admin gc --shrink --data-dir "$here/store" --ready-fd 6 6> gc.out 2>> log; echo "$?" >> gc.codes; done
}
count=0
: > acked
: > gc.codes

: > acked2
: > commits
check() { # WHAT [FROM]
	python3 check.py mnt/workspace/d acked ${2:-} || fail "$1: something acknowledged is not there"
	python3 check.py mnt/workspace/d2 acked2 ${2:-} || fail "$1: something acknowledged to the second writer is not there"
	rt log -e kill --all --json > all.json || fail "$1: no log"
	while read -r id; do grep -q "\"$id" all.json || fail "$1: commit $id is not there"; done < <(tail -n 20 commits)
}

for round in $(seq $rounds); do
	start
	[ "$round" = 1 ] || check "round $round" $((count - 200000))
	python3 writer.py mnt/workspace/d acked $count 2> writer.err &
	writer=$!
	collector &
	collector=$!
	python3 writer.py mnt/workspace/d2 acked2 $count 2> writer2.err &
	writer2=$!
	committer "$round" &
	committer=$!
	had=$(wc -l < acked)
	for _ in $(seq 500); do [ "$(wc -l < acked)" -gt "$had" ] && break; sleep 0.02; done
	[ "$(wc -l < acked)" -gt "$had" ] || fail "round $round: nothing was written: $(cat writer.err)"
	sleep "0.$((RANDOM % 5))$((RANDOM % 10))"
	garbage=$(pgrep -P "$collector")
	# shellcheck disable=SC2086
	kill -KILL "$collector" "$pid" $garbage 2> /dev/null
	wait "$pid" "$collector" 2> /dev/null
	wait "$writer" "$writer2" "$committer"
	# A commit that found no daemon has taken the dead mount away, and started another daemon.
	for p in $(pgrep -f "rattan-fs env --data-dir $(realpath store) "); do
		kill -KILL "$p"
	done
	if [ $((round % 5)) = 0 ] || [ -n "${RATTAN_LONG:-}" ]; then
		must rt fsck
	fi
	if grep -q " $here/mnt " /proc/self/mountinfo; then
		fusermount3 -u -z mnt || umount -l mnt || fail "round $round: cannot unmount"
	fi
	count=$((count + 100000))
done
start
echo "$(cat acked acked2 | wc -l) acknowledged, $(wc -l < commits) commits, $(grep -c '^0$' gc.codes) collections"
[ -s commits ] || fail "no commit: $(cat commit.err)"
[ "$(sort -u gc.codes)" = 0 ] && [ "$(wc -l < gc.codes)" -ge 10 ] || fail "a collection failed, or there were too few: $(tail -n 3 log)"
check "the end"
kill -TERM "$pid"
wait "$pid" || fail "an orderly end failed: $(tail -n 3 log)"
mountpoint -q mnt && fail "still mounted after SIGTERM"
must rt gc --data-dir "$here/store"
must rt fsck --data-dir "$here/store"
exit 0
