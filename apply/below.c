#include "apply/below.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

static int open_at(int root, const char *path, uint64_t flags)
{
	const struct open_how how = {.flags = flags | O_CLOEXEC,
				     .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
						RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
	long fd;

	do {
		fd = syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof(how));
	} while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd < 0 ? ret_nerrno() : (int)fd;
}

int below_dir(int root, const char *path)
{
	return open_at(root, path, O_PATH | O_DIRECTORY);
}

int below_parent(int root, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *dir = NULL;

	if (!*path)
		return -EINVAL;
	*ret_name = slash ? slash + 1 : path;
	dir = strndup(path, slash ? (size_t)(slash - path) : 0);
	return dir ? below_dir(root, dir) : -ENOMEM;
}

int below_open(int root, const char *path)
{
	const char *name;
	cleanup_fd int dir = -1;
	int fd;

	if (!*path)
		return below_dir(root, path);
	dir = below_parent(root, path, &name);
	if (dir < 0)
		return dir;
	/* A last component that is a link is opened itself, which RESOLVE_NO_SYMLINKS would refuse. */
	fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? ret_nerrno() : fd;
}

int below_stat(int root, const char *path, struct stat *ret)
{
	cleanup_fd int dir = -1;
	struct stat up;
	const char *name;

	if (!*path)
		return fstat(root, ret) < 0 ? ret_nerrno() : 0;
	dir = below_parent(root, path, &name);
	if (dir < 0)
		return dir;
	if (fstatat(dir, name, ret, AT_SYMLINK_NOFOLLOW) < 0 || fstat(dir, &up) < 0)
		return ret_nerrno();
	/* What is mounted there is not the directory's. */
	return ret->st_dev == up.st_dev ? 0 : -EXDEV;
}

static int read_at(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	return fd < 0 ? ret_nerrno() : fd;
}

/* fchmodat(2) that follows nothing: by the descriptor's name. */
static int chmod_path(int dir, const char *name, mode_t mode)
{
	cleanup_fd int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char path[40];

	if (fd < 0)
		return ret_nerrno();
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return chmod(path, mode) < 0 ? ret_nerrno() : 0;
}

int below_read(int dir, const char *name, const struct stat *st)
{
	mode_t more = S_ISDIR(st->st_mode) ? 0500 : 0400;
	int fd = read_at(dir, name), r;

	if (fd != -EACCES || st->st_uid != geteuid() || (st->st_mode & more) == more)
		return fd;
	r = chmod_path(dir, name, (st->st_mode & 07777) | more);
	if (r < 0)
		return r;
	fd = read_at(dir, name);
	/* The directory's names are looked up while it is open; the caller closes it again. */
	if (fd < 0 || !S_ISDIR(st->st_mode))
		(void)chmod_path(dir, name, st->st_mode & 07777);
	return fd;
}

static int remove_inside(int dir, const char *name)
{
	cleanup_fd int fd = -1;
	cleanup_dir DIR *d = NULL;
	struct stat st;
	int r = 0;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return ret_nerrno();
	if ((st.st_mode & 0700) != 0700)
		(void)chmod_path(dir, name, 0700);
	fd = read_at(dir, name);
	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d)
		return ret_nerrno();
	(void)steal_fd(&fd);
	for (struct dirent *e; r == 0 && (errno = 0, e = readdir(d));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = below_remove(dirfd(d), e->d_name);
	return r;
}

int below_remove(int dir, const char *name)
{
	int r;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return ret_nerrno();
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
		return 0;
	r = remove_inside(dir, name);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? ret_nerrno() : 0;
}
