#!/bin/bash
# Ordinary work runs under the default promises: each tool for real, in one environment. What is not installed is named at the end.
# timeout: 400
. "$RATTAN_SRC/tests/e2e/lib.sh"

missing=
in_it() { # NAME TEXT: has to succeed
	local out rc=0
	out=$(rt run -c "set -e; mkdir -p /workspace/${1%% *}; cd /workspace/${1%% *}; $2" 2>&1) || rc=$?
	[ $rc = 0 ] || fail "$1 -> $rc: $(tail -n 5 <<<"$out")"
}
has() { command -v "$1" > /dev/null && case $(readlink -f "$(command -v "$1")") in /usr/*) ;; *) false ;; esac || { missing+=" $1"; false; }; }

in_it touch 'touch -d 2001-02-03 f; test "$(date -r f +%Y)" = 2001; touch f; test "$(date -r f +%Y)" != 2001'
in_it cp 'echo x > a; chmod 640 a; touch -d 2001-02-03 a; cp -p a b; test "$(stat -c "%a %Y" a)" = "$(stat -c "%a %Y" b)"; cp -a . /tmp/copy; cp --sparse=always a c; ln a h; ln -s a s; mv h i'
in_it tar 'mkdir d; echo x > d/f; touch -d 2001-02-03 d/f; tar cf t d; rm -r d; tar xpf t; test "$(date -r d/f +%Y)" = 2001'
in_it mkfifo 'mkfifo p; (echo through > p) & read -r x < p; test "$x" = through'
in_it flock 'flock l true; ! flock -n l flock -n l true'
in_it shell 'test "$(echo a | tr a b | cat)" = b; trap "echo t > t" TERM; kill -TERM $$; test -e t; ulimit -n > /dev/null; nice true; timeout 5 true; id > /dev/null; df . > /dev/null'
# Job control wants a terminal of its own.
in_it jobs "script -qec \"bash -ic 'sleep 50 & jobs; kill -STOP %1; wait -n 2>/dev/null; fg %1 > /dev/null & kill %1; wait; echo over'\" /dev/null < /dev/null | grep -q over"
has make && in_it make 'printf "all: a b\na b:\n\techo x > \$@\n" > Makefile; make -j4 > /dev/null; test -s a -a -s b'
has gcc && in_it gcc 'echo "int main(void) { return 7; }" > a.c; gcc -o a a.c; ./a || test $? = 7'
has gdb && in_it gdb 'gdb --version > /dev/null'
has git && in_it git 'git init -q; git config user.email a@b; git config user.name a; echo x > f; git add f; git commit -qm x; git clone -q . ../clone; git gc -q; git -C ../clone fsck 2> /dev/null'
has go && in_it go 'export HOME=/tmp/go GOFLAGS=-mod=mod GO111MODULE=on GOCACHE=/tmp/gocache; printf "module a\n\ngo 1.19\n" > go.mod
cat > main.go <<X
package main

import (
	"net"
	"os"
	"os/exec"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { c, _ := l.Accept(); c.Write([]byte("y")); c.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		panic(err)
	}
	b := make([]byte, 1)
	c.Read(b)
	if err := exec.Command("true").Run(); err != nil || b[0] != 121 {
		os.Exit(1)
	}
}
X
go build -o a . && ./a'
has cargo && in_it cargo 'export HOME=/tmp/c CARGO_HOME=/tmp/cargo USER=u; cargo init -q --name a --vcs none; cargo build -q --offline; ./target/debug/a | grep -q Hello'
has python3 && in_it python "cat > t.py <<X
import asyncio, ctypes, multiprocessing, os, pathlib, select, signal, socket, sqlite3, subprocess, tempfile, threading, time
# servers on loopback, each family
for family, where in ((socket.AF_INET, ('127.0.0.1', 0)), (socket.AF_INET6, ('::1', 0)), (socket.AF_UNIX, './sock'), (socket.AF_UNIX, '\0abstract')):
    l = socket.socket(family)
    l.bind(where)
    l.listen()
    def serve():
        c, _ = l.accept()
        c.sendall(c.recv(9)[::-1])
        c.close()
    t = threading.Thread(target=serve)
    t.start()
    c = socket.socket(family)
    c.connect(l.getsockname())
    c.sendall(b'abc')
    assert c.recv(9) == b'cba'
    t.join()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(('127.0.0.1', 0))
u.sendto(b'x', u.getsockname())
assert u.recv(9) == b'x'
# descriptors over a socket, children, waits, watches, locks, processes and threads
a, b = socket.socketpair()
socket.send_fds(a, [b'f'], [0])
assert socket.recv_fds(b, 9, 1)[1]
p = subprocess.Popen(['sleep', '0.1'])
assert os.waitid(os.P_PID, p.pid, os.WEXITED).si_status == 0
libc = ctypes.CDLL(None, use_errno=True)
w = libc.inotify_init1(os.O_NONBLOCK)
assert libc.inotify_add_watch(w, b'.', 0x100) > 0
pathlib.Path('made').touch()
assert select.select([w], [], [], 5)[0] and b'made' in os.read(w, 4096)
with multiprocessing.Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
assert asyncio.run(asyncio.wait_for(asyncio.sleep(0.01, 5), 5)) == 5
d = sqlite3.connect('t.db')
d.execute('create table t (a)')
d.commit()
pid = os.fork()
if not pid:
    signal.pause()
os.kill(pid, signal.SIGSTOP)
assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
os.kill(pid, signal.SIGCONT)
assert os.WIFCONTINUED(os.waitpid(pid, os.WCONTINUED)[1])
os.kill(pid, signal.SIGKILL)
assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == 9
os.close(os.pidfd_open(os.getpid()))
os.close(os.memfd_create('m'))
m, s = os.openpty()
assert os.isatty(s)
X
/usr/bin/python3 t.py"
has node && in_it node "cat > t.js <<X
const http = require('http'), fs = require('fs'), { spawnSync } = require('child_process'), { Worker } = require('worker_threads');
fs.watch('.').close();
if (spawnSync('true').status !== 0) process.exit(2);
new Worker('1', { eval: true });
const s = http.createServer((q, r) => r.end('fine')).listen(0, '127.0.0.1', () =>
  http.get({ port: s.address().port, host: '127.0.0.1' }, (r) => r.on('data', (d) => { s.close(); process.exit(String(d) === 'fine' ? 0 : 3); })));
X
node t.js"
[ -z "$missing" ] || echo "not installed below /usr, so not tried:$missing"
exit 0
