#include "runner/orphan.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "stage3/stage3_abi.h"

/* As start.c gives them: NUL after each word. */
#define WORDS "bwrap\0--args\0007\0--\0/proc/self/fd/6"

static int read_file(int proc, const char *pid, const char *name, struct buf *ret)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/%s", pid, name);
	buf_clear(ret);
	return io_read_file(proc, path, 1 << 16, ret);
}

/* As bwrap was started, and not yet stage3: 1, 0, or why that cannot be told. Its name first: to read what another process was
 * started with waits while that one's memory is locked, for ever when it hangs in the kernel. */
static int is_bwrap(int proc, const char *pid)
{
	static const char name[] = "bwrap\n";
	cleanup_buf struct buf b = {0};
	int r = read_file(proc, pid, "comm", &b);

	if (r < 0 || b.len != sizeof(name) - 1 || memcmp(b.data, name, b.len) != 0)
		return r;
	r = read_file(proc, pid, "cmdline", &b);
	return r < 0 ? r : b.len == sizeof(WORDS) && !memcmp(b.data, WORDS, sizeof(WORDS));
}

/* The parent has ended, and nobody needs to be asked what it is: by the kernel's word, not for a lack of our own. */
static bool no_bwrap(int proc, const char *pid)
{
	int r = is_bwrap(proc, pid);

	return r == 0 || r == -ENOENT || r == -ESRCH;
}

struct seen {
	char parent[24]; /* "0": none that is seen from here */
	int depth;       /* in PID namespaces, as seen from here */
	bool init;       /* the first process of the innermost */
	bool ours; /* of this user; root as well sees the processes of others, and may end them */
};

/* proc_pid_status(5). */
static bool see(int proc, const char *pid, struct seen *ret)
{
	cleanup_buf struct buf b = {0};
	const char *at, *last = "";
	unsigned uid;

	*ret = (struct seen){.depth = 0};
	if (read_file(proc, pid, "status", &b) < 0 || buf_put(&b, "", 1) < 0)
		return false;
	at = strstr((char *)b.data, "\nPPid:\t");
	if (!at || sscanf(at + 7, "%23[0-9]", ret->parent) != 1)
		return false;
	at = strstr((char *)b.data, "\nUid:\t");
	if (!at || sscanf(at + 6, "%u", &uid) != 1)
		return false;
	ret->ours = uid == getuid();
	at = strstr((char *)b.data, "\nNSpid:");
	for (at = at ? at + 7 : ""; *at && *at != '\n'; at++)
		if (*at == '\t') {
			last = at;
			ret->depth++;
		}
	ret->init = !strncmp(last, "\t1\n", 3);
	return true;
}

static bool has_socket(int proc, const char *pid, ino_t status)
{
	char path[64], want[48], is[64];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/fd/%d", pid, STAGE3_FD_STATUS);
	(void)snprintf(want, sizeof(want), "socket:[%llu]", (unsigned long long)status);
	n = readlinkat(proc, path, is, sizeof(is) - 1);
	if (n < 0)
		return false;
	is[n] = 0;
	return !strcmp(is, want);
}

/* bwrap's child, which is the init of its namespace, and whose parent is no bwrap any more: a bwrap in a container has
 * no such parent either, but is no init. What it was started with is read last, and so of nobody else: not of a command in a
 * sandbox, which may call itself what it likes and hang. @status 0: of any run. */
static bool is_orphan(int proc, const char *pid, int own_depth, ino_t status)
{
	struct seen p;

	return see(proc, pid, &p) && p.ours && p.init && p.depth == own_depth + 1 &&
	       no_bwrap(proc, p.parent) && is_bwrap(proc, pid) > 0 &&
	       (!status || has_socket(proc, pid, status));
}

static void end(int proc, const char *pid, int own_depth, ino_t status)
{
	cleanup_fd int fd = -1;

	if (!is_orphan(proc, pid, own_depth, status))
		return;
	fd = (int)syscall(SYS_pidfd_open, (pid_t)strtol(pid, NULL, 10), 0);
	/* Again: the number may be another's since. */
	if (fd >= 0 && is_orphan(proc, pid, own_depth, status))
		(void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
}

void orphan_end(ino_t status)
{
	cleanup_dir DIR *d = opendir("/proc");
	const struct dirent *e;
	struct seen self;

	if (!d || !see(dirfd(d), "self", &self) || !self.depth)
		return;
	while ((e = readdir(d)))
		if (strspn(e->d_name, "0123456789") == strlen(e->d_name))
			end(dirfd(d), e->d_name, self.depth, status);
}

void orphan_end_all(void)
{
	orphan_end(0);
}
