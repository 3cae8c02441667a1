/* A tree that is being filled: entries, bytes, attributes. */
#include "fs/image/sink.h"

#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/image/sink_internal.h"

static const struct ovl_cred nobody_in_particular = {0, 0, 0};

int sink_fail(struct sink *k, int r, const char *what, const char *path)
{
	if (r == -ENOSPC || r == -EDQUOT)
		return diag_set(
			k->o.diag, r,
			"%s does not fit: %s; rattan gc --shrink, another disk or --limit disk=N make room",
			path,
			r == -ENOSPC ? "the store's disk is full"
				     : "the limit of this import, or a quota, is reached");
	return diag_set(k->o.diag, r, "%s %s: %s", what, path, err_text(r));
}

int sink_open(const struct sink_opts *o, struct sink **ret)
{
	struct ovl_opts oo = {.store = o->store, .disk_max = o->disk_max};
	struct sink *k = calloc(1, sizeof(*k));
	int r = k ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	k->o = *o;
	k->pin = -1;
	r = store_reserve_inos(o->store, 1, &k->mark);
	if (r == 0)
		r = store_layer_new(o->store, o->parent, &k->layer);
	if (r == 0)
		r = store_layer_pin_open(o->store, k->layer, &k->pin);
	oo.layer = k->layer;
	if (r == 0)
		r = ovl_open(&oo, &k->ovl);
	if (r < 0) {
		r = diag_set(o->diag, r, "cannot begin a new tree in the store: %s", err_text(r));
		sink_abort(k);
		return r;
	}
	*ret = k;
	return 0;
}

static void sink_free(struct sink *k)
{
	free(k->dirs);
	free(k->at.path);
	sink_links_free(k);
	cleanup_fdp(&k->pin);
	free(k);
}

static void drop_last(struct sink *k)
{
	if (k->last)
		ovl_forget(k->ovl, k->last, 1);
	k->last = 0;
}

void sink_abort(struct sink *k)
{
	if (!k)
		return;
	if (k->ovl)
		ovl_abandon(k->ovl);
	if (k->layer)
		(void)!store_layers_discard(k->o.store, &k->layer, 1);
	sink_free(k);
}

/* A tree that nobody gave a root: root's, 0755. */
static int default_root(struct sink *k)
{
	const struct stat st = {.st_mode = 0755};
	struct ovl_attr a;

	if (k->o.parent || sink_dir_declared(k, STORE_ROOT_INO))
		return 0;
	return ovl_setattr(k->ovl, STORE_ROOT_INO, &st,
			   OVL_SET_MODE | OVL_SET_UID | OVL_SET_GID | OVL_SET_ATIME | OVL_SET_MTIME,
			   &a);
}

int sink_finish(struct sink *k, store_layer *ret)
{
	struct ovl *o;
	int r = sink_dirs_restore(k);

	if (r == 0)
		r = default_root(k);
	drop_last(k);
	sink_forget_place(k);
	if (r == 0) {
		o = steal_ptr(&k->ovl);
		r = ovl_close(o);
	}
	if (r == 0)
		r = store_layer_seal(k->o.store, k->layer);
	if (r < 0) {
		r = sink_fail(k, r, "cannot write", "the new tree");
		sink_abort(k);
		return r;
	}
	*ret = k->layer;
	if (k->o.ret_pin)
		*k->o.ret_pin = steal_fd(&k->pin);
	sink_free(k);
	return 0;
}

/* ---- entries ---- */

static int put_root(struct sink *k, const struct sink_entry *e, store_ino *ret)
{
	if (!S_ISDIR(e->st.st_mode) || e->hardlink)
		return diag_set(k->o.diag, -EBADMSG, "the root is something else than a directory");
	*ret = STORE_ROOT_INO;
	return sink_bare(k, STORE_ROOT_INO);
}

static int make(struct sink *k, store_ino dir, const char *name, const struct sink_entry *e,
		struct ovl_entry *ret)
{
	mode_t mode = e->st.st_mode;

	if (S_ISDIR(mode))
		return ovl_mkdir(k->ovl, dir, name, S_IFDIR | 0700, &nobody_in_particular, ret);
	if (S_ISLNK(mode))
		return e->target && *e->target && strlen(e->target) < 4096
			       ? ovl_symlink(k->ovl, dir, name, e->target, &nobody_in_particular,
					     ret)
			       : -ENAMETOOLONG;
	return ovl_mknod(k->ovl, dir, name, (mode & S_IFMT) | 0600, e->st.st_rdev,
			 &nobody_in_particular, ret);
}

/* The inode that a hard link names; one reference. */
static int link_source(struct sink *k, const char *path, struct ovl_entry *ret)
{
	struct sink_place p;
	store_ino dir;
	int r = sink_split(k, path, &p);

	if (r == 0 && !p.name[0])
		r = -EPERM;
	if (r == 0)
		r = sink_walk(k, p.path, p.dir_len, false, &dir);
	if (r < 0)
		return r;
	r = ovl_lookup(k->ovl, dir, p.name, ret);
	ovl_forget(k->ovl, dir, 1);
	return r == 0 && !ret->ino ? -ENOENT : r;
}

static int put_link(struct sink *k, store_ino dir, const struct sink_place *p,
		    const struct sink_entry *e)
{
	struct ovl_entry src = {0}, old = {0}, made = {0};
	int r = link_source(k, e->hardlink, &src);

	if (r == 0 && S_ISDIR(src.attr.st.st_mode))
		r = -EPERM;
	if (r == 0)
		r = ovl_lookup(k->ovl, dir, p->name, &old);
	if (r == 0 && old.ino && old.ino != src.ino)
		r = sink_remove(k, dir, p->name, &old);
	if (r == 0 && old.ino != src.ino)
		r = ovl_link(k->ovl, src.ino, dir, p->name, &made);
	/* also one that was there: this layer says it again */
	if (r == 0 && src.ino < k->mark)
		r = sink_link_note(k, dir, p->name);
	if (made.ino)
		ovl_forget(k->ovl, made.ino, 1);
	if (old.ino)
		ovl_forget(k->ovl, old.ino, 1);
	if (src.ino)
		ovl_forget(k->ovl, src.ino, 1);
	if (r == -ENOENT || r == -EPERM)
		return diag_set(k->o.diag, -EBADMSG,
				"%s is a hard link to %s, which is not there before it", e->path,
				e->hardlink);
	return r < 0 ? sink_fail(k, r, "cannot link", e->path) : 0;
}

/* A directory where one is stays, with its names. */
static int put_new(struct sink *k, store_ino dir, const struct sink_place *p,
		   const struct sink_entry *e, store_ino *ret)
{
	struct ovl_entry old = {0}, made = {0};
	bool stays;
	int r = ovl_lookup(k->ovl, dir, p->name, &old);

	stays = r == 0 && old.ino && S_ISDIR(e->st.st_mode) && S_ISDIR(old.attr.st.st_mode);
	if (r == 0 && old.ino && !stays)
		r = sink_remove(k, dir, p->name, &old);
	if (r == 0 && !stays)
		r = make(k, dir, p->name, e, &made);
	if (r == 0)
		k->last = stays ? old.ino : made.ino;
	if (r < 0 && old.ino)
		ovl_forget(k->ovl, old.ino, 1);
	else if (old.ino && !stays)
		ovl_forget(k->ovl, old.ino, 1);
	if (r == 0)
		r = sink_bare(k, k->last);
	if (r == 0)
		*ret = k->last;
	return r < 0 ? sink_fail(k, r, "cannot make", e->path) : 0;
}

static bool kind_ok(mode_t mode)
{
	return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISCHR(mode) || S_ISBLK(mode) ||
	       S_ISFIFO(mode) || S_ISSOCK(mode);
}

int sink_put(struct sink *k, const struct sink_entry *e, store_ino *ret_ino)
{
	struct sink_place p;
	store_ino dir = 0;
	int r;

	*ret_ino = 0;
	drop_last(k);
	if (k->o.stop && k->o.stop(k->o.arg))
		return diag_set(k->o.diag, -ECANCELED, "stopped");
	if (!e->hardlink && !kind_ok(e->st.st_mode))
		return diag_set(k->o.diag, -EBADMSG, "%s is of no kind that a file can have",
				e->path);
	r = sink_split(k, e->path, &p);
	if (r < 0)
		return r;
	k->counts.entries++;
	if (!p.name[0])
		return put_root(k, e, ret_ino);
	r = sink_walk(k, p.path, p.dir_len, true, &dir);
	if (r == 0)
		r = sink_dir_touch(k, dir);
	if (r == 0)
		r = e->hardlink ? put_link(k, dir, &p, e) : put_new(k, dir, &p, e, ret_ino);
	if (dir)
		ovl_forget(k->ovl, dir, 1);
	return r;
}

int sink_write(struct sink *k, store_ino ino, uint64_t off, const void *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t w = ovl_write(k->ovl, ino, off + at, (const char *)p + at, n - at, false);

		if (w < 0)
			return sink_fail(k, (int)w, "cannot keep", "a file's bytes");
		at += (size_t)w;
	}
	k->counts.bytes += n;
	/* A little of a packed source can be a great many bytes. */
	return k->o.stop && k->o.stop(k->o.arg) ? diag_set(k->o.diag, -ECANCELED, "stopped") : 0;
}

int sink_take(struct sink *k, store_ino ino, struct ovl *from, store_ino src, uint64_t size,
	      uint64_t data)
{
	for (uint64_t at = 0; at < size;) {
		ssize_t n = ovl_copy_from(from, src, at, k->ovl, ino, at, size - at);

		if (n <= 0)
			return n < 0 ? sink_fail(k, (int)n, "cannot keep", "a file's bytes") : -EIO;
		at += (uint64_t)n;
		if (k->o.stop && k->o.stop(k->o.arg))
			return diag_set(k->o.diag, -ECANCELED, "stopped");
	}
	k->counts.bytes += data;
	return 0;
}

int sink_attr(struct sink *k, store_ino ino, const struct sink_entry *e, uint64_t size)
{
	unsigned set = OVL_SET_UID | OVL_SET_GID | OVL_SET_ATIME | OVL_SET_MTIME;
	struct stat st = e->st;
	struct ovl_attr a;
	int r;

	st.st_atim = st.st_mtim;
	if (!S_ISLNK(st.st_mode))
		set |= OVL_SET_MODE;
	if (S_ISREG(st.st_mode)) {
		set |= OVL_SET_SIZE;
		st.st_size = (off_t)size;
	}
	r = ovl_setattr(k->ovl, ino, &st, set, &a);
	if (r == 0 && S_ISDIR(st.st_mode))
		r = sink_dir_note(k, ino, &st.st_mtim, true);
	return r < 0 ? sink_fail(k, r, "cannot set the attributes of", e->path) : 0;
}

/* More names than a list of them can tell, which is no full disk. */
static bool list_full(struct sink *k, store_ino ino, const char *name)
{
	ssize_t n = ovl_listxattr(k->ovl, ino, NULL, 0);

	return n >= 0 && (size_t)n + strlen(name) + 1 > XATTR_LIST_MAX;
}

int sink_xattr(struct sink *k, store_ino ino, const char *name, const void *value, size_t len)
{
	int r = ovl_setxattr(k->ovl, ino, name, value, len, 0);

	/* A namespace of another system, a list that is none, or one that this kind of file cannot have. */
	if (r == -EOPNOTSUPP || r == -EPERM || r == -EACCES || r == -EINVAL || r == -ERANGE ||
	    r == -E2BIG || (r == -ENOSPC && list_full(k, ino, name))) {
		k->counts.skipped++;
		return 0;
	}
	return r < 0 ? sink_fail(k, r, "cannot keep the attribute", name) : 0;
}

void sink_counts(const struct sink *k, struct sink_counts *ret)
{
	*ret = k->counts;
}

void sink_skip(struct sink *k)
{
	k->counts.skipped++;
}
