#include "apply/copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apply/below.h"
#include "base/cleanup.h"
#include "base/io.h"

#define PIECE     (1u << 20)
#define DEPTH_MAX 2048 /* PATH_MAX has no more */

/* ---- bytes ---- */

static int copy_span(int in, int out, off_t at, off_t end, void *piece)
{
	while (at < end) {
		size_t want = end - at < (off_t)PIECE ? (size_t)(end - at) : PIECE;
		ssize_t n = io_pread_full(in, piece, want, at);
		int r;

		if (n <= 0)
			return n < 0 ? (int)n : -EAGAIN; /* shorter than it was */
		if (lseek(out, at, SEEK_SET) < 0)
			return ret_nerrno();
		r = io_write_full(out, piece, (size_t)n);
		if (r < 0)
			return r;
		at += n;
	}
	return 0;
}

static int copy_content(int in, int out, off_t size)
{
	cleanup_free void *piece = malloc(PIECE);
	off_t at = 0;
	int r = 0;

	if (!piece)
		return -ENOMEM;
	while (r == 0 && at < size) {
		off_t data = lseek(in, at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			break;
		if (data < 0) /* it cannot tell */
			data = at;
		hole = lseek(in, data, SEEK_HOLE);
		if (hole <= data || hole > size)
			hole = size;
		r = copy_span(in, out, data, hole, piece);
		at = hole;
	}
	if (r == 0 && ftruncate(out, size) < 0)
		r = ret_nerrno();
	return r;
}

static bool same_version(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int make_file(int in, int dir, const char *name, int *ret_fd)
{
	cleanup_fd int out = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct stat before, after;
	int r;

	if (out < 0 || fstat(in, &before) < 0)
		return ret_nerrno();
	r = copy_content(in, out, before.st_size);
	if (r == 0 && fstat(in, &after) < 0)
		r = ret_nerrno();
	if (r == 0 && !same_version(&before, &after))
		r = -EAGAIN;
	if (r == 0)
		*ret_fd = steal_fd(&out);
	return r;
}

/* ---- one thing ---- */

static int finish(int dir, const char *name, const struct attrs *a, unsigned what)
{
	cleanup_fd int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? ret_nerrno() : attrs_set(fd, a, what);
}

static int make_link(const struct copy_from *from, int dir, const char *name)
{
	char target[4097];
	ssize_t n = readlinkat(from->dir, from->name, target, sizeof(target) - 1);

	if (n < 0)
		return ret_nerrno();
	target[n] = '\0';
	return symlinkat(target, dir, name) < 0 ? ret_nerrno() : 0;
}

static int make_node(const struct stat *st, int dir, const char *name)
{
	if (S_ISSOCK(st->st_mode))
		return -EOPNOTSUPP;
	if (mknodat(dir, name, (st->st_mode & S_IFMT) | 0600, st->st_rdev) < 0)
		return errno == EPERM ? -EOPNOTSUPP : ret_nerrno();
	return 0;
}

static int copy_file(const struct copy_from *from, const struct stat *st, int dir, const char *name,
		     const struct attrs *a)
{
	cleanup_fd int in = below_read(from->dir, from->name, st), out = -1;
	int r = in < 0 ? in : make_file(in, dir, name, &out);

	return r < 0 ? r : attrs_set(out, a, ATTRS_ALL);
}

static int load(const struct copy_from *from, struct stat *ret_st, struct attrs *ret)
{
	cleanup_fd int fd = openat(from->dir, from->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, ret_st) < 0)
		return ret_nerrno();
	return attrs_get(fd, ret);
}

static int copy_tree(const struct copy_from *from, int dir, const char *name, unsigned depth,
		     bool inside, struct attrs *ret);

static int copy_inside(const struct copy_from *from, const struct stat *st, int dir,
		       const char *name, unsigned depth)
{
	cleanup_fd int fd = below_read(from->dir, from->name, st);
	cleanup_fd int to = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_dir DIR *d = NULL;
	int r = fd < 0 ? fd : to < 0 ? ret_nerrno() : 0;

	if (r < 0)
		return r;
	d = fdopendir(fd);
	if (!d)
		return ret_nerrno();
	(void)steal_fd(&fd);
	for (struct dirent *e; r == 0 && (errno = 0, e = readdir(d));) {
		const struct copy_from child = {dirfd(d), e->d_name};

		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = copy_tree(&child, to, e->d_name, depth + 1, true, NULL);
	}
	if (r == 0 && errno)
		r = ret_nerrno();
	return r;
}

/* As below_read left it open. */
static void close_again(const struct copy_from *from, const struct stat *st)
{
	const struct attrs was = {.mode = st->st_mode};

	if ((st->st_mode & 0500) != 0500 && st->st_uid == geteuid())
		(void)!finish(from->dir, from->name, &was, ATTRS_MODE);
}

static int copy_dir(const struct copy_from *from, const struct stat *st, int dir, const char *name,
		    const struct attrs *a, unsigned depth, bool inside)
{
	int r = mkdirat(dir, name, 0700) < 0 ? ret_nerrno() : 0;

	if (r == 0 && depth == DEPTH_MAX)
		r = -ENAMETOOLONG;
	if (r == 0 && inside) {
		r = copy_inside(from, st, dir, name, depth);
		close_again(from, st);
	}
	if (r == 0)
		r = finish(dir, name, a, depth ? ATTRS_ALL : ATTRS_ALL & ~(unsigned)ATTRS_MODE);
	return r;
}

static int copy_tree(const struct copy_from *from, int dir, const char *name, unsigned depth,
		     bool inside, struct attrs *ret)
{
	cleanup_attrs struct attrs a = {0};
	struct stat st;
	int r = load(from, &st, &a);

	if (r < 0)
		return r;
	if (S_ISDIR(st.st_mode)) {
		r = copy_dir(from, &st, dir, name, &a, depth, inside);
	} else if (S_ISREG(st.st_mode)) {
		r = copy_file(from, &st, dir, name, &a);
	} else {
		r = S_ISLNK(st.st_mode) ? make_link(from, dir, name) : make_node(&st, dir, name);
		if (r == 0)
			r = finish(dir, name, &a, ATTRS_ALL);
	}
	if (r == 0 && ret) {
		*ret = a;
		a = (struct attrs){0};
	}
	return r;
}

int copy_all(const struct copy_from *from, int dir, const char *name, struct attrs *ret)
{
	return copy_tree(from, dir, name, 0, true, ret);
}

int copy_alone(const struct copy_from *from, int dir, const char *name, struct attrs *ret)
{
	return copy_tree(from, dir, name, 0, false, ret);
}

int copy_bytes(const struct copy_from *from, int fd, int dir, const char *name, struct attrs *ret)
{
	cleanup_attrs struct attrs a = {0};
	cleanup_fd int out = -1;
	struct stat st;
	int r = load(from, &st, &a);

	if (r == 0)
		r = make_file(fd, dir, name, &out);
	if (r == 0)
		r = attrs_set(out, &a, ATTRS_ALL);
	if (r == 0 && ret) {
		*ret = a;
		a = (struct attrs){0};
	}
	return r;
}
