#!/bin/bash
# git on the copy-on-write file system: clone of a local repository, commit, switch, gc, fsck.
# timeout: 180
. "$RATTAN_SRC/tests/e2e/lib.sh"

export GIT_CONFIG_GLOBAL=$here/gitconfig
git config --global user.name T && git config --global user.email t@example.invalid
git config --global init.defaultBranch main
mkdir up && cd up && git init -q .
for i in $(seq 200); do mkdir -p d$((i % 10)); seq $((i * 7)) > "d$((i % 10))/f$i"; done
git add -A && git commit -qm base
for i in $(seq 30); do echo "$i" >> d1/f1; git commit -qam "c$i"; done
cd ..
cp "$GIT_CONFIG_GLOBAL" up/gitconfig

before=$(sums up)
rt run --overlay "$here/up=/workspace/up" -e git -- bash -euo pipefail -c '
export GIT_CONFIG_GLOBAL=/workspace/up/gitconfig
git config --global --add safe.directory "*"
git clone -q /workspace/up /workspace/c
cd /workspace/c
test "$(git log --oneline | wc -l)" = 31
git switch -qc topic
for i in $(seq 20); do echo x$i >> d2/f2; git mv d3/f3 d3/g$i; git commit -qam "t$i"; git mv d3/g$i d3/f3; git commit -qam "u$i"; done
git switch -q main
git switch -q topic
git status --porcelain | grep -q . && exit 3
git gc -q --aggressive --prune=now
git fsck --full --strict
git worktree add -q ../w main
git -C ../w status --porcelain | grep -q . && exit 4
git stash list
git rebase -q main topic
' > log 2>&1 || fail "git: $(tail -n 5 log)"
must rt commit -e git -m cloned
must rt run -e git -- bash -c 'rm -rf /workspace/c /workspace/w'
must rt rollback -e git head
must rt run -e git -- sh -c 'cd /workspace/c && git -c safe.directory="*" fsck --full && git -c safe.directory="*" status'
same "$(sums up)" "$before" "the repository on the host"
exit 0
