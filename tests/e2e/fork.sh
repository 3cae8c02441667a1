#!/bin/bash
# A fork is an environment of its own at a state of another: neither shows in the other, the history before it is its own as well,
# the collector and the removal of the other leave it whole, and it takes no time and no room however many there are.
# timeout: 300
. "$RATTAN_SRC/tests/e2e/lib.sh"
export RATTAN_DATA_DIR=$here/store

ids() { rt log "$@" --json | python3 -c 'import json,sys; print(*[c["id"] for c in json.load(sys.stdin)])'; }
look() { rt run -e "$1" -- sh -c 'cat f; ls'; }
head_of() { ids -e "$1" -n 1; }

says 'there is no environment' 3 rt fork new -e none
must rt run -e main -- sh -c 'echo one > f; head -c 3000000 /dev/urandom > big; sha256sum big > sum'
must rt commit -e main -m one
must rt run -e main -- sh -c 'echo two > f; echo 2 > two'
must rt commit -e main -m two
must rt run -e main -- sh -c 'echo open > f'
read -r two one <<< "$(ids -e main)"

echo "== words"
says 'give a name' 2 rt fork -e main
says 'is no name of an environment' 2 rt fork a/b -e main
says 'is no name of an environment' 2 rt fork .a -e main
says "is no commit, tag" 3 rt fork new nonsense -e main
says "there is an environment 'main' already" 4 rt fork main -e main
says '^fork: ?|usage: rattan fork NEW' 0 rt fork --help

echo "== the tree and the history are the commit's"
says "^what is not committed in main is not in it" 0 rt fork side -e main
same "$(look side)" $'two\nbig\nf\nsum\ntwo' "at head"
same "$(rt fork early "${one:0:12}" -e main --json | python3 -c 'import json,sys; j=json.load(sys.stdin); print(j["environment"], j["from"], j["head"], j["from_dirty"])')" "early main $one True" "as JSON"
same "$(look early)" $'one\nbig\nf\nsum' "at an older commit"
must rt fork bare base -e main
same "$(rt run -e bare -- ls)" "" "at the base"
same "$(ids -e side)" "$two $one" "its history is what was before it"
same "$(rt log -e side -n 1 | grep -c '\[head\]')" 1 "where it is"
same "$(ids -e bare)" "" "that of the base is empty"

echo "== each goes its own way"
must rt run -e side -- sh -c 'echo side > f; rm two; ln f hard; sha256sum -c sum'
must rt commit -e side -m side
must rt run -e main -- sh -c 'echo main > f'
must rt commit -e main -m main
same "$(look side)" $'side\nbig\nf\nhard\nsum' "the fork"
same "$(look main)" $'main\nbig\nf\nsum\ntwo' "the other"
same "$(look early)" $'one\nbig\nf\nsum' "an older one"
same "$(ids -e side)" "$(head_of side) $two $one" "history of the fork"
same "$(ids -e main)" "$(head_of main) $two $one" "history of the other"
rt diff -e side "$one" head > changes || fail "diff"
grep -q hard changes || fail "no difference to what is before the fork"
rt diff -e side "$one" head 2> said | head -n 1 > first
same "$(cat said)" "" "whose reader goes away says nothing"

echo "== back in the fork, before the fork, and forward"
must rt rollback -e side head~1
same "$(look side)" $'two\nbig\nf\nsum\ntwo' "where it was forked"
says 'nothing to undo' 1 rt undo -e early
must rt rollback -e side "$one"
same "$(look side)" $'one\nbig\nf\nsum' "before the fork"
must rt rollback -e side base
same "$(rt run -e side -- ls)" "" "the base"
must rt undo -e side
must rt undo -e side
must rt undo -e side
same "$(look side)" $'side\nbig\nf\nhard\nsum' "all of it undone"
must rt fork grand -e side
same "$(look grand)" $'side\nbig\nf\nhard\nsum' "a fork of a fork"
same "$(ids -e grand)" "$(head_of side) $two $one" "its history"

echo "== the other is removed, and garbage collected"
must rt env rm main side --force
must rt gc --removed --shrink
must rt fsck
same "$(rt run -e grand -- sh -c 'sha256sum -c sum; cat f')" $'big: OK\nside' "what a fork shows is kept"
must rt rollback -e grand "$one"
same "$(rt run -e grand -- sh -c 'sha256sum -c sum; cat f')" $'big: OK\none' "and what is before it"
same "$(look early)" $'one\nbig\nf\nsum' "another fork"
says 'already' 4 rt fork early -e grand
must rt fork main -e early
same "$(look main)" $'one\nbig\nf\nsum' "the name is free again"

echo "== many"
n=${RATTAN_LONG:+1000}
n=${n:-50}
size() { du -sk --exclude=lock.mdb store | cut -f1; }
before=$(size) began=$(date +%s%N)
for i in $(seq "$n"); do rt fork "many$i" -e early > log || fail "fork $i: $(cat log)"; done
each=$((($(date +%s%N) - began) / n / 1000))
grown=$((($(size) - before) * 1024 / n))
echo "$n forks, $each us each, $grown bytes each"
[ "$grown" -lt 16384 ] || fail "a fork takes $grown bytes"
same "$(rt env list --json | grep -c '"many')" "$n" "all are there"
same "$(look "many$n")" $'one\nbig\nf\nsum' "the last one"
exit 0
