#!/bin/bash
# A tag names a state wherever a revision is taken, and keeps it from the collector; it is moved by force alone, belongs to its
# environment, and a fork has those of its history.
# timeout: 180
. "$RATTAN_SRC/tests/e2e/lib.sh"
export RATTAN_DATA_DIR=$here/store

ids() { rt log "$@" --json | python3 -c 'import json,sys; print(*[c["id"] for c in json.load(sys.stdin)])'; }
json() { python3 -c "import json,sys; j=json.load(sys.stdin); print($1)"; }
look() { rt run -e "$1" -- cat f; }

must rt run -e main -- sh -c 'echo one > f'
must rt commit -e main -m one
must rt run -e main -- sh -c 'echo two > f'
must rt commit -e main -m two --label v2
read -r two one <<< "$(ids -e main)"

echo "== set, listed, moved, removed"
says "^v1 is ${one:0:12} in main$" 0 rt tag v1 head~1 -e main
says "^v1 is ${one:0:12} in main$" 0 rt tag v1 "$one" -e main
says "names ${one:0:12} already" 4 rt tag v1 -e main
says "^v1 is ${two:0:12} in main; it was ${one:0:12}$" 0 rt tag v1 -e main --force
says "^v1 is ${one:0:12} in main" 0 rt tag v1 v2~1 -e main --force
same "$(rt tag -e main --json | json '[(t["name"], t["id"][:4], t["message"]) for t in j if "/" not in t["name"]]')" \
	"[('v1', '${one:0:4}', 'one'), ('v2', '${two:0:4}', 'two')]" "as JSON"
says "^v1 +${one:0:12}  2.* one$" 0 rt tag -e main
must rt tag first base -e main
says "^first +base$" 0 rt tag -e main
says "^first named base in main$" 0 rt tag -d first -e main
says "main has no tag 'first'" 3 rt tag -d first -e main
for bad in '' a/b .a -- a:b 'a b' head HEAD base dead 2024 "$(printf 'a%.0s' $(seq 65))"; do
	says 'is no name for a state' 2 rt tag -e main -- "$bad"
done
must rt tag fad -e main # three digits are no beginning of an id
must rt tag -d fad -e main
says "is no commit, tag" 3 rt tag x nonsense -e main
says 'no environment' 3 rt tag x -e none
says 'give a name, and a revision' 2 rt tag a b c -e main
says '^usage: rattan tag' 0 rt tag --help

echo "== wherever a revision is taken"
says "^${one:0:12} .* one  \(v1\)$" 0 rt log -e main
same "$(rt log -e main --json | json '[c["tags"] for c in j]')" "[['v2'], ['v1']]" "log as JSON"
says "/workspace/f" 0 rt diff v1 v2 -e main
must rt rollback v1 -e main
same "$(look main)" one "rollback"
must rt rollback v2~1 -e main
must rt rollback v2 -e main
same "$(look main)" two "forward"
must rt fork side v1 -e main
same "$(look side)" one "fork"
must rt run -e based --base main:v1 -- true
same "$(look based)" one "base"
if [ -e /dev/fuse ] && command -v fusermount3 > /dev/null; then
	mkdir m
	must rt mount v1 m -e main
	same "$(cat m/workspace/f)" one "mount"
	must rt umount m
fi
says "head is ${two:0:12}, not v1" 4 rt commit -e main -m x --expect v1

echo "== a label is a tag, made with the commit or not at all"
must rt run -e main -- sh -c 'echo three > f'
says "names ${two:0:12} already" 4 rt commit -e main -m three --label v2
says 'is no name for a state' 2 rt commit -e main -m three --label 'a b'
same "$(ids -e main)" "$two $one" "nothing was committed"
must rt commit -e main -m three --label v3
three=$(ids -e main -n 1)
must rt rollback v3 -e main
must rt tag -d v3 -e main
says "three  \\(labelled v3\\)$" 0 rt log -e main # a name that names nothing looks like none
must rt tag v3 "$three" -e main

echo "== of one environment; a fork has those of its history"
same "$(rt tag -e side --json | json '[t["name"] for t in j if "/" not in t["name"]]')" "['v1']" "the fork's"
must rt tag v2 -e side
must rt tag -d v1 -e side
same "$(rt diff main:v1 side:v2 -e side)" "" "another's is named with it"
same "$(rt tag -e side --all --json | json '[t["name"] for t in j if not "base/" in t["name"]]')" "['main:v1', 'main:v2', 'main:v3', 'v2']" "all"
must rt rollback v1 -e main

echo "== kept from the collector"
must rt rollback base -e main
must rt run -e main -- sh -c 'head -c 2000000 /dev/urandom > big; sha256sum big > sum'
must rt reset -e main
auto=$(rt log -e main --auto --json | json '[c["id"] for c in j if c["automatic"]][0]')
must rt tag kept "$auto" -e main
RATTAN_KEEP_STATES=1 must rt gc
must rt rollback kept -e main
same "$(rt run -e main -- sha256sum -c sum)" "big: OK" "a tagged state"
must rt rollback base -e main
must rt tag -d kept -e main
must rt fsck
must rt env rm main
same "$(rt tag -e side --all --json | json '[t["name"] for t in j if not "base/" in t["name"]]')" "['v2']" "its tags went with it"
must rt gc --removed
says "is no commit, tag" 3 rt rollback "$three" -e side
same "$(look side)" one "what another's tag names is kept"
must rt fsck
exit 0
