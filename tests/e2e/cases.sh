#!/bin/bash
# A collection of scripts of what real programs do to a file system (RATTAN_CASES names its folder), run as
# commands in the sandbox on committed content; with --long also in a fork of that commit, on open content, after a rollback, and
# over a host directory. cases-outside.sh runs them on the mounted view.
# timeout: 2400
. "$RATTAN_SRC/tests/e2e/lib.sh"

[ -n "${RATTAN_CASES:-}" ] || skip "RATTAN_CASES names no folder of cases"
cp -r "$RATTAN_CASES" cases && chmod -R u+w cases
bad=0
round() { # NAME ARGS...
	local name=$1
	shift
	rt run "$@" > "$name.log" 2>&1 < /dev/null
	sed "s/^/$name: /" "$name.log" | grep -E 'FAIL|prepare failed|passed,'
	grep -Eq '^[0-9]+ passed, 0 failed' "$name.log" || bad=1
}
o=(--overlay "$here/cases=/mnt")
must rt run "${o[@]}" -e commit -- bash /mnt/run.sh prepare /workspace/d
must rt commit -e commit -m prepared
[ -z "${RATTAN_LONG:-}" ] || must rt fork fork -e commit
round commit "${o[@]}" -e commit -- bash /mnt/run.sh run /workspace/d
if [ -z "${RATTAN_LONG:-}" ]; then
	[ $bad = 0 ] || fail "cases failed"
	exit 0
fi
round fork "${o[@]}" -e fork -- bash /mnt/run.sh run /workspace/d
must rt rollback -e commit head
round again "${o[@]}" -e commit -- bash /mnt/run.sh run /workspace/d
must rt run "${o[@]}" -e open -- bash /mnt/run.sh prepare /workspace/d
round open "${o[@]}" -e open -- bash /mnt/run.sh run /workspace/d
mkdir h && bash cases/run.sh prepare "$here/h" || fail "prepare on the host"
before=$(listing h)
round host "${o[@]}" --overlay "$here/h=/workspace" -e host -- bash /mnt/run.sh run /workspace
same "$(listing h)" "$before" "the host directory"
[ $bad = 0 ] || fail "cases failed"
exit 0
