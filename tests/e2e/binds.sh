#!/bin/bash
# Which host directories may be opened: the user's own below home and outside hidden trees, or below a listed root. What is
# swapped between the look and the bind is refused; what vanishes fails only its own bind.
# timeout: 120
. "$RATTAN_SRC/tests/e2e/lib.sh"

conf=$XDG_CONFIG_HOME/rattan/config.json
mkdir -p "$HOME"/{p/sub,p/.deep/x,.ssh/deep,q,gone} "$here/listed/in" "$here/listed/.hidden"
echo ours > "$HOME/p/f"; echo secret > "$HOME/.ssh/id"; echo q > "$HOME/q/f"; echo in > "$here/listed/in/f"
echo '{}' > "$conf"

# Sources.
same "$(rt run -e a --bind "$HOME/p=/data/p" -- cat /data/p/f)" ours "a directory of ours below home"
same "$(rt run -e b --overlay "$HOME/p=/data/p" -- cat /data/p/f)" ours "copy-on-write"
for how in --bind --bind-ro --overlay; do
	says 'hidden' 2 rt run -e c $how "$HOME/.ssh=/data/x" -- true
	says 'hidden' 2 rt run -e c $how "$HOME/.ssh/deep=/data/x" -- true
	says 'hidden' 2 rt run -e c $how "$HOME/p/.deep/x=/data/x" -- true
	says 'home directory' 2 rt run -e c $how "$HOME=/data/x" -- true
	says 'outside your home.*bind_roots' 2 rt run -e c $how "$here/listed/in=/data/x" -- true
	says 'outside your home|another user' 2 rt run -e c $how "$RATTAN_SRC/docs=/data/x" -- true
	says 'system directory' 2 rt run -e c $how "/usr/share=/data/x" -- true
	says 'system directory' 2 rt run -e c $how "/tmp=/data/x" -- true
	says "rattan's own data" 2 rt run -e c $how "$XDG_DATA_HOME=/data/x" -- true
	says '/ is not opened' 2 rt run -e c $how "/=/data/x" -- true
	says 'must be at or below' 2 rt run -e c $how "$HOME/p=/usr/local" -- true
	says 'must be at or below' 2 rt run -e c $how "$HOME/p=/home" -- true
	says 'must not contain' 2 rt run -e c $how "$HOME/p=/data/../etc" -- true
done
for how in --overlay-cwd --bind-cwd; do
	(cd "$RATTAN_SRC/docs" && says 'outside your home|another user' 2 rt run -e c $how -- true)
	(cd "$here/listed/in" && says 'outside your home.*bind_roots' 2 rt run -e c $how -- true)
	(cd "$HOME/.ssh" && says 'hidden' 2 rt run -e c $how -- true)
	(cd "$HOME/p" && rt run -e "c$how" $how -- cat f) | grep -qx ours || fail "$how in a directory of ours below home"
done
ln -s "$HOME/.ssh" "$HOME/p/out"
says 'hidden' 2 rt run -e c --bind "$HOME/p/out=/data/x" -- true

# Listed roots.
printf '{"bind_roots": ["%s/listed"]}' "$here" > "$conf"
same "$(rt run -e a --bind "$here/listed/in=/data/in" -- cat /data/in/f)" in "below a listed root"
says 'hidden' 2 rt run -e c --bind "$here/listed/.hidden=/data/x" -- true
chmod 666 "$conf"
says 'could be written by others' 2 rt run -e c -- true
chmod 644 "$conf"
echo '{"bind_rots": []}' > "$conf"
says "bind_rots" 2 rt run -e c -- true
echo '{}' > "$conf"

# Swaps. A bind that waits for its environment is of the directory that was looked at, whatever is at its path by then.
cat > swap.py <<'PY'
import json, os, subprocess, sys, time
home = os.environ["HOME"]
p = subprocess.Popen([os.environ["RATTAN"], "--env", "swap", "--bind", f"{home}/q=/data/q", "--bind-ro", f"{home}/gone=/data/gone",
                      "--bind-ro", f"{home}/p=/data/p"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
n = 0
def ask(method, params):
    global n
    n += 1
    p.stdin.write(json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": params}) + "\n")
    p.stdin.flush()
    while True:
        m = json.loads(p.stdout.readline())
        if m.get("id") == n:
            return m["result"]
def call(name, **args):
    r = ask("tools/call", {"name": name, "arguments": args})
    return r.get("isError", False), r["content"][0]["text"]
ask("initialize", {"protocolVersion": "2025-11-25"})
bad = 0
def check(cond, what, note):
    global bad
    if not cond:
        bad += 1
        print("FAIL:", what, note)
# Before anything was started: one is replaced by a link into a hidden tree, one by another directory.
os.rename(f"{home}/q", f"{home}/q2")
os.symlink(f"{home}/.ssh", f"{home}/q")
os.rmdir(f"{home}/gone")
e, t = call("shell_run", command="cat /data/q/id /data/p/f; ls -A /data/gone; true")
check("secret" not in t, "a bind that was swapped for a link", t)
check("ours" in t, "the other bind of the same server", t)
# While it runs.
e, t = call("bind_host_dir", host_path=f"{home}/q", mount_point="/data/x")
check(e and "hidden" in t, "bind_host_dir of a link into a hidden tree", t)
e, t = call("bind_host_dir", host_path="q2", mount_point="/data/x")
check(e and "absolute" in t, "a relative path", t)
e, t = call("bind_host_dir", host_path="/etc", mount_point="/data/x")
check(e and "system" in t, "a system directory", t)
e, t = call("bind_host_dir", host_path=f"{home}/q2", mount_point="/etc")
check(e and "must be at or below" in t, "over a system path", t)
e, t = call("bind_host_dir", host_path=f"{home}/q2", mount_point="/data/x")
check(not e and "read-only" in t, "bind_host_dir", t)
e, t = call("shell_run", command="cat /data/x/f; touch /data/x/new; cat /proc/self/mounts | grep -c ssh")
check("q\n" in t and not os.path.exists(f"{home}/q2/new"), "is seen, and not written", t)
e, t = call("bind_host_dir", host_path=f"{home}/q2", mount_point="/data/w", mode="rw")
check(not e and "read-write" in t, "bind_host_dir rw", t)
e, t = call("shell_run", command="echo w > /data/w/new")
check(os.path.exists(f"{home}/q2/new"), "is written through", t)
# A parent that becomes a link.
os.makedirs(f"{home}/a/b")
open(f"{home}/a/b/f", "w").write("mine\n")
e, t = call("bind_host_dir", host_path=f"{home}/a/b", mount_point="/data/ab")
check(not e, "a deeper one", t)
os.rename(f"{home}/a", f"{home}/a2")
os.makedirs(f"{home}/.ssh/b", exist_ok=True)
open(f"{home}/.ssh/b/f", "w").write("hidden\n")
os.symlink(f"{home}/.ssh", f"{home}/a")
e, t = call("env_reset")
e, t = call("shell_run", command="touch /workspace/x; cat /data/ab/f")
check("hidden" not in t, "a parent that became a link", t)
e, t = call("env_reset")  # a fresh mount, in which everything is bound again
e, t = call("shell_run", command="cat /data/ab/f /data/x/f")
check("hidden" not in t, "bound again after a rollback", t)
check("q\n" in t, "the others are bound again", t)
e, t = call("unbind_host_dir", mount_point="/data/x")
check(not e, "unbind_host_dir", t)
e, t = call("shell_run", command="ls -A /data/x")
check("f\n" not in t, "is gone", t)
e, t = call("unbind_host_dir", mount_point="/data/x")
check(e and "nothing is bound" in t, "once", t)
p.stdin.close()
p.wait(10)
sys.exit(bad > 0)
PY
python3 swap.py || fail "see above"

# A directory that is laid over the tree and then becomes a link is not followed.
mkdir -p "$HOME/o" && echo o > "$HOME/o/f"
same "$(rt run -e ov --overlay "$HOME/o=/data/o" -- cat /data/o/f)" o "an overlay"
mv "$HOME/o" "$HOME/o2" && ln -s "$HOME/.ssh" "$HOME/o"
out=$(rt run -e ov -- sh -c 'cat /data/o/id; true' 2>&1)
grep -q secret <<<"$out" && fail "an overlay that became a link is followed: $out"
exit 0
