#!/bin/bash
# fsck beside a running daemon and without one; one damaged file is EIO, and only it; what is found is named.
# timeout: 120
. "$RATTAN_SRC/tests/e2e/lib.sh"

export RATTAN_DATA_DIR=$here/data
says 'no store' 3 rt fsck
must rt run -- sh -c 'mkdir d; head -c 300000 /dev/urandom > d/big; echo small > d/small; ln d/small d/two; cp d/big d/other; head -c 3000 /dev/urandom > d/one'
must rt commit -m one
must rt run -- sh -c 'echo more >> d/small; rm d/two; mkdir e; mv d/other e/'
says ': clean$' 0 rt fsck
rt fsck --json | python3 -c 'import json, sys; r = json.load(sys.stdin); sys.exit(r["state"] != "clean" or not r["checked"]["chunks"] or r["findings"] != [])' ||
	fail "fsck --json"
code 2 rt fsck nonsense

# Beside writers.
rt run -- sh -c 'for i in $(seq 400); do echo $i > d/n$i; mv d/n$i e/m$i; [ $((i % 40)) != 0 ] || sync d; done' &
writers=$!
for _ in 1 2 3 4 5; do
	says ': clean$' 0 rt fsck
done
wait "$writers" || fail "the writers"
must rt commit -m two
says 'in use' 4 rt fsck --repair

# Until all daemons are gone: they would go on with what they have in memory.
stop() {
	pkill -TERM -u "$(id -u)" -f "rattan-fs env .*$here/data"
	for _ in $(seq 100); do
		pgrep -u "$(id -u)" -f "rattan-fs env .*$here/data" > /dev/null || return 0
		sleep 0.1
	done
	fail "the daemons do not end"
}
stop
cp -r data whole

# What sound data tells is written anew, and said.
sed -i 's/store/stare/' data/format
says 'damage .can be repaired.: .*format' 1 rt fsck
says 'format' 1 rt run -- true
says '^repaired: wrote the format file anew' 5 rt fsck --repair
says ': clean$' 0 rt fsck
[ -s data/repairs.log ] || fail "no note of the repair"

# A byte of a file's chunk: that file, in the tree and in both commits, and no other.
python3 - <<'END' || fail "no chunk to damage"
import os
p = os.environ["RATTAN_DATA_DIR"] + "/chunks/data.mdb"
b = bytearray(open(p, "rb").read())
# A value's first page: its header has LMDB's flag of overflow pages; then raw, 131072 bytes.
for at in range(8192, len(b), 4096):
    if b[at + 10] == 4 and b[at + 16:at + 20] == b"\0\2\0\0":
        b[at + 3000] ^= 4
        open(p, "wb").write(b)
        raise SystemExit(0)
raise SystemExit(1)
END
says '^/workspace/(d/big|e/other): damage: .*digest' 1 rt fsck
says 'in the working tree of default$' 1 rt fsck
says 'in the commits [0-9a-f]{12}, [0-9a-f]{12}$' 1 rt fsck
says ': clean$' 0 rt fsck --quick
rt fsck --json > report.json
[ $? = 1 ] || fail "fsck --json of a damaged store"
python3 -c 'import json; r = json.load(open("report.json")); f = r["findings"]; assert r["state"] == "damaged" and f and all(x["kind"] == "chunk" and x["path"].startswith("/workspace/") for x in f), r' ||
	fail "$(cat report.json)"
says 'Input/output error' 1 rt run -- cat d/big
same "$(rt run -- cat d/small | tail -n 1)" more "a file beside the damaged one"
same "$(rt run -- sh -c 'ls e | wc -l')" 401 "names beside the damaged one"
must rt run -- sh -c 'cat d/one > /dev/null; rm d/big; echo new > d/big; cat d/big'
stop

# One record of each kind: what it belongs to is EIO, and all beside it is read.
damage() { # EXPRESSION OFFSET: a byte behind the beginning of each match in the records
	python3 - "$@" <<'END' || fail "nothing to damage: $1"
import os, re, sys
p = os.environ["RATTAN_DATA_DIR"] + "/meta/data.mdb"
b = bytearray(open(p, "rb").read())
at = [m.start() for m in re.finditer(sys.argv[1].encode("latin1"), b, re.S)]
for i in at:
    b[i + int(sys.argv[2])] ^= 4
open(p, "wb").write(b)
raise SystemExit(not at)
END
}
must rt run -- sh -c 'mkdir r; cd r; printf inline-findme > inline; ln -s target-findme link; echo named > name-findme; echo sound > sound
	{ head -c 131072 /dev/zero | tr "\0" a; head -c 131072 /dev/zero | tr "\0" b; } > two; echo xattr > xattr
	/usr/bin/python3 -c "import os; os.setxattr(\"xattr\", \"user.big\", b\"value-findme\" * 100)"'
must rt commit -m records
stop
damage 'inline-findme' 2                        # an inode, which holds its bytes
damage 'target-findme' 2                        # another, of a symlink
damage 'name-findme\x00\xff\xff.{6}' 25        # a name: its inode number
damage 'value-findme' 2                         # an attribute that does not fit its inode's record
damage "\x00\x02\x00\x00$(python3 -c 'import hashlib, re; print("".join(f"\\x{c:02x}" for c in hashlib.sha256(b"b" * 131072).digest()))')" 8 # an extent
cat > read.sh <<'END'
cd r
ls > /dev/null && [ "$(ls | wc -l)" = 7 ] || echo "the listing"
for f in inline name-findme; do cat $f 2>&1 | grep -q 'Input/output error' || echo "$f is read"; done
readlink link > /dev/null && echo "the link is read"
cmp -n 131072 two a || echo "the block before the damaged one"
dd if=two bs=131072 skip=1 2>&1 | grep -q 'Input/output error' || echo "the damaged block is read"
[ "$(cat xattr)" = xattr ] || echo "the bytes of the file whose attribute is damaged"
/usr/bin/python3 -c 'import errno, os
try: print("the attribute is", os.getxattr("xattr", "user.big"))
except OSError as e: assert e.errno == errno.EIO, e'
[ "$(cat sound)" = sound ] || echo "a sound file"
END
same "$(rt run -- sh -c "head -c 131072 /dev/zero | tr '\\0' a > r/a; $(cat read.sh)" 2>&1)" "" "one record of each kind"
# What is whole can be copied out, of a commit as of the tree.
mkdir m
if [ -e /bin/fusermount3 ] && rt mount head m 2> log; then
	cp -r m/workspace out 2> log && fail "all of a damaged commit is copied"
	same "$(cat out/r/sound out/r/xattr out/d/small)" $'sound\nxattr\nsmall\nmore' "what is whole of a damaged commit"
	same "$(grep -c 'Input/output error' log)" 5 "what is not: $(cat log)"
	must rt umount m
fi
says '/workspace/r/inline: damage' 1 rt fsck
says '/workspace/r/two: damage' 1 rt fsck
stop
rm -rf data && cp -r whole data

# A record that is another than what was committed, with a check value that fits: the commit's id tells.
says ': clean$' 0 rt fsck
"$RATTAN_BUILD/store_forge" data one || fail "forge"
says '^damage: commit [0-9a-f]{12}: what the store holds of it is not what was committed' 1 rt fsck
rm -rf data && cp -r whole data

# A commit, and the record of an environment: the listings name what is damaged and show the rest.
must rt run -e spare -- true
must rt env rm spare --force
must rt run -e zz-spare -- sh -c 'echo x > x'
must rt commit -e zz-spare -m 'a message to be damaged'
must rt run -- sh -c 'echo y > y'
must rt commit -m 'a sound one'
stop
damage 'a message to be' 3
damage 'zz-spare\x97\x01' 9
says 'damage: ' 1 rt fsck
says '^[0-9a-f]{12}  damaged' 1 rt log --all
says 'a sound one$' 1 rt log --all
[ "$(rt log --all | wc -l)" = 4 ] || fail "$(rt log --all)"
same "$(rt log --all --json | python3 -c 'import json, sys; print([c["damaged"] for c in json.load(sys.stdin)])')" "[False, True, False, False]" "as JSON"
says 'a sound one$' 0 rt log
says '^zz-spare +damaged' 0 rt env list
says '^default +host' 0 rt env list
same "$(rt run -- cat y)" y "an environment beside the damaged one"
says 'damaged' 1 rt run -e zz-spare -- true
stop

# Page headers of the records: said, and nothing is served.
rm -rf data && cp -r whole data
python3 - <<'END' || fail "no page to damage"
import os
p = os.environ["RATTAN_DATA_DIR"] + "/meta/data.mdb"
b = bytearray(open(p, "rb").read())
n = 0
for at in range(8192, len(b), 4096):
    if b[at + 10] == 2 and b[at + 12:at + 14] != b"\x10\0":
        b[at + 12] ^= 0x40
        n += 1
open(p, "wb").write(b)
raise SystemExit(n == 0)
END
says 'damage: page [0-9]+ of [a-z_]+ is damaged' 1 rt fsck
rc=0
out=$(timeout 60 "$RATTAN" run -- cat d/small 2>&1) || rc=$?
[ $rc != 0 ] && [ $rc != 124 ] || fail "a store of damaged pages is served: $rc $out"
grep -q fsck <<< "$out" || fail "not said: $out"

# What a move leaves over a directory of the host cannot be computed again without looking there: that is no damage.
stop
rm -rf data
mkdir -p project && echo x > project/f
must rt run -e over --overlay "$here/project=/workspace" -- sh -c 'rm f; echo y > g'
must rt reset -e over
must rt fsck
exit 0
