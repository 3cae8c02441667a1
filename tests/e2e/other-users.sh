#!/bin/bash
# Modes where several users are: what a write, a change of owner and a new access list do to set-id bits, seen by those who
# ask for the mode alone. Then files by their handles.
# user: root
# timeout: 60
outer=${here:-$PWD}
. "$RATTAN_SRC/tests/e2e/lib.sh"
here=$outer

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

# handle OUT FILE...: the file handles of files; by_handle IN: what the files of these handles say now.
handle() {
	python3 - "$@" <<- 'EOF'
		import ctypes, sys
		libc = ctypes.CDLL(None, use_errno=True)
		for f in sys.argv[2:]:
		    h = ctypes.create_string_buffer(8 + 128)
		    ctypes.c_uint.from_buffer(h).value = 128
		    if libc.name_to_handle_at(-100, f.encode(), h, ctypes.byref(ctypes.c_int()), 0) < 0:
		        sys.exit(f"{f}: {ctypes.get_errno()}")
		    open(sys.argv[1], "a").write(h.raw.hex() + "\n")
	EOF
}
by_handle() {
	python3 - "$1" <<- 'EOF'
		import ctypes, os, sys
		libc = ctypes.CDLL(None, use_errno=True)
		here = os.open(".", os.O_RDONLY)
		for line in open(sys.argv[1]):
		    fd = libc.open_by_handle_at(here, ctypes.create_string_buffer(bytes.fromhex(line)), os.O_RDONLY)
		    if fd < 0:
		        print("error", ctypes.get_errno())
		    else:
		        print(os.listdir(fd) if os.path.isdir(f"/proc/self/fd/{fd}") else os.read(fd, 99).decode().strip())
	EOF
}

case ${1:-} in
inside) inside ;;
handle)
	mkdir -p a/b
	echo one > a/b/f
	ln a/b/f l
	echo gone > g
	handle "$here/handles" a/b/f a/b l g || fail "no handles"
	rm g
	;;
by_handle)
	mv a/b c
	same "$(by_handle "$here/handles")" "one
['f']
one
error 116" "files by their handles in another mount"
	;;
*)
	export here
	ovlrun() { "$RATTAN_BUILD/ovlrun" -i "$here/$1" bash "$RATTAN_SRC/tests/e2e/other-users.sh" "$2" || fail "see above"; }
	ovlrun store inside
	ovlrun handles-store handle
	ovlrun handles-store by_handle
	;;
esac
exit 0
