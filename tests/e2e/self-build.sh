#!/bin/bash
# rattan built inside its own sandbox, whole but without optimization; and those of its unit tests run there that see something else than
# outside: mounts, daemons, sandboxes, sockets, processes, host files. What computes alone (the store, most of the core, the policy, what
# is fuzzed) is left out, as is what takes long.
# timeout: 900
. "$RATTAN_SRC/tests/e2e/lib.sh"

set -o pipefail
cp -r "$RATTAN_SRC" proj && cd proj && rm -rf tests/mcp/node_modules
before=$(sums .)
rt run --overlay-cwd -e self -- bash -euo pipefail -c '
export CCACHE_DISABLE=1
meson setup b --werror --buildtype=debug
ninja -C b
meson test -C b --list 2> /dev/null | sed "s,.* / ,," |
	grep -Ev "^(store-|core |policy-|fuzz-|image |profile-|lint$|daemon-takeover$|mcp-files-|apply-run$)" > few
printf "%s\n" "core host" "core hostsrc" "core hostbase" store-crash store-threads >> few
mapfile -t few < few
meson test -C b --no-rebuild -t 4 --print-errorlogs "${few[@]}"
' 2>&1 | tee ../log || fail "inside: $(grep -E ' (FAIL|ERROR|TIMEOUT) ' ../log | sed 's/^/FAIL: /'; tail -n 40 ../log)"
grep -E '^(Ok|Fail|Skipped):' ../log
[ "$(sed -n 's/^Ok: *//p' ../log)" -gt 30 ] || fail "few of the tests ran: $(tail -n 5 ../log)"
must rt commit -e self -m built
same "$(sums .)" "$before" "the sources on the host"
exit 0
