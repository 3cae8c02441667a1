# Shared by the end-to-end tests; not a test itself. Each test starts with `. "$RATTAN_SRC/tests/e2e/lib.sh"`.
set -u
umask 022
here=$PWD
# The working directory is not below HOME: its user has listed it.
mkdir -p "$XDG_CONFIG_HOME/rattan" && printf '{"bind_roots": ["%s"]}\n' "$here" > "$XDG_CONFIG_HOME/rattan/config.json"

fail() {
	echo "FAIL: $*"
	exit 1
}
skip() {
	echo "SKIP: $*"
	exit 77
}

# rt ARGS...: the program under test.
rt() { "$RATTAN" "$@"; }

# must CMD...: has to succeed; its output is part of the reason.
must() {
	local out rc=0
	out=$("$@" 2>&1) || rc=$?
	[ $rc = 0 ] || fail "$* -> $rc: $(tail -n 5 <<<"$out")"
}

# code N CMD...: has to exit with N.
code() {
	local want=$1 out rc=0
	shift
	out=$("$@" 2>&1) || rc=$?
	[ $rc = "$want" ] || fail "$* -> $rc, want $want: $(tail -n 5 <<<"$out")"
}

# says PATTERN N CMD...: exits with N and its output has a line that matches PATTERN (extended).
says() {
	local pattern=$1 want=$2 out rc=0
	shift 2
	out=$("$@" 2>&1) || rc=$?
	[ $rc = "$want" ] || fail "$* -> $rc, want $want: $(tail -n 5 <<<"$out")"
	grep -Eq -- "$pattern" <<<"$out" || fail "$*: no line like '$pattern' in: $(tail -n 5 <<<"$out")"
}

same() { [ "$1" = "$2" ] || fail "$3: got '$1', want '$2'"; }

# listing DIR: every path with type, mode, size, mtime in ns, link count and target; to compare trees.
listing() {
	(cd "$1" && find . -mindepth 1 -printf '%P %y %m %s %T@ %n %l\n' | awk '{ if ($2 == "d") { $4 = "-"; } print }' | LC_ALL=C sort)
}

# sums DIR: content digests of every regular file.
sums() { (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum); }

# runtime_place DATA-DIR ENV: where clients look for the socket of what serves ENV (docs/control-protocol.md).
runtime_place() {
	/usr/bin/python3 - "$(realpath -m "$1")" "$2" <<'PY'
import os, sys
h = 0xcbf29ce484222325
for c in os.fsencode(sys.argv[1]):
    h = (h ^ c) * 0x100000001b3 & 0xffffffffffffffff
print(f"{os.environ['XDG_RUNTIME_DIR']}/rattan/{h:016x}-{sys.argv[2]}")
PY
}
