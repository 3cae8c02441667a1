#!/bin/bash
# kill -9 of the daemon in the middle of a rollback, reset or undo: the next one goes on, the environment stands at one side
# or the other, whole, and a command runs. RATTAN_LONG: hundreds of kills.
# timeout: 3000
. "$RATTAN_SRC/tests/e2e/lib.sh"

keeper() { pgrep -o -u "$(id -u)" -f "rattan-fs env --data-dir $XDG_DATA_HOME/"; }
daemon() { pgrep -n -u "$(id -u)" -P "$(keeper)"; }

# Two states that have every name in common and no content.
fill='mkdir -p d && for i in $(seq 40); do seq $i 3000 | sed "s/^/$s/" > d/f$i; done; echo $s > s'
rt run -- sh -c "s=one; $fill" || fail "run"
must rt commit -m one
one=$(rt log --json | grep -oE '"id":[[:space:]]*"[0-9a-f]+' | head -n 1 | grep -oE '[0-9a-f]+$')
rt run -- sh -c "s=two; $fill" || fail "run"
must rt commit -m two
two=$(rt log --json | grep -oE '"id":[[:space:]]*"[0-9a-f]+' | head -n 1 | grep -oE '[0-9a-f]+$')
[ -n "$one" ] && [ -n "$two" ] && [ "$one" != "$two" ] || fail "no commits: $one $two"

# What a command sees: one state, all of it, and nothing of a file that was not committed unless the state before the move.
look='s=$(cat s) || exit 8; for i in $(seq 40); do [ "$(seq $i 3000 | sed "s/^/$s/" | cksum)" = "$(cksum < d/f$i)" ] || exit 9; done; echo "$s $(cat new 2> /dev/null)"'
# Kills process $2 as soon as the file systems that process $1 shows are not those that they were.
cat > strike.py <<'P'
import os, sys, time
def fuse(): return [l for l in open(f"/proc/{sys.argv[1]}/mounts") if " fuse " in l and "rattan:" in l]
was, end = fuse(), time.monotonic() + 3
print("ready", flush=True)
while time.monotonic() < end:
    now = fuse()
    if now and now != was:
        os.kill(int(sys.argv[2]), 9)
        break
P

rounds=16
[ -z "${RATTAN_LONG:-}" ] || rounds=400
moved=0
died=0
for round in $(seq $rounds); do
	rt run -- sh -c "echo $round > new" || fail "round $round: write"
	was=$(rt run -- sh -c "$look") || fail "round $round: before: $was"
	case $((RANDOM % 4)) in
	0) move=(rollback "$one") want="one " ;;
	1) move=(rollback "$two") want="two " ;;
	2) move=(reset) want="${was%% *} " ;;
	3) move=(undo) want=any ;;
	esac
	# Three deaths in a row, each within a second of the start, end the mounts and what was not synced (giving-up.py). Here it is
	# one at a time.
	while ((${EPOCHREALTIME/./} - died < 1200000)); do sleep 0.05; done
	pid=$(daemon)
	[ -n "$pid" ] || fail "round $round: no daemon"
	if [ $((round % 2)) = 0 ]; then
		# At the new mount, before it is served.
		: > strike.out
		python3 strike.py "$(keeper)" "$pid" > strike.out &
		striker=$!
		for _ in $(seq 200); do [ -s strike.out ] && break; sleep 0.01; done
		timeout 30 "$RATTAN" "${move[@]}" > move.out 2>&1
		rc=$?
		wait $striker
	else
		timeout 30 "$RATTAN" "${move[@]}" > move.out 2>&1 &
		mover=$!
		sleep "0.0$((RANDOM % 6))$((RANDOM % 10))"
		kill -KILL "$pid" 2> /dev/null
		wait $mover
		rc=$?
	fi
	died=${EPOCHREALTIME/./}
	[ $rc != 124 ] || fail "round $round: ${move[*]} hangs"
	is=$(timeout 20 "$RATTAN" run -- sh -c "$look") || fail "round $round: ${move[*]} $rc: neither one nor the other ($?): $is"
	case $is in
	"$was") ;;
	*)
		moved=$((moved + 1))
		if [ "$want" = any ]; then
			[[ $is =~ ^(one|two)\  ]] || fail "round $round: ${move[*]}: '$is' after '$was'"
		else
			same "$is" "$want" "round $round: ${move[*]} from '$was'"
		fi
		# What was left behind is kept, as after any move.
		[ "$want" = any ] || {
			must rt undo
			same "$(rt run -- sh -c "$look")" "$was" "round $round: undone"
		}
		;;
	esac
	[ $rc != 0 ] || [ "$is" != "$was" ] || [ "$want" = "$was" ] || [ "$want" = any ] || fail "round $round: ${move[*]} was reported and is not there: $is"
	[ $((round % 10)) != 0 ] || must rt fsck
done
must rt fsck
echo "$rounds kills, $moved times after the move"
[ $moved -gt 0 ] && [ $moved -lt $rounds ] || fail "all on one side: this shows nothing"
for p in $(pgrep -u "$(id -u)" -f "rattan-fs env --data-dir $XDG_DATA_HOME/"); do kill -TERM "$p" 2> /dev/null; done
for _ in $(seq 100); do [ -z "$(keeper)" ] && break; sleep 0.05; done
must rt fsck
exit 0
