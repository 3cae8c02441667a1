#!/bin/bash
# A full disk gives ENOSPC to the writer; commits that were reported and fsynced bytes stay; room heals it.
# timeout: 120
. "$RATTAN_SRC/tests/e2e/lib.sh"

if [ -z "${INNER:-}" ]; then
	export INNER=1
	exec unshare -Urm --propagation private bash "$0"
fi
mkdir d && mount -t tmpfs -o size=24m tmpfs d || fail "no tmpfs in a user namespace"
export RATTAN_DATA_DIR=$here/d/store
must rt run -- sh -c 'echo kept > f; sync f'
must rt commit -m kept
rc=0
rt run -- sh -c 'for i in 1 2 3 4 5 6; do head -c 10000000 /dev/urandom > big$i && sync big$i || exit 28; done' > log 2>&1 || rc=$?
[ $rc = 28 ] || fail "writing 60 MB to a store of 24 MB ended with $rc: $(tail -n 2 log)"
grep -qi 'no space left' log || fail "not said: $(tail -n 2 log)"
same "$(rt run -- cat f)" kept "a committed file while the disk is full"
must rt run -- sh -c 'rm -f big*'
# What was removed stays in the store, as history: the room comes from outside.
mount -o remount,size=96m none "$here/d" || fail "no larger tmpfs"
for _ in $(seq 20); do # the flusher looks every second or two whether there is room
	rt run -- sh -c 'echo after > g && sync g' 2> /dev/null && break
	sleep 0.5
done
must rt run -- sh -c 'echo after > g && sync g'
must rt commit -m after
rt env list > /dev/null || fail "env list"
same "$(rt run -- cat f g | tr '\n' ' ')" "kept after " "after room was made"
exit 0
