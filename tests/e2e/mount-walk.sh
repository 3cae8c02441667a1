#!/bin/bash
# Several processes in a sandbox do at random what can be done with files, each in a directory of the mount and in a plain one
# that must stay equal (tests/mount), while commits are taken, garbage is collected, the store is checked and the daemon
# is killed; between the rounds the tree goes back and forth in its history, and the plain one with it.
# A failure names its seed: RATTAN_SEED makes the same walks again.
# timeout: 7200
. "$RATTAN_SRC/tests/e2e/lib.sh"

rounds=4 steps=700 procs=4
[ -z "${RATTAN_LONG:-}" ] || rounds=40 steps=5000
seed=${RATTAN_SEED:-$((RANDOM * 32768 + RANDOM))}
RANDOM=$((seed % 32768))
echo "seed $seed"
mkdir -p plain saved beside
cp "$RATTAN_BUILD/mount_walk" beside/

keeper() { pgrep -o -u "$(id -u)" -f "rattan-fs env --data-dir $XDG_DATA_HOME/"; }
daemon() { pgrep -n -u "$(id -u)" -P "$(keeper)"; }
tries() { # COMMAND...: a call that meets a daemon which is killed has to be made again
	local n
	for n in 1 2 3 4; do
		"$@" > beside/out 2>&1 || grep -q 'nothing to commit' beside/out && return
		sleep 0.3
	done
	fail "$*: $(tail -n 3 beside/out)"
}
disturb() { # PID: until it ends
	local n=0 pid
	while kill -0 "$1" 2> /dev/null; do
		# A walk may take less than a second: it begins with what has to happen in most of them.
		sleep "0.$((n ? RANDOM % 10 : 1))"
		case $((n++ % 5)) in
		1) tries rt commit -e w -m "in round $round" ;;
		0 | 3)
			# Three in a row that lived for less than a second are given up (fs/env/daemon_keep.c): every other one lives longer.
			[ $((kills % 2)) = 0 ] || sleep 1.2
			pid=$(daemon) && kill -KILL "$pid" 2> /dev/null && kills=$((kills + 1))
			;;
		2) tries rt gc --shrink ;;
		4) tries rt fsck ;;
		esac
	done
}
# A state of both sides, to go back to.
save() {
	# A change of times alone is nothing to commit.
	tries rt run -e w -- sh -c "echo $round > round"
	tries rt commit -e w -m "round $round"
	states+=("$(rt log -e w --json | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["id"])')")
	cp -a plain "saved/${#states[@]}"
}
restore() { # N
	rm -rf plain
	cp -a "saved/$1" plain
}

states=() kills=0
must rt run -e w -- true
for round in $(seq $rounds); do
	rt run -e w --bind "$here/plain=/data/plain" --bind-ro "$here/beside=/data/beside" -- \
		/data/beside/mount_walk $((seed + round)) $procs $steps /workspace /data/plain > out 2>&1 &
	walk=$!
	# A call on the control socket may be lost with the daemon: the command has to run first.
	for _ in $(seq 600); do grep -q begun out && break; sleep 0.1; done
	disturb $walk
	wait $walk || fail "seed $seed, round $round: $(cat out)"
	tail -n 1 out
	[ $((RANDOM % 3)) = 0 ] || save
	[ ${#states[@]} -gt 0 ] || continue
	n=$((RANDOM % ${#states[@]}))
	case $((RANDOM % 4)) in
	0 | 1)
		must rt rollback -e w "${states[n]}"
		restore $((n + 1))
		;;
	2) # there and back, with what is not committed
		must rt rollback -e w "${states[n]}"
		must rt undo -e w
		;;
	esac
done
[ $kills -ge $((rounds / 2)) ] || fail "the daemon was killed $kills times only"
echo "$kills kills, ${#states[@]} states"
must rt fsck
exit 0
