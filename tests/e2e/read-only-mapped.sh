#!/bin/bash
# What may only be read is not opened for writing where Landlock does not say so: there is none, or its rule is about more than the
# writable place, which is missing or a symbolic link. Who maps it could else change what all others see of it, in the kernel's memory alone.
# timeout: 120
. "$RATTAN_SRC/tests/e2e/lib.sh"

cat > "$here/map.py" <<'P'
import mmap, sys
try:
    with open(sys.argv[1], "r+b") as f:
        m = mmap.mmap(f.fileno(), 0)
        m[0:3] = b"BAD"
        try:
            m.flush()
        except OSError:
            pass
        print("opened")
except OSError as e:
    print("refused", e.errno)
print(open(sys.argv[1]).read(), end="")
P
without=(/usr/bin/python3 "$RATTAN_SRC/tests/lib/without.py" 444 --)

# tries NAME WRITABLE-ROOT COMMAND...: a file of the user's own that is read-only, mapped by COMMAND run.
tries() {
	local name=$1 root=$2
	shift 2
	must "$@" run -e "$name" --writable-root /opt -- sh -c 'mkdir -p /opt/d/real && echo good > /opt/d/file && cp /opt/d/file /opt/d/real && ln -s real /opt/d/link'
	for f in ${files:-/opt/d/file}; do
		must "$@" run -e "$name" ${root:+--writable-root "$root"} -- cat $f
		same "$("$@" run -e "$name" ${root:+--writable-root "$root"} -E P="$(cat "$here/map.py")" -- sh -c 'python3 -c "$P" '"$f" 2>&1)" \
			$'refused 13\ngood' "$name: a read-only file opened for writing"
		same "$("$@" run -e "$name" -- cat $f)" good "$name: what others see"
	done
}
tries fenced "" rt
tries unfenced "" "${without[@]}" "$RATTAN"
tries missing /opt/d/none/there rt
files="/opt/d/file /opt/d/real/file" tries link /opt/d/link rt
# Where it may be written it is.
same "$(rt run -e fenced --writable-root /opt -E P="$(cat "$here/map.py")" -- sh -c 'python3 -c "$P" /opt/d/file')" $'opened\nBADd' "a writable file"
echo "four ways: refused"
