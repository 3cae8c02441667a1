#include "client/fence.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

#define DEPTH_MAX 64

#define SHARE_TRIES    100
#define SHARE_PAUSE_US 20000

static int open_in(int root_fd, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = {.flags = flags | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | resolve};
	long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));

	return fd < 0 ? ret_nerrno() : (int)fd;
}

/* Cut @path down to what exists; never to "/", for that would open everything: what is missing there is made, or where that may
 * not be, nothing of it can be ("" then). */
static void cut(int root_fd, char *path)
{
	for (;;) {
		cleanup_fd int fd = open_in(root_fd, path, O_PATH, 0);
		cleanup_fd int made = -1;
		char *slash = strrchr(path, '/');

		if (fd != -ENOENT && fd != -EACCES)
			return;
		if (slash != path) {
			*slash = 0;
			continue;
		}
		if (path[1] && mkdirat(root_fd, path + 1, 0755) == 0)
			made = open_in(root_fd, path, O_PATH, 0);
		if (made < 0)
			*path = 0;
		return;
	}
}

/* Is @path one of the lines of @list? */
static bool listed(const char *list, const char *path)
{
	size_t n = strlen(path);

	for (; list && *list; list = strchr(list, '\n') ? strchr(list, '\n') + 1 : NULL)
		if (!strncmp(list, path, n) && (!list[n] || list[n] == '\n'))
			return true;
	return false;
}

int fence_places(int root_fd, const char *writable, char *ret, size_t size)
{
	size_t used = 0;

	if (!size)
		return -E2BIG;
	ret[0] = 0;
	while (*writable) {
		size_t n = strcspn(writable, "\n");
		cleanup_free char *path = strndup(writable, n);

		if (!path)
			return -ENOMEM;
		writable += n + (writable[n] == '\n');
		if (path[0] != '/')
			continue;
		cut(root_fd, path);
		if (!*path || listed(ret, path))
			continue;
		n = strlen(path);
		if (used + n + 2 > size)
			return -E2BIG;
		if (used)
			ret[used++] = '\n';
		memcpy(ret + used, path, n + 1);
		used += n;
	}
	return 0;
}

/* ---- temporary files ---- */

struct sweep {
	int top_fd;
	unsigned hoisted;
};

static int empty(struct sweep *s, int dir_fd, unsigned depth);

/* What lies deeper than descriptors should be open goes to the top, where it is met again. */
static int hoist(struct sweep *s, int dir_fd, const char *name)
{
	char place[32];

	for (;;) {
		(void)snprintf(place, sizeof(place), "deep-%u", s->hoisted++);
		if (renameat2(dir_fd, name, s->top_fd, place, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno != EEXIST)
			return ret_nerrno();
	}
}

static int remove_one(struct sweep *s, int dir_fd, const char *name, unsigned depth)
{
	int fd, r;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return ret_nerrno();
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* Whoever left it may have closed it to themselves. */
	if (fd < 0 && errno == EACCES && fchmodat(dir_fd, name, 0700, AT_SYMLINK_NOFOLLOW) == 0)
		fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return ret_nerrno();
	(void)fchmod(fd, 0700);
	r = depth ? empty(s, fd, depth - 1) : hoist(s, dir_fd, name);
	(void)close(fd);
	if (r < 0 || !depth)
		return r;
	return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 ? ret_nerrno() : 0;
}

static int empty(struct sweep *s, int dir_fd, unsigned depth)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	cleanup_dir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (!d) {
		if (fd >= 0)
			(void)close(fd);
		return ret_nerrno();
	}
	while (r == 0 && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = remove_one(s, dir_fd, e->d_name, depth);
	return r;
}

/* However deep it is: whoever left it may want that nobody can. */
static int empty_all(int dir_fd)
{
	struct sweep s = {.top_fd = dir_fd};
	unsigned before;
	int r;

	do {
		before = s.hoisted;
		r = empty(&s, dir_fd, DEPTH_MAX);
	} while (r == 0 && s.hoisted != before);
	return r;
}

/* The directory at @path, made when it is not there. */
static int open_made(int root_fd, const char *path, struct diag *diag, int *ret_fd)
{
	cleanup_free char *up = strdup(path);
	cleanup_fd int parent = -1;
	char *slash = up ? strrchr(up, '/') : NULL;

	if (!slash)
		return up ? -EINVAL : -ENOMEM;
	*slash = 0;
	parent = open_in(root_fd, *up ? up : "/", O_PATH | O_DIRECTORY, 0);
	if (parent < 0)
		return diag_set(diag, parent, "%s, where the session's directory lies: %s",
				*up ? up : "/", err_text(parent));
	if (mkdirat(parent, slash + 1, 0700) < 0 && errno != EEXIST)
		return ret_nerrno();
	*ret_fd = openat(parent, slash + 1, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? ret_nerrno() : 0;
}

static int not_made(int r, const char *path, struct diag *diag)
{
	return r < 0 ? diag_set(diag, r, "the session's directory %s cannot be made: %s", path,
				err_text(r))
		     : 0;
}

/* @path of the host is the user's own directory and nobody else can change it. */
static int own(const char *path, struct diag *diag)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return diag_set(diag, ret_nerrno(), "the session's directory %s: %s", path,
				err_text(errno));
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH))
		return diag_set(diag, -EPERM,
				"the session's directory %s is somebody else's; remove it", path);
	return 0;
}

/* Alone with it, and @clear: empty it. Then, or with others: have it together with those. @lock is the same directory, or the host's
 * that it is, which several trees may show. */
static int share(int lock, int fd, bool clear, const char *path, struct diag *diag)
{
	for (int i = 0; i < SHARE_TRIES; i++) {
		if (clear && flock(lock, LOCK_EX | LOCK_NB) == 0) {
			int r = empty_all(fd);

			if (r < 0)
				return r;
		}
		if (flock(lock, LOCK_SH | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK)
			return ret_nerrno();
		(void)usleep(SHARE_PAUSE_US);
	}
	return diag_set(diag, -EBUSY,
			"the session's directory %s is being emptied by another session; try again",
			path);
}

static int have(int root_fd, const char *path, bool host, bool clear, struct diag *diag,
		int *ret_fd)
{
	cleanup_fd int fd = -1, lock = -1;
	int r = open_made(root_fd, path, diag, &fd);

	/* The mount shows all as ours. */
	if (r == 0 && host)
		r = own(path, diag);
	if (r == 0) {
		lock = host ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
			    : fcntl(fd, F_DUPFD_CLOEXEC, 3);
		r = lock < 0 ? ret_nerrno() : share(lock, fd, clear, path, diag);
	}
	if (r == 0)
		*ret_fd = steal_fd(&lock);
	return not_made(r, path, diag);
}

int fence_make(int root_fd, const char *path, bool host, struct diag *diag, int *ret_fd)
{
	return have(root_fd, path, host, false, diag, ret_fd);
}

int fence_scratch(int root_fd, const char *path, bool host, struct diag *diag, int *ret_fd)
{
	return have(root_fd, path, host, true, diag, ret_fd);
}
