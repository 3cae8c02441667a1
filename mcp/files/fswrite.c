/* Files made, replaced whole and appended to. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/files/fsio_internal.h"

enum {
	MAX_XATTR = 65536
};

/* ---- temporary files ---- */

#define TEMP_MARK   ".rattan-"
#define TEMP_DIGITS 8

struct temp {
	char name[NAME_MAX + 1];
	int slot; /* of who watches */
};

static void temp_begin(const struct fs_where *w, struct temp *t)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s", w->dir, t->name);

	t->slot = w->watch && n > 0 && (size_t)n < sizeof(path)
			  ? w->watch->begin(w->watch->arg, path)
			  : -1;
}

/* It has another name by now, or none. */
static void temp_end(const struct fs_where *w, const struct temp *t)
{
	if (w->watch)
		w->watch->end(w->watch->arg, t->slot);
}

static void temp_drop(const struct fs_where *w, const struct temp *t)
{
	(void)unlinkat(w->dir_fd, t->name, 0);
	temp_end(w, t);
}

/* A temporary file beside @w; its name begins with a dot and says whose it is. */
static int make_temp(const struct fs_where *w, mode_t mode, struct temp *t, int *ret_fd)
{
	int r = -EEXIST;

	for (int i = 0; i < 100 && r == -EEXIST; i++) {
		uint32_t rnd;

		if (getrandom(&rnd, sizeof(rnd), 0) != sizeof(rnd))
			return ret_nerrno();
		(void)snprintf(t->name, sizeof(t->name), ".%.200s" TEMP_MARK "%0*x", w->name,
			       TEMP_DIGITS, rnd);
		temp_begin(w, t);
		*ret_fd = openat(w->dir_fd, t->name,
				 O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 0777);
		r = *ret_fd < 0 ? ret_nerrno() : 0;
		if (r < 0)
			temp_end(w, t);
	}
	return r;
}

static bool is_temp(const char *name)
{
	const size_t end = strlen(TEMP_MARK) + TEMP_DIGITS, n = strlen(name);

	return name[0] == '.' && n > end &&
	       !strncmp(name + n - end, TEMP_MARK, strlen(TEMP_MARK)) &&
	       strspn(name + n - TEMP_DIGITS, "0123456789abcdef") == TEMP_DIGITS;
}

int fsio_drop_temp(int root_fd, const char *path)
{
	cleanup_where struct fs_where w = {.dir_fd = -1};
	cleanup_fd int fd = -1;
	struct stat st;
	int r = fsio_locate(root_fd, path, false, &w);

	if (r >= 0 && (w.through_link || !is_temp(w.name)))
		return 0;
	if (r >= 0)
		r = fsio_at(&w, &fd, &st);
	if (r >= 0 && S_ISREG(st.st_mode) && unlinkat(w.dir_fd, w.name, 0) < 0)
		r = ret_nerrno();
	return r == -ENOENT || r == -ENOTDIR || r == -EISDIR ? 0 : r;
}

static int fill_temp(int fd, const void *p, size_t n, mode_t mode, struct fs_written *ret)
{
	int r = io_write_full(fd, p, n);

	if (r < 0)
		return r;
	if (fstat(fd, &ret->st) < 0)
		return ret_nerrno();
	/* it was made with this mode: only a umask or special bits need another message */
	if ((ret->st.st_mode & 07777) == mode)
		return 0;
	if (fchmod(fd, mode) < 0 || fstat(fd, &ret->st) < 0)
		return ret_nerrno();
	return 0;
}

/* Give the temporary its name without taking anybody else's. */
static int publish_new(const struct fs_where *w, const char *temp)
{
	if (!renameat2(w->dir_fd, temp, w->dir_fd, w->name, RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return ret_nerrno();
	/* a bound file system without RENAME_NOREPLACE */
	if (linkat(w->dir_fd, temp, w->dir_fd, w->name, 0) < 0)
		return ret_nerrno();
	(void)unlinkat(w->dir_fd, temp, 0);
	return 0;
}

int fsio_create(const struct fs_where *w, const void *p, size_t n, mode_t mode,
		struct fs_written *ret)
{
	struct temp temp;
	cleanup_fd int fd = -1;
	int r = make_temp(w, mode, &temp, &fd);

	if (r < 0)
		return r;
	ret->in_place = NULL;
	r = fill_temp(fd, p, n, mode, ret);
	if (r >= 0)
		r = publish_new(w, temp.name);
	if (r < 0)
		temp_drop(w, &temp);
	else
		temp_end(w, &temp);
	return r;
}

static int copy_xattr(int from, int to, const char *name)
{
	cleanup_free char *value = malloc(MAX_XATTR);
	ssize_t n;

	if (!value)
		return -ENOMEM;
	n = fgetxattr(from, name, value, MAX_XATTR);
	if (n < 0)
		return errno == ENODATA ? 0 : ret_nerrno();
	return fsetxattr(to, name, value, (size_t)n, 0) < 0 ? ret_nerrno() : 0;
}

static int copy_xattrs(int from, int to)
{
	cleanup_free char *names = NULL;
	ssize_t n = flistxattr(from, NULL, 0);

	if (n <= 0)
		return n < 0 && errno != EOPNOTSUPP ? ret_nerrno() : 0;
	names = malloc((size_t)n + 256);
	if (!names)
		return -ENOMEM;
	n = flistxattr(from, names, (size_t)n + 256);
	if (n < 0)
		return ret_nerrno();
	for (const char *s = names; s < names + n; s += strlen(s) + 1) {
		/* labels and capabilities are the system's to give, and a write drops them anyway */
		if (!strncmp(s, "security.", 9) || !strncmp(s, "trusted.", 8))
			continue;
		int r = copy_xattr(from, to, s);

		if (r < 0)
			return r;
	}
	return 0;
}

/* Why a fresh inode under the same name would not be the same file; NULL when it would. */
static const char *why_in_place(const struct fs_where *w, const struct stat *st)
{
	struct stat dir;

	if (st->st_nlink > 1)
		return "hard link";
	/* A rename from outside the mount's namespace would silently detach the bind. */
	if (fstat(w->dir_fd, &dir) < 0 || dir.st_dev != st->st_dev)
		return "bound file";
	return NULL;
}

static int write_in_place(int old_fd, const void *p, size_t n, int mode, struct fs_written *ret)
{
	cleanup_fd int fd = -1;
	int r = fsio_reopen(old_fd, O_WRONLY, &fd);

	if (r < 0)
		return r;
	r = io_write_full(fd, p, n);
	if (r < 0)
		return r;
	if (ftruncate(fd, (off_t)n) < 0 || (mode >= 0 && fchmod(fd, (mode_t)mode) < 0) ||
	    fstat(fd, &ret->st) < 0)
		return ret_nerrno();
	return 0;
}

/* A temporary that is in every way but content the old file. -EPERM: it cannot be made so. */
static int make_twin(int read_fd, int temp_fd, const struct stat *st)
{
	struct stat now;
	int r;

	if (fstat(temp_fd, &now) < 0)
		return ret_nerrno();
	if ((now.st_uid != st->st_uid || now.st_gid != st->st_gid) &&
	    fchown(temp_fd, st->st_uid, st->st_gid) < 0)
		return -EPERM;
	r = copy_xattrs(read_fd, temp_fd);
	return r < 0 && r != -ENOMEM ? -EPERM : r;
}

static int replace_by_rename(const struct fs_where *w, int old_fd, const struct stat *st,
			     const void *p, size_t n, int mode, struct fs_written *ret)
{
	struct temp temp;
	mode_t want = mode >= 0 ? (mode_t)mode : st->st_mode & 07777;
	cleanup_fd int fd = -1, read_fd = -1;
	int r = fsio_reopen(old_fd, O_RDONLY, &read_fd);

	if (r >= 0)
		r = make_temp(w, want, &temp, &fd);
	if (r < 0)
		return r == -EACCES || r == -EROFS ? -EPERM : r;
	r = make_twin(read_fd, fd, st);
	if (r >= 0)
		r = fill_temp(fd, p, n, want, ret);
	if (r >= 0 && renameat(w->dir_fd, temp.name, w->dir_fd, w->name) < 0)
		r = errno == EBUSY || errno == EXDEV ? -EPERM : ret_nerrno();
	if (r < 0)
		temp_drop(w, &temp);
	else
		temp_end(w, &temp);
	return r;
}

int fsio_replace(const struct fs_where *w, const void *p, size_t n, int mode,
		 struct fs_written *ret)
{
	cleanup_fd int old_fd = -1;
	struct stat st;
	int r = fsio_at(w, &old_fd, &st);

	if (r >= 0)
		r = fsio_regular_only(&st);
	if (r < 0)
		return r;
	/* A shell's ">" would be refused: a rename must not get around that. Not by the name, which may be a link to
	 * anywhere on the host by now. */
	if (faccessat(old_fd, "", W_OK, AT_EACCESS | AT_EMPTY_PATH) < 0)
		return ret_nerrno();
	ret->in_place = why_in_place(w, &st);
	if (!ret->in_place) {
		r = replace_by_rename(w, old_fd, &st, p, n, mode, ret);
		if (r != -EPERM)
			return r;
		ret->in_place = "owner or directory not ours";
	}
	return write_in_place(old_fd, p, n, mode, ret);
}

int fsio_append(const struct fs_where *w, const void *p, size_t n, int mode, struct fs_written *ret)
{
	cleanup_fd int path_fd = -1, fd = -1;
	struct stat st;
	int r = fsio_at(w, &path_fd, &st);

	if (r >= 0)
		r = fsio_regular_only(&st);
	if (r >= 0)
		r = fsio_reopen(path_fd, O_WRONLY | O_APPEND, &fd);
	if (r >= 0)
		r = io_write_full(fd, p, n);
	if (r < 0)
		return r;
	if ((mode >= 0 && fchmod(fd, (mode_t)mode) < 0) || fstat(fd, &ret->st) < 0)
		return ret_nerrno();
	ret->in_place = NULL;
	return 0;
}
