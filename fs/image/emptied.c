/* What is in a directory, taken away: whatever modes it has, however deep it is, and nothing that is elsewhere. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/image/staged_internal.h"

struct emptying {
	struct stat *above; /* the directories that lead here: who goes back up must come to them */
	size_t n, cap;
	int fd;                 /* where it is at work */
	const struct buf *only; /* of the directory that it began in; or NULL */
};

static bool to_stay(const struct emptying *e, const char *name)
{
	size_t at = 0;

	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return true;
	if (!e->only || e->n)
		return false;
	while (at < e->only->len) {
		const char *s = (const char *)e->only->data + at;

		if (!strcmp(s, name))
			return false;
		at += strlen(s) + 1;
	}
	return true;
}

/* One that lets nobody through is its owner's to open. */
static int open_below(int at, const char *name)
{
	cleanup_fd int path = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char proc[40];
	struct stat st;
	int fd;

	if (path < 0 || fstat(path, &st) < 0)
		return ret_nerrno();
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", path);
	if (st.st_uid == geteuid() && (st.st_mode & 0700) != 0700)
		(void)chmod(proc, 0700); /* what is refused is told by the next call */
	fd = openat(path, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? ret_nerrno() : fd;
}

static int go_down(struct emptying *e, const char *name)
{
	int fd;

	if (e->n == e->cap) {
		size_t cap = e->cap ? e->cap * 2 : 32;
		struct stat *v = realloc(e->above, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		e->above = v;
		e->cap = cap;
	}
	if (fstat(e->fd, &e->above[e->n]) < 0)
		return ret_nerrno();
	fd = open_below(e->fd, name);
	if (fd < 0)
		return fd;
	e->n++;
	(void)close(e->fd);
	e->fd = fd;
	return 0;
}

/* Who has moved it meanwhile would have us go on elsewhere. */
static int go_up(struct emptying *e)
{
	const struct stat *want = &e->above[--e->n];
	int fd = openat(e->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return ret_nerrno();
	(void)close(e->fd);
	e->fd = fd;
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	return st.st_dev == want->st_dev && st.st_ino == want->st_ino ? 0 : -ESTALE;
}

/* Takes away what is no directory that holds something; the first one that is: goes down into it. *ret_down: it did. */
static int sweep(struct emptying *e, bool *ret_down)
{
	int dup_fd = openat(e->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *d = dup_fd < 0 ? NULL : fdopendir(dup_fd);
	struct dirent *n;

	*ret_down = false;
	if (!d) {
		int r = ret_nerrno();

		cleanup_fdp(&dup_fd);
		return r;
	}
	while (errno = 0, n = readdir(d)) {
		if (to_stay(e, n->d_name) || unlinkat(e->fd, n->d_name, 0) == 0)
			continue;
		if (errno != EISDIR && errno != EPERM)
			return ret_nerrno();
		if (unlinkat(e->fd, n->d_name, AT_REMOVEDIR) == 0)
			continue;
		if (errno != ENOTEMPTY && errno != EEXIST)
			return ret_nerrno();
		*ret_down = true;
		return go_down(e, n->d_name);
	}
	return -errno;
}

int emptied(int dir, const struct buf *only)
{
	struct emptying e = {.fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
			     .only = only};
	bool down;
	int r = e.fd < 0 ? ret_nerrno() : 0;

	while (r == 0) {
		r = sweep(&e, &down);
		if (r == 0 && !down && !e.n)
			break;
		if (r == 0 && !down)
			r = go_up(&e);
	}
	cleanup_fdp(&e.fd);
	free(e.above);
	return r;
}
