#include "fs/env/heal.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fuseabort.h"
#include "base/io.h"
#include "base/log.h"

#define PIDS_MAX 8
#define WAIT_MS  1000

void heal_note(int alive_fd, const pid_t *pids, size_t n)
{
	char text[PIDS_MAX * 16];
	int len = 0;

	for (size_t i = 0; i < n && i < PIDS_MAX; i++)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "%d\n", (int)pids[i]);
	/* Without room on the disk a wait may last; nothing else depends on it. */
	if (ftruncate(alive_fd, 0) < 0 || pwrite(alive_fd, text, (size_t)len, 0) != len)
		log_debug("cannot note who runs: %s", err_text(errno));
}

static int open_ns(const char *task, const char *ns)
{
	char path[160];

	(void)snprintf(path, sizeof(path), "%.100s/ns/%s", task, ns);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Every mount below @mnt, as the namespaces of @task show it. Another process that has got the number meanwhile
 * shows none there. */
static void end_mounts(const char *task, const char *mnt)
{
	int user = open_ns(task, "user"), ns = open_ns(task, "mnt");
	cleanup_dir DIR *d = NULL;
	const struct dirent *e;
	char path[4352];

	if (user < 0 || ns < 0 || setns(user, CLONE_NEWUSER) < 0 || setns(ns, CLONE_NEWNS) < 0) {
		log_warn("a killed rattan-fs cannot be ended for good (%s): %s", task,
			 err_text(errno));
		return;
	}
	d = opendir(mnt);
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", mnt, e->d_name);
		fuse_abort(path);
	}
}

/* Only a child enters them. Not fork(): see enter_in_child in daemon.c. */
static void end_mounts_of(const char *task, const char *mnt)
{
	pid_t pid = _Fork();

	if (pid == 0) {
		end_mounts(task, mnt);
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* A thread of it that still is one; all that run have ended by now, or it would have the lock. */
static bool find_task(pid_t pid, char *ret, size_t size)
{
	cleanup_dir DIR *d = NULL;
	const struct dirent *e;

	(void)snprintf(ret, size, "/proc/%d/task", (int)pid);
	d = opendir(ret);
	while (d && (e = readdir(d))) {
		cleanup_buf struct buf b = {0};
		const char *p;

		if (e->d_name[0] == '.')
			continue;
		(void)snprintf(ret, size, "/proc/%d/task/%.20s/stat", (int)pid, e->d_name);
		if (io_read_file(AT_FDCWD, ret, 4096, &b) < 0)
			continue;
		p = strrchr((const char *)b.data, ')');
		if (!p || p[1] != ' ' || p[2] != 'D')
			continue;
		*strrchr(ret, '/') = 0;
		return true;
	}
	return false;
}

void heal_dead(int alive_fd, const char *mnt)
{
	char text[PIDS_MAX * 16 + 1], task[100], *end;
	ssize_t n = io_pread_full(alive_fd, text, sizeof(text) - 1, 0);
	long long until = io_now_ms() + WAIT_MS;

	text[n > 0 ? n : 0] = 0;
	for (char *p = text; *p; p = end + (*end == '\n')) {
		pid_t pid = (pid_t)strtol(p, &end, 10);

		if (end == p)
			break;
		if (pid <= 1 || !find_task(pid, task, sizeof(task)))
			continue;
		log_warn("process %d was killed while it waited for its own mount: that is ended",
			 (int)pid);
		end_mounts_of(task, mnt);
		while (find_task(pid, task, sizeof(task)) && io_now_ms() < until)
			(void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
}
