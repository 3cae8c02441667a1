#!/bin/bash
# The Debian package as it is built on an Ubuntu (here, that is said to be one): it has the AppArmor profile and loads it, is clean to lintian, and
# an ordinary user runs it from a tree.
# long
# timeout: 1800
. "$RATTAN_SRC/tests/e2e/lib.sh"
. "$RATTAN_SRC/tests/e2e/packagelib.sh"
for p in dpkg-buildpackage dh_apparmor lintian; do
	command -v $p >/dev/null || skip "there is no $p here"
done

own_sources
mkdir origins
printf 'Vendor: Ubuntu\nParent: Debian\n' >origins/ubuntu
must env DPKG_ORIGINS_DIR="$here/origins" DEB_VENDOR=Ubuntu src/scripts/package-deb
found=$(lintian -EI --fail-on error,warning,info src/build-deb/*.changes) || fail "lintian: $found"
package=$(echo src/build-deb/rattan_*.deb)
must dpkg-deb -x "$package" tree
must dpkg-deb -e "$package" control

profile=tree/etc/apparmor.d/rattan
[ -s $profile ] || fail "there is no AppArmor profile"
for p in bin/rattan libexec/rattan/rattan-fs; do
	[ -x tree/usr/$p ] || fail "there is no $p"
	grep -q "^profile [a-z-]* /usr/$p flags=(unconfined) {$" $profile || fail "the profile is not for /usr/$p"
done
same "$(cat control/conffiles)" /etc/apparmor.d/rattan "what a user may change"
grep -q 'apparmor_parser -r .*"\$APP_PROFILE"' control/postinst || fail "it is not loaded"
grep -q 'APP_PROFILE="/etc/apparmor.d/rattan"' control/postinst || fail "another one is loaded"
has_all tree libexec
runs_from "$here/tree"
exit 0
