#!/bin/bash
# scripts/quickstart --help tells and does nothing; words that it does not know are refused before anything is done.
. "$RATTAN_SRC/tests/e2e/lib.sh"

mkdir -p src/scripts && cp "$RATTAN_SRC"/scripts/{quickstart,deps} src/scripts/
mkdir bin
for tool in apt-get sudo meson ninja; do
	printf '#!/bin/sh\necho "$0 $*" >> %q\nexit 1\n' "$here/ran" > bin/$tool
	chmod +x bin/$tool
done
PATH=$here/bin:$PATH
says 'usage: scripts/quickstart' 0 src/scripts/quickstart --help
says 'usage: scripts/quickstart' 0 src/scripts/quickstart -h
says "'--hlep' is too much" 2 src/scripts/quickstart --hlep
says "'now' is too much" 2 src/scripts/quickstart now
[ ! -e ran ] && [ ! -e src/build ] || fail "something was done: $(cat ran; ls src)"
exit 0
