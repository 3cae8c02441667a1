#!/bin/bash
# --overlay-cwd shows a project copy-on-write; --bind-cwd writes through; the host stays as it was but for the bind.
# timeout: 120
. "$RATTAN_SRC/tests/e2e/lib.sh"

mkdir -p p/src p/.git && cd p
echo 'int main(void) { return 3; }' > src/m.c
echo keep > keep
ln -s src/m.c link
head -c 3000000 /dev/urandom > big
before=$(listing . && sums .)

# Copy-on-write.
same "$(rt run --overlay-cwd -- cat keep)" keep "a host file in the overlay"
must rt run --overlay-cwd -- sh -c 'gcc -o prog link -x none 2>/dev/null || gcc -o prog src/m.c; rm keep; echo more >> src/m.c; printf X | dd of=big bs=1 seek=1500000 conv=notrunc status=none; mv src lib; mkdir src; echo new > src/n'
same "$(rt run --overlay-cwd -- sh -c './prog; echo $?; cat src/n; ls; wc -c < big')" "3
new
big
lib
link
prog
src
3000000" "the changed overlay"
same "$(listing . && sums .)" "$before" "the host after copy-on-write changes"
says '^D +/workspace/keep' 0 rt diff --name-status
says '^R +/workspace/src' 0 rt diff --name-status
must rt commit -m changed
echo changed-on-host > late
sleep 1.2
same "$(rt run --overlay-cwd -- cat late)" changed-on-host "a file that appeared on the host"
must rt rollback base
same "$(rt run --overlay-cwd -- cat keep)" keep "after the rollback"
must rt rollback head~0
rm late

# An access list of the host that names its user names the sandbox's.
if setfacl -m "u:$(id -u):rw" keep 2> /dev/null; then
	same "$(rt run --overlay-cwd -e acl -- sh -c 'getfacl -cnp keep; chmod g-w keep; getfacl -cnp keep' | grep -E 'user:[0-9]|mask')" \
		"user:1000:rw-
mask::rw-
user:1000:rw-	#effective:r--
mask::r--" "a list of the host"
	setfacl -b keep
fi

# The bytes of a changed host file do not depend on the host afterwards.
must rt run --overlay-cwd -e part -- sh -c 'printf Y | dd of=big bs=1 seek=10 conv=notrunc status=none'
must rt commit -e part -m part
want=$({ head -c 10 big; printf Y; tail -c +12 big; } | sha256sum)
head -c 3000000 /dev/zero > big
same "$(rt run --overlay-cwd -e part -- sha256sum < /dev/null big | cut -d' ' -f1)" "${want%% *}" "a committed file after the host changed"

# Bind: the host changes at once.
must rt run --bind-cwd -e b -- sh -c 'echo through > written; rm keep'
same "$(cat written)" through "a file written through the bind"
[ ! -e keep ] || fail "a removal did not go through the bind"

# A bind ends with the command that asked for it: whoever asks for copy-on-write gets it.
rm -rf both && mkdir -p both/sub && cd both && echo keep > keep
must rt run --bind-cwd -- true
must rt run --overlay-cwd -- sh -c 'rm keep; echo new > new'
same "$(ls)" "keep
sub" "the host after --bind-cwd and then --overlay-cwd"
must rt run -e both --overlay-cwd -- true
must rt run -e both --bind-cwd -- true
must rt run -e both --overlay-cwd -- rm keep
same "$(cat keep)" keep "the host, in one environment"
must rt run -e both --bind ./sub=/data/sub -- touch /data/sub/x
must rt run -e both -- sh -c 'touch /data/sub/y 2>/dev/null; true'
same "$(ls sub)" x "a directory that was bound for an earlier command"
"$RATTAN" run -e both --bind-cwd -- sh -c 'touch started; sleep 20' & running=$!
for _ in $(seq 100); do [ -e started ] && break; sleep 0.1; done
code 4 rt run -e both --overlay-cwd -- rm keep
kill -KILL $running; wait $running 2>/dev/null || true
for _ in $(seq 100); do rt run -e both --overlay-cwd -- rm -f keep && break; sleep 0.1; done
same "$(cat keep)" keep "the host, after the one that had it bound was killed"
rm started
says '^environment +both-' 0 rt status
cd sub
says '^environment +both-' 0 rt status
cd ../..

# A directory that is removed and made anew, as by a fresh clone, is shown as it is now to who says that its environment is meant.
mkdir fresh && echo first > fresh/a && cd fresh
must rt run --overlay-cwd -- sh -c 'echo mine > mine'
cd .. && rm -rf fresh && mkdir fresh && echo second > fresh/b && cd fresh
code 4 rt run --overlay-cwd -- ls
name=$(ls "$XDG_DATA_HOME/rattan" | sed -n 's/^env-\(fresh-.*\)\.dirs$/\1/p')
same "$(rt run --overlay-cwd -e "$name" -- sh -c 'cat b mine; ls')" "second
mine
b
mine" "a directory that was made anew"
cd ..

# What may not be bound.
code 2 rt run --bind "/=/workspace" -e c -- true
code 2 rt run --bind "/etc=/workspace" -e c -- true
code 2 rt run --bind "$HOME=/workspace" -e c -- true
exit 0
