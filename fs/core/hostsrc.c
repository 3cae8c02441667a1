#include "fs/core/hostsrc_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

#define CACHE_MAX     128
#define CACHE_MIN     4
#define PINS_MAX      4096
#define ALL_MAX       65536
#define RACY_NS       (20 * 1000 * 1000LL)
#define HOST_INO_BITS 40
#define OPEN_TRIES    100
#define NLINK_TRIES   8

static int open_once(const struct hostsrc *h, const char *rel, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd = -1;

	/* EAGAIN: a rename ran beside the walk and the kernel could not prove "beneath" */
	for (int tries = 0; tries < OPEN_TRIES && fd < 0; tries++) {
		fd = syscall(SYS_openat2, h->root_fd, *rel ? rel : ".", &how, sizeof how);
		if (fd < 0 && errno != EINTR && errno != EAGAIN)
			break;
	}
	return fd < 0 ? ret_nerrno() : (int)fd;
}

int hostsrc_open_below(struct hostsrc *h, const char *rel, int flags)
{
	int fd = open_once(h, rel, flags);

	if (fd != -EMFILE && fd != -ENFILE)
		return fd;
	hostfile_trim(h);
	hostpins_trim(&h->pins, 0);
	return open_once(h, rel, flags);
}

/* May everyone read it? Others see such a file as not there (REC_ORIGIN_PUBLIC). */
static bool is_public(const struct stat *st)
{
	switch (st->st_mode & S_IFMT) {
	case S_IFREG:
	case S_IFIFO:
	case S_IFSOCK:
		return st->st_mode & S_IROTH;
	case S_IFDIR:
		return (st->st_mode & (S_IROTH | S_IXOTH)) == (S_IROTH | S_IXOTH);
	case S_IFLNK:
		return true;
	default:
		return false;
	}
}

bool hostsrc_shown(const struct hostsrc *h, const struct stat *st)
{
	return !(h->flags & REC_ORIGIN_PUBLIC) || is_public(st);
}

/* There are other uses of descriptors. */
static unsigned share_of_descriptors(unsigned part, unsigned most)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_cur / part >= most)
		return most;
	return rl.rlim_cur / part < CACHE_MIN ? CACHE_MIN : (unsigned)rl.rlim_cur / part;
}

/* What was a directory when it was laid over the tree is not followed to where a link leads now. */
static int open_root(const char *root)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, AT_FDCWD, root, &how, sizeof how);
}

void hostsrc_all_init(struct hostsrc_all *a)
{
	atomic_init(&a->files, 0);
	atomic_init(&a->held, 0);
	a->max = share_of_descriptors(4, ALL_MAX);
}

int hostsrc_open(const char *root, unsigned flags, unsigned index, struct hostsrc_all *all,
		 struct hostsrc **ret)
{
	struct hostsrc *h;
	struct stat st;
	int r;

	if (root[0] != '/' || index >= 1024)
		return -EINVAL;
	h = calloc(1, sizeof *h);
	if (!h)
		return -ENOMEM;
	h->flags = flags;
	h->index = index;
	hostsrc_all_init(&h->own);
	h->all = all ? all : &h->own;
	r = hostfile_init(h, share_of_descriptors(16, CACHE_MAX));
	if (r < 0) {
		free(h);
		return r;
	}
	r = hostpins_init(&h->pins, share_of_descriptors(16, PINS_MAX), &h->all->held, h->all->max);
	if (r < 0) {
		hostfile_release(h);
		free(h);
		return r;
	}
	h->root_fd = open_root(root);
	if (h->root_fd < 0 || fstat(h->root_fd, &st) < 0)
		r = ret_nerrno();
	h->root = strdup(root);
	if (r == 0 && !h->root)
		r = -ENOMEM;
	if (r < 0) {
		hostsrc_close(h);
		return r;
	}
	h->dev = st.st_dev;
	*ret = h;
	return 0;
}

void hostsrc_close(struct hostsrc *h)
{
	if (!h)
		return;
	hostfile_release(h);
	hostpins_release(&h->pins);
	if (h->root_fd >= 0)
		(void)close(h->root_fd);
	free(h->root);
	free(h);
}

const char *hostsrc_root(const struct hostsrc *h)
{
	return h->root;
}

unsigned hostsrc_flags(const struct hostsrc *h)
{
	return h->flags;
}

static int stat_below(struct hostsrc *h, const char *rel, struct stat *ret, int *ret_fd)
{
	cleanup_fd int fd = hostsrc_open_below(h, rel, O_PATH | O_NOFOLLOW);

	if (fd < 0)
		return fd;
	if (fstat(fd, ret) < 0)
		return ret_nerrno();
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int stat_open(struct hostsrc *h, const char *rel, struct stat *ret, int *ret_fd)
{
	cleanup_fd int fd = -1;
	struct stat st;
	int r = stat_below(h, rel, &st, &fd);

	/* No link: it was removed or replaced between the two calls; look again. A file system that
	 * counts no links says so each time: one name is what we came by. */
	for (int tries = 0; r == 0 && st.st_nlink == 0 && tries < NLINK_TRIES; tries++) {
		(void)close(steal_fd(&fd));
		r = stat_below(h, rel, &st, &fd);
	}
	if (r < 0)
		return r;
	if (st.st_nlink == 0)
		st.st_nlink = 1;
	if (!hostsrc_shown(h, &st))
		return -ENOENT;
	*ret = st;
	*ret_fd = steal_fd(&fd);
	return 0;
}

int hostsrc_stat(struct hostsrc *h, const char *rel, struct stat *ret)
{
	cleanup_fd int fd = -1;

	return stat_open(h, rel, ret, &fd);
}

int hostsrc_look(struct hostsrc *h, const char *rel, struct stat *ret)
{
	cleanup_fd int fd = -1;
	int r = stat_open(h, rel, ret, &fd);

	if (r == 0 && S_ISREG(ret->st_mode))
		hostpins_put(&h->pins, ret->st_dev, ret->st_ino, steal_fd(&fd));
	return r;
}

int hostsrc_dir(struct hostsrc *h, const char *rel, int *ret_fd)
{
	int fd = hostsrc_open_below(h, rel, O_PATH | O_DIRECTORY | O_NOFOLLOW);

	if (fd < 0)
		return fd;
	*ret_fd = fd;
	return 0;
}

static void hold(struct hostsrc *h, int dir_fd, const char *name, const struct stat *st)
{
	cleanup_fd int fd = -1;
	struct stat is;

	if (hostpins_use(&h->pins, st->st_dev, st->st_ino) != 0)
		return;
	fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &is) == 0 && is.st_dev == st->st_dev && is.st_ino == st->st_ino)
		hostpins_put(&h->pins, st->st_dev, st->st_ino, steal_fd(&fd));
}

int hostsrc_look_in(struct hostsrc *h, int dir_fd, const char *name, struct stat *ret)
{
	struct stat st;
	int r = fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? ret_nerrno() : 0;

	/* As in stat_open. */
	for (int tries = 0; r == 0 && st.st_nlink == 0 && tries < NLINK_TRIES; tries++)
		r = fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? ret_nerrno() : 0;
	if (r < 0)
		return r;
	if (st.st_nlink == 0)
		st.st_nlink = 1;
	if (!hostsrc_shown(h, &st))
		return -ENOENT;
	if (S_ISREG(st.st_mode))
		hold(h, dir_fd, name, &st);
	*ret = st;
	return 0;
}

bool hostsrc_nameless(struct hostsrc *h, long long age_ms,
		      void (*fn)(void *arg, uint64_t dev, uint64_t ino), void *arg)
{
	return hostpins_nameless(&h->pins, age_ms, fn, arg);
}

store_ino hostsrc_ino(const struct hostsrc *h, const struct stat *st)
{
	if (st->st_dev != h->dev || st->st_ino >> HOST_INO_BITS)
		return 0;
	return STORE_HOST_INO | (uint64_t)h->index << HOST_INO_BITS | st->st_ino;
}

int hostsrc_readlink(struct hostsrc *h, const char *rel, char ret_target[static 4096])
{
	cleanup_fd int fd = hostsrc_open_below(h, rel, O_PATH | O_NOFOLLOW);
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return fd;
	/* readlinkat(2) of an empty path gives ENOENT, not EINVAL, for what is no symlink */
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (!S_ISLNK(st.st_mode))
		return -EINVAL;
	n = readlinkat(fd, "", ret_target, 4095);
	if (n < 0)
		return ret_nerrno();
	ret_target[n] = '\0';
	return 0;
}

static int list_one(struct hostsrc *h, int fd, const struct dirent *d,
		    int (*fn)(void *arg, const char *name, uint64_t ino, unsigned type), void *arg)
{
	unsigned type = d->d_type;

	if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
		return 0;
	if (type == DT_UNKNOWN || ((h->flags & REC_ORIGIN_PUBLIC) && type != DT_LNK)) {
		struct stat st;

		/* What cannot be looked at (a mount of somebody else's, or whose server is gone) is
		 * not for everyone to read; without that rule its name is enough. */
		if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
			if (errno == ENOENT || errno == ENOMEM || h->flags & REC_ORIGIN_PUBLIC)
				return errno == ENOMEM ? -ENOMEM : 0;
		} else if (!hostsrc_shown(h, &st)) {
			return 0;
		} else {
			type = IFTODT(st.st_mode);
		}
	}
	return fn(arg, d->d_name, d->d_ino, type);
}

int hostsrc_list(struct hostsrc *h, const char *rel,
		 int (*fn)(void *arg, const char *name, uint64_t ino, unsigned type), void *arg)
{
	cleanup_fd int fd = hostsrc_open_below(h, rel, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	cleanup_dir DIR *dir = NULL;
	struct stat st;
	int r = 0;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (!hostsrc_shown(h, &st))
		return -ENOENT;
	dir = fdopendir(fd);
	if (!dir)
		return ret_nerrno();
	(void)steal_fd(&fd); /* the DIR closes it */
	while (r == 0) {
		const struct dirent *d;

		errno = 0;
		d = readdir(dir);
		if (!d)
			return errno ? ret_nerrno() : 0;
		r = list_one(h, dirfd(dir), d, fn, arg);
	}
	return r;
}

void hostsrc_id_of(const struct stat *st, struct hostsrc_id *ret)
{
	*ret = (struct hostsrc_id){
		.dev = st->st_dev,
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.mtime = st->st_mtim,
	};
}

bool hostsrc_racy(const struct stat *st)
{
	struct timespec now;
	long long age;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	age = (now.tv_sec - st->st_mtim.tv_sec) * 1000000000LL + now.tv_nsec - st->st_mtim.tv_nsec;
	return age > -RACY_NS && age < RACY_NS;
}

/* ---- extended attributes: through /proc, because an O_PATH descriptor has none of its own ---- */

static int xattr_path(struct hostsrc *h, const char *rel, int *ret_fd, char path[static 32])
{
	cleanup_fd int fd = hostsrc_open_below(h, rel, O_PATH | O_NOFOLLOW);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (!hostsrc_shown(h, &st))
		return -ENOENT;
	(void)snprintf(path, 32, "/proc/self/fd/%d", fd);
	*ret_fd = steal_fd(&fd);
	return 0;
}

ssize_t hostsrc_getxattr(struct hostsrc *h, const char *rel, const char *name, void *value,
			 size_t size)
{
	cleanup_fd int fd = -1;
	char path[32];
	int r = xattr_path(h, rel, &fd, path);
	ssize_t n;

	if (r < 0)
		return r;
	n = getxattr(path, name, value, size);
	return n < 0 ? ret_nerrno() : n;
}

ssize_t hostsrc_listxattr(struct hostsrc *h, const char *rel, char *list, size_t size)
{
	cleanup_fd int fd = -1;
	char path[32];
	int r = xattr_path(h, rel, &fd, path);
	ssize_t n;

	if (r < 0)
		return r;
	n = listxattr(path, list, size);
	return n < 0 ? ret_nerrno() : n;
}
