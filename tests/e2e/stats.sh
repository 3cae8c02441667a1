#!/bin/bash
# stats tells what takes the space and whose it is, beside running environments: known numbers, and what it says a removal gives back is what it gives back.
# timeout: 180
. "$RATTAN_SRC/tests/e2e/lib.sh"
export RATTAN_DATA_DIR=$here/store

# The value of a path of keys; owners by their names.
field() {
	rt stats --json | python3 -c '
import json, sys
at = json.load(sys.stdin)
for k in sys.argv[1].split("."):
    at = next(o for o in at["owners"] if o["name"] == k) if k in ("one", "two") else at[k]
print(at)' "$1"
}
near() { [ "$1" -ge "$2" ] && [ "$1" -lt $(($2 + $2 / 20)) ] || fail "$3: $1 is not about $2"; }

says 'no store' 3 rt stats
says 'takes no names' 2 rt stats one

echo "== what is whose"
must rt run -e one -- sh -c 'head -c 3000000 /dev/urandom > a; sync a'
must rt commit -e one -m a
must rt fork two -e one
must rt run -e two -- sh -c 'head -c 2000000 /dev/urandom > b; sync b'
must rt commit -e two -m b
must rt run -e two -- sh -c 'head -c 1000000 /dev/urandom > c; sync c'
must rt reset -e two
must rt run -e one -- sh -c 'head -c 4000000 /dev/urandom > d; sync d'
must rt reset -e one
near "$(field shared.chunk_bytes)" 3000000 "what both reach"
near "$(field two.reaches.chunk_bytes)" 6000000 "what one reaches"
near "$(field two.alone.chunk_bytes)" 3000000 "what only it reaches"
near "$(field two.commits.chunk_bytes)" 2000000 "what its commits keep of that"
near "$(field two.undo.chunk_bytes)" 1000000 "what only undo goes back to"
near "$(field one.undo.chunk_bytes)" 4000000 "what only undo goes back to"
[ "$(field one.states)" -ge 1 ] || fail "no state is told of"
near "$(field total.chunk_bytes)" 10000000 "all"
[ "$(field disk_bytes)" -gt 10000000 ] || fail "the disk holds $(field disk_bytes)"
same "$(field damaged)" 0 "damaged"
same "$(rt stats --json | python3 -c 'import json, sys; print(*sorted(o["name"] for o in json.load(sys.stdin)["owners"]))' | xargs)" "host one two" "whose"
says '^[0-9.]+ MiB on the disk: 9.* MiB in [0-9]+ chunks, .* in [0-9]+ records, .* free for what comes; gc would remove ' 0 rt stats
says '^two  +environment +5\.[0-9] MiB +2\.[0-9] MiB ' 0 rt stats

echo "== what is said is what is given back"
must rt run -e one -- sh -c 'head -c 9000000 /dev/urandom > w; sync w'
must rt run -e one -- sh -c 'head -c 1000 /dev/urandom > w; sync w'
# What was synced is in the environment's log first.
for _ in $(seq 120); do
	[ "$(field garbage.chunk_bytes)" -lt 8000000 ] || break
	sleep 0.25
done
[ "$(field garbage.chunk_bytes)" -gt 8000000 ] || fail "what was written over is $(field garbage.chunk_bytes) bytes of garbage"
same "$(field garbage.chunk_bytes)" "$(rt gc -n --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["chunk_bytes"])')" "garbage, as gc counts it"
must rt gc
same "$(field garbage.bytes)" 0 "garbage after a collection"
alone=$(field two.alone.chunk_bytes)
before=$(field total.chunk_bytes)
must rt env rm two --force
must rt gc
must rt gc --removed
same "$((before - $(field total.chunk_bytes)))" "$alone" "what the removal gave back"
same "$(rt run -e one -- sh -c 'wc -c < a')" 3000000 "the other environment, which ran all the time"

echo "== beside a writer and a collector"
(
	for i in 1 2 3; do rt run -e one -- sh -c "head -c 3000000 /dev/urandom > f; sync f" && rt commit -e one -m "$i" && rt gc; done > w.log 2>&1
	echo done > w.done
) &
while [ ! -e w.done ]; do rt stats > stats.log 2>&1 || fail "stats beside a writer: $(cat stats.log)"; done
wait
must rt fsck
exit 0
