#!/bin/bash
# Bad input and trouble: one clear sentence, the right exit code, nothing lost.
# timeout: 240
. "$RATTAN_SRC/tests/e2e/lib.sh"

must rt run -- sh -c 'echo kept > f'
must rt commit -m kept

# one_line N CMD...: exits with N and says exactly one line, which starts with "rattan".
one_line() {
	local want=$1 out rc=0
	shift
	out=$("$@" 2>&1 > /dev/null) || rc=$?
	[ $rc = "$want" ] || fail "$* -> $rc, want $want: $out"
	[ "$(grep -c . <<<"$out")" = 1 ] || fail "$*: not one sentence: $out"
	grep -q '^rattan' <<<"$out" || fail "$*: who says it? $out"
	echo "$out"
}

# Unknown things.
one_line 3 "$RATTAN" rollback 0123456789 | grep -q 0123456789 || fail "the revision is not named"
one_line 3 "$RATTAN" status -e nowhere | grep -q nowhere || fail "the environment is not named"
one_line 2 "$RATTAN" run -e 'a/b' -- true > /dev/null
one_line 2 "$RATTAN" run --no-such -- true > /dev/null
one_line 3 "$RATTAN" mount head "$here/missing" > /dev/null
mkdir full && touch full/x
one_line 1 "$RATTAN" mount head "$here/full" > /dev/null
one_line 125 "$RATTAN" run --cwd /nowhere -- true | grep -q /nowhere || fail "the directory is not named"

# A data directory that is not ours, of another version, or unreadable.
mkdir foreign && echo precious > foreign/file
RATTAN_DATA_DIR=$here/foreign one_line 1 "$RATTAN" run -- true > /dev/null
same "$(ls -A foreign)" file "the foreign directory"
mkdir locked && chmod 0 locked
[ "$(id -u)" = 0 ] || RATTAN_DATA_DIR=$here/locked one_line 1 "$RATTAN" run -- true > /dev/null
chmod 700 locked
: > plainfile
RATTAN_DATA_DIR=$here/plainfile one_line 1 "$RATTAN" run -- true > /dev/null

# The daemon dies: the next command starts another one, what was committed is there.
rt run -- sleep 30 & sleep 1
pkill -KILL -u "$(id -u)" -f "rattan-fs.*$here/../data" || pkill -KILL -u "$(id -u)" rattan-fs
rc=0; wait $! || rc=$?
[ $rc != 0 ] || fail "a command outlived its file system with exit code 0"
same "$(rt run -- cat f)" kept "after the daemon was killed"
grep -q "$HOME\|$here" /proc/self/mountinfo && fail "a mount was left behind"

# No /dev/fuse, no bwrap, no user namespaces. Each in its own data directory, so that no daemon runs yet.
export XDG_DATA_HOME=$here/fresh
bare=(bwrap --bind / / --dev /dev --bind /tmp /tmp --)
one_line 125 "${bare[@]}" "$RATTAN" run -- true | grep -q /dev/fuse || fail "no word of /dev/fuse"
mkdir bin && for t in sh bash ls cat; do ln -s "$(command -v $t)" bin/; done
PATH=$here/bin one_line 125 "$RATTAN" run -- true | grep -q 'bwrap\|bubblewrap' || fail "no word of bubblewrap"
export XDG_DATA_HOME=$here/fresh2
nouser=(bwrap --dev-bind / / --unshare-user --disable-userns --)
one_line 125 "${nouser[@]}" "$RATTAN" run -- true | grep -qi 'user namespace' || fail "no word of user namespaces"

# A second server or command on the same environment shares it.
export XDG_DATA_HOME=$here/fresh3
rt run -- sh -c 'sleep 2; cat g' > out & sleep 0.7
must rt run -- sh -c 'echo second > g'
wait $! || fail "the first command"
same "$(cat out)" second "what the first saw of the second"
rt run -- sleep 5 & sleep 1
one_line 4 "$RATTAN" rollback base > /dev/null
wait
exit 0
