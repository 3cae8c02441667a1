#!/bin/bash
# The RPM: built by rpmbuild from packaging/rpm, installed in a tree of its own, used from there by an ordinary user, and taken away again.
# long
# timeout: 1800
. "$RATTAN_SRC/tests/e2e/lib.sh"
. "$RATTAN_SRC/tests/e2e/packagelib.sh"
for p in rpmbuild rpm; do
	command -v $p >/dev/null || skip "there is no $p here"
done

own_sources
mkdir -p top/SOURCES tree
must src/scripts/source-archive top/SOURCES
# What Fedora's packages of meson and systemd define, where they are not.
cat >macros <<'M'
%_topdir %{getenv:PWD}/top
%_userunitdir %{_prefix}/lib/systemd/user
%meson meson setup --buildtype=plain --prefix=%{_prefix} --bindir=%{_bindir} --libexecdir=%{_libexecdir} --datadir=%{_datadir} --mandir=%{_mandir} --sysconfdir=%{_sysconfdir} build
%meson_build meson compile -C build
%meson_install meson install -C build --no-rebuild --destdir=%{buildroot}
%systemd_user_post() :
%systemd_user_preun() :
M
rpmbuild -ba --nodeps --load macros src/packaging/rpm/rattan.spec >log 2>&1 || fail "rpmbuild: $(tail -n 20 log)"
rm -rf top/BUILD
package=$(find top/RPMS -name 'rattan-[0-9]*.rpm')
[ -n "$(find top/SRPMS -name 'rattan-*.src.rpm')" ] || fail "no source package"

needs=$(rpm -qp --requires "$package")
for p in bubblewrap diffutils fuse3; do
	grep -qx $p <<<"$needs" || fail "it does not need $p: $needs"
done
rpm -qp --scripts "$package" | grep -q 'stays in each user.s ~/.local/share/rattan' || fail "nothing is said of the data"

# There is no shell in the tree for its scripts.
must unshare -Ur rpm --root "$here/tree" -i --nodeps --noscripts "$here/$package"
has_all tree libexec
same "$(ls tree/etc 2>/dev/null)" "" "in /etc"
runs_from "$here/tree"
must unshare -Ur rpm --root "$here/tree" -e --noscripts rattan
same "$(find tree/usr -type f)" "" "after its removal"
exit 0
