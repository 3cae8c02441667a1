/* The sandbox that waits: who gets it, that a command in it is as one in a sandbox of its own, and its end. */
#include "runner/spare.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "runner/runner_internal.h"
#include "tests/lib/fds.h"
#include "tests/unit/runner/rig.h"

static struct rig_out o;

/* The children of @of, of this name. */
static int children(int of, const char *what, pid_t *ret_last)
{
	cleanup_dir DIR *d = opendir("/proc");
	const struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d))) {
		cleanup_buf struct buf b = {0};
		char path[300], name[32];
		int pid, parent;

		(void)snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		if (strspn(e->d_name, "0123456789") == strlen(e->d_name) &&
		    io_read_file(AT_FDCWD, path, 4096, &b) == 0 &&
		    sscanf((char *)b.data, "%d (%31[^)]) %*c %d", &pid, name, &parent) == 3 &&
		    parent == of && (!what || !strcmp(name, what))) {
			n++;
			if (ret_last)
				*ret_last = pid;
		}
	}
	return n;
}

/* What runs and what waits. */
static int bwraps(pid_t *ret_last)
{
	return children(getpid(), "bwrap", ret_last);
}

/* As many as are to wait. */
static bool becomes(int n)
{
	for (int i = 0; i < 2000 && bwraps(NULL) != n; i++)
		(void)usleep(5000);
	return bwraps(NULL) == n;
}

static void spec(struct run_spec *s, struct run_spare *p, const char *text)
{
	rig_spec(s);
	s->shell = text;
	s->spare = p;
	s->stderr_mode = RUN_STDERR_MERGED;
}

/* True: it ran in the one that waited, which was bwrap @pid. */
static bool in_spare(const struct run_spec *s, pid_t pid)
{
	struct run *r = rig_start(s);
	bool same = r->pid == pid;

	memset(&o, 0, sizeof(o));
	rig_finish(r, &o);
	return same;
}

static pid_t waiting(struct run_spare *p)
{
	pid_t pid = 0;

	for (int i = 0; i < 2000 && !run_spare_waits(p); i++)
		(void)usleep(5000);
	ok(becomes(1), "one waits");
	(void)bwraps(&pid);
	return pid;
}

static void test_taken(struct run_spare *p)
{
	const char *const env[] = {"A=1", NULL};
	struct run_spec s;
	pid_t pid;

	spec(&s, p, "echo one; exit 3");
	eq_int(bwraps(NULL), 0, "none is built before it was asked for");
	ok(!in_spare(&s, 0), "the first command has a sandbox of its own");
	pid = waiting(p);
	spec(&s, p, "echo two >&2; echo $A $PWD; id -u; cat; exit 4");
	s.env = env;
	s.cwd = "/usr";
	ok(in_spare(&s, pid), "the next one has that which waited");
	eq_int(o.res.code, 4, "its exit code");
	eq_str(o.out, "two\n1 /usr\n1000\n", "its output, variables, directory, empty input");
	ok(strstr(o.res.enforced, "netns") && strstr(o.res.enforced, "seccomp") &&
		   strstr(o.res.enforced, "no_new_privs") && strstr(o.res.enforced, "landlock"),
	   "what was enforced: %s", o.res.enforced);
	ok(o.res.wall_s < 5, "its time is from its own start");
	pid = waiting(p);
	spec(&s, p,
	     "touch /usr/no 2>&1; touch f && rm f; echo $$; ls /proc | grep -c '^[0-9]'; "
	     "echo /proc/self/fd/*");
	ok(in_spare(&s, pid), "and one more");
	ok(strstr(o.out, "denied") || strstr(o.out, "Read-only"), "its fences stand: %s", o.out);
	ok(strstr(o.out, "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3\n"),
	   "no descriptor more");
}

static void test_own_plan(struct run_spare *p)
{
	const char *const argv[] = {"no-such-command", NULL};
	struct run_spec s;
	pid_t pid = waiting(p);

	spec(&s, p, NULL);
	s.argv = argv;
	ok(in_spare(&s, pid), "a command that is not there");
	eq_int(o.res.code, 127, "is told as ever");
	pid = waiting(p);
	spec(&s, p, "true");
	s.cwd = "/no/such/directory";
	ok(in_spare(&s, pid), "a directory that is not there");
	eq_int(o.res.state, RUN_NOT_STARTED, "as well");
	eq_str(o.res.step, "cwd", "with its step");
	pid = waiting(p);
	spec(&s, p, "true");
	s.promises = "stdio nonsense";
	{
		struct diag d = {0};
		struct run *r = NULL;

		eq_int(run_start(&s, &d, &r), -EINVAL, "a plan that is none: %s", d.text);
	}
	spec(&s, p, "python3 -c 'import socket; socket.socket()' 2>&1 || sleep 100");
	s.promises = "stdio rpath exec prot_exec proc";
	s.timeout_ms = 500;
	ok(in_spare(&s, pid), "left alone by that, and other promises");
	ok(o.res.timed_out, "and a deadline");
	pid = waiting(p);
	spec(&s, p, "ulimit -n; yes | head -c 100000");
	s.limits.open_files = 77;
	s.limits.output = 5000;
	ok(in_spare(&s, pid), "other limits");
	ok(!strncmp(o.out, "77\n", 3) && o.res.out_limited, "hold");
}

static void test_not_taken(struct run_spare *p)
{
	struct run_spec s;
	pid_t pid = waiting(p);

	spec(&s, p, "cat");
	s.stdin_data = "input";
	s.stdin_len = 5;
	ok(!in_spare(&s, pid), "one with input has its own");
	eq_str(o.out, "input", "and gets it");
	spec(&s, p, "true");
	s.stderr_mode = RUN_STDERR_SEPARATE;
	ok(!in_spare(&s, pid), "one with other streams, too");
	pid = waiting(p);
	ok(in_spare(&s, pid), "after which one of these waits");
	pid = waiting(p);
	s.tree_id[1] = 7;
	ok(!in_spare(&s, pid), "another tree");
	pid = waiting(p);
	s.hostname = "other";
	s.shell = "uname -n";
	ok(!in_spare(&s, pid), "another name");
	eq_str(o.out, "other\n", "is had");
	pid = waiting(p);
	s.limits.memory = 1ull << 30;
	ok(!in_spare(&s, pid), "another limit of the whole");
	pid = waiting(p);
	s.shell = "cat /proc/net/dev | grep -c :";
	s.network = true;
	ok(!in_spare(&s, pid), "a network");
}

static void test_ends(struct run_spare *p)
{
	struct run_spec s;
	int tie[2];
	pid_t pid, inner;

	spec(&s, p, "echo fine");
	(void)in_spare(&s, 0);
	pid = waiting(p);
	eq_int(kill(pid, SIGKILL), 0, "what waits is killed");
	ok(becomes(0), "and is gone");
	ok(!in_spare(&s, pid), "the next command has its own");
	eq_str(o.out, "fine\n", "and runs");
	pid = waiting(p);
	for (int i = 0; i < 2000 && children(pid, NULL, &inner) != 1; i++)
		(void)usleep(5000);
	ok(children(pid, NULL, &inner) == 1 && kill(inner, SIGSTOP) == 0, "it is stuck");
	s.timeout_ms = 0;
	ok(!in_spare(&s, pid), "the next command does without it");
	eq_str(o.out, "fine\n", "and runs");
	pid = waiting(p);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, tie) < 0)
		tap_fatal("socketpair");
	s.tie_fd = tie[0];
	s.tree_id[0] = 8;
	(void)in_spare(&s, 0);
	pid = waiting(p);
	(void)close(tie[1]);
	ok(becomes(0), "it ends with the tree");
	(void)close(tie[0]);
}

/* Both begin it at the same time; who has none gets a sandbox of its own. */
static void test_together(struct run_spare *p)
{
	struct run *r[6];
	struct run_spec s;
	int good = 0;

	spec(&s, p, "sleep 0.05; echo $((6 * 7))");
	for (int round = 0; round < 5; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(r); i++)
			r[i] = rig_start(&s);
		for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
			memset(&o, 0, sizeof(o));
			rig_finish(r[i], &o);
			good += !strcmp(o.out, "42\n") && o.res.code == 0;
		}
	}
	eq_int(good, 30, "six at a time, five times");
}

/* What has ended, and whose new parent does not ask for it, has no command line any more. */
static bool lives(pid_t pid)
{
	cleanup_buf struct buf b = {0};
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	return io_read_file(AT_FDCWD, path, 4096, &b) == 0 && b.len > 0;
}

/* -9 of who keeps it. */
static void test_left(void)
{
	int fd[2], status;
	pid_t pid, kept = 0;
	char byte;

	if (pipe2(fd, O_CLOEXEC) < 0)
		tap_fatal("pipe");
	(void)fflush(stdout);
	pid = _Fork();
	if (pid == 0) {
		struct run_spare *p;
		struct run_spec s;
		struct run_result res;
		struct run *r;

		if (run_spare_new(&p) < 0)
			_exit(1);
		spec(&s, p, "true");
		if (run_start(&s, NULL, &r) < 0 || run_wait(r, UINT64_MAX, &res) != 1)
			_exit(2);
		run_free(r);
		while (bwraps(&kept) != 1)
			(void)usleep(1000);
		(void)!write(fd[1], &kept, sizeof(kept));
		for (;;)
			(void)pause();
	}
	(void)close(fd[1]);
	ok(read(fd[0], &kept, sizeof(kept)) == sizeof(kept) && kept > 0,
	   "another process keeps one");
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, &status, 0);
	for (int i = 0; i < 2000 && lives(kept); i++)
		(void)usleep(5000);
	ok(!lives(kept), "which ends with it");
	ok(read(fd[0], &byte, 1) == 0, "and nothing of it is left");
	(void)close(fd[0]);
}

int main(int argc, char **argv)
{
	struct run_spare *p;
	int before;

	rig_setup(argc, argv);
	before = count_fds();
	if (run_spare_new(&p) < 0)
		tap_fatal("no spare");
	test_taken(p);
	test_own_plan(p);
	test_not_taken(p);
	test_together(p);
	test_ends(p);
	run_spare_free(p);
	eq_int(bwraps(NULL), 0, "nothing waits afterwards");
	eq_int(count_fds(), before, "and no descriptor is left");
	test_left();
	rig_end();
	return tap_done();
}
