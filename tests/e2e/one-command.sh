#!/bin/bash
# What a command finds of what started it: no trace of that in the tree, and the shell that the tree has.
# timeout: 60
. "$RATTAN_SRC/tests/e2e/lib.sh"

# pid 1 needs nothing of the tree: no loader (a program header of type 3).
stage3=$(dirname "$RATTAN")/../libexec/rattan/rattan-stage3
same "$(python3 -c 'import struct, sys
b = open(sys.argv[1], "rb").read()
at, size, n = struct.unpack_from("<Q", b, 32)[0], *struct.unpack_from("<HH", b, 54)
print(b[:4] == b"\x7fELF" and b[4] == 2 and n > 0, sum(struct.unpack_from("<I", b, at + i * size)[0] == 3 for i in range(n)))' "$stage3")" "True 0" \
	"rattan-stage3 is an ELF file, and asks for a loader"

# pid 1 is not in the tree, and a run that does nothing changes nothing.
must rt run -e none -- true
same "$(rt diff -e none)" "" "changes of a run that does nothing"
code 1 rt run -e none -- test -e /init
must rt run -e none -c 'echo made > /workspace/f'
same "$(rt diff -e none --name-status | grep -oE "[A-Z] */.*" | tr -d " \t")" A/workspace/f "all that a run leaves"

# Text is for bash; where the tree has none, for sh; and where it has neither it is said.
bashes=$(type -ap bash | xargs readlink -f | sort -u | tr '\n' ' ')
shells=$(type -ap sh | xargs readlink -f | sort -u | tr '\n' ' ')
same "$(rt run -e shell --writable-root / -c 'echo ${BASH_VERSION:+bash}')" bash "the shell of text"
must rt run -e shell --writable-root / -- rm -f $bashes /bin/bash /usr/bin/bash
same "$(rt run -e shell --writable-root / -c 'echo ${BASH_VERSION:-another}; echo a | tr a b')" $'another\nb' "the shell where there is no bash"
must rt run -e shell --writable-root / -- rm -f $shells /bin/sh /usr/bin/sh
says 'neither bash nor sh' 125 rt run -e shell --writable-root / -c 'echo x'
exit 0
