#!/bin/bash
# Whole programs in the current directory on generated input ($1: a tar of it); prints "name seconds" a line.
set -euo pipefail
input=$1
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=b GIT_AUTHOR_EMAIL=b@example.invalid GIT_COMMITTER_NAME=b GIT_COMMITTER_EMAIL=b@example.invalid
phase() {
	local name=$1 a b
	shift
	a=$(date +%s%N)
	"$@" > /dev/null 2>&1
	b=$(date +%s%N)
	awk -v n="$name" -v t=$((b - a)) 'BEGIN { printf "%s %.4f\n", n, t / 1e9 }'
}
phase untar tar xf "$input"
cd tree
phase git-add-commit bash -c 'git init -q . && git add -A && git commit -qm one'
phase git-status git status --porcelain
phase git-switch bash -c 'git switch -qc two && for f in pkg0*/sub1/*.txt; do echo x >> "$f"; done && git commit -qam two && git switch -q - && git switch -q two'
phase make make -j2 -C csrc
phase make-again make -C csrc
if command -v rg > /dev/null; then
	phase rg bash -c 'rg -c zz_ . || true'
fi
phase grep-r bash -c 'grep -rc zz_ . || true'
phase find-stat find . -printf '%s %m %T@\n'
phase cp-a cp -a ../tree ../copy
phase rm-rf rm -rf ../copy
phase python-sqlite python3 -c '
import sqlite3
c = sqlite3.connect("t.db"); c.execute("pragma journal_mode=wal"); c.execute("create table t(a integer primary key, b text)")
for i in range(100):
    with c: c.executemany("insert into t(b) values(?)", [("x" * 200,)] * 20)
'
phase write-64M bash -c 'dd if=/dev/zero of=big bs=1M count=64 conv=fsync status=none'
phase read-64M cat big
if [ -d "${input%/*}/npm" ]; then
	cp -r "${input%/*}/npm" ../npm-cache
	mkdir ../app
	cp "${input%/*}"/package*.json ../app
	cd ../app
	phase npm-ci npm ci --offline --cache ../npm-cache --no-audit --no-fund --loglevel=error
	cd ../tree
fi
