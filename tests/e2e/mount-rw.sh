#!/bin/bash
# mount --rw: a commit that can be written to on the host; nobody else sees what is written, a collection leaves it alone, and it is gone with the mount,
# also when its server is killed.
# timeout: 180
. "$RATTAN_SRC/tests/e2e/lib.sh"
export RATTAN_DATA_DIR=$here/store
[ -e /bin/fusermount3 ] && [ -w /dev/fuse ] || { echo "no fusermount3, or no access to /dev/fuse"; exit 77; }

pid_of() { grep -lzxF -e "--dir" /proc/[0-9]*/cmdline 2> /dev/null | while read -r f; do tr '\0' ' ' < "$f" 2> /dev/null | grep -q -- "--dir $here/m " && cut -d/ -f3 <<< "$f"; done | head -n 1; }
w=m/workspace
chunks() { rt stats --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["total"]["chunk_bytes"])'; }

must rt run -e e -- sh -c 'echo one > a; echo two > b; head -c 300000 /dev/urandom > big'
must rt commit -e e -m first
before=$(chunks)
mkdir m

echo "== it can be written to"
must rt mount head m --rw -e e
[ -e $w/a ] || fail "the commit is not shown"
echo more >> "$w/a" || fail "append"
rm "$w/b" || fail "remove"
mkdir "$w/d" && head -c 2000000 /dev/urandom > "$w/d/new" || fail "a new file"
printf x | dd of="$w/big" bs=1 seek=200000 conv=notrunc status=none || fail "in the middle"
mv "$w/d/new" "$w/moved" || fail "rename"
sync "$w/moved" || fail "fsync"
sum=$(sha256sum < "$w/moved")
same "$(cat "$w/a")" $'one\nmore' "what was written"
[ "$(chunks)" -ge $((before + 2000000)) ] || fail "an fsync did not bring it to the store: $(chunks) after $before"

echo "== and nobody else sees it"
same "$(rt run -e e -- cat a b)" $'one\ntwo' "the environment"
says '^$' 0 rt diff -e e --name-status
must rt gc
must rt gc
same "$(sha256sum < "$w/moved")" "$sum" "after a collection"
echo again > "$w/after" && sync "$w/after" || fail "writing after a collection"
must rt fsck

echo "== it is gone with the mount"
must rt umount m
must rt gc
same "$(chunks)" "$before" "the store"
must rt mount head m -e e
same "$(cat "$w/a" "$w/b"; ls "$w")" $'one\ntwo\na\nb\nbig' "the commit"
! touch "$w/x" 2> /dev/null || fail "read-only without --rw"
must rt umount m

echo "== also when its server is killed"
must rt mount head m --rw -e e
echo more >> "$w/a" && sync "$w/a" || fail "append"
pid=$(pid_of)
[ -n "$pid" ] || fail "whose mount is it?"
kill -9 "$pid"
for _ in $(seq 50); do
	must rt env list
	ls m/* > /dev/null 2>&1 || break
	sleep 0.2
done
must rt mount head m --rw -e e
same "$(cat "$w/a" "$w/b")" $'one\ntwo' "the commit, in the next mount"
must rt umount m

echo "== nor is one that was moved with the directory above it taken for gone"
mkdir -p up/m
must rt mount head up/m --rw -e e
echo moved > up/m/workspace/moved
mv up down
mkdir -p up/m
says 'at another place; umount it there' 4 rt mount head up/m -e e
same "$(cat down/m/workspace/moved)" moved "what was written to it"
must fusermount3 -u down/m

echo "== one in another mount namespace is not ended by who cannot see it"
if unshare -rm true 2> /dev/null; then
	mkfifo go
	unshare -rm bash -c "'$RATTAN' mount head m --rw -e e && : > mounted; read -r < go; ls $w > seen; '$RATTAN' umount m; echo \$? > ended" > /dev/null &
	there=$!
	trap 'kill $there 2> /dev/null' EXIT
	for _ in $(seq 500); do
		[ -e mounted ] && break
		sleep 0.02
	done
	says 'in another mount namespace' 4 rt mount head m -e e
	echo > go
	wait $there
	same "$(cat seen ended)" $'a\nb\nbig\n0' "it is there until it is unmounted there"
	must rt mount head m -e e
	must rt umount m
fi
must rt gc
must rt fsck

echo "== without /etc/mtab, which fusermount3 reads when it unmounts for a user"
# Its set-user-ID bit, with which alone it reads it, means nothing in a namespace of one's own: its words are spoken by another.
mkdir etc words
cp /etc/passwd /etc/group /etc/nsswitch.conf etc
cat > words/fusermount3 <<'S'
#!/bin/sh
[ -e /etc/mtab ] || { echo "fusermount3: failed to open /etc/mtab: No such file or directory" >&2; exit 1; }
echo "fusermount3: entry for $3 not found in /etc/mtab" >&2
exit 1
S
chmod 755 words/fusermount3
bare=(unshare --user --map-current-user --keep-caps --mount sh -c 'mount --bind etc /etc && PATH=$PWD/words:$PATH && exec "$@"' sh)
"${bare[@]}" "$RATTAN" doctor > table 2>&1
grep -A 1 '^- *fusermount3 .*no /etc/mtab' table | grep -q -- '-> .*as root, ln -s /proc/self/mounts /etc/mtab' || fail "doctor: $(cat table)"
must rt mount head m -e e
says 'cannot unmount .*: as root, ln -s /proc/self/mounts /etc/mtab$' 1 "${bare[@]}" "$RATTAN" umount m
must rt umount m
ln -s /proc/self/mounts etc/mtab
"${bare[@]}" "$RATTAN" doctor > table 2>&1
grep -q '^ok *fusermount3 .*for rattan mount' table || fail "doctor, with it: $(cat table)"
exit 0
