#!/bin/bash
# Bad input and trouble: one clear sentence, the right exit code, nothing lost.
# timeout: 240
. "$RATTAN_SRC/tests/e2e/lib.sh"

must rt run -- sh -c 'echo kept > f'
must rt commit -m kept

# one_line N WORD CMD...: exits with N and says exactly one line, which starts with "rattan" and has WORD in it.
one_line() {
	local want=$1 word=$2 out rc=0
	shift 2
	out=$("$@" 2>&1 > /dev/null) || rc=$?
	[ $rc = "$want" ] || fail "$* -> $rc, want $want: $out"
	[ "$(grep -c . <<<"$out")" = 1 ] || fail "$*: not one sentence: $out"
	grep -q '^rattan' <<<"$out" || fail "$*: who says it? $out"
	grep -qi -- "$word" <<<"$out" || fail "$*: no word of $word: $out"
}

# Unknown things.
one_line 3 0123456789 "$RATTAN" rollback 0123456789
one_line 3 nowhere "$RATTAN" status -e nowhere
one_line 2 a/b "$RATTAN" run -e 'a/b' -- true
one_line 2 no-such "$RATTAN" run --no-such -- true
one_line 3 missing "$RATTAN" mount head "$here/missing"
mkdir full && touch full/x
one_line 1 full "$RATTAN" mount head "$here/full"
one_line 125 /nowhere "$RATTAN" run --cwd /nowhere -- true
one_line 127 no-such-command "$RATTAN" run -- no-such-command
one_line 127 /usr/bin/no-such "$RATTAN" run -- /usr/bin/no-such
one_line 126 /etc/passwd "$RATTAN" run -- /etc/passwd
one_line 126 /etc "$RATTAN" run -- /etc
same "$(rt run -- no-such-command 2> /dev/null)" "" "nothing of it on stdout"

# A data directory that is not ours, of another version, or unreadable.
mkdir foreign && echo precious > foreign/file
RATTAN_DATA_DIR=$here/foreign one_line 1 foreign "$RATTAN" run -- true
same "$(ls -A foreign)" file "the foreign directory"
[ "$(id -u)" = 0 ] || RATTAN_DATA_DIR=/usr/rattan-data one_line 1 /usr/rattan-data "$RATTAN" run -- true
: > plainfile
RATTAN_DATA_DIR=$here/plainfile one_line 1 plainfile "$RATTAN" run -- true

# The daemon dies: the next command starts another one, what was committed is there.
rt run -- sleep 30 & sleep 1
pkill -KILL -u "$(id -u)" -f "rattan-fs env --data-dir $XDG_DATA_HOME/" || fail "no daemon to kill"
rc=0; wait $! || rc=$?
[ $rc != 0 ] || fail "a command outlived its file system with exit code 0"
same "$(rt run -- cat f)" kept "after the daemon was killed"
grep -q "$HOME\|$here" /proc/self/mountinfo && fail "a mount was left behind"

# No /dev/fuse, no bwrap, no user namespaces. Each in its own data directory, so that no daemon runs yet.
export XDG_DATA_HOME=$here/fresh
bare=(bwrap --bind / / --dev /dev --bind /tmp /tmp --)
one_line 125 /dev/fuse "${bare[@]}" "$RATTAN" run -- true
# bwrap is looked for in fixed places as well, so it is hidden where it lies.
hide='for b in /usr/bin/bwrap /usr/local/bin/bwrap; do [ ! -e $b ] || mount --bind /dev/null $b || exit 99; done; exec "$@"'
export XDG_DATA_HOME=$here/fresh1
one_line 125 bubblewrap unshare -Urm sh -c "$hide" sh "$RATTAN" run -- true
export XDG_DATA_HOME=$here/fresh2
nouser=(bwrap --dev-bind / / --unshare-user --disable-userns --)
one_line 125 'user namespace' "${nouser[@]}" "$RATTAN" run -- true

# A second server or command on the same environment shares it.
export XDG_DATA_HOME=$here/fresh3
rt run -- sh -c 'sleep 2; cat g' > out & sleep 0.7
must rt run -- sh -c 'echo second > g'
wait $! || fail "the first command"
same "$(cat out)" second "what the first saw of the second"
rt run -- sleep 5 & sleep 1
one_line 4 sleep "$RATTAN" rollback base
wait
exit 0
