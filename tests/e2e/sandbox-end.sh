#!/bin/bash
# When a run ends, however it ends, none of its processes is left (R4).
# timeout: 120
. "$RATTAN_SRC/tests/e2e/lib.sh"

mark="9$$.25"
left() { pgrep -f -c "sleep $mark"; }
wait_left() { # until N are left, at most ten seconds
	for _ in $(seq 100); do
		[ "$(left)" = "$1" ] && return 0
		sleep 0.1
	done
	fail "$2: $(left) left: $(pgrep -f -a "sleep $mark")"
}
# Ignores all that can be ignored, forks twice, has a session of its own.
stubborn="trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM HUP; sleep $mark & exec sleep $mark' &);"

must rt run -- sh -c "$stubborn sleep 0.5"
wait_left 0 "after the end of the command"

# Not the function: its pid would be a subshell's.
"$RATTAN" run -- sh -c "$stubborn while :; do sleep 1; done" > /dev/null 2>&1 &
pid=$!
for _ in $(seq 100); do [ "$(left)" -ge 2 ] && break; sleep 0.1; done
[ "$(left)" -ge 2 ] || fail "the command did not begin"
kill -9 $pid
wait $pid 2>/dev/null
wait_left 0 "after kill -9 of rattan"
must rt run -- true
exit 0
