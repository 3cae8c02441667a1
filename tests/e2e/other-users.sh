#!/bin/bash
# Modes where several users are: what a write, a change of owner and a new access list do to set-id bits, seen by those who
# ask for the mode alone.
# user: root
# timeout: 60
. "$RATTAN_SRC/tests/e2e/lib.sh"

command -v setfacl > /dev/null || skip "no setfacl here"
as() { # UID GID CMD...
	local uid=$1 gid=$2
	shift 2
	setpriv --reuid "$uid" --regid "$gid" --clear-groups "$@"
}
mode() { stat -c %A "$1"; }

inside() {
	chmod 755 .. && chmod 777 .
	for flags in '' oflag=direct; do
		echo text > f
		chown 1001:1001 f
		chmod 6754 f
		same "$(mode f)" "-rwsr-sr--" "set-id bits"
		as 1001 1001 dd if=/dev/zero of=f bs=4096 count=1 conv=notrunc status=none $flags || fail "write"
		same "$(mode f)" "-rwxr-xr--" "after another user's write, ${flags:-buffered}"
		chmod 6654 f
		as 1001 1001 truncate -s 10 f
		same "$(mode f)" "-rw-r-xr--" "after a truncate"
		chmod 6654 f
		as 1001 1001 fallocate -l 100000 f
		same "$(mode f)" "-rw-r-xr--" "after more room"
		chmod 6654 f
		dd if=/dev/zero of=f bs=4096 count=1 conv=notrunc status=none $flags
		same "$(mode f)" "-rwSr-sr--" "after a write of root's"
		rm f
	done
	touch g
	mkdir d
	for x in g d; do
		chown 1001:1001 $x
		chmod 2755 $x
		as 1001 1001 setfacl -m u::rwx,g::rwx,o::rwx $x
		same "$(mode $x | cut -c2-)" "rwxrwsrwx" "$x: a list set by a member of the group"
		chmod 2755 $x
		as 1001 1002 setfacl -m u::rwx,g::rwx,o::rwx $x
		same "$(mode $x | cut -c2-)" "rwxrwxrwx" "$x: a list set by its owner who is not in the group"
		chmod 2755 $x
		as 1001 1002 setfacl -m u:1003:rwx,m::rwx $x
		same "$(mode $x | cut -c2-)" "rwxrwxr-x" "$x: a list with a name"
	done
	exit 0
}
[ "${1:-}" != inside ] || inside
"$RATTAN_BUILD/ovlrun" -i "$here/store" bash "$0" inside || fail "see above"
