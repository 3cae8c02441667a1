#!/bin/bash
# gc removes what nothing reaches, beside running environments, and leaves the rest whole (S5); a mounted state stays; room goes back to the disk.
# timeout: 120
. "$RATTAN_SRC/tests/e2e/lib.sh"
export RATTAN_DATA_DIR=$here/store

field() { rt gc "${@:2}" --json | python3 -c "import json,sys; print(json.load(sys.stdin)['$1'])"; }
disk() { du -sk --exclude=lock.mdb store | cut -f1; }
rand() { head -c "$1" /dev/urandom; }

says 'no store' 3 rt gc
must rt run -- sh -c 'head -c 3000000 /dev/urandom > kept; sha256sum kept > sum; sync kept sum'
must rt commit -m kept
# A sync is a frame of the log; what it says is in the store a second later.
must rt run -- sh -c 'head -c 9000000 /dev/urandom > over; sync over; sleep 2; head -c 1000 /dev/urandom > over; sync over; sleep 2'
must rt run -e other -- sh -c 'head -c 6000000 /dev/urandom > x; sync x'
must rt commit -e other -m x
must rt run -e other -- sh -c 'head -c 5000000 /dev/urandom > y; sync y'
must rt reset -e other
must rt run -e other -- sh -c 'head -c 4000000 /dev/urandom > z; sync z'

echo "== what was written over goes, beside two running environments"
[ "$(field chunk_bytes -n)" -gt 9000000 ] || fail "a dry run sees $(field chunk_bytes -n) bytes of garbage"
[ "$(field chunk_bytes -n)" -lt 10000000 ] || fail "more than that is no garbage"
says '^would remove 0 trees .* and [0-9]+ chunks' 0 rt gc --dry-run
says '^removed 0 trees .* and [0-9]+ chunks \(8.* MiB\); ' 0 rt gc
says '^nothing to remove; ' 0 rt gc
same "$(rt run -- sh -c 'sha256sum -c sum && wc -c < over')" $'kept: OK\n1000' "the running environment"
must rt undo -e other
same "$(rt run -e other -- sh -c 'wc -c < y')" 5000000 "what a reset left behind can be gone back to"

echo "== a removed environment: its tree and automatic states go, its commits stay until asked for"
state=$(rt log -e other --auto --json | python3 -c 'import json,sys; print([c["id"] for c in json.load(sys.stdin) if c["automatic"]][-1])')
commit=$(rt log -e other --json | python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["id"])')
mkdir m
mounted=false
if [ -e /bin/fusermount3 ] && rt mount -e other "$state" m 2> log; then mounted=true; fi
must rt env rm other --force
must rt gc
if $mounted; then
	same "$(find m -name y -size 5000000c | wc -l)" 1 "a state that is mounted, after a collection"
	find m -name y -size 5000000c -exec cat {} + > got || fail "its bytes"
	same "$(wc -c < got)" 5000000 "its bytes"
	# Its keeper has a copy of the mount, and lives on.
	must rt run -e third -- true
	must rt umount m
	says '^removed 1 trees' 0 rt gc
fi
must rt rollback "$commit"
same "$(rt run -- sh -c 'wc -c < x')" 6000000 "the commit of an environment that is no more"
must rt undo
same "$(rt run -- sh -c 'sha256sum -c sum')" 'kept: OK' "after the undo"
must rt run -e third -- true
must rt env rm third

echo "== how much is left for undo can be said"
for i in 1 2 3; do
	must rt run -e kept -- sh -c "echo $i > f"
	must rt reset -e kept
done
says 'a number from 1' 2 rt gc --keep-states 0
says '^nothing to remove' 0 rt gc -n
same "$(field states -n --keep-states 1)" 2 "states beyond the newest"
same "$(RATTAN_KEEP_STATES=2 field states -n)" 1 "the same, set for all collections"
must rt gc --keep-states 1
must rt undo -e kept
same "$(rt run -e kept -- cat f)" 3 "the newest state"
code 1 rt undo -e kept
must rt env rm kept --force

echo "== room"
before=$(disk)
must rt gc --removed
says 'gave .* back to the disk' 0 rt gc --shrink
[ "$(disk)" -lt $((before - 8000)) ] || fail "the store takes $(disk) KiB, before it was $before"
same "$(rt run -- sh -c 'sha256sum -c sum')" 'kept: OK' "after shrinking"
must rt fsck

echo "== beside writers and commits"
(
	for i in 1 2 3 4; do rt run -e w -- sh -c "head -c 2000000 /dev/urandom > f; sha256sum f > f.sum; cp kept f2 2> /dev/null; sync f f.sum" && rt commit -e w -m "$i"; done > w.log 2>&1
	echo done > w.done
) &
n=0 m=0
while [ ! -e w.done ]; do
	rt gc --shrink > gc.log 2>&1 || fail "gc beside a writer: $(cat gc.log)"
	n=$((n + 1))
done &
collecting=$!
while [ ! -e w.done ]; do
	rt fsck > fsck.log 2>&1 || fail "fsck beside a writer and a collector: $(cat fsck.log)"
	m=$((m + 1))
done
wait $collecting || fail "gc beside a writer and fsck"
wait
[ "$(rt log -e w --json | grep -c '"id"')" = 4 ] || fail "commits beside gc: $(tail -n 3 w.log)"
for id in $(rt log -e w --json | sed -n 's/.*"id":[^"]*"\([0-9a-f]*\)".*/\1/p'); do
	must rt rollback -e w "$id"
	same "$(rt run -e w -- sha256sum -c f.sum)" 'f: OK' "commit $id, made beside $m checks and collections"
done
must rt fsck

echo "== by itself"
must rt env rm w
rm -f store/gc.lock
RATTAN_GC_S=1 must rt run -e auto -- sh -c 'head -c 3000000 /dev/urandom > f; sync f'
for _ in $(seq 60); do
	[ -s store/gc.lock ] && break
	sleep 0.25
done
[ -s store/gc.lock ] || fail "an idle daemon collected nothing"
same "$(field chunks -n)" 0 "garbage that is left"
must rt fsck
exit 0
