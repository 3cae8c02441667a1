#!/bin/bash
# Greedy commands leave the host and the next command alive.
# timeout: 300
# alone
. "$RATTAN_SRC/tests/e2e/lib.sh"

# A fork bomb, as far as it gets; root's processes are not counted by the kernel without a cgroup.
if [ "$(id -u)" != 0 ]; then
	n=$(timeout 200 "$RATTAN" run -- sh -c 'i=0; while [ $i -lt 6000 ]; do sleep 1000 & i=$((i+1)); echo $i; done' 2>/dev/null | tail -n 1)
	[ "${n:-0}" -gt 1000 ] && [ "$n" -lt 4200 ] || fail "${n:-no} processes were made, not about 4090"
fi
must rt run -- true

# Much output.
n=$(rt run -- sh -c 'yes | head -c 300000000' | wc -c)
same "$n" 300000000 "bytes through the caller's own stdout"

# A file of 100 GB is refused (or costs nothing when it is sparse); no core is left.
rt run -- sh -c 'truncate -s 100G big' && fail "a file larger than the limit"
must rt run -- sh -c 'truncate -s 10G big; rm big; ulimit -c | grep -qx 0'

# A crash starts no handler of the host's (a core limit of 0 would), nobody is before the others, and memory is not locked without end.
says '^Max core file size +1 +1 ' 0 rt run -- cat /proc/self/limits
says '^Max realtime priority +0 +0 ' 0 rt run -- cat /proc/self/limits
says '^Max nice priority +0 +0 ' 0 rt run -- cat /proc/self/limits
says '^Max locked memory +[0-9]{1,8} ' 0 rt run -- cat /proc/self/limits
code 139 rt run -c 'kill -SEGV $$'

# Limits that are asked for; what is no limit is told.
same "$(rt run --limit files=77 --limit file-size=1M -c 'ulimit -n; head -c 2M /dev/zero > f; echo $?')" "$(printf '77\n153')" "limits of a command"
says 'limit nonsense=1: give NAME=NUMBER' 2 rt run --limit nonsense=1 -- true
for bad in memory memory= memory=x memory=-1 memory=0 memory=1X cpu=1K memory=99999999999T; do
	says 'give NAME=NUMBER' 2 rt run --limit $bad -- true
done

# The kernel's memory killer takes the sandbox first.
same "$(rt run -- cat /proc/self/oom_score_adj)" 500 "oom_score_adj"
exit 0
