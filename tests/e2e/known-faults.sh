#!/bin/bash
# Faults that another sandbox of this kind had, tried here (the numbers are those of docs/known-faults.md).
# timeout: 300
. "$RATTAN_SRC/tests/e2e/lib.sh"

in_shell() { rt run -c "$1" 2>&1; }
is() { same "$(in_shell "$2")" "$3" "$1"; } # NUMBER TEXT OUTPUT

# 1-3: no file of the host is opened for a command's redirection, whatever links lead there.
echo secret > "$HOME/secret" && chmod 644 "$HOME/secret"
must rt run -c "ln -s $HOME/secret /workspace/x; ln -s $HOME /workspace/hd"
code 1 rt run -c 'echo pwned > /workspace/x'
code 1 rt run -c 'cat < /workspace/x'
code 1 rt run -c 'echo x > /workspace/hd/new'
same "$(cat "$HOME/secret")" secret "1: the host's file"
[ ! -e "$HOME/new" ] || fail "3: a file was made on the host"
must rt run -c 'rm /workspace/x /workspace/hd'

# 4: the command's PATH chooses no program of ours.
must rt run -c 'printf "#!/bin/sh\necho evil > '"$here"'/evil\n" > /workspace/bwrap; chmod 755 /workspace/bwrap'
(cd "$here" && printf '#!/bin/sh\ntouch %s/evil\n' "$here" > bwrap && chmod 755 bwrap)
must rt run -E "PATH=$here:/workspace:/usr/bin:/bin" -- true
[ ! -e "$here/evil" ] || fail "4: the bwrap of the command's PATH ran"

# 5, 6: no name turns the filter off.
must rt run -c "mkdir '/workspace/gdb '; cp /bin/grep /workspace/gdb; mkdir d"
is 5 'cat /proc/self/status | ./gdb ^Seccomp:' "$(printf 'Seccomp:\t2')"
is 6 "cd '/workspace/gdb ' && 'gdb /../../../usr/bin/grep' x 2> /dev/null; grep ^Seccomp: /proc/self/status" "$(printf 'Seccomp:\t2')"

# 14: standard input is the caller's, or empty.
same "$(rt run -- cat < /dev/null)" "" "14: input"
# 18: the host does not show (more of it in sandbox-refusals.sh).
in_shell 'cat /proc/1/cmdline /proc/mounts /proc/self/cgroup; hostname' > shown
grep -a -q -e "$HOME" -e "$XDG_RUNTIME_DIR" -e "$(uname -n)" shown && fail "18: shown: $(cat shown)"
# 19: variables are passed as they are given, in a pipeline as alone; they are the command's own affair.
same "$(rt run -E PYTHONPATH=src -E ENVIRONMENT=prod -c 'env | grep -c -e ^PYTHONPATH=src -e ^ENVIRONMENT=prod')" 2 "19: variables"
same "$(LD_PRELOAD_OF_OURS=1 rt run -c 'env | grep -c OF_OURS')" 0 "19: ours"
# 23: paths are the sandbox's, not the host's.
link=$(mktemp -u /tmp/rattan-link-XXXXXX) && ln -s /etc "$link"
is 23 "mkdir $link && cd $link && pwd" "$link"
rm -f "$link"

# Layers. 26, 27: deletions are committed, and count. 33-35: redirections see and keep what is there.
must rt run -c 'echo a > f; echo b > g; mkdir -m 555 ro; touch -d 2020-01-01 old'
must rt commit -m one
is 33 'echo b >> f; cat f' "$(printf 'a\nb')"
is 34 'cat < g' b
in_shell 'echo hi > /tmp/x' && is 35 'cat < /tmp/x' hi
must rt commit -m two
must rt run -- rm g
says '1 deleted|deleted +1|^D ' 0 sh -c "'$RATTAN' status; '$RATTAN' diff" # 44
must rt commit -m 'g is gone'
code 1 rt run -- test -e g
# 28: links to directories differ.
must rt run -- ln -s /usr l && must rt commit -m usr && must rt run -c 'rm l; ln -s /etc l' && must rt commit -m etc
same "$(rt run -- readlink l)" /etc "28: a link"
# 29, 40, 46: an equal state again.
rt commit -m etc > again 2>&1 || true
must rt run -- true
# 37-39: files that nobody may read, names that are no UTF-8, directories that nobody may write to.
must rt run -c 'echo s > s; chmod 000 s; : > "$(printf "n\377")"; mkdir d5; echo x > d5/f; chmod 555 d5'
must rt commit -m odd
same "$(rt run -c 'ls | grep -c "^n"; stat -c %a s d5')" "$(printf '1\n0\n555')" "37, 38: odd files"
# 43: back to the base and forward again.
must rt rollback base
code 1 rt run -- test -e f
must rt undo
same "$(rt run -- cat d5/f)" x "43: after undo"
must rt reset 2> /dev/null || true
must rt gc
must rt fsck
# 41, 42: a command that changes nothing leaves nothing.
must rt run -e clean -c 'cat /etc/passwd > /dev/null; ls / > /dev/null; cd /nowhere 2> /dev/null; :'
same "$(rt diff -e clean 2> /dev/null | grep -c .)" 0 "41: what a command left"

# The command language is a shell's.
is 47 "$(printf 'echo a\necho b')" "$(printf 'a\nb')"
is 48 'echo a#b' 'a#b'
is 49 'echo one; A=1' one
says 'syntax error' 2 rt run -c 'echo a;;echo b'
is 50 'ls /x 2>/dev/null; echo $?' 2
is 51 '{ echo e >&2; } 2>&1; echo hi 1>/tmp/o; cat /tmp/o; ls /nope 2>&1 >/tmp/f | wc -l' "$(printf 'e\nhi\n1')"
is 52 'ls /nope > o 2> e; wc -c < o' 0
is 53 'ls /nope 2>/dev/null | cat | cat' ''
is 54 'for i in 1 2; do echo $i; done | sort | tail -n 1; export A=1; ! false && echo "$(echo sub)"; echo /et[c]; cat <<X
here
X' "$(printf '2\nsub\n/etc\nhere')"
is 55 'cd /tmp; pwd; cd ~; pwd; cd /nowhere 2> /dev/null || echo no; [ -e /nowhere ] || echo none' "$(printf '/tmp\n/home/user\nno\nnone')"
is 56 'printf "a\nb"; echo; echo \$HOME; echo it\'"'"'s' "$(printf "a\nb\n\$HOME\nit's")"
is 57 "test -n '' && echo TRUE; echo end" end
is 58 'A="x y"; echo hi > "my $A"; cat "my x y"' hi
code 127 rt run -c no-such-command
code 137 rt run -c 'kill -9 $$'
code 124 rt run --timeout 1 -- sleep 30
t=$SECONDS
must rt run -c 'sleep 30 & echo started'
[ $((SECONDS - t)) -lt 20 ] || fail "59: a child in the background holds the command up"

# 63: jobs, and 65: more than one SIGTERM: tests/mcp/raw.py. 76: many places, and long ones.
args=()
for i in 1 2 3 4 5 6 7 8; do
	mkdir -p "$here/b$i" && args+=(--overlay "$here/b$i=/data/a-mount-point-with-a-rather-long-name-$i")
done
mkdir -p "$HOME/p" && same "$(rt run -e many "${args[@]}" -c 'ls /data | wc -l')" 8 "76: eight places"
exit 0
