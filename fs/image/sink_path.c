/* Walking in a tree that is being filled, and the times of its directories. */
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/cleanup.h"
#include "fs/image/sink_internal.h"

#define LIST_MAX 65536

/* ---- paths ---- */

static bool is_dot(const char *p, size_t n)
{
	return n == 1 && p[0] == '.';
}

/* The next component that says anything; false at the end. */
static bool next_name(const char **p, const char *end, const char **ret, size_t *ret_len)
{
	do {
		while (*p < end && **p == '/')
			(*p)++;
		*ret = *p;
		while (*p < end && **p != '/')
			(*p)++;
		*ret_len = (size_t)(*p - *ret);
	} while (is_dot(*ret, *ret_len));
	return *ret_len > 0;
}

static int name_ok(struct sink *k, const char *path, const char *name, size_t len)
{
	if (len == 2 && name[0] == '.' && name[1] == '.')
		return diag_set(k->o.diag, -EBADMSG,
				"%s leads upwards; nothing of the archive was imported", path);
	if (len > STORE_NAME_MAX)
		return diag_set(k->o.diag, -ENAMETOOLONG, "a name in %s is longer than %d bytes",
				path, STORE_NAME_MAX);
	return 0;
}

int sink_split(struct sink *k, const char *path, struct sink_place *ret)
{
	const char *p = path, *end = path + strlen(path), *name, *last = NULL;
	size_t len, last_len = 0;
	int r;

	*ret = (struct sink_place){.path = path};
	while (next_name(&p, end, &name, &len)) {
		r = name_ok(k, path, name, len);
		if (r < 0)
			return r;
		last = name;
		last_len = len;
	}
	if (!last)
		return 0;
	ret->dir_len = (size_t)(last - path);
	memcpy(ret->name, last, last_len);
	return 0;
}

void sink_forget_place(struct sink *k)
{
	if (k->at.ino && k->ovl)
		ovl_forget(k->ovl, k->at.ino, 1);
	k->at.ino = 0;
}

static int remember_place(struct sink *k, const char *path, size_t len, store_ino ino)
{
	struct ovl_entry e;
	char *p = realloc(k->at.path, len + 1);
	int r;

	if (!p)
		return -ENOMEM;
	k->at.path = p;
	sink_forget_place(k);
	r = ovl_lookup(k->ovl, ino, ".", &e);
	if (r < 0)
		return r;
	memcpy(p, path, len);
	k->at.len = len;
	k->at.ino = ino;
	return 0;
}

static int root_entry(struct sink *k, struct ovl_entry *ret)
{
	return ovl_lookup(k->ovl, STORE_ROOT_INO, ".", ret);
}

/* A directory that the source has not named (yet). */
static int make_missing(struct sink *k, store_ino dir, const char *name, struct ovl_entry *ret)
{
	static const struct ovl_cred root = {0, 0, 0};
	static const struct timespec never;
	const struct stat st = {.st_mode = 0755};
	int r = sink_dir_touch(k, dir);

	if (r == 0)
		r = ovl_mkdir(k->ovl, dir, name, S_IFDIR | 0755, &root, ret);
	if (r < 0)
		return r;
	r = sink_bare(k, ret->ino);
	if (r == 0)
		r = ovl_setattr(k->ovl, ret->ino, &st, OVL_SET_MODE | OVL_SET_UID | OVL_SET_GID,
				&ret->attr);
	if (r == 0)
		r = sink_dir_note(k, ret->ino, &never, false);
	if (r < 0)
		ovl_forget(k->ovl, ret->ino, 1);
	return r;
}

/* The directory @name of @dir; one reference. */
static int step(struct sink *k, store_ino dir, const char *name, bool make, const char *path,
		struct ovl_entry *ret)
{
	int r = ovl_lookup(k->ovl, dir, name, ret);

	if (r < 0)
		return r;
	if (!ret->ino)
		return make ? make_missing(k, dir, name, ret) : -ENOENT;
	if (S_ISDIR(ret->attr.st.st_mode))
		return 0;
	r = diag_set(k->o.diag, -EBADMSG, "%s leads through %s, which is %s", path, name,
		     S_ISLNK(ret->attr.st.st_mode) ? "a symbolic link; links are not followed"
						   : "no directory");
	ovl_forget(k->ovl, ret->ino, 1);
	return r;
}

int sink_walk(struct sink *k, const char *path, size_t len, bool make, store_ino *ret)
{
	const char *p = path, *end = path + len, *name;
	char text[STORE_NAME_MAX + 1];
	struct ovl_entry at, next;
	size_t n;
	int r;

	if (k->at.ino && k->at.len == len && !memcmp(k->at.path, path, len)) {
		r = ovl_lookup(k->ovl, k->at.ino, ".", &at);
		*ret = at.ino;
		return r;
	}
	r = root_entry(k, &at);
	if (r < 0)
		return sink_fail(k, r, "cannot walk to", path);
	while (r == 0 && next_name(&p, end, &name, &n)) {
		r = name_ok(k, path, name, n);
		if (r == 0) {
			memcpy(text, name, n);
			text[n] = 0;
			r = step(k, at.ino, text, make, path, &next);
		}
		ovl_forget(k->ovl, at.ino, 1);
		at = next;
	}
	if (r == 0)
		r = remember_place(k, path, len, at.ino);
	if (r == 0)
		*ret = at.ino;
	return r < 0 && r != -ENOENT ? sink_fail(k, r, "cannot walk to", path) : r;
}

/* ---- times of directories ---- */

static struct sink_dir *slot(struct sink_dir *dirs, size_t cap, store_ino ino)
{
	size_t i = (size_t)((ino * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (cap - 1);

	while (dirs[i].ino && dirs[i].ino != ino)
		i = (i + 1) & (cap - 1);
	return &dirs[i];
}

static int dirs_grow(struct sink *k)
{
	size_t cap = k->dirs_cap ? k->dirs_cap * 2 : 256;
	struct sink_dir *more;

	if (k->ndirs * 4 < k->dirs_cap * 3)
		return 0;
	more = calloc(cap, sizeof(*more));
	if (!more)
		return -ENOMEM;
	for (size_t i = 0; i < k->dirs_cap; i++)
		if (k->dirs[i].ino)
			*slot(more, cap, k->dirs[i].ino) = k->dirs[i];
	free(k->dirs);
	k->dirs = more;
	k->dirs_cap = cap;
	return 0;
}

int sink_dir_note(struct sink *k, store_ino ino, const struct timespec *mtime, bool declared)
{
	struct sink_dir *d;
	int r = dirs_grow(k);

	if (r < 0)
		return r;
	d = slot(k->dirs, k->dirs_cap, ino);
	k->ndirs += !d->ino;
	*d = (struct sink_dir){ino, *mtime, declared || d->declared};
	return 0;
}

static const struct sink_dir *find(const struct sink *k, store_ino ino)
{
	const struct sink_dir *d = k->dirs_cap ? slot(k->dirs, k->dirs_cap, ino) : NULL;

	return d && d->ino ? d : NULL;
}

int sink_dir_touch(struct sink *k, store_ino ino)
{
	static const struct timespec never;
	struct ovl_attr a;
	int r;

	if (find(k, ino))
		return 0;
	if (ino == STORE_ROOT_INO && !k->o.parent)
		return sink_dir_note(k, ino, &never, false);
	r = ovl_getattr(k->ovl, ino, &a);
	return r < 0 ? r : sink_dir_note(k, ino, &a.st.st_mtim, false);
}

bool sink_dir_declared(const struct sink *k, store_ino ino)
{
	const struct sink_dir *d = find(k, ino);

	return d && d->declared;
}

int sink_dirs_restore(struct sink *k)
{
	for (size_t i = 0; i < k->dirs_cap; i++) {
		const struct sink_dir *d = &k->dirs[i];
		struct stat st = {.st_atim = d->mtime, .st_mtim = d->mtime};
		struct ovl_attr a;
		int r = d->ino ? ovl_setattr(k->ovl, d->ino, &st, OVL_SET_ATIME | OVL_SET_MTIME, &a)
			       : 0;

		/* removed again */
		if (r == -ENOENT || r == -ESTALE)
			continue;
		if (r < 0)
			return r;
		if (i % 1024 == 0 && k->o.stop && k->o.stop(k->o.arg))
			return diag_set(k->o.diag, -ECANCELED, "stopped");
	}
	return 0;
}

/* ---- attributes ---- */

int sink_bare(struct sink *k, store_ino ino)
{
	cleanup_free char *list = NULL;
	ssize_t n = ovl_listxattr(k->ovl, ino, NULL, 0);

	if (n <= 0)
		return n < 0 ? (int)n : 0;
	list = malloc((size_t)n + 1);
	if (!list)
		return -ENOMEM;
	n = ovl_listxattr(k->ovl, ino, list, (size_t)n);
	for (const char *p = list; n > 0 && p < list + n; p += strlen(p) + 1) {
		int r = ovl_removexattr(k->ovl, ino, p);

		if (r < 0 && r != -ENODATA)
			return r;
	}
	return n < 0 ? (int)n : 0;
}
