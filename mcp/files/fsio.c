#include "mcp/files/fsio_internal.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

enum {
	MAX_LINKS = 40
};

static int open_resolved(int dir_fd, const char *path, uint64_t flags, uint64_t resolve,
			 int *ret_fd)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.resolve = resolve | RESOLVE_NO_MAGICLINKS,
	};

	for (int tries = 0;; tries++) {
		long fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));

		if (fd >= 0) {
			*ret_fd = (int)fd;
			return 0;
		}
		/* EAGAIN: a rename raced with "..", which the kernel will not follow blindly */
		if (errno != EINTR && (errno != EAGAIN || tries > 100))
			return ret_nerrno();
	}
}

static int open_in(int root_fd, const char *path, uint64_t flags, int *ret_fd)
{
	return open_resolved(root_fd, path, flags, RESOLVE_IN_ROOT, ret_fd);
}

int fsio_reopen(int path_fd, int flags, int *ret_fd)
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

int fsio_regular_only(const struct stat *st)
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
		r = fsio_regular_only(ret_st);
	return r < 0 ? r : fsio_reopen(fd, O_RDONLY, ret_fd);
}

int fsio_open_below(int dir_fd, const char *path, int *ret_fd, struct stat *ret_st)
{
	cleanup_fd int fd = -1;
	int r = open_resolved(dir_fd, path, O_PATH | O_NOFOLLOW, RESOLVE_BENEATH, &fd);

	if (r >= 0 && fstat(fd, ret_st) < 0)
		r = ret_nerrno();
	if (r >= 0)
		r = fsio_regular_only(ret_st);
	return r < 0 ? r : fsio_reopen(fd, O_RDONLY, ret_fd);
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
	free(w->dir);
	w->dir = NULL;
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
			ret->dir = steal_ptr(&cur);
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
		r = fsio_regular_only(ret_st);
	return r < 0 ? r : fsio_reopen(fd, O_RDONLY, ret_fd);
}
