#!/bin/bash
# tests/e2e/cgroup.sh under a kernel that has cgroup v2 with pids and memory, where this one has them elsewhere: as a process (user-mode Linux),
# over the host's files, which it only reads. That kernel is an older one, too, without Landlock.
# user: root
# timeout: 600
. "$RATTAN_SRC/tests/e2e/lib.sh"

top=/sys/fs/cgroup
grep -qw pids $top/cgroup.controllers 2> /dev/null && grep -qw memory $top/cgroup.controllers && skip "cgroup.sh runs on this kernel itself"
command -v linux.uml > /dev/null || skip "no user-mode-linux"

cat > init << 'EOI'
#!/bin/bash
exec 2>&1
umask 022
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t cgroup2 cgroup /sys/fs/cgroup
. "$(dirname "$0")/variables"
mount -t tmpfs tmpfs /run && mkdir /run/host && mount --bind / /run/host # what is tested may lie below /tmp
for d in /tmp /dev; do mount -t tmpfs tmpfs $d; done
chmod 1777 /tmp
while read -r name numbers; do mknod -m 666 "/dev/$name" c $numbers; done << 'D'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
fuse 10 229
D
mkdir /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm && mount -t devpts -o ptmxmode=666 pts /dev/pts
ln -s pts/ptmx /dev/ptmx && ln -s /proc/self/fd /dev/fd
python3 -c 'import ctypes, os, sys
sys.exit(ctypes.CDLL(None).syscall(313, os.open(sys.argv[1], 0), b"", 0) != 0)' "/usr/lib/uml/modules/$(uname -r)/kernel/fs/fuse/fuse.ko" # finit_module
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 USER=root
for k in HOME XDG_DATA_HOME XDG_CONFIG_HOME XDG_RUNTIME_DIR TMPDIR PWD; do export $k=/run/t/$k && mkdir -p /run/t/$k; done
cd "$PWD" && timeout 400 bash "$RATTAN_SRC/tests/e2e/cgroup.sh"
said=$?
echo "the kernel $(uname -r) says: $said"
echo o > /proc/sysrq-trigger
sleep 10
EOI
chmod 755 init
printf 'export RATTAN=%q RATTAN_SRC=%q RATTAN_BUILD=%q\n' "/run/host$RATTAN" "/run/host$RATTAN_SRC" "/run/host$RATTAN_BUILD" > variables
linux.uml mem=1G rootfstype=hostfs rootflags=/ ro "init=$here/init" con=null con0=null,fd:1 quiet < /dev/null > log 2>&1 &
uml=$!
# Its processes are children of that one, and do not end by themselves with it.
trap '{ pkill -KILL -P $uml; kill -KILL $uml; } 2> /dev/null' EXIT
for _ in $(seq 500); do
	kill -0 $uml 2> /dev/null || break
	sleep 1
done
# It saves its processes' registers in less room than this processor's (AMX's tiles) take, and runs no program.
grep -q "ptrace set fp regs failed" log && skip "this processor has more registers than user-mode Linux knows"
said=$(sed -n 's/^the kernel .* says: \([0-9]*\).*/\1/p' log)
[ "$said" = 77 ] && skip "there: $(grep SKIP log)"
[ "$said" = 0 ] || fail "there: ${said:-no end}: $(tail -n 20 log)"
exit 0
