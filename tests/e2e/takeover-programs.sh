#!/bin/bash
# kill -9 of the daemon under git, sqlite and a compiler: no program notices, what they made is whole, and so is the store.
# RATTAN_LONG: hundreds of kills.
# timeout: 3000
. "$RATTAN_SRC/tests/e2e/lib.sh"

keeper() { pgrep -o -u "$(id -u)" -f "rattan-fs env --data-dir $XDG_DATA_HOME/"; }
daemon() { pgrep -n -u "$(id -u)" -P "$(keeper)"; }

cat > work.sh <<'S'
set -eu
export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@example.invalid GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@example.invalid
cd /workspace
go_on() { [ ! -e /workspace/stop ]; }
with_git() {
	git init -q repo && cd repo
	n=0
	while go_on; do
		n=$((n + 1))
		seq $n $((n + 2000)) > f$((n % 17))
		git add -A && git commit -q -m "$n"
	done
	git gc -q
	git fsck --strict --no-progress
	[ "$(git rev-list --count HEAD)" = $n ] || { echo "git: $(git rev-list --count HEAD) of $n"; exit 1; }
	echo "git $n"
}
with_sqlite() {
	sqlite3 db 'pragma journal_mode=wal; create table t(a integer primary key, b text)' > /dev/null
	n=0
	while go_on; do
		n=$((n + 1))
		sqlite3 -cmd '.timeout 20000' db "insert into t(b) values(hex(randomblob(3000)))"
	done
	[ "$(sqlite3 db 'pragma integrity_check; select count(*) from t' | tr '\n' ' ')" = "ok $n " ] || { echo "sqlite: of $n"; sqlite3 db 'pragma integrity_check; select count(*) from t'; exit 1; }
	echo "sqlite $n"
}
with_cc() {
	mkdir cc && cd cc
	n=0
	while go_on; do
		n=$((n + 1))
		printf '#include <stdio.h>\nint main(void) { return printf("%%d\\n", %d) < 0; }\n' $n > a.c
		cc -o a.new a.c && mv a.new a
		[ "$(./a)" = $n ] || { echo "cc: round $n"; exit 1; }
	done
	echo "cc $n"
}
(with_git) & g=$!
(with_sqlite) & s=$!
(with_cc) & c=$!
wait $g; wait $s; wait $c
echo all well
S

must rt run -e t -- true
rt run -e t -- bash -c "$(cat work.sh)" > out 2>&1 &
job=$!
sleep 1
rounds=6
[ -z "${RATTAN_LONG:-}" ] || rounds=300
for round in $(seq $rounds); do
	sleep "1.$((RANDOM % 10))"
	pid=$(daemon)
	kill -KILL "$pid" || fail "round $round: no daemon"
	for _ in $(seq 100); do [ -n "$(daemon)" ] && [ "$(daemon)" != "$pid" ] && break; sleep 0.05; done
	kill -0 $job || fail "round $round: the command ended: $(tail -n 20 out)"
	# What the keeper starts first may be a process that only enters the mount's namespaces.
	for _ in $(seq 100); do [ -n "$(daemon)" ] && break; sleep 0.05; done
	[ -n "$(daemon)" ] || fail "round $round: no other daemon"
done
must rt run -e t -- touch /workspace/stop
wait $job || fail "the command failed: $(tail -n 20 out)"
grep -q "all well" out || fail "$(tail -n 20 out)"
grep -E '^(git|sqlite|cc) ' out
must rt commit -e t -m after
kill -TERM "$(daemon)"
for _ in $(seq 200); do [ -z "$(keeper)" ] && break; sleep 0.05; done
must rt fsck
must rt run -e t -- sh -c 'cd repo && git fsck --strict --no-progress && sqlite3 ../db "pragma integrity_check" | grep -x ok'
exit 0
