#!/bin/bash
# The whole path by the command line: run, change, commit, destroy, roll back, undo, mount, remove.
# timeout: 120
. "$RATTAN_SRC/tests/e2e/lib.sh"

same "$(rt run -- echo hello)" hello "output of a command"
code 7 rt run -- sh -c 'exit 7'
code 127 rt run -- no-such-command
code 126 rt run -- /etc/passwd
code 143 rt run -- sh -c 'kill -TERM $$'
same "$(rt run -- id -u)" 1000 "uid inside"
same "$(rt run -- sh -c 'echo $HOME; pwd; whoami' | tr '\n' ' ')" "/home/user /workspace user " "home, directory and name"
same "$(printf 'a b' | rt run -- cat)" "a b" "standard input"
same "$(SECRET=x rt run -- sh -c 'echo ${SECRET-none}')" none "environment of the caller"

# Nothing of the host but the base: no home, no network, no root.
code 1 rt run -- test -e "$HOME"
same "$(rt run -- sh -c 'ls /sys/class/net 2>/dev/null; cat /proc/net/dev' | grep -c -v lo:)" 2 "interfaces beside loopback"

# Commit, destroy, come back.
must rt run -- sh -c 'mkdir -p a/b; echo one > a/b/f; ln -s b a/l; ln a/b/f a/hard; chmod 640 a/b/f; truncate -s 1M sparse; echo h > ~/note'
says '^A +/workspace/a/b/f' 0 rt diff --name-status
must rt commit -m 'state one'
says 'nothing to commit' 1 rt commit -m again
id1=$(rt log --json | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["id"])')
must rt run -- sh -c 'rm -rf /workspace/* /home/user/*'
same "$(rt run -- sh -c 'ls -A /workspace; ls -A /home/user' | wc -l)" 0 "names left after rm -rf"
must rt rollback "$id1"
same "$(rt run -- cat a/l/f /home/user/note | tr '\n' ' ')" "one h " "content after the rollback"
same "$(rt run -- stat -c '%a %h' a/b/f)" "640 2" "mode and links after the rollback"
must rt undo
same "$(rt run -- sh -c 'ls -A /workspace | wc -l')" 0 "after the undo"
must rt rollback "$id1"

# Back to the base and forward again.
must rt rollback base
code 1 rt run -- test -e /workspace/a
must rt rollback "${id1:0:10}"
must rt run -- test -e /workspace/a

# reset drops what is not committed; undo brings it back.
must rt run -- sh -c 'echo two > a/b/f; touch new'
must rt reset
same "$(rt run -- cat a/b/f)" one "after the reset"
must rt undo
same "$(rt run -- sh -c 'cat a/b/f; ls new' | tr '\n' ' ')" "two new " "after undoing the reset"
# What came back is as uncommitted as it was: it is listed, and can be committed on top of state one.
says '^A +/workspace/new' 0 rt diff --name-status
must rt commit -m 'state two'
must rt rollback head~1
same "$(rt run -- cat a/b/f)" one "the commit before"
must rt rollback "$id1"
must rt run -- chmod 700 a
says '^M +/workspace/a/$' 0 rt diff --name-status
must rt reset

# A commit on the host, read-only.
mkdir "$here/m"
must rt mount "$id1" "$here/m"
same "$(cat "$here/m/workspace/a/l/f")" one "through the mount"
same "$(stat -c '%s %a' "$here/m/workspace/sparse")" "1048576 644" "size through the mount"
if touch "$here/m/workspace/x" 2>/dev/null; then fail "the mounted commit is writable"; fi
must rt umount "$here/m"
same "$(ls -A "$here/m")" "" "after umount"

# Policy: only the writable places.
code 1 rt run -- touch /usr/bin/x
code 1 rt run -- touch /etc/x
must rt run -- touch /tmp/x /var/tmp/x /workspace/x /home/user/x
must rt reset
must rt run -e all --writable-root / -- rm -rf /usr/bin
code 127 rt run -e all --writable-root / -- ls
must rt rollback -e all base
must rt run -e all -- ls /
[ -x /usr/bin/ls ] || fail "the host's ls is gone"

# Environments.
says '^default' 0 rt env list
must rt env rm all
rt env list | grep -q '^all' && fail "a removed environment is listed"
says 'ffffffff.* is no commit' 3 rt rollback ffffffff
says 'unknown|did you mean' 2 rt comit
says 'unknown|did you mean' 2 rt run --overlaycwd -- true
exit 0
