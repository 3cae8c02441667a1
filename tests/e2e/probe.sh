#!/bin/bash
# rattan --probe on this host, and on hosts that lack something: the right line, the right words, the right code.
# timeout: 300
. "$RATTAN_SRC/tests/e2e/lib.sh"

# row WANT-STATE NAME PATTERN: of the last table; the line of the remedy counts as part of its row.
row() {
	local got
	got=$(awk -v n="$2" 'index($0, n) && $0 !~ /^ /{ on = 1; print; next } /^ /{ if (on) print; next } { on = 0 }' out)
	grep -Eq "^$1 +$2 " <<<"$got" || fail "not $1: $2: $(cat out)"
	grep -Eqi -- "$3" <<<"$got" || fail "$2 does not say '$3': $got"
}
probe() { # CODE CMD...: the table is in out
	local want=$1 rc=0
	shift
	"$@" "$RATTAN" --probe > out 2>&1 || rc=$?
	[ $rc = "$want" ] || fail "$* rattan --probe -> $rc, want $want: $(cat out)"
	if [ $rc = 0 ]; then
		grep -qx 'this host can run sandboxes' out || fail "last line: $(tail -n 1 out)"
	else
		grep -qx 'this host cannot run sandboxes yet' out || fail "last line: $(tail -n 1 out)"
	fi
	grep -q '^[^ ]* *self-test' out || fail "no self-test: $(cat out)"
}
without=(/usr/bin/python3 "$RATTAN_SRC/tests/lib/without.py")

probe 0
row ok kernel 'linux [0-9]'
row ok 'user namespaces' 'made and used one'
row ok FUSE 'mounted in a user namespace'
row ok seccomp filters
row ok bwrap 'ran a command \(bubblewrap [0-9]'
row ok self-test 'what must be denied is denied'
[ "$(tail -n 2 out | head -n 1 | awk '{ print $2 }')" = self-test ] || fail "it does not end with the self-test"
says '"ok":[[:space:]]*true' 0 rt --probe --json

# In a container of the usual kind: other namespaces, one user, its own /proc and /dev with /dev/fuse.
box=(bwrap --bind / / --dev /dev --dev-bind /dev/fuse /dev/fuse --proc /proc --unshare-user --unshare-pid --unshare-ipc --unshare-uts --bind /tmp /tmp --)
probe 0 "${box[@]}"
row ok self-test denied

# Its /proc is masked.
probe 1 bwrap --bind / / --dev /dev --dev-bind /dev/fuse /dev/fuse --proc /proc --ro-bind /dev/null /proc/cmdline --unshare-user --unshare-pid --bind /tmp /tmp --
row MISSING bwrap 'systempaths=unconfined'
row MISSING self-test 'do not run'

# No /dev/fuse.
probe 1 bwrap --bind / / --dev /dev --bind /tmp /tmp --
row MISSING FUSE 'no /dev/fuse.*modprobe fuse.*--device /dev/fuse'
row ok bwrap 'ran a command'

# No user namespaces: turned off, and refused by whoever made the container.
probe 1 unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"' sh
row MISSING 'user namespaces' 'sysctl -w user.max_user_namespaces'
row MISSING bwrap .
if [ "$(uname -m)" = x86_64 ]; then
	probe 1 "${without[@]}" 272:1 56:1 435:1 --
	row MISSING 'user namespaces' 'refuses user namespaces here.*seccomp=unconfined'
	# The same refusal where the system has a switch for it, which is what is told: Debian's of old, Ubuntu's.
	switched='mount -t tmpfs switches /proc/sys/kernel && echo "$2" > "/proc/sys/kernel/$1" && shift 2 && exec "$@"'
	switch() { probe 1 unshare -Urm sh -c "$switched" sh "$1" "$2" "${without[@]}" 272:1 56:1 435:1 --; }
	switch unprivileged_userns_clone 0
	row MISSING 'user namespaces' 'sysctl -w kernel.unprivileged_userns_clone=1'
	switch apparmor_restrict_unprivileged_userns 1
	row MISSING 'user namespaces' 'AppArmor refuses.*"userns,".*sysctl -w kernel.apparmor_restrict_unprivileged_userns=0'
	switch apparmor_restrict_unprivileged_userns 0
	row MISSING 'user namespaces' 'refuses user namespaces here'
fi

# A bwrap that is too old, one that does not work, none.
mkdir old broken
cat > old/bwrap <<'S'
#!/bin/sh
[ "$1" != --version ] || { echo "bubblewrap 0.4.1"; exit 0; }
echo "bwrap: Unknown option --perms" >&2
exit 1
S
printf '#!/bin/sh\necho "bwrap: the moon is full" >&2\nexit 1\n' > broken/bwrap
chmod 755 old/bwrap broken/bwrap
probe 1 env PATH="$here/old:$PATH"
row MISSING bwrap 'unknown option.*' && row MISSING bwrap 'is bubblewrap 0.4.1, and 0.7 or newer'
row MISSING self-test unknown
probe 1 env PATH="$here/broken:$PATH"
row MISSING bwrap 'the moon is full'
hide='for b in /usr/bin/bwrap /usr/local/bin/bwrap; do [ ! -e $b ] || mount --bind /dev/null $b || exit 99; done; exec "$@"'
probe 1 unshare -Urm sh -c "$hide" sh
row MISSING bwrap 'install the package bubblewrap'

# A kernel without Landlock: told, and enough; what only it can do is refused. Without seccomp nothing runs.
if [ "$(uname -m)" = x86_64 ]; then
	probe 0 "${without[@]}" 444 --
	row - Landlock 'second fence.*linux 5.13'
	row ok self-test denied
	export XDG_DATA_HOME=$here/nolock
	"${without[@]}" 444 -- "$RATTAN" run -v -- true 2> held || fail "no run without Landlock: $(cat held)"
	grep -q 'what held: .*seccomp' held && ! grep -q landlock held || fail "what held: $(cat held)"
	says 'Landlock rules could not be applied' 125 "${without[@]}" 444 -- "$RATTAN" run --no-exec-workspace -- true
	# Where Landlock is not, what is mounted holds.
	for d in / /dev /usr /etc /proc; do
		code 1 "${without[@]}" 444 -- "$RATTAN" run -- sh -c "echo x > $d/file 2> /dev/null || exit 1"
	done
	probe 1 "${without[@]}" 317 --
	row MISSING seccomp CONFIG_SECCOMP_FILTER
	row MISSING self-test 'system call filter'
	export XDG_DATA_HOME=$here/nofilter
	says 'system call filter could not be loaded' 125 "${without[@]}" 317 -- "$RATTAN" run -- true
fi
exit 0
