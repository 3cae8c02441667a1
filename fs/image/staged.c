/* A file or a directory that has its name only when it is whole. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/image/staged.h"
#include "fs/image/staged_internal.h"

#define MARK     ".rattan-partial-"
#define NAME_LEN 220 /* of the destination's, so that the mark and a number find room */
#define TRIES    8

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* ---- what others have left ---- */

/* *ret_len: of the part before the number */
static void partial_name(const struct staged *s, char ret[static 256], size_t *ret_len)
{
	int n = snprintf(ret, 256, "%.*s" MARK, NAME_LEN, s->name);

	*ret_len = (size_t)n;
	(void)snprintf(ret + n, 256 - (size_t)n, "%d", (int)getpid());
}

/* Of ours, and nobody fills it. */
static bool left_behind(int fd, struct stat *ret)
{
	return fd >= 0 && fstat(fd, ret) == 0 && ret->st_uid == geteuid() &&
	       flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* @fd: it. */
static int remove_left(int parent, const char *name, int fd, bool is_dir)
{
	int r = 0;

	if (is_dir)
		r = fchmod(fd, 0700) < 0 ? ret_nerrno() : emptied(fd, NULL);
	if (r == 0 && unlinkat(parent, name, is_dir ? AT_REMOVEDIR : 0) < 0)
		r = ret_nerrno();
	return r;
}

/* -1: it is no leftover, or not ours. Its mode is what the tree says that is still being filled, maybe: it is left, unless nobody could
 * open it. */
static int open_left(int parent, const char *name)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	struct stat st;
	int fd;

	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_uid != geteuid() ||
	    !(S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)))
		return -1;
	fd = openat(parent, name, flags);
	if (fd < 0 && errno == EACCES && S_ISDIR(st.st_mode) &&
	    fchmodat(parent, name, 0700, AT_SYMLINK_NOFOLLOW) == 0)
		fd = openat(parent, name, flags);
	return fd;
}

static int remove_all_left(struct staged *s, struct diag *diag)
{
	int dup_fd = openat(s->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	cleanup_dir DIR *d = dup_fd < 0 ? NULL : fdopendir(dup_fd);
	struct dirent *e;
	char name[256];
	size_t len;

	/* A directory that cannot be read may still take a new name. */
	if (!d) {
		cleanup_fdp(&dup_fd);
		return 0;
	}
	partial_name(s, name, &len);
	while (r == 0 && (e = readdir(d))) {
		const char *number = e->d_name + len;
		struct stat st;

		if (strncmp(e->d_name, name, len) != 0 || !*number ||
		    number[strspn(number, "0123456789")])
			continue;
		cleanup_fd int fd = open_left(s->parent, e->d_name);

		if (left_behind(fd, &st))
			r = remove_left(s->parent, e->d_name, fd, S_ISDIR(st.st_mode));
		if (r < 0)
			return diag_set(
				diag, r,
				"an export that was killed has left %s beside %s, which cannot be "
				"taken away: %s; remove it, or choose a new name",
				e->d_name, s->dest, err_text(r));
	}
	return 0;
}

/* ---- the beginning ---- */

/* Locked before anybody can take it for a leftover: who did has removed it. -EAGAIN: so it was. */
static int make_one(struct staged *s)
{
	struct stat st, named;

	if (s->is_dir && mkdirat(s->parent, s->tmp, 0700) < 0)
		return ret_nerrno();
	s->fd = openat(s->parent, s->tmp,
		       s->is_dir ? O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
				 : O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		       0666);
	if (s->fd < 0)
		return s->is_dir && errno == ENOENT ? -EAGAIN : ret_nerrno();
	/* Where nothing can be locked nothing is taken for left, either. */
	if (flock(s->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return -EAGAIN;
	if (fstat(s->fd, &st) < 0)
		return ret_nerrno();
	return fstatat(s->parent, s->tmp, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
			       same_file(&st, &named)
		       ? 0
		       : -EAGAIN;
}

static int make(struct staged *s)
{
	size_t len;
	int r = -EAGAIN;

	partial_name(s, s->tmp, &len);
	for (int i = 0; r == -EAGAIN && i < TRIES; i++) {
		cleanup_fdp(&s->fd);
		s->fd = -1;
		r = make_one(s);
	}
	return r;
}

static int begin(struct staged *s, const char *dest, bool is_dir, struct diag *diag)
{
	const char *slash = strrchr(dest, '/');
	char parent[4096];

	*s = (struct staged){.dest = dest, .parent = -1, .fd = -1, .is_dir = is_dir};
	if (!slash || !slash[1])
		return diag_set(diag, -EEXIST, "%s is there already; choose a new name", dest);
	s->name = slash + 1;
	if (slash - dest >= (int)sizeof(parent))
		return -ENAMETOOLONG;
	(void)snprintf(parent, sizeof(parent), "%.*s", slash == dest ? 1 : (int)(slash - dest),
		       dest);
	s->parent = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return s->parent < 0 ? diag_set(diag, ret_nerrno(), "cannot write to %s: %s", parent,
					err_text(errno))
			     : 0;
}

static int cannot_make(struct staged *s, int r, struct diag *diag)
{
	cleanup_fdp(&s->fd);
	cleanup_fdp(&s->parent);
	return diag_set(diag, r, "cannot make %s: %s", s->dest, err_text(r));
}

int staged_file(struct staged *s, const char *dest, struct diag *diag)
{
	struct stat st;
	int r = begin(s, dest, false, diag);

	if (r == 0 && fstatat(s->parent, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		r = diag_set(diag, -EEXIST, "%s is there already; choose a new name", dest);
	if (r == 0)
		r = remove_all_left(s, diag);
	if (r == 0)
		r = make(s);
	return r < 0 ? cannot_make(s, r, diag) : 0;
}

/* ---- a directory that is there ---- */

static int must_be_empty(const struct staged *s, int dir, struct diag *diag)
{
	int dup_fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *d = dup_fd < 0 ? NULL : fdopendir(dup_fd);
	struct dirent *e;

	if (!d) {
		cleanup_fdp(&dup_fd);
		return diag_set(diag, ret_nerrno(), "cannot read %s: %s", s->dest, err_text(errno));
	}
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			return diag_set(diag, -EEXIST,
					"%s is not empty; choose a new name or an empty directory",
					s->dest);
	return 0;
}

/* *ret_fd -1: nothing is there. */
static int look_there(struct staged *s, struct diag *diag, int *ret_fd)
{
	cleanup_fd int fd =
		openat(s->parent, s->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int r;

	*ret_fd = -1;
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return diag_set(diag, -EEXIST, "%s is there and no directory; choose a new name",
				s->dest);
	if (fd < 0 || fstat(fd, &st) < 0)
		return diag_set(diag, ret_nerrno(), "cannot open %s: %s", s->dest, err_text(errno));
	if (st.st_uid != geteuid())
		return diag_set(
			diag, -EEXIST,
			"%s is another user's, who could change what is written; choose a new name",
			s->dest);
	s->mode = st.st_mode & 07777;
	r = must_be_empty(s, fd, diag);
	if (r == 0)
		*ret_fd = steal_fd(&fd);
	return r;
}

static bool is_mounted(int fd)
{
	struct statx st;

	return statx(fd, "", AT_EMPTY_PATH, 0, &st) == 0 &&
	       (st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

int staged_dir(struct staged *s, const char *dest, struct diag *diag)
{
	cleanup_fd int there = -1;
	bool here = false;
	int r = begin(s, dest, true, diag);

	if (r == 0)
		r = look_there(s, diag, &there);
	if (r == 0)
		here = there >= 0 && (is_mounted(there) || !strcmp(s->name, "."));
	if (r == 0 && !here)
		r = remove_all_left(s, diag);
	if (r == 0 && !here)
		r = make(s);
	if (there >= 0 && (r == -EACCES || r == -EPERM || r == -EROFS))
		here = true;
	if (here) {
		s->tmp[0] = 0;
		s->fd = steal_fd(&there);
		return 0;
	}
	return r < 0 ? cannot_make(s, r, diag) : 0;
}

int staged_make(struct staged *s, const char *name)
{
	return *s->tmp ? 0 : buf_put(&s->made, name, strlen(name) + 1);
}

void staged_not_made(struct staged *s)
{
	if (!s->made.len)
		return;
	do
		s->made.data[--s->made.len] = 0;
	while (s->made.len && s->made.data[s->made.len - 1]);
}

/* ---- the end ---- */

/* Over nothing, or, a directory, over an empty one: nothing that came to be there meanwhile is lost. */
static int give_name(const struct staged *s)
{
	if (s->is_dir && renameat(s->parent, s->tmp, s->parent, s->name) < 0)
		return errno == ENOTEMPTY || errno == ENOTDIR ? -EEXIST : ret_nerrno();
	if (s->is_dir)
		return 0;
	if (renameat2(s->parent, s->tmp, s->parent, s->name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL)
		return ret_nerrno();
	/* a file system that cannot say so */
	if (linkat(s->parent, s->tmp, s->parent, s->name, 0) < 0)
		return ret_nerrno();
	(void)unlinkat(s->parent, s->tmp, 0);
	return 0;
}

/* What cannot be taken away now, the next export takes away, or names. */
static void take_away(const struct staged *s)
{
	const bool here = !*s->tmp;
	int r = 0;

	if (s->is_dir)
		r = fchmod(s->fd, 0700) < 0 ? ret_nerrno() : emptied(s->fd, here ? &s->made : NULL);
	if (here)
		(void)fchmod(s->fd, s->mode);
	else if (r == 0)
		(void)unlinkat(s->parent, s->tmp, s->is_dir ? AT_REMOVEDIR : 0);
}

/* Some file systems tell of a failed write only when a descriptor is closed; ours has the lock, and stays. */
static int told_at_close(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return copy < 0 || close(copy) < 0 ? ret_nerrno() : 0;
}

/* A name is for what outlives a loss of power. The files of a directory may be many: all that its file system has to write goes
 * with one call. */
static int bytes_durable(const struct staged *s)
{
	return (s->is_dir ? syncfs(s->fd) : fsync(s->fd)) < 0 ? ret_nerrno() : 0;
}

static int name_durable(const struct staged *s)
{
	cleanup_fd int dir = openat(s->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* One that cannot be read may have taken the name. */
	return (dir < 0 ? syncfs(s->fd) : fsync(dir)) < 0 ? ret_nerrno() : 0;
}

static int name_it(const struct staged *s)
{
	int r = give_name(s);

	if (r < 0)
		return r;
	r = name_durable(s);
	/* What cannot go back stays, and the next export says that it is there. */
	if (r < 0)
		(void)!renameat2(s->parent, s->name, s->parent, s->tmp, RENAME_NOREPLACE);
	return r;
}

int staged_end(struct staged *s, int r, struct diag *diag)
{
	if (r == 0)
		r = bytes_durable(s);
	if (r == 0 && !s->is_dir)
		r = told_at_close(s->fd);
	if (r == 0 && *s->tmp)
		r = name_it(s);
	if (r < 0) {
		diag_set(diag, r, "cannot make %s: %s", s->dest, err_text(r));
		take_away(s);
	}
	buf_release(&s->made);
	cleanup_fdp(&s->fd);
	cleanup_fdp(&s->parent);
	return r;
}
