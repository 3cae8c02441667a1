#!/bin/bash
# long
# timeout: 5400
# In full what the unit tests do in part: thousands of outcomes of a power loss, every call that can fail.
. "$RATTAN_SRC/tests/e2e/lib.sh"

for seed in $(seq 6); do
	"$RATTAN_BUILD/test_core_power" 1000 "$((RANDOM * 32768 + RANDOM + seed))" > power.out 2>&1 || fail "a power loss: $(grep -v '^ok' power.out | head -n 12)"
	head -n 1 power.out
done
"$RATTAN_BUILD/test_core_fail" "" 1 > fail.out 2>&1 || fail "a failing call: $(grep -v '^ok' fail.out | grep -v 'up to call' | head -n 12)"
exit 0
