#!/bin/bash
# A real C project, from the distribution's sources, configured, built and tested in the sandbox.
# timeout: 400
. "$RATTAN_SRC/tests/e2e/lib.sh"

command -v apt-get >/dev/null || skip "no apt-get here"
# As an ordinary user, with lists and cache of our own.
mkdir -p apt/lists/partial apt/cache/archives/partial apt/etc
cat /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null | sed 's/^Types: deb$/Types: deb-src/; s/^deb /deb-src /' > apt/etc/src.sources
grep -q '^Types' apt/etc/src.sources || mv apt/etc/src.sources apt/etc/src.list
src=$(ls -d "$PWD"/apt/etc/src.*)
aptopts=(-o "Dir::Etc::SourceList=$src" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache" -o APT::Sandbox::User= -o Acquire::Languages=none)
apt-get "${aptopts[@]}" -qq update > log 2>&1 || fail "apt-get update: $(tail -n 3 log)"
mkdir pkg && cd pkg
# A mirror's lists are ahead of its sources at times: an older version does as well.
for v in $(apt-cache "${aptopts[@]}" showsrc zlib 2> /dev/null | sed -n 's/^Version: //p'); do
	apt-get "${aptopts[@]}" -qq source --download-only "zlib=$v" > ../log 2>&1 && break
	rm -f ./*
done
ls zlib_*.orig.tar.* > /dev/null 2>&1 || fail "apt-get source: $(tail -n 3 ../log)"
tar xf zlib_*.orig.tar.* --strip-components=1 || fail "unpack"
before=$(sums .)
rt run --overlay-cwd -e zlib -- bash -euo pipefail -c '
./configure
make -j2
make test
make install prefix=/home/user/prefix
printf "#include <zlib.h>\nint main(void) { return zlibVersion()[0] != 49; }\n" > t.c
gcc -I/home/user/prefix/include t.c /home/user/prefix/lib/libz.a -o t && ./t
make -q || test $? = 1
' > ../log 2>&1 || fail "build: $(tail -n 8 ../log)"
grep -q 'zlib test OK' ../log || fail "the project's own test did not pass"
must rt commit -e zlib -m built
must rt run -e zlib -- sh -c 'make clean && ! test -e libz.a'
must rt rollback -e zlib head
must rt run -e zlib -- ./t
same "$(sums .)" "$before" "the sources on the host"
exit 0
