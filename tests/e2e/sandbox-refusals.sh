#!/bin/bash
# What a command may not do, each beside the same thing where it may.
# timeout: 180
. "$RATTAN_SRC/tests/e2e/lib.sh"

# Places: the writable ones, and the rest. With every place writable the same succeeds.
must rt run -- sh -c 'for d in /workspace /tmp /var/tmp /home/user /dev/shm; do echo x > $d/f || exit 1; mv $d/f $d/g && rm $d/g || exit 1; done'
for d in / /etc /usr /usr/bin /var /opt; do
	code 1 rt run -- mkdir "${d%/}/made"
	must rt run -e open --writable-root / -- mkdir -p "${d%/}/made"
done
must rt run -- sh -c 'mkdir a b; echo x > a/f; mv a/f b/f; ln b/f a/l; mv b /tmp/b; mv /tmp/b /var/tmp/b'
code 1 rt run -- rm -f /etc/hostname /etc/passwd
code 1 rt run -- ln /etc/passwd /workspace/p
must rt run -- ln -s /etc /workspace/e
code 1 rt run -- touch /workspace/e/x
[ -e /etc/x ] && fail "a link led to the host's /etc"

# What was written is not executed, where that is asked for; what the system has is.
for d in /workspace /tmp /dev/shm; do
	must rt run -- sh -c "cp /usr/bin/true $d/t && $d/t"
	code 126 rt run --no-exec-workspace -- sh -c "cp /usr/bin/true $d/t && exec $d/t"
done
must rt run --no-exec-workspace -- /usr/bin/true

# A command that fails is told which rule was in its way.
says '^rattan: refused: change of attributes /etc/passwd \(read, as no rule names it\)$' 1 rt run -- chmod 600 /etc/passwd
rt run -- sh -c 'chmod 600 /etc/passwd; true' 2>&1 | grep refused && fail "a command that succeeded is told something"
rt run -- false 2>&1 | grep refused && fail "a refusal is told to the next command"

# System calls: refused inside, allowed here.
if unshare -U true 2>/dev/null; then
	code 1 rt run -- unshare -U true
fi
cat > "$here/try.py" <<'P'
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def sys_(nr, *a):
    ctypes.set_errno(0)
    libc.syscall(nr, *a)
    return ctypes.get_errno()
out = [sys_(272, 0x10000000),        # unshare(CLONE_NEWUSER)
       sys_(56, 0x10000000 | 17, 0, 0, 0, 0) if sys.argv[1:] else 1,  # clone(CLONE_NEWUSER)
       sys_(435, 0, 0),              # clone3
       sys_(425, 1, 0),              # io_uring_setup
       sys_(323, 1),                 # userfaultfd
       sys_(250, 0, -3, 0),          # keyctl
       sys_(1 << 20)]                # unknown
try:
    socket.socket(40, socket.SOCK_STREAM)
    out.append(0)
except OSError as e:
    out.append(e.errno)
print(*out)
P
if [ "$(uname -m)" = x86_64 ]; then
	same "$(rt run -- /usr/bin/python3 - inside < "$here/try.py")" "1 1 38 38 1 1 38 97" "errno of what is refused"
fi

# Nothing of the host shows: processes, init's words, names of places, the terminal.
same "$(rt run -- sh -c 'set -- /proc/[0-9]*; echo $#')" 2 "processes in sight (init, sh)"
code 1 rt run -- grep -a -q "$XDG_RUNTIME_DIR" /proc/1/cmdline /proc/self/mountinfo
code 1 rt run -- sh -c 'cat /proc/1/environ /proc/1/maps'
code 1 rt run -- sh -c 'kill -9 1; kill -TERM 1'
same "$(rt run -- hostname 2>/dev/null || rt run -- uname -n)" rattan "host name"
same "$(rt run -- sh -c 'ls /proc/self/fd | wc -l')" 4 "descriptors (three and ls's own)"
same "$(rt run -- sh -c 'grep -E "^(NoNewPrivs|Seccomp|CapEff|CapBnd):" /proc/self/status' | tr -d '\t\n')" \
	"CapEff:0000000000000000CapBnd:0000000000000000NoNewPrivs:1Seccomp:2" "status of a process"
exit 0
