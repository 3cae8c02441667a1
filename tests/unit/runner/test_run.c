/* Running: codes, streams, input, limits of what is kept, time, and what is left when it ends. */
#include "runner/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "base/io.h"
#include "tests/unit/runner/rig.h"

static struct rig_out o;

static void test_codes(void)
{
	const char *const missing[] = {"no-such-command", NULL}, *const dir[] = {"/etc", NULL},
			  *const argv[] = {"printf", "%s.", "a b", "", "c", NULL},
			  *const script[] = {"./script", "x", NULL};
	struct run_spec s;
	int fd;

	rig_shell("echo out; echo err >&2; exit 3", &o);
	eq_int(o.res.state, RUN_EXITED, "state of an exit");
	eq_int(o.res.code, 3, "exit code");
	eq_str(o.out, "out\n", "stdout");
	eq_str(o.err, "err\n", "stderr apart");
	eq_int(o.res.out_bytes[0], 4, "stdout is counted");
	ok(strstr(o.res.enforced, "pidns") && strstr(o.res.enforced, "seccomp") &&
		   strstr(o.res.enforced, "no_new_privs"),
	   "enforced: %s", o.res.enforced);
	rig_shell("kill -SEGV $$", &o);
	eq_int(o.res.state, RUN_SIGNALED, "state of a death by signal");
	eq_int(o.res.signal, SIGSEGV, "its signal");
	eq_int(o.res.code, 128 + SIGSEGV, "its code");
	rig_shell("exit 139", &o);
	eq_int(o.res.state, RUN_EXITED, "an exit with that code is no signal");
	rig_shell("-n; echo $?", &o);
	eq_str(o.out, "127\n", "text that begins with a dash is text");
	rig_shell("no-such-command-here", &o);
	eq_int(o.res.code, 127, "a shell's code for what is not there");

	rig_spec(&s);
	s.argv = argv;
	rig_run(&s, &o);
	eq_str(o.out, "a b..c.", "arguments arrive as they are");
	s.argv = missing;
	rig_run(&s, &o);
	eq_int(o.res.code, 127, "127 for a command that is not there");
	eq_int(o.res.state, RUN_EXITED, "which is no fault of the sandbox");
	eq_str(o.res.step, "exec", "the step says which it was");
	s.argv = dir;
	rig_run(&s, &o);
	eq_int(o.res.code, 126, "126 for one that cannot be executed");
	fd = open("script", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	if (fd < 0 || write(fd, "echo script $1\n", 15) != 15)
		tap_fatal("script");
	(void)close(fd);
	s.argv = script;
	rig_run(&s, &o);
	eq_str(o.out, "script x\n", "a script without an interpreter line runs in sh");
}

static void test_not_started(void)
{
	const char *const argv[] = {"true", NULL};
	struct diag d = {{0}};
	struct run *r = NULL;
	struct run_spec s;

	rig_spec(&s);
	s.argv = argv;
	s.cwd = "/no/such/directory";
	rig_run(&s, &o);
	eq_int(o.res.state, RUN_NOT_STARTED, "a directory that is not there");
	eq_str(o.res.step, "cwd", "its step");
	eq_int(o.res.code, 125, "its code");
	ok(o.res.error[0] && o.out_len == 0 && o.err_len == 0, "the reason is no output: %s",
	   o.res.error);
	rig_spec(&s);
	s.argv = argv;
	s.root = "/no/such/root";
	rig_run(&s, &o);
	eq_int(o.res.state, RUN_NOT_STARTED, "a root that is not there");
	eq_str(o.res.step, "bwrap", "its step");
	ok(strstr(o.res.error, "/no/such/root") && o.err_len == 0, "bwrap's words: %s",
	   o.res.error);
	rig_spec(&s);
	eq_int(run_start(&s, &d, &r), -EINVAL, "neither text nor arguments");
	s.argv = argv;
	s.shell = "true";
	eq_int(run_start(&s, &d, &r), -EINVAL, "both");
	s.shell = NULL;
	s.promises = "stdio nonsense";
	d.text[0] = 0;
	eq_int(run_start(&s, &d, &r), -EINVAL, "an unknown promise");
	ok(strstr(d.text, "nonsense"), "is named: %s", d.text);
	s.promises = NULL;
	s.stage3 = "/no/such/stage3";
	eq_int(run_start(&s, &d, &r), -ENOENT, "no stage3");
}

static void test_environment(void)
{
	const char *const env[] = {"A=1", "LANG=xx", "A=2", "EMPTY=", NULL};
	struct run_spec s;
	int fd;

	(void)setenv("SERVER_SECRET", "x", 1);
	/* R3: one that is not close-on-exec. */
	fd = fcntl(1, F_DUPFD, 100); /* NOLINT */
	rig_spec(&s);
	s.env = env;
	s.hostname = "thehost";
	s.shell = "echo $A $LANG \"${EMPTY-unset}\" ${SERVER_SECRET-none} $HOME $USER $PWD $TERM; "
		  "uname -n; echo /proc/self/fd/*; tr '\\0' ' ' < /proc/1/cmdline; id -u; id -g";
	rig_run(&s, &o);
	{
		char want[512];

		(void)snprintf(want, sizeof(want),
			       "2 xx  none /home/user user %s dumb\nthehost\n/proc/self/fd/0 "
			       "/proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3\n/proc/self/fd/6 "
			       "1000\n1000\n",
			       rig_dir);
		eq_str(o.out, want, "environment, host name, descriptors, ids, init's words");
	}
	(void)close(fd);
	rig_shell("read -r x < /proc/self/stat; set -- $x; echo $(($6 == $1)) $7", &o);
	eq_str(o.out, "1 0\n", "a session of its own, without a terminal");
	rig_shell("ps -e | wc -l; ip link 2>/dev/null | grep -c '^[0-9]' ; true", &o);
	ok(strtol(o.out, NULL, 10) < 8, "no process of the host is seen");
}

static void test_input(void)
{
	struct run_spec s;
	size_t taken = 0;
	struct run *r;
	ssize_t n;

	rig_shell("cat; echo end", &o);
	eq_str(o.out, "end\n", "no input is an empty one");
	rig_spec(&s);
	s.shell = "cat";
	s.stdin_data = "given";
	s.stdin_len = 5;
	rig_run(&s, &o);
	eq_str(o.out, "given", "given input, then its end");
	s.keep_input = true;
	s.shell = "while read -r x; do echo got $x; done; echo end";
	s.stdin_data = "a\n";
	s.stdin_len = 2;
	r = rig_start(&s);
	eq_int(run_input(r, "b\n", 2), 2, "more input");
	eq_int(run_input(r, NULL, 0), 0, "its end");
	eq_int(run_input(r, "c\n", 2), -EPIPE, "nothing after the end");
	rig_finish(r, &o);
	eq_str(o.out, "got a\ngot b\nend\n", "all of it arrived");
	/* A command that reads nothing, and ten times what a pipe holds. */
	s.keep_input = false;
	s.shell = "sleep 0.2; exit 4";
	s.stdin_data = calloc(1, 1 << 20);
	s.stdin_len = 1 << 20;
	rig_run(&s, &o);
	eq_int(o.res.code, 4, "input that nobody reads holds nothing up");
	s.keep_input = true;
	s.shell = "sleep 60";
	s.stdin_len = 0;
	r = rig_start(&s);
	while ((n = run_input(r, s.stdin_data, 1 << 20)) > 0 && taken < 16 << 20)
		taken += (size_t)n;
	ok(n == 0 && taken >= 1 << 20, "nor more of it later, which is not taken");
	eq_int(run_kill(r, 0), 0, "and it can be killed");
	rig_finish(r, &o);
	eq_int(o.res.signal, SIGKILL, "as it is");
	free((void *)(uintptr_t)s.stdin_data);
}

static void test_kept(void)
{
	struct buf head = {0}, tail = {0};
	struct run_result res;
	struct run_spec s;
	uint64_t skipped = 0;
	struct run *r;
	int fd;

	rig_spec(&s);
	s.shell = "seq 1 2000000; echo last";
	s.head_max = 100;
	s.tail_max = 50;
	s.limits.output = 1 << 20;
	fd = open("spill", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	s.spill_fd[0] = fd;
	r = rig_start(&s);
	eq_int(run_wait(r, UINT64_MAX, &res), 1, "much output ends");
	eq_int(run_output(r, 0, &head, &tail, &skipped), 0, "what is kept");
	eq_int(head.len, 100, "head");
	eq_int(tail.len, 50, "tail");
	ok(!memcmp(head.data, "1\n2\n3\n", 6), "the head is the head");
	ok(!memcmp(tail.data + 45, "last\n", 5), "the tail is the tail");
	eq_int(skipped + 150, res.out_bytes[0], "between them: the rest");
	eq_int(lseek(fd, 0, SEEK_END), 1 << 20, "the file ends at the limit");
	ok(res.out_limited, "and the result says so");
	(void)close(fd);
	run_free(r);
	buf_release(&head);
	buf_release(&tail);
	s.spill_fd[0] = -1;
	s.stderr_mode = RUN_STDERR_MERGED;
	s.head_max = s.tail_max = 0;
	s.limits.output = 0;
	s.shell = "echo a; echo b >&2; echo c";
	rig_run(&s, &o);
	eq_str(o.out, "a\nb\nc\n", "merged, in order");
	ok(!o.res.out_limited && o.res.out_bytes[1] == 0, "all of it in stream 0");
}

static void test_time(void)
{
	struct run_spec s;
	struct run *r;
	long long t;

	rig_spec(&s);
	s.shell = "trap 'echo caught; exit 5' TERM; sleep 30 & wait";
	s.timeout_ms = 2000; /* the trap must be there by then */
	rig_run(&s, &o);
	ok(o.res.timed_out && !o.res.killed, "timed out");
	eq_int(o.res.code, 5, "after it could put things in order");
	eq_str(o.out, "caught\n", "and say so");
	s.shell = "trap '' TERM; while :; do sleep 1; done";
	t = io_now_ms();
	rig_run(&s, &o);
	t = io_now_ms() - t;
	ok(o.res.timed_out && o.res.state == RUN_SIGNALED && o.res.signal == SIGKILL,
	   "one that ignores it is killed");
	ok(t > 2000 && t < 15000, "after the grace (%lld ms)", t);
	s.timeout_ms = 0;
	s.shell = "echo up; exec sleep 1000";
	r = rig_start(&s);
	while (rig_text(r, 0, o.out, sizeof(o.out)) == 0)
		eq_int(run_wait(r, 200, &o.res), 0, "still running");
	eq_int(run_kill(r, 5000), 0, "killed");
	rig_finish(r, &o);
	ok(o.res.killed && !o.res.timed_out && o.res.code == 143, "by TERM (%d)", o.res.code);
	s.shell = "sleep 1000";
	r = rig_start(&s);
	eq_int(run_kill(r, 0), 0, "killed at once, perhaps before it began");
	rig_finish(r, &o);
	ok(o.res.killed && o.res.code == 137, "by KILL (%d)", o.res.code);
	r = rig_start(&s);
	t = io_now_ms();
	run_free(r);
	ok(io_now_ms() - t < 10000, "freed while running");
	s.shell = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 0.2";
	rig_run(&s, &o);
	ok(o.res.user_s + o.res.sys_s > 0.05 && o.res.wall_s >= 0.2 && o.res.max_rss > 1000000,
	   "times: wall %.2f user %.2f system %.2f, memory %llu", o.res.wall_s, o.res.user_s,
	   o.res.sys_s, (unsigned long long)o.res.max_rss);
}

/* The output and the code are the same whether bash is asked for a note or not. */
static void same_noted(const char *text, const char *pipe)
{
	static struct rig_out with;
	struct run_spec s;

	rig_spec(&s);
	s.shell = text;
	rig_run(&s, &o);
	s.note = true;
	rig_run(&s, &with);
	ok(with.res.state == o.res.state && with.res.code == o.res.code, "%.12s: %d and %d", text,
	   o.res.code, with.res.code);
	eq_str(with.out, o.out, "the same output");
	eq_str(with.err, o.err, "and errors");
	eq_str(with.res.pipe, pipe, "and what became of the pipe");
}

/* With sh alone nothing reads the note's script, and no bash further down is led to it. */
static void test_note_without_bash(void)
{
	static const char *const posix[] = {"POSIXLY_CORRECT=1", NULL};
	static const char *const traced[] = {"SHELLOPTS=xtrace", NULL};
	struct run_spec s;
	char root[64];

	(void)snprintf(root, sizeof(root), "%s/root", rig_dir);
	ok(system("mkdir -p root/bin root/dev root/proc root/tmp root/run root/etc root/home && "
		  "cp -L /bin/sh root/bin/sh && cp -L --parents $(ldd /bin/sh | grep -o '/[^ ]*') root") ==
		   0, /* NOLINT: fixed words */
	   "a root with sh and without bash");
	rig_spec(&s);
	s.root = root;
	s.writable = NULL;
	s.cwd = "/";
	s.note = true;
	s.shell = "echo ${BASH_ENV-none}";
	rig_run(&s, &o);
	eq_str(o.out, "none\n", "sh is told of no script (%s: %s)", o.res.step, o.res.error);
	rig_spec(&s);
	s.note = true;
	s.env = posix;
	s.shell = "echo ${BASH_ENV-none}; ls /proc/self/fd/3 2>&1 | grep -c cannot";
	rig_run(&s, &o);
	eq_str(o.out, "none\n1\n", "nor bash where it would not read it");
	s.env = traced;
	s.shell = "false | true";
	rig_run(&s, &o);
	ok(!strstr(o.err, "unset BASH_ENV"), "nor where it would say what it reads");
}

static void test_note(void)
{
	same_noted("false | true", "1 0");
	same_noted("set -x; cd /; false", "");
	same_noted("set -eu; unset PWD; true | (exit 3); exit 9", "0 3");
	same_noted("set -u; unset PWD; (exit 2) | true; exit 9", "2 0");
	same_noted("ulimit -f 0; true | true; exit 3", "");
	same_noted("trap 'echo D' DEBUG; false | true", "");
	same_noted("printf() { echo mine; }; false | true", "1 0");
	same_noted("set -e; mkdir /dev/shm/.rattan-end; true | true; exit 3", "");
	same_noted("trap 'echo mine; exit 4' EXIT; false | true; exit 3", "");
	same_noted("cd /; if", "");
	same_noted("cd /; exec false", "");
	same_noted("cd /; kill -TERM $$", "");
	same_noted("cat <<E | cat\n$LINENO '\"\nE\necho $LINENO; nosuch | true", "127 0");
}

int main(int argc, char **argv)
{
	rig_setup(argc, argv);
	test_codes();
	test_not_started();
	test_environment();
	test_input();
	test_kept();
	test_time();
	test_note();
	test_note_without_bash();
	rig_end();
	return tap_done();
}
