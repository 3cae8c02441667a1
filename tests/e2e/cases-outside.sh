#!/bin/bash
# The scripts of RATTAN_CASES on the mounted view, outside the sandbox: on open content, on committed content, in a fork of that commit,
# and over a host directory. As an unprivileged user; cases-outside-root.sh is the same as root, who owns ids and capabilities.
# timeout: 2400
# long
. "$RATTAN_SRC/tests/e2e/lib.sh"

[ -n "${RATTAN_CASES:-}" ] || skip "RATTAN_CASES names no folder of cases"
[ "$(id -u)" = 0 ] || command -v fusermount3 > log || skip "no fusermount3"
export RATTAN_DATA_DIR=$here/store
fs=$(dirname "$RATTAN")/../libexec/rattan/rattan-fs
cases=$RATTAN_CASES
pattern=${RATTAN_CASE:-}
bad=0
mkdir -p mnt

# served ENV CMD...: runs CMD, while ENV is mounted at mnt.
served() { # ENV [--overlay HOST=MOUNT] -- CMD...
	local env=$1 opts=()
	shift
	while [ "$1" != -- ]; do
		opts+=("$1")
		shift
	done
	shift
	rm -f ready
	"$fs" serve --foreground --data-dir "$here/store" --env "$env" --create --dir "$here/mnt" "${opts[@]}" \
		--ready-fd 9 9> ready 2>> served.log &
	local pid=$! i
	for i in $(seq 600); do [ ! -s ready ] || break; sleep 0.05; done
	mountpoint -q mnt || fail "not served: $(tail -n 2 served.log) $(strings ready)"
	CASE_FS_PID=$pid "$@"
	kill "$pid"
	wait "$pid" || { bad=1; echo "the end of the server: $?"; }
}
round() { # NAME ENV SERVE-OPTIONS...
	local name=$1 env=$2
	shift 2
	served "$env" "$@" -- bash "$cases/run.sh" run "$here/mnt/workspace/d" "$pattern" > "$name.log" 2>&1 < /dev/null
	sed "s/^/$name: /" "$name.log" | grep -E 'FAIL|prepare failed|passed,|SKIP|served|server'
	grep -Eq '^[0-9]+ passed, 0 failed' "$name.log" || bad=1
}
prepare() { bash "$cases/run.sh" prepare "$1" > prepare.log 2>&1 < /dev/null || fail "prepare: $(tail -n 3 prepare.log)"; }

# A daemon that a command started would stand in the way of the next server.
idle() {
	local i
	for i in $(seq 600); do
		rt env list --json | grep -q '"running":[[:space:]]*true' || return 0
		sleep 0.1
	done
	fail "the daemon goes on"
}

served open -- prepare "$here/mnt/workspace/d"
round open open
served commit -- prepare "$here/mnt/workspace/d"
RATTAN_IDLE_S=1 must rt commit -e commit -m prepared
must rt fork fork -e commit
idle
round commit commit
round fork fork
mkdir -p h/d && prepare "$here/h/d"
before=$(listing h)
round host host --overlay "$here/h=/workspace"
same "$(listing h)" "$before" "the host directory"
[ $bad = 0 ] || fail "cases failed"
exit 0
