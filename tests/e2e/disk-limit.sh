#!/bin/bash
# --limit disk of one run stays with the environment: status shows it, and a command that fails on it later is told why.
. "$RATTAN_SRC/tests/e2e/lib.sh"

must rt run -e e --limit disk=1M -- true
says 'disk limit .* written of 1\.0 MiB' 0 rt status -e e
same "$(rt status -e e --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["disk_limit"])')" 1048576 "in JSON"
fill='head -c 4M /dev/urandom > /workspace/big'
why="rattan: refused: write / \(the environment's disk limit is reached, rattan status shows it; --limit disk=N sets another\)"
rt run -e e -c "$fill" 2> err && fail "it is held"
grep -qE "$why" err || fail "and why it failed is told: $(cat err)"
same "$(grep -c 'disk limit' err)" 1 "once"
rt reset -e e > reset.out 2>&1 || fail "reset: $(cat reset.out)"
says "$why" 1 rt run -e e -c "$fill"
rt run -e e -c "$fill; true" 2> err || fail "one that goes well"
grep -q "disk limit" err && fail "is told nothing: $(cat err)"
must rt run -e e --limit disk=100M -c "$fill"
says 'disk limit .* written of 100\.0 MiB' 0 rt status -e e
rt run -e e -c 'false' 2> err
grep -q "disk limit" err && fail "it was not met by this one: $(cat err)"
says 'written of any' 0 sh -c '"$RATTAN" run -e n --limit disk=none -- true; "$RATTAN" status -e n'
rt run --help | tr -s ' \n' ' ' | grep -q 'disk of the environment, which keeps it' || fail "the help does not say it"
exit 0
