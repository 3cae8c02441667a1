/* R4: when a run ends, however it ends, nothing of it is left. And what must not end it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "runner/orphan.h"
#include "tests/lib/fds.h"
#include "tests/lib/sanitizer.h"
#include "tests/unit/runner/rig.h"

/* Everything ignored, forked twice, a session of its own, and a mark in its command line. The mark is
 * this test's pid, so that tests beside each other do not count each other's. */
static char mark[32], stubborn[512];

static int count_marked(void)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d))) {
		char path[300], text[4096];
		ssize_t len;
		int fd;

		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		len = fd < 0 ? -1 : read(fd, text, sizeof(text));
		if (fd >= 0)
			(void)close(fd);
		if (len > 0 && memmem(text, (size_t)len, mark, strlen(mark)))
			n++;
	}
	if (d)
		(void)closedir(d);
	return n;
}

/* Until @n marked processes are there, at most ten seconds; how many there are. */
static int wait_marked(int at_least)
{
	long long end = io_now_ms() + 10000;
	int n;

	while ((n = count_marked()) < at_least && io_now_ms() < end)
		(void)usleep(20000);
	return n;
}

/* bwraps of this test, inner and outer: they have its own copy of stage3 open. */
static int count_bwraps(void)
{
	cleanup_dir DIR *d = opendir("/proc");
	const struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d))) {
		cleanup_buf struct buf b = {0};
		char path[300], at[300];
		ssize_t len;

		(void)snprintf(path, sizeof(path), "/proc/%s/fd/6", e->d_name);
		len = readlink(path, at, sizeof(at) - 1);
		at[len < 0 ? 0 : len] = 0;
		(void)snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		n += !strcmp(at, rig_stage3) && io_read_file(AT_FDCWD, path, 4096, &b) == 0 &&
		     b.len > 6 && !memcmp(b.data, "bwrap", 6);
	}
	return n;
}

static void own_stage3(void)
{
	static char own[sizeof(rig_dir) + 16];
	cleanup_buf struct buf b = {0};
	cleanup_fd int fd = -1;

	(void)snprintf(own, sizeof(own), "%s/stage3", rig_dir);
	fd = open(own, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	if (fd < 0 || io_read_file(AT_FDCWD, rig_stage3, 64 << 20, &b) < 0 ||
	    io_write_full(fd, b.data, b.len) < 0)
		tap_fatal("no copy of stage3");
	rig_stage3 = own;
}

static int wait_none(void)
{
	long long end = io_now_ms() + 5000;
	int n;

	while ((n = count_marked()) > 0 && io_now_ms() < end)
		(void)usleep(10000);
	return n;
}

static void test_background(void)
{
	struct rig_out *o = calloc(1, sizeof(*o));
	struct run_spec s;
	struct run *r;

	if (!o)
		tap_fatal("memory");
	rig_spec(&s);
	s.shell = stubborn;
	s.timeout_ms = 0;
	r = rig_start(&s);
	ok(wait_marked(2) >= 2, "stubborn processes run");
	(void)run_kill(r, 300);
	eq_int(run_wait(r, UINT64_MAX, &o->res), 1, "the run ends");
	eq_int(count_marked(), 0, "with the run, at once, all are gone");
	run_free(r);
	/* The command ends by itself and leaves them in the background, holding its pipes. */
	{
		char text[600];

		(void)snprintf(text, sizeof(text), "{ %s ; } & sleep 0.5; echo done", stubborn);
		s.shell = text;
		r = rig_start(&s);
		eq_int(run_wait(r, 20000, &o->res), 1, "a command's end is not held up by others");
		eq_int(count_marked(), 0, "whom it takes along");
		run_free(r);
	}
	free(o);
}

/* A process that dies of SIGKILL with a run under way; with and without namespaces to enter. */
static void killed_owner(int userns_fd, int mntns_fd, const char *how)
{
	struct run_spec s;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		rig_spec(&s);
		s.userns_fd = userns_fd;
		s.mntns_fd = mntns_fd;
		s.shell = stubborn;
		s.timeout_ms = 0;
		(void)rig_start(&s);
		for (;;)
			(void)pause();
	}
	ok(wait_marked(2) >= 2, "stubborn processes run (%s)", how);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	eq_int(wait_none(), 0, "gone with a process that was killed (%s)", how);
}

/* bwrap itself is killed, as a forced rollback does. */
static void test_killed_bwrap(void)
{
	struct run_result res;
	struct run_spec s;
	struct run *r;

	rig_spec(&s);
	s.shell = stubborn;
	s.timeout_ms = 0;
	r = rig_start(&s);
	ok(wait_marked(2) >= 2, "stubborn processes run (bwrap)");
	(void)syscall(424, run_pidfd(r), SIGKILL, NULL, 0);
	eq_int(run_wait(r, 20000, &res), 1, "the run ends when bwrap is killed");
	eq_int(count_marked(), 0, "and nothing is left");
	ok(res.state == RUN_SIGNALED && res.code == 137, "reported as killed");
	run_free(r);
}

static void *start_and_end(void *arg)
{
	struct run **r = arg;
	struct run_spec s;

	rig_spec(&s);
	s.shell = "sleep 1; echo alive";
	*r = rig_start(&s);
	return NULL;
}

/* PR_SET_PDEATHSIG follows the thread that forked: it must not be the caller's. */
static void test_thread_ends(void)
{
	struct rig_out *o = calloc(1, sizeof(*o));
	struct run *r = NULL;
	pthread_t t;

	if (!o || pthread_create(&t, NULL, start_and_end, &r) != 0)
		tap_fatal("thread");
	(void)pthread_join(t, NULL);
	rig_finish(r, o);
	eq_str(o->out, "alive\n", "a command outlives the thread that asked for it");
	eq_int(o->res.code, 0, "and ends by itself");
	free(o);
}

#if !UNDER_TSAN
static int write_map(const char *file, unsigned id)
{
	char text[32];
	int fd = open(file, O_WRONLY | O_CLOEXEC), n, r;

	n = snprintf(text, sizeof(text), "0 %u 1", id);
	r = fd >= 0 && write(fd, text, (size_t)n) == n;
	if (fd >= 0)
		(void)close(fd);
	return r;
}

/* A process that stands for the file system's keeper: it holds a user and a mount namespace. */
static pid_t keeper(int *ret_user, int *ret_mnt)
{
	unsigned uid = geteuid(), gid = getegid();
	char path[64], byte;
	int p[2];
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		tap_fatal("pipe");
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int fd;

		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
			_exit(1);
		fd = open("/proc/self/setgroups", O_WRONLY | O_CLOEXEC);
		if (fd >= 0)
			(void)!write(fd, "deny", 4);
		if (!write_map("/proc/self/uid_map", uid) || !write_map("/proc/self/gid_map", gid))
			_exit(1);
		(void)!write(p[1], "x", 1);
		for (;;)
			(void)pause();
	}
	(void)close(p[1]);
	if (read(p[0], &byte, 1) != 1)
		tap_fatal("no user namespace can be made here");
	(void)close(p[0]);
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	*ret_user = open(path, O_RDONLY | O_CLOEXEC);
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", pid);
	*ret_mnt = open(path, O_RDONLY | O_CLOEXEC);
	return pid;
}

static void test_namespaces(void)
{
	struct rig_out *o = calloc(1, sizeof(*o));
	int user = -1, mnt = -1;
	struct run_spec s;
	pid_t pid = keeper(&user, &mnt);

	if (!o)
		tap_fatal("memory");
	rig_spec(&s);
	s.userns_fd = user;
	s.mntns_fd = mnt;
	s.shell = "id -u; echo x > made; grep CapEff /proc/self/status";
	rig_run(&s, o);
	eq_int(o->res.code, 0, "a command in another's namespaces: %s%s", o->res.error, o->err);
	eq_str(o->out, "1000\nCapEff:\t0000000000000000\n", "as 1000, without capabilities");
	killed_owner(user, mnt, "in namespaces");
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	(void)close(user);
	(void)close(mnt);
	free(o);
}

/* As in a container: processes of this user, one PID namespace further in, with a sandbox of their own. */
static void __attribute__((noreturn)) contained(void)
{
	unsigned uid = geteuid(), gid = getegid();
	struct run_result res = {0};
	struct run_spec s;
	int fd, status;
	pid_t pid;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) < 0)
		_exit(90);
	fd = open("/proc/self/setgroups", O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "deny", 4) == 4)
		(void)close(fd);
	if (!write_map("/proc/self/uid_map", uid) || !write_map("/proc/self/gid_map", gid))
		_exit(91);
	pid = fork();
	if (pid == 0) {
		struct run *r;

		if (mount("proc", "/proc", "proc", 0, NULL) < 0)
			_exit(92);
		rig_spec(&s);
		s.shell = "touch up; until [ -e go ]; do sleep 0.02; done";
		r = rig_start(&s);
		(void)!run_wait(r, 60000, &res);
		run_free(r);
		_exit(res.state == RUN_EXITED ? res.code : 93);
	}
	(void)waitpid(pid, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 94);
}

static void test_contained(void)
{
	int status = 0;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0)
		contained();
	for (int i = 0; i < 1000 && access("up", F_OK) < 0; i++)
		(void)usleep(10000);
	ok(access("up", F_OK) == 0, "a command runs in a PID namespace below");
	orphan_end_all();
	(void)close(open("go", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	(void)waitpid(pid, &status, 0);
	ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	   "its bwrap, whose parent is none, is not taken for a remnant: %d", WEXITSTATUS(status));
	(void)unlink("up");
	(void)unlink("go");
}

#endif

static void *many(void *arg)
{
	long bad = 0;
	int i;

	for (i = 0; i < 5; i++) {
		struct rig_out *o = calloc(1, sizeof(*o));
		struct run_spec s;
		char text[64], want[32];

		if (!o)
			tap_fatal("memory");
		(void)snprintf(text, sizeof(text), "echo %ld-%d; exit %d", (long)(intptr_t)arg, i,
			       i);
		(void)snprintf(want, sizeof(want), "%ld-%d\n", (long)(intptr_t)arg, i);
		rig_spec(&s);
		s.shell = text;
		rig_run(&s, o);
		bad += strcmp(o->out, want) != 0 || o->res.code != i;
		free(o);
	}
	return (void *)(intptr_t)bad;
}

/* bwrap's child waits for bwrap at first, and for ever when that is killed meanwhile. */
static void test_early(void)
{
	struct run_spec s;
	struct run_result res;
	int left = 0;

	rig_spec(&s);
	s.shell = "true";
	for (int i = 0; i < 200; i++) {
		struct run *r = rig_start(&s);

		(void)usleep((unsigned)i * 30);
		(void)run_kill(r, 0);
		left += run_wait(r, 20000, &res) != 1;
		run_free(r);
	}
	eq_int(left, 0, "each that is killed in its first moments ends");
	for (int i = 0; i < 200 && count_bwraps(); i++)
		(void)usleep(10000);
	eq_int(count_bwraps(), 0, "and no process waits for its bwrap");
}

/* The same when all of them are left by one that was killed. */
static void test_swept(void)
{
	int status;
	pid_t pid;

	(void)fflush(stdout);
	for (int i = 0; i < 30; i++) {
		pid = _Fork();
		if (pid == 0) {
			struct run_spec s;
			struct run *r;

			rig_spec(&s);
			s.shell = "true";
			for (;;)
				if (run_start(&s, NULL, &r) == 0)
					run_free(r);
		}
		(void)usleep(20000 + (unsigned)i * 1000);
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, &status, 0);
	}
	orphan_end_all();
	for (int i = 0; i < 500 && count_bwraps(); i++) {
		(void)usleep(10000);
		orphan_end_all();
	}
	eq_int(count_bwraps(), 0, "what killed processes have left is found");
}

static void test_many(void)
{
	pthread_t t[4];
	void *bad;
	long all = 0;
	size_t i;

	for (i = 0; i < 4; i++) {
		if (pthread_create(&t[i], NULL, many, (void *)(intptr_t)i) != 0)
			tap_fatal("thread");
	}
	for (i = 0; i < 4; i++) {
		(void)pthread_join(t[i], &bad);
		all += (intptr_t)bad;
	}
	eq_int(all, 0, "20 commands of 4 threads, each with its own output and code");
}

int main(int argc, char **argv)
{
	int before;

	rig_setup(argc, argv);
	(void)snprintf(mark, sizeof(mark), "987%d.5", getpid());
	(void)snprintf(
		stubborn, sizeof(stubborn),
		"trap '' TERM HUP INT QUIT; (setsid sh -c 'trap \"\" TERM HUP; (trap \"\" TERM; "
		"sleep %s & sleep %s)' &); while :; do sleep %s; done",
		mark, mark, mark);
	own_stage3();
	before = count_fds();
	test_thread_ends();
	test_background();
	killed_owner(-1, -1, "in none");
#if UNDER_TSAN
	ok(1,
	   "a namespace cannot be entered: ThreadSanitizer has a thread in every process # SKIP");
#else
	test_namespaces();
	test_contained();
#endif
	test_killed_bwrap();
	test_early();
	test_swept();
	test_many();
	eq_int(count_fds(), before, "no descriptor is left over");
	rig_end();
	return tap_done();
}
