#!/bin/bash
# A loss of power under a real daemon: three writers with fsyncs, commits, collections and a rollback work through the mount,
# all that the daemon and the collectors do to the store is recorded below them (tests/power), and of what could
# have been left at many moments, each is opened: what was acknowledged is there, fsck is clean, and the store goes on.
# timeout: 7200
. "$RATTAN_SRC/tests/e2e/lib.sh"

fs=$(dirname "$RATTAN")/../libexec/rattan/rattan-fs
[ -x "$fs" ] || fs=$(find "$(dirname "$RATTAN")/.." -name rattan-fs -type f | head -n 1)
[ -x "$fs" ] || fail "no rattan-fs"
[ -w /dev/fuse ] || skip "no access to /dev/fuse"
command -v fusermount3 > /dev/null || skip "no fusermount3"

works=1 images=40 steps=30
[ -z "${RATTAN_LONG:-}" ] || works=5 images=600 steps=60
mkdir -p mnt
export RATTAN_DATA_DIR=$here/disk/store
place=$(runtime_place "$here/disk/store" power)

serve() {
	: > ready
	LD_PRELOAD=$RATTAN_BUILD/power_record.preload POWER_ROOT=$here/disk POWER_LOG=$here/power.log \
		"$fs" serve --foreground --run-dir "$place" --data-dir "$here/disk/store" --env power --create --dir "$here/mnt" \
		--ready-fd 5 5> ready 2>> log < /dev/null &
	pid=$!
	for _ in $(seq 1000); do [ -s ready ] && break; sleep 0.02; done
	[ -d mnt/workspace ] || fail "not served: $(tail -n 3 log)"
}
for n in $(seq $works); do
	seed=${RATTAN_SEED:-$((RANDOM * 32768 + RANDOM))}
	rm -rf disk power.log
	mkdir -p disk
	mkdir -p -m 700 "$XDG_RUNTIME_DIR/rattan" "$place"
	serve
	id="/usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)[\"id\"])'"
	must "$RATTAN_BUILD/power_load" mnt/workspace power.log "$seed" $steps \
		"out=\$('$RATTAN' commit -e power -m c --json) && echo \"\$out\" | $id" \
		"LD_PRELOAD=$RATTAN_BUILD/power_record.preload POWER_ROOT=$here/disk POWER_LOG=$here/power.log '$fs' admin gc --shrink --data-dir '$here/disk/store' --ready-fd 6 6> /dev/null 2>> log" \
		"'$RATTAN' rollback -e power \"\$1\""
	kill -TERM "$pid"
	wait "$pid" || fail "the end of the daemon: $(tail -n 3 log)"
	"$RATTAN_BUILD/test_core_power" $images "$seed" power.log store power workspace/ > power.out 2>&1 ||
		fail "seed $seed: $(grep -v '^ok' power.out | head -n 12)"
	head -n 4 power.out
done
exit 0
