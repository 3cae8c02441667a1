/* The end of a session, from each side, and mounting where it must be refused. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include "fs/fuse/mount.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/tap.h"
#include "tests/unit/fuse/fake_ovl.h"
#include "tests/unit/fuse/rig.h"
#include "tests/unit/fuse/threads.h"

static int c_stat(int arg)
{
	struct stat st;

	(void)arg;
	return stat("b", &st) < 0 ? -errno : 0;
}

static int c_create(int i)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "x%d", i);
	return mknod(name, S_IFREG | 0600, 0) < 0 ? -errno : 0;
}

/* Misses, each with a request of its own, until an error comes. */
static int c_storm(int arg)
{
	struct stat st;
	char name[32];

	(void)arg;
	for (int i = 0;; i++) {
		(void)snprintf(name, sizeof(name), "y%d", i);
		if (stat(name, &st) < 0 && errno != ENOENT)
			return -errno;
	}
}

/* So many, which nobody has asked for before. */
static int c_misses(int n)
{
	struct stat st;
	char name[32];

	for (int i = 0; i < n; i++) {
		(void)snprintf(name, sizeof(name), "z%d-%d", (int)getpid(), i);
		if (stat(name, &st) == 0 || errno != ENOENT)
			return -EIO;
	}
	return 0;
}

static struct session *start(struct rig *r, struct ovl *o, int workers, int spin_us)
{
	struct session_opts opts = {
		.ovl = o,
		.fuse_fd = r->fuse_fd,
		.ids = {.squash = true},
		.workers = workers,
		.spin_us = spin_us,
	};
	struct session *se;

	if (session_new(&se) < 0 || session_start(se, &opts) < 0)
		tap_fatal("cannot start a session");
	return se;
}

static bool pinned(int tid, void *arg)
{
	(void)arg;
	return only_cpu(tid) >= 0;
}

/* Until a worker is on one CPU, or none is; false: that does not come. */
static bool becomes(bool on)
{
	for (int i = 0; i < 20000 && any_thread("fuse-worker", pinned, NULL) != on; i++)
		(void)usleep(500);
	return any_thread("fuse-worker", pinned, NULL) == on;
}

/* The other CPU is kept occupied while messages come, and after that nobody is kept anywhere. */
static void test_beside(void)
{
	static struct ovl o;
	struct session *se;
	struct rig r;
	int cpus[2];

	if (!keep_cpus(2, cpus))
		return;
	rig_open(&r, false);
	se = start(&r, &o, 3, SESSION_BESIDE);
	eq_int(rig_do(&r, c_misses, 2000), 0, "served beside company");
	rig_call(&r, 0, c_misses, 1000000);
	ok(becomes(true), "who reads is where the caller is");
	for (int i = 1; i < RIG_CLIENTS; i++)
		rig_call(&r, i, c_misses, 2000);
	for (int i = 1; i < RIG_CLIENTS; i++)
		eq_int(rig_wait(&r, i, 60000), 0, "several are served");
	(void)kill(r.pid[0], SIGKILL);
	ok(becomes(false), "and nobody stays there when nothing comes");
	session_stop(se);
	rig_close(&r);
}

/* The second for a request that was under way. */
static bool is_gone(int r)
{
	return r == -ENOTCONN || r == -ECONNABORTED;
}

/* With an argument: what needs a process in which there was no session before, for one that has threads makes no namespaces. */
int main(int argc, char **argv)
{
	static struct ovl o;
	struct session_opts bad = {.ovl = &o, .fuse_fd = -1};
	struct mount_opts mo = {.name = "rattan:test"};
	struct diag diag = {0};
	struct session *se;
	struct rig r;
	int fd, got;

	(void)argv;
	need_namespaces();
	if (argc > 1) {
		test_beside();
		return tap_done();
	}
	session_stop(NULL);
	ok(session_new(&se) == 0, "a session that never starts");
	session_stop(se);
	ok(session_new(&se) == 0, "a session");
	ok(session_start(se, &bad) < 0, "without a descriptor does not start");
	session_stop(se);
	bad.fuse_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	ok(session_new(&se) == 0 && session_start(se, &bad) == -EPROTO, "nor over something else");
	session_stop(se);

	rig_open(&r, false);
	mo.dir = r.dir;
	got = mount_fuse(&mo, &diag, &fd);
	eq_int(got, -ENOTEMPTY, "not over a directory that holds something");
	ok(strstr(diag.text, "not empty"), "which is said: %s", diag.text);
	mo.dir = "/tmp/rattan-no-such-directory";
	diag = (struct diag){0};
	eq_int(mount_fuse(&mo, &diag, &fd), -ENOENT, "not over nothing");

	se = start(&r, &o, 3, 1000);
	eq_int(rig_do(&r, c_stat, 0), 0, "served");
	eq_int(rig_do(&r, c_create, 0), 0, "created");
	for (int i = 0; i < RIG_CLIENTS; i++)
		rig_call(&r, i, c_storm, 0);
	(void)usleep(300000);
	session_stop(se);
	ok(true, "stopped in the midst of requests");
	for (int i = 0; i < RIG_CLIENTS; i++)
		ok(is_gone(rig_wait(&r, i, 5000)), "client %d is told", i);
	ok(is_gone(rig_do(&r, c_create, 1)), "and so is who comes later");
	rig_close(&r);
	return tap_done();
}
