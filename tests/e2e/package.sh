#!/bin/bash
# The Debian package as a newcomer meets it: built by scripts/package-deb, clean to lintian, installed in a fresh tree of Debian 12, used there by
# an ordinary user, and taken away again with that user's data left.
# long
# user: root
# timeout: 3600
. "$RATTAN_SRC/tests/e2e/lib.sh"
. "$RATTAN_SRC/tests/e2e/packagelib.sh"

[ "$(. /etc/os-release && echo "$VERSION_CODENAME")" = bookworm ] || { echo "SKIP: this is not Debian 12"; exit 77; }
for p in debootstrap dpkg-buildpackage lintian; do
	command -v $p >/dev/null || { echo "SKIP: there is no $p here"; exit 77; }
done

# A tree as /, as a container has it: in a chroot the kernel refuses user namespaces.
enter() {
	unshare --mount --pid --fork --propagation private bash -ec '
		mount --bind "$1" "$1"
		cd "$1"
		mkdir -p .old
		mount -t proc proc proc
		mount --rbind /dev dev
		mount -t tmpfs run run
		pivot_root . .old
		cd /
		umount -l /.old
		shift
		exec "$@"' enter "$tree" "$@"
}

tree=$here/tree
must debootstrap --variant=minbase bookworm "$tree"
cp /etc/resolv.conf /etc/hosts "$tree/etc/"

own_sources
must src/scripts/package-deb
found=$(lintian -EI --fail-on error,warning,info src/build-deb/*.changes) || fail "lintian: $found"
cp src/build-deb/rattan_*.deb "$tree/tmp/rattan.deb"

must enter bash -c 'export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update && apt-get -qq install -y --no-install-recommends /tmp/rattan.deb && { id -u me >/dev/null 2>&1 || useradd -m me; }'
as_me() {
	enter runuser -l me -c "$1"
}
must as_me 'rattan run -- true'
same "$(as_me 'rattan run -c "echo hello > /workspace/f; cat /workspace/f"; rattan commit -m one >/dev/null; rattan run -- rm f; rattan rollback head >/dev/null; rattan run -- cat f' 2>/dev/null)" $'hello\nhello' "a session in the fresh tree"
same "$(as_me 'rattan doctor' | tail -1)" "this host can run sandboxes" "doctor"
has_all "$tree" libexec
[ -s "$tree/usr/share/zsh/vendor-completions/_rattan" ] || fail "the completion is where no zsh looks"
[ ! -e "$tree/etc/apparmor.d/rattan" ] || fail "a profile that this AppArmor does not understand"
[ ! -e "$tree/etc/systemd/user/timers.target.wants/rattan-gc.timer" ] || fail "the timer was turned on"

# Taken away: it says what stays, and that stays.
out=$(enter bash -c 'dpkg --purge rattan 2>&1') || fail "$out"
grep -q 'stays in each user.s ~/.local/share/rattan' <<< "$out" || fail "nothing is said of the data: $out"
[ -d "$tree/home/me/.local/share/rattan/meta" ] || fail "the data is gone: $(ls -A "$tree/home/me/.local/share")"
[ ! -e "$tree/usr/bin/rattan" ] || fail "the program is there"

# Installed again it goes on.
must enter dpkg -i /tmp/rattan.deb
same "$(as_me 'rattan run -- cat f' 2>/dev/null)" hello "the data of before"
enter dpkg --purge rattan >/dev/null
exit 0
