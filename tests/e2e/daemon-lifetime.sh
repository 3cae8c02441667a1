#!/bin/bash
# Keeper and daemon end together, by every way to end; nothing stays behind of a removed environment or a mount.
# timeout: 180
. "$RATTAN_SRC/tests/e2e/lib.sh"

run=$XDG_RUNTIME_DIR/rattan
daemons() { pgrep -u "$(id -u)" -f "rattan-fs (env|mount) .*$XDG_DATA_HOME/"; }
gone() { # WHAT: within five seconds
	for _ in $(seq 50); do daemons > /dev/null || return 0; sleep 0.1; done
	fail "$1: $(pgrep -a -u "$(id -u)" -f "$XDG_DATA_HOME/")"
}
replaced() { # WHAT KEEPER DAEMON: another daemon goes on under the same keeper
	for _ in $(seq 50); do
		now=$(pgrep -P "$2" | tail -n 1)
		[ -n "$now" ] && [ "$now" != "$3" ] && rt run -- true && return 0
		sleep 0.1
	done
	fail "$1: no other daemon: $(pgrep -a -u "$(id -u)" -f "$XDG_DATA_HOME/")"
}
there() { daemons > /dev/null || fail "no daemon runs"; }
busy='while :; do head -c 3000000 /dev/urandom > a && cp a b && mkdir -p d/e && rm -rf d || exit 7; done'

# Unused for long enough; used all the time.
RATTAN_IDLE_S=2 rt run -- true || fail "run"
there
gone "idle"
RATTAN_IDLE_S=1 rt run -- sleep 3 || fail "ended under a command that runs"
gone "idle after a command"

# Signals to either or both, at rest and at work.
for who in keeper daemon both; do
	for work in no yes; do
		for sig in TERM INT KILL; do
			pid=
			must rt run -- true
			if [ $work = yes ]; then
				"$RATTAN" run -c "$busy" > /dev/null 2>&1 &
				pid=$!
				sleep 0.6
			fi
			keeper=$(daemons | head -n 1)
			daemon=$(pgrep -P "$keeper" | head -n 1)
			case $who in
			keeper) kill -$sig "$keeper" ;;
			daemon) kill -$sig "$daemon" ;;
			both) kill -$sig "$keeper" "$daemon" ;;
			esac
			if [ $sig$who = KILLdaemon ]; then
				replaced "$sig to the $who, busy: $work" "$keeper" "$daemon"
				[ -z "$pid" ] || kill -0 $pid || fail "a command ended with its daemon"
				kill -TERM "$(pgrep -P "$keeper" | tail -n 1)"
			fi
			gone "$sig to the $who, busy: $work"
			[ -z "$pid" ] || wait $pid && [ $work = yes ] && fail "$sig: a command outlived its daemon"
		done
	done
done
must rt run -- true

# Removed: no process, no directory, no lock file.
must rt run -e gone -- sh -c 'echo x > f'
must rt env rm gone
same "$(pgrep -u "$(id -u)" -f "run-dir $run/.*-gone ")" "" "processes of a removed environment"
same "$(ls "$run" | grep gone; ls "$XDG_DATA_HOME/rattan" | grep gone)" "" "what stays of a removed environment"
code 3 rt env rm never
same "$(ls "$run" | grep never)" "" "what stays of looking for one that is not there"
(for _ in 1 2 3 4 5; do rt run -e race -- true; done) > /dev/null 2>&1 &
for _ in 1 2 3 4 5; do rt env rm race > /dev/null 2>&1; done
wait
must rt run -e race -- true

# A commit on the host.
must rt run -- sh -c 'echo y > g'
must rt commit -m y
mkdir view
must rt mount head view
same "$(cat view/workspace/g)" y "the mounted commit"
must rt umount view
same "$(ls "$run" | grep mount-)" "" "what stays of a mount"
must rt mount head view
pkill -TERM -u "$(id -u)" -f "rattan-fs mount .*$XDG_DATA_HOME/"
for _ in $(seq 50); do mountpoint -q view || break; sleep 0.1; done
mountpoint -q view && fail "still mounted after SIGTERM"
[ -z "$(ls -A "$TMPDIR")" ] || fail "left in TMPDIR: $(ls -A "$TMPDIR")"
exit 0
