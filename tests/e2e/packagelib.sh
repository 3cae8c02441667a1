# Shared by the tests of packages for other distributions; not a test itself. They are built here, with this distribution's libraries, so what a
# package says of its dependencies is not looked at; what is in it is, and it runs from a tree that it is installed in.

# A copy of the sources, as they are, in ./src.
own_sources() {
	cp -r "$RATTAN_SRC" src && rm -rf src/tests/mcp/node_modules src/tests/mcp/real/node_modules
}

# has_all TREE LIBEXEC: everything that a package has is below TREE, and is readable by everybody.
has_all() {
	local f
	for f in bin/rattan "$2"/rattan/rattan-{fs,net,stage3} lib/systemd/user/rattan-gc.{service,timer} share/bash-completion/completions/rattan \
		share/zsh/*/_rattan share/fish/vendor_completions.d/rattan.fish share/doc/rattan/profiles/{agent,role-session,workspace}.json 'share/doc/rattan/docs/tutorial.md*' \
		'share/man/man1/rattan.1*'; do
		[ -s "$(echo "$1"/usr/$f)" ] || fail "the package has no $f"
	done
	# With a prefix of ~/.local that is where the data are.
	[ ! -e "$1/usr/share/rattan" ] || fail "the package has files at share/rattan"
	# Each command has its page.
	same "$(cd "$1/usr/share/man/man1" && echo rattan-*.1* | sed 's/\.gz//g')" \
		"$("$1/usr/bin/rattan" --help | sed -n '/^Exit/q; s/^  \([a-z][a-z]*\) .*/rattan-\1.1/p' | LC_ALL=C sort | xargs)" "the pages"
	same "$(find "$1/usr" ! -type l ! -perm -o=r)" "" "what not everybody may read"
	grep -q "^ExecStart=/usr/bin/rattan gc" "$1/usr/lib/systemd/user/rattan-gc.service" || fail "the unit names another program"
	bash -n "$1/usr/share/bash-completion/completions/rattan" || fail "the completion is no bash"
}

# runs_from TREE: it says which it is, and a command runs and leaves what it wrote.
runs_from() {
	local rattan=$1/usr/bin/rattan
	same "$("$rattan" --version)" "rattan $(sed -n "s/^\tversion: '\(.*\)',$/\1/p" "$RATTAN_SRC/meson.build")" "its version"
	must "$rattan" run -- sh -c 'echo hello > f'
	same "$("$rattan" run -- cat f)" hello "what a command has written"
	must "$rattan" commit -m one
	must "$rattan" env rm default
}
