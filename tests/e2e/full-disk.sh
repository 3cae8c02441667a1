#!/bin/bash
# A full disk gives ENOSPC to the writer; commits that were reported and fsynced bytes stay; removing files and a collection make room again.
# timeout: 120
. "$RATTAN_SRC/tests/e2e/lib.sh"

if [ -z "${INNER:-}" ]; then
	export INNER=1
	exec unshare -Urm --propagation private bash "$0"
fi
mkdir d && mount -t tmpfs -o size=24m tmpfs d || fail "no tmpfs in a user namespace"
export RATTAN_DATA_DIR=$here/d/store RATTAN_GC_S=0
must rt run -- sh -c 'echo kept > f; sync f'
must rt commit -m kept

fill() {
	rc=0
	rt run -- sh -c 'for i in 1 2 3 4 5 6; do head -c 10000000 /dev/urandom > big$i && sync big$i || exit 28; done' > log 2>&1 || rc=$?
	[ $rc = 28 ] || fail "writing 60 MB to a store of 24 MB ended with $rc: $(tail -n 2 log)"
	grep -qi 'no space left' log || fail "not said: $(tail -n 2 log)"
	same "$(rt run -- cat f)" kept "a committed file while the disk is full"
}
write_again() { # NAME
	for _ in $(seq 20); do # the flusher looks every second or two whether there is room
		rt run -- sh -c "echo after > $1 && sync $1" 2> /dev/null && break
		sleep 0.5
	done
	must rt run -- sh -c "echo after > $1 && sync $1"
}

for round in 1 2; do
	fill
	# the second time to the last byte, by somebody else
	[ $round = 1 ] || head -c 30000000 /dev/zero > d/hog 2> /dev/null || true
	must rt run -- sh -c 'rm -f big*; sync . || true'
	must rt gc
	write_again "g$round"
	must rt commit -m "after $round"
	must rt run -- sh -c "head -c 6000000 /dev/urandom > big && sync big && rm big"
	must rt gc
done
rm -f d/hog
says '^removed|^nothing' 0 rt gc --shrink
[ "$(df --output=avail -k d | tail -n 1)" -gt 12000 ] || fail "the disk has $(df --output=avail -k d | tail -n 1) KiB"
rt env list > /dev/null || fail "env list"
same "$(rt run -- cat f g1 g2 | tr '\n' ' ')" "kept after after " "after room was made"
must rt fsck
exit 0
