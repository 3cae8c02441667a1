#!/bin/bash
# The data directory is removed while a daemon serves from it: nobody works on what is gone, one sentence says so, and the next begins anew.
. "$RATTAN_SRC/tests/e2e/lib.sh"

export RATTAN_DATA_DIR=$here/data
gone="the store $here/data was removed while environment \"e\" was served"
pid() { rt status -e e --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["daemon_pid"])'; }
ended() {
	for _ in $(seq 200); do
		kill -0 "$1" 2> /dev/null || return 0
		sleep 0.05
	done
	fail "the daemon $1 goes on"
}
i=0
for first in "run -e e -- cat old" "commit -e e -m x" "status -e e" "diff -e e"; do
	must rt run -e e -c 'echo old > old'
	daemon=$(pid)
	rm -rf data
	[[ $first == run* ]] || must rt run -e "other$((i++))" -- true # the directory is there again
	out=$(rt $first 2>&1) && fail "$first on a store that is gone: $out"
	grep -qF "$gone" <<< "$out" && same "$(grep -c . <<< "$out")" 1 "a line" || fail "$first: $out"
	ended "$daemon"
	out=$(rt run -e e -c 'ls -A; echo new > new' 2>&1) || fail "the next one after $first: $out"
	same "$out" "" "it begins anew"
	must rt commit -e e -m new
	must rt env rm e
done

# While a command runs there the daemon stays, and takes nobody else.
mkfifo go
rt run -e e -c 'echo up; read x; echo "$x"' < go > ran 2>&1 &
exec 3> go
for _ in $(seq 200); do grep -q up ran && break; sleep 0.05; done
daemon=$(pid)
rm -rf data
says "was removed while environment" 4 rt run -e e -- true
kill -0 "$daemon" || fail "it ended under a command"
echo fine >&3
exec 3>&-
wait
grep -q fine ran || fail "the command: $(cat ran)"
rt run -e e -- true 2> err && fail "still used"
ended "$daemon"
must rt run -e e -- true
exit 0
