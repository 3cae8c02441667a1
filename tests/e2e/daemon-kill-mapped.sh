#!/bin/bash
# kill -9 of the daemon in the middle of a commit, while a command writes through a shared mapping: the daemon does not get
# stuck in its death, and another goes on with the command.
# timeout: 180
. "$RATTAN_SRC/tests/e2e/lib.sh"

cat > map.py <<'P'
import mmap
f = open("/workspace/m", "w+b")
f.truncate(1 << 26)
m = mmap.mmap(f.fileno(), 1 << 26)
print("mapped", flush=True)
i = 0
while True:
    m[i % (1 << 26)] = i & 255
    i += 4099
P
daemons() { pgrep "$@" -u "$(id -u)" -f "rattan-fs env --data-dir $XDG_DATA_HOME/"; }

# Dead and not reaped is dead.
lives() { grep -q "^State:[[:space:]]*[^ZX]" "/proc/$1/status" 2> /dev/null; }

must rt run -- sh -c 'echo kept > f'
must rt commit -m kept
for round in $(seq 8); do
	: > out
	"$RATTAN" run -- /usr/bin/python3 -c "$(cat map.py)" > out 2> err &
	run=$!
	for _ in $(seq 100); do grep -q mapped out && break; sleep 0.1; done
	grep -q mapped out || fail "round $round: the command does not run: $(cat err)"
	sleep 0.3
	(for _ in 1 2 3 4 5; do "$RATTAN" commit -m more; done) > /dev/null 2>&1 &
	commits=$!
	sleep "0.$((RANDOM % 3))$((RANDOM % 10))"
	keeper=$(daemons -o)
	pid=$(pgrep -u "$(id -u)" -P "$keeper" -f rattan-fs | head -n 1)
	[ -n "$pid" ] || fail "round $round: no daemon"
	kill -KILL "$pid"
	for _ in $(seq 100); do lives "$pid" || break; sleep 0.1; done
	lives "$pid" && fail "round $round: the daemon is stuck: $(cat /proc/"$pid"/wchan)"
	sleep 0.5
	kill -0 $run || fail "round $round: the command ended with its daemon: $(cat err)"
	wait $commits
	same "$(rt run -- cat f)" kept "round $round: a committed file"
	kill -INT $run
	wait $run
done
exit 0
