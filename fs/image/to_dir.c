/* A tree as a directory of the host. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/core/ovl.h"
#include "fs/image/image_internal.h"
#include "fs/image/staged.h"

struct writing {
	const struct image_export *o;
	struct progress *p;
	struct diag *diag;
	struct image_out *done;
	struct staged *to;
	int root; /* of the destination */
	int fd;   /* the directory that is being filled */
	bool is_root;
	const char *path; /* of the entry at work */
	int file;
};

static int fail(struct writing *w, int r, const char *what)
{
	return diag_set(w->diag, r, "cannot %s %s/%s: %s; nothing was exported", what, w->o->dest,
			w->path, err_text(r));
}

/* ---- attributes ---- */

/* Who is not root leaves out what he may not do, and that is counted. */
static int may(struct writing *w, int r, const char *what)
{
	if (r == 0)
		return 0;
	if ((r == -EPERM && !w->is_root) || r == -ENOTSUP) {
		w->done->skipped++;
		return 0;
	}
	return fail(w, r, what);
}

/* What the kernel or the file system there does not take: of an archive, an attribute can be anything. */
static bool refused(int r)
{
	return r == -EINVAL || r == -ERANGE || r == -E2BIG || r == -ENOSPC || r == -EOPNOTSUPP;
}

struct setting {
	struct writing *w;
	int fd;
	const char *name; /* of what is no file and no directory: its path in /proc */
};

static int put_xattr(void *arg, const char *name, const void *value, size_t len)
{
	const struct setting *s = arg;
	int r = s->name ? lsetxattr(s->name, name, value, len, 0)
			: fsetxattr(s->fd, name, value, len, 0);

	r = r < 0 ? ret_nerrno() : 0;
	if (refused(r)) {
		s->w->done->skipped++;
		return 0;
	}
	return may(s->w, r, "set an attribute of");
}

static int put_xattrs(struct writing *w, struct ovl *o, const struct tree_entry *t, int fd)
{
	struct setting s = {.w = w, .fd = fd};
	char path[STORE_NAME_MAX + 48];

	if (fd < 0) {
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", w->fd, t->name);
		s.name = path;
	}
	return tree_xattrs(o, t->ino, put_xattr, &s);
}

/* Owner, attributes, mode, times: in this order each stays, and who is not root may still write to what the mode closes. @fd: of a file or directory, or -1. */
static int put_attr(struct writing *w, struct ovl *o, const struct tree_entry *t, int fd)
{
	const struct timespec times[2] = {t->st->st_mtim, t->st->st_mtim};
	mode_t mode = t->st->st_mode & 07777;
	int r = fd >= 0 ? fchown(fd, t->st->st_uid, t->st->st_gid)
			: fchownat(w->fd, t->name, t->st->st_uid, t->st->st_gid,
				   AT_SYMLINK_NOFOLLOW);

	if (r < 0 && errno == EPERM && !w->is_root)
		mode &= (mode_t) ~(S_ISUID |
				   S_ISGID); /* of another owner these mean another thing */
	r = may(w, r < 0 ? ret_nerrno() : 0, "set the owner of");
	if (r == 0)
		r = put_xattrs(w, o, t, fd);
	if (r == 0 && !S_ISLNK(t->st->st_mode)) {
		r = fd >= 0 ? fchmod(fd, mode) : fchmodat(w->fd, t->name, mode, 0);
		r = r < 0 ? fail(w, ret_nerrno(), "set the mode of") : 0;
	}
	if (r < 0)
		return r;
	r = fd >= 0 ? futimens(fd, times) : utimensat(w->fd, t->name, times, AT_SYMLINK_NOFOLLOW);
	return r < 0 ? fail(w, ret_nerrno(), "set the time of") : 0;
}

/* ---- entries ---- */

static int put_data(void *arg, uint64_t off, const void *p, size_t n)
{
	struct writing *w = arg;

	for (size_t at = 0; at < n;) {
		ssize_t k = pwrite(w->file, (const char *)p + at, n - at, (off_t)(off + at));

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k < 0 ? ret_nerrno() : -EIO;
		at += (size_t)k;
	}
	w->done->bytes += n;
	return 0;
}

static int regular(struct writing *w, struct ovl *o, const struct tree_entry *t)
{
	cleanup_fd int fd =
		openat(w->fd, t->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return fail(w, ret_nerrno(), "make");
	w->file = fd;
	r = ftruncate(fd, t->st->st_size) < 0 ? ret_nerrno() : 0;
	if (r == 0)
		r = tree_data(o, t, w->p, put_data, w);
	if (r < 0)
		return fail(w, r, "write");
	return put_attr(w, o, t, fd);
}

static int directory(struct writing *w, const struct tree_entry *t)
{
	int fd;

	if (!*t->path) /* the root is there */
		return 0;
	if (mkdirat(w->fd, t->name, 0700) < 0)
		return fail(w, ret_nerrno(), "make");
	fd = openat(w->fd, t->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return fail(w, ret_nerrno(), "open");
	(void)close(w->fd);
	w->fd = fd;
	return 0;
}

static bool is_device(const struct tree_entry *t)
{
	return S_ISCHR(t->st->st_mode) || S_ISBLK(t->st->st_mode);
}

/* Another name of what is at @t->link: a path of this tree, whose directories are all real ones. */
static int link_name(struct writing *w, const struct tree_entry *t)
{
	if (linkat(w->root, t->link, w->fd, t->name, 0) == 0)
		return 0;
	if (errno == ENOENT &&
	    (!w->is_root || is_device(t))) { /* a device that could not be made */
		w->done->skipped++;
		return 0;
	}
	return fail(w, ret_nerrno(), "link");
}

static int special(struct writing *w, struct ovl *o, const struct tree_entry *t)
{
	int r = S_ISLNK(t->st->st_mode)
			? symlinkat(t->target, w->fd, t->name)
			: mknodat(w->fd, t->name, (t->st->st_mode & S_IFMT) | 0600, t->st->st_rdev);

	/* EINVAL: a device of a number that this kernel has not */
	if (r < 0 && ((errno == EPERM && !w->is_root) || (errno == EINVAL && is_device(t)))) {
		w->done->skipped++;
		return 0;
	}
	return r < 0 ? fail(w, ret_nerrno(), "make") : put_attr(w, o, t, -1);
}

static int make(struct writing *w, struct ovl *o, const struct tree_entry *t)
{
	if (t->link)
		return link_name(w, t);
	if (S_ISDIR(t->st->st_mode))
		return directory(w, t);
	return S_ISREG(t->st->st_mode) ? regular(w, o, t) : special(w, o, t);
}

static int enter(void *arg, struct ovl *o, const struct tree_entry *t)
{
	const bool top = *t->path && !strchr(t->path, '/');
	struct writing *w = arg;
	int r = top ? staged_make(w->to, t->name) : 0;

	w->path = t->path;
	w->done->entries++;
	if (r == 0)
		r = make(w, o, t);
	if (r == -EEXIST && top)
		staged_not_made(w->to);
	return r;
}

static int leave(void *arg, struct ovl *o, const struct tree_entry *t)
{
	struct writing *w = arg;
	cleanup_fd int dir = -1;

	w->path = t->path;
	if (!*t->path)
		return put_attr(w, o, t, w->fd);
	/* First: its own mode may let nobody through. */
	dir = w->fd;
	w->fd = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w->fd < 0)
		return fail(w, ret_nerrno(), "go back from");
	return put_attr(w, o, t, dir);
}

static int fill(const struct image_export *o, struct staged *to, struct progress *p,
		struct diag *diag, struct image_out *ret)
{
	struct writing w = {.o = o,
			    .p = p,
			    .diag = diag,
			    .done = ret,
			    .is_root = geteuid() == 0,
			    .to = to,
			    .root = to->fd};
	struct tree_visit v = {.enter = enter, .leave = leave, .arg = &w, .p = p};
	int r;

	w.fd = openat(to->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w.fd < 0)
		return ret_nerrno();
	r = tree_walk(o->store, o->layer, &v, diag);
	cleanup_fdp(&w.fd);
	return r;
}

int to_dir(const struct image_export *o, struct progress *p, struct diag *diag,
	   struct image_out *ret)
{
	struct staged s;
	int r = staged_dir(&s, o->dest, diag);

	return r < 0 ? r : staged_end(&s, fill(o, &s, p, diag, ret), diag);
}
