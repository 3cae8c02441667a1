#!/bin/bash
# A name that is given and is nobody's yet makes an environment: said on a terminal and with -v, once, and not of one named after a directory.
. "$RATTAN_SRC/tests/e2e/lib.sh"

new() { grep -c 'rattan: typo is a new environment' "$1"; }
must rt run -v -e other -- true
rt run -v -e typo -- true 2> err || fail "$(cat err)"
same "$(new err)" 1 "said with -v"
rt run -v -e typo -- true 2> err
same "$(new err)" 0 "not of one that is there"
must rt env rm typo
rt run -e typo -- true 2> err
same "$(cat err)" "" "off a terminal nothing"
must rt env rm typo
script -qec '"$RATTAN" run -e typo -- true' out < /dev/null > /dev/null
same "$(new out)" 1 "on a terminal"
script -qec '"$RATTAN" run -e typo -- true' out < /dev/null > /dev/null
same "$(new out)" 0 "once"
mkdir proj && cd proj && rt run -v --overlay-cwd -- true 2> ../err
grep 'new environment' ../err && fail "a directory's is no slip"
rt run -v -- true 2> ../err
grep 'new environment' ../err && fail "nor is the default one"
exit 0
