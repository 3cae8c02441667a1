/* A daemon is killed, and the one that goes on with its mount meets what fails for a while: it is tried again. What was
 * asked of the first holds for the second: limits, and who wants what bound. */
#include <fcntl.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/ctl/ctl_client.h"
#include "tests/lib/process.h"
#include "tests/lib/tap.h"
#include "tests/power/fail.h"
#include "tests/unit/ctl/rig.h"

static struct place place;
static struct fail_shared *fail;

static struct ctl *open_with(uint64_t disk)
{
	struct ctl_env_opts o = {.data_dir = place.data, .create = true, .disk_max = disk};
	struct diag d = {0};
	struct ctl *c = NULL;
	int r = ctl_open(&o, &d, &c);

	if (r < 0)
		tap_fatal("ctl_open: %d %s\n", r, d.text);
	return c;
}

struct who {
	pid_t pid;
	uint64_t generation;
};

static struct who who(struct ctl *c)
{
	struct ctl_attach a;
	struct who w = {.pid = daemon_of(c)};

	if (ctl_attach(c, NULL, &a) == 0) {
		w.generation = a.generation;
		ctl_attach_release(&a);
	}
	return w;
}

/* One that dies sooner looks like one that never worked. */
static void lived(void)
{
	(void)usleep(1100000);
}

/* Until the keeper has seen it: on a busy machine one that was killed may answer for a moment. */
static void kill_daemon(pid_t pid)
{
	(void)kill(pid, SIGKILL);
	for (int i = 0; i < 2000 && kill(pid, 0) == 0; i++)
		(void)usleep(5000);
}

static int put(struct ctl *c, const char *path, size_t n, unsigned seed)
{
	cleanup_free char *bytes = malloc(n);
	struct ctl_attach a;
	int r = ctl_attach(c, NULL, &a), fd;

	if (r < 0 || !bytes)
		return r < 0 ? r : -ENOMEM;
	srand(seed);
	for (size_t i = 0; i < n; i++)
		bytes[i] = (char)rand();
	fd = openat(a.root_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	r = fd < 0 ? -errno : io_write_full(fd, bytes, n);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (fd >= 0)
		(void)close(fd);
	ctl_attach_release(&a);
	return r;
}

static void arm(const char *what, pid_t pid, long times, int err)
{
	atomic_store(&fail->armed, 0);
	(void)snprintf(fail->what, sizeof(fail->what), "%s", what);
	fail->pid = pid;
	fail->err = err;
	atomic_store(&fail->after, 0);
	atomic_store(&fail->times, times);
	atomic_store(&fail->hits, 0);
	atomic_store(&fail->armed, 1);
}

/* Kill it, and let @what fail meanwhile: @times, or for @ms. The same mount goes on. */
static void over(const char *what, long times, int err, int ms)
{
	struct ctl *c = open_with(0);
	struct who before = who(c), after;

	eq_int(put(c, "workspace/over", 100, 1), 0, "%s: a file before", what);
	lived();
	arm(what, 0, times, err);
	kill_daemon(before.pid);
	ctl_close(c);
	(void)usleep((unsigned)ms * 1000);
	if (ms)
		atomic_store(&fail->armed, 0);
	c = open_with(0);
	after = who(c);
	for (int i = 0; i < 50 && !after.generation; i++) {
		/* The connection was to the one that died. */
		ctl_close(c);
		(void)usleep(50000);
		c = open_with(0);
		after = who(c);
	}
	atomic_store(&fail->armed, 0);
	ok(atomic_load(&fail->hits) > 0, "%s: failed %ld times", what, atomic_load(&fail->hits));
	ok(after.pid && after.pid != before.pid && after.generation == before.generation,
	   "%s: another daemon goes on with the mount", what);
	eq_int(put(c, "workspace/over", 100, 2), 0, "%s: and serves it", what);
	ctl_close(c);
}

/* A client that has a limit and another policy, while somebody uses the tree. */
static void other_policy(struct ctl *c)
{
	static const char *const nowhere[] = {"/workspace/none", NULL};
	const struct ctl_env_opts o = {.data_dir = place.data, .disk_max = 1, .writable = nowhere};
	cleanup_fd int self = pidfd_open(getpid(), 0);
	struct ctl_attach a;
	struct ctl *x = NULL;

	eq_int(ctl_lease(c, "a command", self, NULL), 0, "a command runs");
	eq_int(ctl_open(&o, NULL, &x), 0, "who wants another policy");
	eq_int(ctl_attach(x, NULL, &a), -EBUSY, "is refused");
	ctl_close(x);
	eq_int(ctl_unlease(c), 0, "the command ends");
}

/* What is written before and after counts together. */
static void limit(void)
{
	struct ctl_env_opts no = {.data_dir = place.data, .disk_max = 1};
	const struct ctl_overlay other = {.host = place.host, .mount = "/workspace/none"};
	struct ctl *c = open_with(8 << 20), *x = NULL;
	struct who w = who(c);
	struct diag d = {0};

	no.overlays = &other;
	no.noverlays = 1;
	eq_int(ctl_open(&no, &d, &x), -EEXIST, "what is refused: %s", d.text);
	eq_int(put(c, "workspace/one", 4 << 20, 3), 0, "sets no limit: four of eight megabytes");
	other_policy(c);
	eq_int(put(c, "workspace/more", 1 << 20, 5), 0, "nor does who gets no tree: the fifth");
	lived();
	kill_daemon(w.pid);
	ctl_close(c);
	c = open_with(0);
	eq_int(put(c, "workspace/two", 5 << 20, 4), -EDQUOT, "another daemon has three left");
	ctl_close(c);
	c = open_with(64 << 20);
	eq_int(put(c, "workspace/two", 5 << 20, 4), 0, "a higher limit holds at once");
	ctl_close(c);
}

/* Binds, and lives until it is killed. */
static pid_t binder(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	if (pipe(ready) < 0)
		tap_fatal("no pipe");
	pid = fork();
	if (pid == 0) {
		struct ctl *c = open_with(0);
		cleanup_fd int fd = open(place.host, O_PATH | O_DIRECTORY | O_CLOEXEC);
		int r = ctl_bind(c, fd, place.host, "/mnt/b", false, NULL);

		(void)!write(ready[1], r == 0 ? "y" : "n", 1);
		for (;;)
			(void)pause();
	}
	(void)close(ready[1]);
	ok(read(ready[0], &byte, 1) == 1 && byte == 'y', "a process has a directory bound");
	(void)close(ready[0]);
	return pid;
}

static bool bound(struct ctl *c)
{
	struct ctl_status st;
	bool yes = false;

	if (ctl_status(c, NULL, &st) == 0) {
		yes = st.nbinds == 1;
		ctl_status_release(&st);
	}
	return yes;
}

static void binds(void)
{
	pid_t one = binder(), two = binder();
	struct ctl *c = open_with(0);
	struct who w = who(c);

	ok(bound(c), "two processes want the same");
	lived();
	kill_daemon(w.pid);
	ctl_close(c);
	c = open_with(0);
	ok(bound(c), "which outlives the daemon");
	(void)kill(one, SIGKILL);
	(void)waitpid(one, NULL, 0);
	(void)sleep(3); /* daemons look once a second */
	ok(bound(c), "and the first of them");
	(void)kill(two, SIGKILL);
	(void)waitpid(two, NULL, 0);
	for (int i = 0; i < 100 && bound(c); i++)
		(void)usleep(100000);
	ok(!bound(c), "and ends with the last");
	ctl_close(c);
}

/* A keeper that once could not take a message in hears the next ones. */
static void deaf(void)
{
	struct ctl *c = open_with(0);
	cleanup_fd int fd = open(place.host, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct diag d = {0};

	arm("recvmsg", parent_of(who(c).pid), 1, ENOMEM);
	eq_int(ctl_bind(c, fd, place.host, "/mnt/d", false, &d), 0,
	       "a message that failed once: %s", d.text);
	eq_int(atomic_load(&fail->hits), 1, "it did");
	atomic_store(&fail->armed, 0);
	ctl_close(c);
}

int main(void)
{
	cleanup_free char *shared = NULL;
	struct ctl *c;
	struct who before, after;
	struct diag d = {0};

	place_make(&place);
	if (asprintf(&shared, "%s/fail", place.top) < 0)
		tap_fatal("no memory");
	(void)setenv("RATTAN_FAIL", shared, 1);
	fail = fail_share(shared, true);
	if (!fail)
		tap_fatal("no shared memory");
	c = open_with(0);
	before = who(c);
	lived();
	kill_daemon(before.pid);
	ctl_close(c);
	c = open_with(0);
	after = who(c);
	ctl_close(c);
	if (before.generation != after.generation) {
		printf("1..0 # SKIP no other daemon can go on here (Linux 6.9)\n");
		return 0;
	}
	limit();
	binds();
	over("fork", 3, EAGAIN, 0);
	over("socketpair", 2, EMFILE, 0);
	over("pipe2", 2, ENFILE, 0);
	over("signalfd", 3, ENOMEM, 0);
	over("epoll_create1", 3, EMFILE, 0);
	over("memory", 1000000, ENOMEM, 2500);
	deaf();
	c = open_with(0);
	eq_int(ctl_shutdown(c, true, &d), 0, "shutdown: %s", d.text);
	ctl_close(c);
	place_remove(&place);
	return tap_done();
}
