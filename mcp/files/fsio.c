#include "mcp/files/fsio.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

enum {
	MAX_LINKS = 40,
	MAX_XATTR = 65536
};

static int open_in(int root_fd, const char *path, uint64_t flags, int *ret_fd)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};

	for (int tries = 0;; tries++) {
		long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));

		if (fd >= 0) {
			*ret_fd = (int)fd;
			return 0;
		}
		/* EAGAIN: a rename raced with "..", which the kernel will not follow blindly */
		if (errno != EINTR && (errno != EAGAIN || tries > 100))
			return ret_nerrno();
	}
}

/* Open the very inode behind an O_PATH descriptor: no second walk, nothing can be swapped in. */
static int reopen(int path_fd, int flags, int *ret_fd)
{
	char link[40];

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	int fd = open(link, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0)
		return ret_nerrno();
	*ret_fd = fd;
	return 0;
}

int fsio_lookup(int root_fd, const char *path, int *ret_fd, struct stat *ret_st)
{
	cleanup_fd int fd = -1;
	int r = open_in(root_fd, path, O_PATH, &fd);

	if (r < 0)
		return r;
	if (fstat(fd, ret_st) < 0)
		return ret_nerrno();
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int regular_only(const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return 0;
	return S_ISDIR(st->st_mode) ? -EISDIR : -EOPNOTSUPP;
}

int fsio_open_read(int root_fd, const char *path, int *ret_fd, struct stat *ret_st)
{
	cleanup_fd int fd = -1;
	int r = fsio_lookup(root_fd, path, &fd, ret_st);

	if (r >= 0)
		r = regular_only(ret_st);
	return r < 0 ? r : reopen(fd, O_RDONLY, ret_fd);
}

int fsio_open_dir(int root_fd, const char *path, int *ret_fd)
{
	return open_in(root_fd, path, O_RDONLY | O_DIRECTORY, ret_fd);
}

int fsio_read_all(int fd, size_t hint, size_t max, struct buf *out)
{
	size_t want = hint < max ? hint + 1 : max + 1;
	int r;

	for (;;) {
		r = buf_reserve(out, want + 1);
		if (r < 0)
			return r;

		ssize_t n = io_pread_full(fd, out->data + out->len, want, (off_t)out->len);

		if (n < 0)
			return (int)n;
		out->len += (size_t)n;
		out->data[out->len] = 0;
		if (out->len > max)
			return -EFBIG;
		if ((size_t)n < want)
			return 0;
		want = 65536;
	}
}

void fsio_where_release(struct fs_where *w)
{
	int saved = errno;

	if (w->dir_fd >= 0)
		(void)close(w->dir_fd);
	w->dir_fd = -1;
	errno = saved;
}

/* Make each missing directory of @path. A component made by somebody else meanwhile is fine. */
static int make_dirs(int root_fd, const char *path)
{
	cleanup_free char *s = strdup(path);

	if (!s)
		return -ENOMEM;
	for (char *end = s + 1;; end++) {
		cleanup_fd int fd = -1;
		char *slash = strchr(end, '/');
		int r;

		if (slash)
			*slash = 0;
		r = open_in(root_fd, s, O_PATH | O_DIRECTORY, &fd);
		if (r == -ENOENT) {
			char *name = strrchr(s, '/');
			cleanup_fd int up = -1;

			*name = 0;
			r = open_in(root_fd, *s ? s : "/", O_PATH | O_DIRECTORY, &up);
			*name = '/';
			if (r < 0)
				return r;
			if (mkdirat(up, name + 1, 0755) < 0 && errno != EEXIST)
				return ret_nerrno();
		} else if (r < 0) {
			return r;
		}
		if (!slash)
			return 0;
		*slash = '/';
		end = slash;
	}
}

/* The target of the symlink @name in @dir_fd as a path from the root; -EINVAL when it is none. */
static int link_target(int dir_fd, const char *dir, const char *name, char **ret)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dir_fd, name, target, sizeof(target) - 1);

	if (n < 0)
		return ret_nerrno();
	target[n] = 0;
	if (target[0] == '/') {
		*ret = strdup(target);
		return *ret ? 0 : -ENOMEM;
	}
	return asprintf(ret, "%s/%s", dir, target) < 0 ? -ENOMEM : 0;
}

int fsio_locate(int root_fd, const char *path, bool mkdirs, struct fs_where *ret)
{
	cleanup_free char *cur = strdup(path);
	bool through = false;

	if (!cur)
		return -ENOMEM;
	for (int i = 0; i < MAX_LINKS; i++) {
		cleanup_fd int dir = -1;
		cleanup_free char *next = NULL;
		char *slash = strrchr(cur, '/');
		const char *name = slash ? slash + 1 : "";
		int r;

		if (!slash || !*name || !strcmp(name, ".") || !strcmp(name, ".."))
			return -EISDIR;
		if (strlen(name) > NAME_MAX)
			return -ENAMETOOLONG;
		*slash = 0;
		r = open_in(root_fd, *cur ? cur : "/", O_RDONLY | O_DIRECTORY, &dir);
		if (r == -ENOENT && mkdirs) {
			r = make_dirs(root_fd, cur);
			if (r >= 0)
				r = open_in(root_fd, *cur ? cur : "/", O_RDONLY | O_DIRECTORY,
					    &dir);
		}
		if (r < 0)
			return r;
		r = link_target(dir, cur, name, &next);
		if (r == -EINVAL || r == -ENOENT) {
			(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
			ret->dir_fd = steal_fd(&dir);
			ret->through_link = through;
			return 0;
		}
		if (r < 0)
			return r;
		free(cur);
		cur = steal_ptr(&next);
		through = true;
	}
	return -ELOOP;
}

int fsio_lock_dir(const struct fs_where *w, unsigned wait_ms)
{
	static const struct timespec nap = {.tv_nsec = 2000000};
	long long until = io_now_ms() + wait_ms;

	/* The directory and not the file: a replaced file is another inode, and programs lock files. */
	while (flock(w->dir_fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return ret_nerrno();
		if (io_now_ms() >= until)
			return -EBUSY;
		(void)nanosleep(&nap, NULL);
	}
	return 0;
}

int fsio_at(const struct fs_where *w, int *ret_fd, struct stat *ret_st)
{
	cleanup_fd int fd = openat(w->dir_fd, w->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, ret_st) < 0)
		return ret_nerrno();
	*ret_fd = steal_fd(&fd);
	return 0;
}

int fsio_at_read(const struct fs_where *w, int *ret_fd, struct stat *ret_st)
{
	cleanup_fd int fd = -1;
	int r = fsio_at(w, &fd, ret_st);

	if (r >= 0)
		r = regular_only(ret_st);
	return r < 0 ? r : reopen(fd, O_RDONLY, ret_fd);
}

/* A temporary file beside @w; its name begins with a dot and says whose it is. */
static int make_temp(const struct fs_where *w, mode_t mode, char name[static NAME_MAX + 1],
		     int *ret_fd)
{
	for (int i = 0; i < 100; i++) {
		uint32_t rnd;

		if (getrandom(&rnd, sizeof(rnd), 0) != sizeof(rnd))
			return ret_nerrno();
		(void)snprintf(name, NAME_MAX + 1, ".%.200s.rattan-%08x", w->name, rnd);
		int fd = openat(w->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
				mode & 0777);

		if (fd >= 0) {
			*ret_fd = fd;
			return 0;
		}
		if (errno != EEXIST)
			return ret_nerrno();
	}
	return -EEXIST;
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
	char temp[NAME_MAX + 1];
	cleanup_fd int fd = -1;
	int r = make_temp(w, mode, temp, &fd);

	if (r < 0)
		return r;
	ret->in_place = NULL;
	r = fill_temp(fd, p, n, mode, ret);
	if (r >= 0)
		r = publish_new(w, temp);
	if (r < 0)
		(void)unlinkat(w->dir_fd, temp, 0);
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
	int r = reopen(old_fd, O_WRONLY, &fd);

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
	char temp[NAME_MAX + 1];
	mode_t want = mode >= 0 ? (mode_t)mode : st->st_mode & 07777;
	cleanup_fd int fd = -1, read_fd = -1;
	int r = reopen(old_fd, O_RDONLY, &read_fd);

	if (r >= 0)
		r = make_temp(w, want, temp, &fd);
	if (r < 0)
		return r == -EACCES || r == -EROFS ? -EPERM : r;
	r = make_twin(read_fd, fd, st);
	if (r >= 0)
		r = fill_temp(fd, p, n, want, ret);
	if (r >= 0 && renameat(w->dir_fd, temp, w->dir_fd, w->name) < 0)
		r = errno == EBUSY || errno == EXDEV ? -EPERM : ret_nerrno();
	if (r < 0)
		(void)unlinkat(w->dir_fd, temp, 0);
	return r;
}

int fsio_replace(const struct fs_where *w, const void *p, size_t n, int mode,
		 struct fs_written *ret)
{
	cleanup_fd int old_fd = -1;
	struct stat st;
	int r = fsio_at(w, &old_fd, &st);

	if (r >= 0)
		r = regular_only(&st);
	if (r < 0)
		return r;
	/* A shell's ">" would be refused: a rename must not get around that. */
	if (faccessat(w->dir_fd, w->name, W_OK, AT_EACCESS) < 0)
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
		r = regular_only(&st);
	if (r >= 0)
		r = reopen(path_fd, O_WRONLY | O_APPEND, &fd);
	if (r >= 0)
		r = io_write_full(fd, p, n);
	if (r < 0)
		return r;
	if ((mode >= 0 && fchmod(fd, (mode_t)mode) < 0) || fstat(fd, &ret->st) < 0)
		return ret_nerrno();
	ret->in_place = NULL;
	return 0;
}
