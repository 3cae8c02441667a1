#!/bin/bash
# What the command line says to somebody who is new to it.
# timeout: 120
. "$RATTAN_SRC/tests/e2e/lib.sh"

says 'no environment belongs to this directory' 3 rt diff
says "^rattan: unknown command 'comit'; did you mean commit" 2 rt comit -m x
says "'run' comes too late: .* rattan run" 2 rt -e x run ls
says 'shell text goes after -c' 127 rt run -- 'ls -la | wc'
says 'nosuchcommand: the command was not found$' 127 rt run -- nosuchcommand
says 'there are: stdio .*inet' 2 rt run --promises stdoi -- ls
says 'the message goes after -m' 2 rt commit 'my message'
says 'a path has a slash' 3 rt diff src
says "there is no environment 'nosuch'; rattan env list" 3 rt env rm nosuch
code 2 rt log -n 0
code 2 rt log -n -1
code 0 rt env ls
says '^rattan: there is no directory no/where to export to; make it first' 3 rt export dir base no/where/x
says '^rattan: there is no directory nowhere; make it first' 2 rt run --overlay nowhere=/workspace -- true
must rt run -- true
says '^rattan: mount: there is no directory no/where; make it first' 3 rt mount head no/where
says "^rattan: nothing of rattan's is mounted at " 3 rt umount .
says "^rattan: doctor: takes no argument; 'x' is one$" 2 rt doctor x
for word in list rm; do
	says "^rattan: tag: '$word' is taken for no name; rattan tag lists, rattan tag -d NAME removes one$" 2 rt tag $word base
done
# Who leaves --overlay-cwd out is somewhere else than the other commands from here.
mkdir own && cd own
must rt run --overlay-cwd -- true
says '^rattan: that was in default; the environment of this directory is own-[0-9a-f]*, for which it takes -e' 0 rt run -v -- true
same "$(rt run -v --overlay-cwd -- true 2>&1 | grep -c 'that was in')" 0 "with it"
same "$(rt run -v -e default -- true 2>&1 | grep -c 'that was in')" 0 "with a name"
cd ..
same "$(rt run -v -- true 2>&1 | grep -c 'that was in')" 0 "elsewhere"
# What is lost with an environment is said, also of the moment in which only its daemon knows it.
must rt run -e lost -c 'echo 1 > one'
says '^lost  .* running, uncommitted changes$' 0 rt env list
says '^rattan: lost had uncommitted changes, which are gone$' 0 rt env rm lost
must rt run -e kept -c 'echo 1 > one'
must rt commit -e kept -m one
same "$(rt env list | grep -c 'kept .*uncommitted')" 0 "an environment without changes"
same "$(rt env rm kept 2>&1)" "" "what is said of its removal"
mkdir gone && cd gone && rmdir ../gone
says 'the current directory is gone' 2 rt run --overlay-cwd -- ls
cd ..

# A path that is longer than a sentence loses its middle, and the sentence no end.
long=/tmp$(printf '/%0100d' {1..30})
says '^rattan: there is no directory /tmp/0[0-9/]*\.\.\.[0-9/]*30 to export to; make it first \(mkdir -p\)$' 3 rt export dir base "$long/name"
says "^rattan: run: '/tmp/0.*0030' is not NAME=VALUE$" 2 rt run -E "$long" -- true

must rt run -e x -c 'echo 1 > one'
must rt commit -e x -m one
must rt run -e x -c 'echo 2 > two'
must rt commit -e x -m two
says '  \[head\] two$' 0 rt log -e x
# A rename is one change, to a commit as to a diff.
must rt run -e ren -c 'mkdir d; touch d/a b c'
must rt commit -e ren -m made
must rt run -e ren -c 'mv d e; mv b f; mv e/a c'
same "$(rt diff -e ren --name-status)" $'D /workspace/c\nR /workspace/d/a -> /workspace/c\nR /workspace/d -> /workspace/e/\nR /workspace/b -> /workspace/f' "diff of renames"
says '  \+0 ~3 -1$' 0 rt commit -e ren -m moved
must rt rollback -e x head~1
says '  \[head\] one$' 0 rt log -e x
says '  two$' 0 rt log -e x
says '^x has no uncommitted changes$' 0 rt reset -e x
must rt run -e x -c 'echo 3 > three'
must rt reset -e x
says '  \[auto\] \(before reset\)$' 0 rt log -e x --auto
says '^head         [0-9a-f]{12}$' 0 rt status -e x

# On a terminal: its kind is told to the command, and a server says that it is one.
term=$(TERM=screen script -qec "$RATTAN run -e x -- printenv TERM" /dev/null </dev/null | tr -d '\r' | head -n 1)
same "$term" screen "TERM on a terminal"
same "$(TERM=screen rt run -e x -- printenv TERM)" dumb "TERM elsewhere"
says 'waits for a client' 0 script -qec "$RATTAN" /dev/null </dev/null
# Numbers and options that are none.
says '^rattan: run: --timeout 0 is not a number of seconds above 0$' 2 rt run --timeout 0 -- true
says '^rattan: --limit memory=1: no program starts with less than 4M; a number alone is of bytes' 2 rt run --limit memory=1 -- true
must rt run --limit memory=4M -- true
says '^rattan: run: --session and --set are for a role.s profile' 2 rt run --session foo -- true
# The settings, by their name.
conf=$XDG_CONFIG_HOME/rattan/config.json
chmod g+w "$conf"
says "chmod go-w $conf\$" 2 rt run -- true
chmod g-w "$conf"
cp "$conf" saved
echo '{' > "$conf"
says "^rattan: .*$conf is not JSON" 2 rt run -- true
cp saved "$conf"
mkdir /var/tmp/slips.$$
says "lies outside your home directory and is not opened; list it, or a directory above it, as \"bind_roots\" in $conf\$" 2 rt run --bind-ro "/var/tmp/slips.$$=/mnt/x" -- true
rmdir /var/tmp/slips.$$
# log names the environment's own base, and no other.
mkdir tree && : > tree/f
must rt import dir tree one
must rt run -e logs -c 'echo 1 > /workspace/f'
must rt commit -e logs -m one
grep -q base/ <<< "$(rt log -e logs -n 1)" && fail "of other bases: $(rt log -e logs -n 1)"
says '\(base/one\)$' 0 rt log -e logs --all
exit 0
