/* The pid 1 of a role session's PID namespace: which process it is, and to be sure of it. */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "runner/role_internal.h"

/* The first child; 0: none. */
static pid_t child_of(pid_t outer)
{
	cleanup_file FILE *f = NULL;
	char path[64];
	int pid;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)outer, (int)outer);
	f = fopen(path, "re");
	return f && fscanf(f, "%d", &pid) == 1 && pid > 1 ? (pid_t)pid : 0;
}

/* The 22nd word of its line; the second one is a name, which may hold anything. */
static int start_of(pid_t pid, unsigned long long *ret)
{
	cleanup_buf struct buf b = {0};
	char path[64], *at, *end;
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	r = io_read_file(AT_FDCWD, path, 4096, &b);
	if (r < 0)
		return r == -ENOENT ? -ESRCH : r;
	at = b.len ? strrchr((char *)b.data, ')') : NULL;
	for (int i = 0; at && i < 20; i++) {
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	if (!at)
		return -EBADMSG;
	*ret = strtoull(at, &end, 10);
	return end == at ? -EBADMSG : 0;
}

static int boot_id(char ret[static 40])
{
	cleanup_buf struct buf b = {0};
	int r = io_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &b);

	if (r < 0)
		return r;
	ret[0] = 0;
	if (b.len)
		(void)snprintf(ret, 40, "%.*s", (int)strcspn((char *)b.data, "\n"), (char *)b.data);
	return ret[0] ? 0 : -EBADMSG;
}

static bool has_ended(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return pidfd >= 0 && poll(&p, 1, 0) != 0;
}

int role_inner_of(pid_t outer, int outer_pidfd, struct role_inner *ret, int *ret_pidfd)
{
	struct role_inner in = {.pid = child_of(outer)};
	cleanup_fd int pidfd = -1;
	int r;

	if (!in.pid)
		return -ESRCH;
	pidfd = pidfd_open(in.pid, 0);
	if (pidfd < 0)
		return ret_nerrno();
	/* Held since before: the number is its own, if it is that of the child still, and the child's parent is who it was. */
	if (child_of(outer) != in.pid || has_ended(outer_pidfd))
		return -ESRCH;
	r = start_of(in.pid, &in.start);
	if (r == 0)
		r = boot_id(in.boot);
	if (r < 0)
		return r;
	if (ret)
		*ret = in;
	*ret_pidfd = steal_fd(&pidfd);
	return 0;
}

int role_inner_open(const struct role_inner *in, int *ret_pidfd)
{
	cleanup_fd int pidfd = in->pid > 1 ? pidfd_open(in->pid, 0) : -1;
	unsigned long long start;
	char boot[40];
	int r;

	if (pidfd < 0)
		return -ESRCH;
	r = start_of(in->pid, &start);
	if (r == 0)
		r = boot_id(boot);
	if (r < 0)
		return r;
	if (start != in->start || strcmp(boot, in->boot) != 0)
		return -ESRCH;
	*ret_pidfd = steal_fd(&pidfd);
	return 0;
}
