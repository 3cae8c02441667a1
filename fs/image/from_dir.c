/* A directory of the host into a tree. */
#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/core/ovl.h"
#include "fs/image/first_name.h"
#include "fs/image/image_internal.h"

#define READ_SIZE  (1u << 20)
#define XATTR_SIZE 65536

/* A directory that is being walked: its names, sorted, and where we are. */
struct level {
	struct stat st;
	char **names;
	size_t n, next;
	size_t path_len; /* of its own path */
};

struct walk {
	struct sink *k;
	struct progress *p;
	struct diag *diag;
	const char *src;
	struct before *before; /* an earlier import of it; or NULL */
	struct listed *listed;
	uint64_t *unread;
	int fd; /* the directory at the end of levels */
	dev_t dev;
	struct level *v;
	size_t n, cap;
	struct buf path; /* relative, NUL-terminated */
	struct first_names first;
	uint8_t *buf;
	char *xattr; /* the names of a file's attributes, and behind them a value: XATTR_SIZE each */
};

static int fail(struct walk *w, int r, const char *what)
{
	return diag_set(w->diag, r, "cannot %s %s/%s: %s%s", what, w->src,
			(const char *)w->path.data, err_text(r),
			r == -EACCES || r == -EPERM
				? "; run rattan as who may read it, or import an archive of it"
				: "");
}

/* ---- names ---- */

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void level_release(struct level *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->names[i]);
	free(l->names);
	*l = (struct level){0};
}

static int add_name(struct level *l, size_t *cap, const char *name)
{
	if (l->n == *cap) {
		size_t more = *cap ? *cap * 2 : 32;
		char **v = reallocarray(l->names, more, sizeof(*v));

		if (!v)
			return -ENOMEM;
		l->names = v;
		*cap = more;
	}
	l->names[l->n] = strdup(name);
	return l->names[l->n] ? (l->n++, 0) : -ENOMEM;
}

static int list(int fd, struct level *l)
{
	/* no new opening: who may read it may not always walk through it */
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0), r = 0;
	cleanup_dir DIR *d = own < 0 ? NULL : fdopendir(own);
	size_t cap = 0;

	if (!d) {
		r = ret_nerrno();
		cleanup_fdp(&own);
		return r;
	}
	while (r == 0) {
		struct dirent *e;

		errno = 0;
		e = readdir(d);
		if (!e) {
			r = errno ? ret_nerrno() : 0;
			break;
		}
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = add_name(l, &cap, e->d_name);
	}
	if (l->n)
		qsort(l->names, l->n, sizeof(*l->names), by_bytes);
	return r;
}

/* ---- inodes with several names ---- */

/* Its first name, or NULL: this is it. */
static int seen_before(struct walk *w, const struct stat *st, const char **ret)
{
	*ret = NULL;
	/* of a file that is mounted the number means nothing here */
	if (st->st_nlink < 2 || S_ISDIR(st->st_mode) || st->st_dev != w->dev)
		return 0;
	return first_name(&w->first, st->st_ino, (const char *)w->path.data, ret);
}

/* ---- attributes ---- */

static int keep_xattrs(struct walk *w, store_ino ino, int fd, const char *path, ssize_t n)
{
	const char *names = w->xattr;
	char *value = w->xattr + XATTR_SIZE;
	int r = 0;

	for (const char *p = names; r == 0 && p < names + n; p += strlen(p) + 1) {
		ssize_t len = fd >= 0 ? fgetxattr(fd, p, value, XATTR_SIZE)
				      : lgetxattr(path, p, value, XATTR_SIZE);

		if (len >= 0)
			r = sink_xattr(w->k, ino, p, value, (size_t)len);
		else if (errno != ENODATA && errno != ENOTSUP)
			r = fail(w, ret_nerrno(), "read an attribute of");
	}
	return r;
}

/* Of @fd, or where that is -1 of what is at @path, a link itself. */
static int xattrs(struct walk *w, store_ino ino, int fd, const char *path)
{
	ssize_t n = fd >= 0 ? flistxattr(fd, w->xattr, XATTR_SIZE)
			    : llistxattr(path, w->xattr, XATTR_SIZE);

	if (n < 0)
		return errno == ENOTSUP ? 0 : fail(w, ret_nerrno(), "list the attributes of");
	return keep_xattrs(w, ino, fd, path, n);
}

static int fd_xattrs(struct walk *w, store_ino ino, int fd)
{
	return xattrs(w, ino, fd, NULL);
}

static int name_xattrs(struct walk *w, store_ino ino, const char *name)
{
	char path[STORE_NAME_MAX + 48];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", w->fd, name);
	return xattrs(w, ino, -1, path);
}

/* ---- bytes ---- */

/* From @at to @end, or to the end of the file. */
static int copy_range(struct walk *w, store_ino ino, int fd, uint64_t at, uint64_t end)
{
	while (at < end) {
		size_t want = end - at < READ_SIZE ? (size_t)(end - at) : READ_SIZE;
		ssize_t n = io_pread_full(fd, w->buf, want, (off_t)at);
		int r;

		if (n <= 0)
			return n < 0 ? fail(w, (int)n, "read") : 0;
		r = sink_write(w->k, ino, at, w->buf, (size_t)n);
		if (r < 0)
			return r;
		at += (uint64_t)n;
		w->p->done += (uint64_t)n;
		if (progress_stop(w->p))
			return diag_set(w->diag, -ECANCELED, "stopped");
	}
	return 0;
}

/* The next piece of the file from *at on that is no hole; false: there is none. */
static bool next_data(int fd, uint64_t size, uint64_t *at, uint64_t *ret_end)
{
	off_t data = lseek(fd, (off_t)*at, SEEK_DATA), hole;

	*ret_end = size;
	if (data < 0)
		return errno != ENXIO && *at < size; /* not told: all of it */
	hole = lseek(fd, data, SEEK_HOLE);
	*at = (uint64_t)data;
	if (hole >= 0 && (uint64_t)hole < size)
		*ret_end = (uint64_t)hole;
	return *at < size;
}

/* Files without a hole need not be asked where theirs are. */
static bool no_hole(const struct stat *st)
{
	return (uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size;
}

static int copy_data(struct walk *w, store_ino ino, int fd, const struct stat *st)
{
	uint64_t at = 0, end, size = (uint64_t)st->st_size;
	int r = 0;

	if (no_hole(st))
		return copy_range(w, ino, fd, 0, size);
	while (r == 0 && at < size && next_data(fd, size, &at, &end)) {
		r = copy_range(w, ino, fd, at, end);
		at = end;
	}
	return r;
}

static uint64_t count_data(int fd, const struct stat *st)
{
	uint64_t at = 0, end, n = 0, size = (uint64_t)st->st_size;

	if (no_hole(st))
		return size;
	while (at < size && next_data(fd, size, &at, &end)) {
		n += end - at;
		at = end;
	}
	return n;
}

/* The bytes, unless they are known to be those that an earlier import has read. */
static int take_data(struct walk *w, store_ino ino, int fd, const struct sink_entry *e)
{
	store_ino old;
	uint64_t n;
	int r;

	if (!w->before || !before_find(w->before, e->path, &e->st, &old))
		return copy_data(w, ino, fd, &e->st);
	n = count_data(fd, &e->st);
	r = sink_take(w->k, ino, before_tree(w->before), old, (uint64_t)e->st.st_size, n);
	ovl_forget(before_tree(w->before), old, 1);
	if (r < 0)
		return r;
	(*w->unread)++;
	w->p->done += n;
	return 0;
}

static bool changed(const struct stat *a, const struct stat *b)
{
	return a->st_size != b->st_size || a->st_mtim.tv_sec != b->st_mtim.tv_sec ||
	       a->st_mtim.tv_nsec != b->st_mtim.tv_nsec;
}

static int regular(struct walk *w, const char *name, struct sink_entry *e)
{
	cleanup_fd int fd = openat(w->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat after;
	store_ino ino;
	int r;

	if (fd < 0 || fstat(fd, &e->st) < 0)
		return fail(w, ret_nerrno(), "open");
	if (!S_ISREG(e->st.st_mode))
		return fail(w, -ESTALE, "read");
	r = sink_put(w->k, e, &ino);
	if (r == 0)
		r = take_data(w, ino, fd, e);
	if (r == 0 && (fstat(fd, &after) < 0 || changed(&e->st, &after)))
		return diag_set(
			w->diag, -ESTALE,
			"%s/%s was changed while it was read; import it again when nobody writes there",
			w->src, e->path);
	if (r == 0)
		r = listed_add(w->listed, e->path, &e->st);
	if (r == 0)
		r = sink_attr(w->k, ino, e, (uint64_t)e->st.st_size);
	return r < 0 ? r : fd_xattrs(w, ino, fd);
}

/* ---- entries ---- */

static int other(struct walk *w, const char *name, struct sink_entry *e)
{
	char target[4097];
	store_ino ino;
	int r;

	if (S_ISSOCK(e->st.st_mode)) { /* nobody listens in a copy */
		sink_skip(w->k);
		return 0;
	}
	if (S_ISLNK(e->st.st_mode)) {
		ssize_t n = readlinkat(w->fd, name, target, sizeof(target) - 1);

		if (n < 0)
			return fail(w, ret_nerrno(), "read the link");
		target[n] = 0;
		e->target = target;
	}
	r = sink_put(w->k, e, &ino);
	if (r == 0)
		r = sink_attr(w->k, ino, e, 0);
	return r < 0 ? r : name_xattrs(w, ino, name);
}

static int enter(struct walk *w, const char *name, struct sink_entry *e)
{
	cleanup_fd int fd = openat(w->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct level *l;
	store_ino ino;
	int r;

	if (fd < 0 || fstat(fd, &e->st) < 0)
		return fail(w, ret_nerrno(), "open");
	r = sink_put(w->k, e, &ino);
	if (r == 0)
		r = sink_attr(w->k, ino, e, 0);
	if (r == 0)
		r = fd_xattrs(w, ino, fd);
	if (r < 0 || e->st.st_dev != w->dev)
		return r;
	if (w->n == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 16;
		struct level *v = reallocarray(w->v, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		w->v = v;
		w->cap = cap;
	}
	l = &w->v[w->n];
	*l = (struct level){.st = e->st, .path_len = w->path.len};
	w->n++;
	r = list(fd, l);
	if (r < 0)
		return fail(w, r, "list");
	if (!l->n) { /* nor need it be one that lets us through */
		level_release(&w->v[--w->n]);
		return 0;
	}
	(void)close(w->fd);
	w->fd = steal_fd(&fd);
	return 0;
}

/* Up, to the directory that we came from. */
static int leave(struct walk *w)
{
	struct stat st;
	int up;

	level_release(&w->v[--w->n]);
	if (!w->n)
		return 0;
	up = openat(w->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	(void)close(w->fd);
	w->fd = up;
	if (up < 0 || fstat(up, &st) < 0)
		return fail(w, ret_nerrno(), "go back from");
	if (st.st_dev != w->v[w->n - 1].st.st_dev || st.st_ino != w->v[w->n - 1].st.st_ino)
		return diag_set(w->diag, -ESTALE, "%s was moved while it was read; import it again",
				w->src);
	return 0;
}

static int set_path(struct walk *w, const struct level *l, const char *name)
{
	int r;

	w->path.len = l->path_len;
	r = l->path_len ? buf_puts(&w->path, "/") : 0;
	return r < 0 ? r : buf_puts(&w->path, name);
}

static int entry(struct walk *w, const char *name)
{
	struct sink_entry e = {.path = (const char *)w->path.data};
	const char *first;
	store_ino ino;
	int r;

	if (fstatat(w->fd, name, &e.st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : fail(w, ret_nerrno(), "look at");
	r = seen_before(w, &e.st, &first);
	if (r < 0)
		return r;
	if (first) {
		e.hardlink = first;
		return sink_put(w->k, &e, &ino);
	}
	if (S_ISDIR(e.st.st_mode))
		return enter(w, name, &e);
	return S_ISREG(e.st.st_mode) ? regular(w, name, &e) : other(w, name, &e);
}

static int walk(struct walk *w)
{
	struct sink_entry root = {.path = ""};
	int r = buf_put(&w->path, "", 0);

	if (r == 0)
		r = enter(w, ".", &root);
	while (r == 0 && w->n) {
		struct level *l = &w->v[w->n - 1];

		if (l->next == l->n) {
			r = leave(w);
			continue;
		}
		r = set_path(w, l, l->names[l->next]);
		if (r == 0)
			r = entry(w, l->names[l->next++]);
	}
	return r;
}

static void walk_release(struct walk *w)
{
	while (w->n)
		level_release(&w->v[--w->n]);
	first_names_release(&w->first);
	before_close(w->before);
	free(w->v);
	free(w->buf);
	free(w->xattr);
	buf_release(&w->path);
	cleanup_fdp(&w->fd);
}

/* How much there is, for whoever waits: what cannot be looked at is told of when it is read. */
static uint64_t bytes_below(const char *src, struct progress *p)
{
	char *const paths[] = {(char *)(uintptr_t)src, NULL};
	FTS *t = fts_open(paths, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL);
	uint64_t n = 0;
	FTSENT *e;

	if (!t)
		return 0;
	while ((e = fts_read(t)) && !progress_stop(p))
		if (e->fts_info == FTS_F && S_ISREG(e->fts_statp->st_mode))
			n += (uint64_t)e->fts_statp->st_size;
	(void)fts_close(t);
	return n;
}

/* The list of files that this import makes, and an earlier one. */
static int look_before(struct importing *x, struct walk *w, const struct stat *st)
{
	int r = listed_begin(w->listed, w->fd, w->src, st);

	/* Where none can be made, none was. */
	return r < 0 || x->o->reread || !w->listed->on
		       ? r
		       : before_open(x->o->store, w->src, st->st_dev, &w->before);
}

int from_dir(struct importing *x, struct sink *k)
{
	const char *src = x->o->src;
	struct progress *p = &x->p;
	struct diag *diag = x->diag;
	struct walk w = {.k = k,
			 .p = p,
			 .diag = diag,
			 .src = src,
			 .listed = &x->info.files,
			 .unread = &x->done->unread,
			 .fd = open(src, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
			 .buf = malloc(READ_SIZE),
			 .xattr = malloc(2 * XATTR_SIZE)};
	struct stat st;
	int r = 0;

	if (w.fd < 0 || fstat(w.fd, &st) < 0)
		r = diag_set(diag, ret_nerrno(), "cannot open the directory %s: %s", src,
			     err_text(errno));
	else if (!w.buf || !w.xattr)
		r = -ENOMEM;
	w.dev = r == 0 ? st.st_dev : 0;
	if (r == 0)
		r = look_before(x, &w, &st);
	if (r == 0 && w.before) /* near enough, and costs no walk */
		p->total = before_bytes(w.before);
	else if (r == 0 && p->watch && p->watch->go_on)
		p->total = bytes_below(src, p);
	if (r == 0)
		r = walk(&w);
	walk_release(&w);
	return r;
}
