#!/bin/bash
# All fuzz targets (tests/fuzz/fuzz_*.c) under libFuzzer, from their corpora, a minute each (RATTAN_FUZZ_SECONDS): what is read of others'
# bytes. A target that does not see where its bytes lead is none.
# long
# timeout: 2400
. "$RATTAN_SRC/tests/e2e/lib.sh"

command -v clang > /dev/null || skip "no clang"
# Where its bytes lead, by name: a target whose bytes stop before that would try nothing of it.
declare -A leads=(
	[ctl]="ctl_req_decode ctl_rep_decode ctl_item_get ctl_item_put mp_parse mp_as_bin"
	[net]="net_request_parse net_socks_hello net_socks_request net_host_parse net_authority_parse net_rules_decode"
	[oci]="oci_parse oci_choose oci_choose_platform oci_descriptor_parse oci_manifest_parse fits tags_text"
	[plan]="plan_pointers plan_decode"
	[policy]="policy_rules_decode policy_new policy_explain glob_parse"
	[profile]="profile_from_text doc_parse_profile doc_parse_policy doc_parse_meta role_parse place_parse profile_explain policy_new"
	[record]="rec_inode_decode rec_inode_encode rec_inode_copy"
)
CC=clang meson setup -Dfuzz=true build "$RATTAN_SRC" > log 2>&1 || fail "setup: $(tail -n 3 log)"
for main in "$RATTAN_SRC"/tests/fuzz/fuzz_*.c; do
	name=${main##*/fuzz_}
	name=${name%.c}
	t=$(ninja -C build -t targets all | grep -oE "^[^ :]*/fuzz_$name:" | tr -d :)
	[ -n "$t" ] || fail "nothing builds fuzz_$name.c"
	ninja -C build "$t" > log 2>&1 || fail "build: $(tail -n 3 log)"
	mkdir "new-$name"
	"build/$t" -max_total_time="${RATTAN_FUZZ_SECONDS:-60}" -timeout=10 -print_final_stats=1 "new-$name" "$RATTAN_SRC/tests/fuzz/corpus/$name" > log 2>&1 ||
		fail "$name: $(tail -n 30 log)"
	runs=$(awk '/number_of_executed_units/ { print $2 }' log)
	places=$(sed -nE 's/.*\(([0-9]+) inline 8-bit counters\).*/\1/p' log | head -n 1)
	cov=$(grep -oE 'cov: [0-9]+' log | tail -n 1 | cut -d' ' -f2)
	[ "$runs" -gt 1000 ] || fail "$name: hardly ran: $(tail -n 5 log)"
	# A target itself has about fifty.
	[ "${places:-0}" -gt 120 ] || fail "$name: has ${places:-no} places of the code to see: what it calls is not instrumented"
	# -print_coverage wants llvm-symbolizer for the names.
	"build/$t" -runs=0 -print_coverage=1 "new-$name" "$RATTAN_SRC/tests/fuzz/corpus/$name" > log 2>&1
	[ -n "${leads[$name]:-}" ] || fail "$name: where it leads is not said above"
	for f in ${leads[$name]}; do
		grep -qE "^COVERED_FUNC: .* $f " log || fail "$name: its bytes never come to $f"
	done
	echo "$name: $runs runs, $cov of $places places of the code"
done
exit 0
