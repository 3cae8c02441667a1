#!/bin/bash
# Where the user has a cgroup v2 subtree with pids and memory: all of a command together is held to them, shared memory included; what a
# killed runner leaves there is removed.
# user: root
# timeout: 120
. "$RATTAN_SRC/tests/e2e/lib.sh"

who=rattan-test
top=/sys/fs/cgroup
grep -qw pids $top/cgroup.controllers 2> /dev/null && grep -qw memory $top/cgroup.controllers || skip "no cgroup v2 with pids and memory here"
id $who > /dev/null 2>&1 || skip "no user $who"
mine=$top/rattan-test-$$
leave() {
	echo $$ > $top/cgroup.procs
	for d in $mine/user $mine/rattan-run-* $mine; do
		[ ! -d "$d" ] || { echo 1 > "$d/cgroup.kill"; sleep 0.3; rmdir "$d"; } 2> /dev/null
	done
}
trap leave EXIT
mkdir -p $mine || skip "no cgroup can be made in $top"
{ echo "+pids +memory" > $top/cgroup.subtree_control && mkdir $mine/user && echo "+pids +memory" > $mine/cgroup.subtree_control; } 2> /dev/null ||
	skip "the controllers cannot be delegated here"
chown -R $who $mine "$HOME" "$XDG_DATA_HOME" "$XDG_RUNTIME_DIR" "$TMPDIR" "$here" "$(dirname "$HOME")"
echo $$ > $mine/user/cgroup.procs
as=(setpriv --reuid $who --regid "$(id -g $who)" --clear-groups)
ut() { "${as[@]}" "$RATTAN" "$@"; }
runs() { find $mine -name 'rattan-run-*' | wc -l; }

says '^ok +cgroup .*rattan-test' 0 ut --probe
says 'what held: .*,cgroup' 0 ut run -v -c :
# A loop of forks, and one program that takes too much.
n=$(ut run --limit processes=60 -- python3 -c 'import os, signal
n = 0
try:
    while 1:
        if not os.fork(): signal.pause()
        n += 1
except OSError: print(n)')
[ "$n" -gt 30 ] && [ "$n" -lt 60 ] || fail "pids: $n processes"
code 137 ut run --limit memory=100M --limit file-size=1G -- python3 -c 'import os
fd = os.memfd_create("x")
while 1: os.write(fd, b"x" * (1 << 20))'
code 137 ut run --limit memory=100M -- sh -c 'exec head -c 300000000 /dev/zero > /dev/shm/x'
# Many that are each within the limit are together beyond it.
n=$(ut run --limit memory=100M -- python3 -c 'import os, time
for i in range(5):
    if not os.fork():
        x = bytearray(40 << 20)
        time.sleep(5)
        os._exit(0)
print(sum(os.waitpid(-1, 0)[1] == 0 for i in range(5)))' 2> /dev/null)
[ "${n:-0}" -lt 5 ] || fail "memory: five times 40 MB within 100 MB"
must ut run -c :
same "$(runs)" 0 "cgroups after the end of their commands"
# The runner is killed: its cgroup is the next one's to remove.
"${as[@]}" "$RATTAN" run --limit processes=77 -- sleep 97 &
for _ in $(seq 100); do [ "$(runs)" = 1 ] && pgrep -f -x 'sleep 97' > /dev/null && break; sleep 0.1; done
same "$(runs)" 1 "the cgroup of a command that runs"
# The process limit of the user alone would have ended the loop of forks as well.
same "$(cat $mine/rattan-run-*/pids.max)" 77 "what the cgroup itself holds"
kill -9 $!
wait $! 2> /dev/null
for _ in $(seq 100); do pgrep -f -x 'sleep 97' > /dev/null || break; sleep 0.1; done
pgrep -f -x 'sleep 97' > /dev/null && fail "its command lives"
must ut run -c :
same "$(runs)" 0 "cgroups after the next command"
exit 0
