#!/bin/bash
# The decoders of plan, records, control messages and requests to the proxy under libFuzzer, from their corpora, a minute each.
# long
# timeout: 1800
. "$RATTAN_SRC/tests/e2e/lib.sh"

command -v clang > /dev/null || skip "no clang"
CC=clang meson setup -Dfuzz=true build "$RATTAN_SRC" > log 2>&1 || fail "setup: $(tail -n 3 log)"
for t in tests/fuzz/fuzz_plan tests/fuzz/fuzz_record tests/unit/ctl/fuzz_ctl tests/unit/net/fuzz_net; do
	name=${t##*_}
	ninja -C build "$t" > log 2>&1 || fail "build: $(tail -n 3 log)"
	mkdir "new-$name"
	"build/$t" -max_total_time=60 -timeout=10 -print_final_stats=1 "new-$name" "$RATTAN_SRC/tests/fuzz/corpus/$name" > log 2>&1 ||
		fail "$name: $(tail -n 30 log)"
	[ "$(awk '/number_of_executed_units/ { print $2 }' log)" -gt 1000 ] || fail "$name: hardly ran: $(tail -n 5 log)"
done
exit 0
