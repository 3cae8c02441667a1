#!/bin/bash
# rattan built and unit-tested inside its own sandbox.
# timeout: 1500
. "$RATTAN_SRC/tests/e2e/lib.sh"

set -o pipefail
cp -r "$RATTAN_SRC" proj && cd proj && rm -rf tests/mcp/node_modules
before=$(sums .)
rt run --overlay-cwd -e self -- bash -euo pipefail -c '
meson setup b --werror
ninja -C b
meson test -C b -t 4 --print-errorlogs
' 2>&1 | tee ../log || fail "inside: $(grep -E ' (FAIL|ERROR|TIMEOUT) ' ../log | sed 's/^/FAIL: /'; tail -n 40 ../log)"
grep -E '^(Ok|Fail|Skipped):' ../log
must rt commit -e self -m built
same "$(sums .)" "$before" "the sources on the host"
exit 0
