#!/bin/bash
# The Arch package: built by makepkg from packaging/arch, installed in a tree of its own by pacman, used from there by an ordinary user, and taken
# away again.
# long
# timeout: 1800
. "$RATTAN_SRC/tests/e2e/lib.sh"
. "$RATTAN_SRC/tests/e2e/packagelib.sh"
for p in makepkg pacman bsdtar; do
	command -v $p >/dev/null || skip "there is no $p here"
done

own_sources
must src/scripts/source-archive src/packaging/arch
(cd src/packaging/arch && PKGEXT=.pkg.tar.gz makepkg --nodeps --noconfirm) >log 2>&1 || fail "makepkg: $(tail -n 20 log)"
package=$(echo "$here"/src/packaging/arch/rattan-*.pkg.tar.gz)
rm -rf src/packaging/arch/{src,pkg}

# As root of a user namespace, for that is who pacman wants to be; there is no shell in the tree, and nothing that it would be asked to do.
mkdir -p tree/var/lib/pacman
at_tree=(--root "$here/tree" --dbpath "$here/tree/var/lib/pacman" --logfile "$here/pacman.log" --noconfirm --noscriptlet)
must unshare -Ur pacman -U -dd "${at_tree[@]}" "$package"
has_all tree lib
[ -s tree/usr/share/licenses/rattan/LICENSE ] || fail "no license"
same "$(ls tree/etc 2>/dev/null)" "" "in /etc"
runs_from "$here/tree"
(. src/packaging/arch/rattan.install && post_remove) | grep -q 'stays in each user.s ~/.local/share/rattan' || fail "nothing is said of the data"
must unshare -Ur pacman -R "${at_tree[@]}" rattan
same "$(find tree/usr -type f)" "" "after its removal"
exit 0
