#!/bin/bash
# A command's standard streams are those of the caller and nothing else (R3), also when the caller has some closed.
# timeout: 60
. "$RATTAN_SRC/tests/e2e/lib.sh"

look='import os, stat
for fd in range(64):
    try:
        st = os.fstat(fd)
    except OSError:
        continue
    kind = "null" if stat.S_ISCHR(st.st_mode) and st.st_rdev == os.stat("/dev/null").st_rdev else \
           "socket" if stat.S_ISSOCK(st.st_mode) else "pipe" if stat.S_ISFIFO(st.st_mode) else "file"
    os.write(os.open("/workspace/seen", os.O_WRONLY | os.O_CREAT | os.O_APPEND), b"%d %s\n" % (fd, kind.encode()))
    os.closerange(3, 64)
'
must rt run -- true
# What is closed would be the number of the next socket that is opened: the one to the daemon.
for how in "0<&-" "1>&-" "2>&-" "0<&- 1>&-" "0<&- 1>&- 2>&-"; do
	eval '"$RATTAN" run -- /usr/bin/python3 -c "$look" '"$how" > /dev/null < /dev/null || fail "$how: exit $?"
	same "$(rt run -- sh -c 'cut -d" " -f1 seen | xargs; grep -c socket seen')" "0 1 2
0" "descriptors after $how"
	must rt run -- rm seen
done
same "$(echo in | rt run -- cat 2>&1)" in "a pipe as standard input"

# From a directory fchdir leads to the host's tree.
for how in "0<." "1<." "2<."; do
	rc=0
	eval '"$RATTAN" run -- touch ran '"$how" > /dev/null 2>&1 < /dev/null || rc=$?
	[ $rc = 2 ] || [ "$how" = "2<." ] || fail "a directory as stream $how: exit $rc"
	code 1 rt run -- test -e ran
done

# Inherited ones do not pass.
exec 7< /etc/passwd 9> other
same "$(rt run -- sh -c 'ls /proc/self/fd | wc -l')" 4 "descriptors (three and ls's own)"
# What a command does to the flags of a stream that it was lent ends with it.
/usr/bin/python3 - "$RATTAN" <<'P' || fail "a lent stream stayed non-blocking"
import fcntl, os, subprocess, sys
r, w = os.pipe()
inside = "import fcntl, os\nfor fd in 0, 1: fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)\nprint('set')"
r2, w2 = os.pipe()
rc = subprocess.run([sys.argv[1], "run", "--", "/usr/bin/python3", "-c", inside], stdin=r, stdout=w2).returncode
sys.exit(rc != 0 or os.read(r2, 9) != b"set\n" or any(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK for fd in (r, w2)))
P
exit 0
