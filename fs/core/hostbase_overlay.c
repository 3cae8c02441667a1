/* Host directories laid over a tree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "fs/core/hostbase_internal.h"
#include "fs/core/hostsrc.h"

/* A directory on the way: recorded, or one of a host directory's. */
struct spot {
	store_ino ino;        /* 0: not recorded */
	struct rec_inode rec; /* of a recorded one */
	char *root, *rel;     /* the host directory that it shows; NULL: none */
	unsigned flags;
};

static void spot_release(struct spot *p)
{
	rec_inode_release(&p->rec);
	free(p->root);
	free(p->rel);
	*p = (struct spot){0};
}
#define cleanup_spot __attribute__((cleanup(spot_release)))

static int spot_load(struct store_view *v, store_ino ino, struct spot *ret)
{
	int r = store_view_inode(v, ino, &ret->rec);

	ret->ino = ino;
	if (r < 0 || !ret->rec.origin.root)
		return r;
	ret->root = strdup(ret->rec.origin.root);
	ret->rel = strdup(ret->rec.origin.rel ? ret->rec.origin.rel : "");
	ret->flags = ret->rec.origin.flags;
	return ret->root && ret->rel ? 0 : -ENOMEM;
}

/* @public: the host's owner is root, whoever it is. */
static void set_attributes(struct rec_inode *rec, const struct stat *st, bool public)
{
	rec->mode = st->st_mode;
	rec->uid = public ? 0 : st->st_uid;
	rec->gid = public ? 0 : st->st_gid;
	rec->nlink = (uint32_t)st->st_nlink;
	rec->atime = st->st_atim;
	rec->mtime = st->st_mtim;
	rec->ctime = rec->btime = st->st_ctim;
	rec->origin.dev = st->st_dev;
	rec->origin.ino = st->st_ino;
}

/* The child as the host has it. */
static int spot_host_child(const struct spot *p, const char *name, size_t len, struct spot *ret)
{
	struct hostsrc *h;
	struct stat st;
	int r;

	if (!p->root)
		return -ENOENT;
	ret->root = strdup(p->root);
	if (!ret->root ||
	    asprintf(&ret->rel, "%s%s%.*s", p->rel, *p->rel ? "/" : "", (int)len, name) < 0) {
		ret->rel = NULL;
		return -ENOMEM;
	}
	ret->flags = p->flags;
	r = hostsrc_open(p->root, p->flags, 0, NULL, &h);
	if (r < 0)
		return r;
	r = hostsrc_stat(h, ret->rel, &st);
	hostsrc_close(h);
	if (r < 0)
		return r;
	set_attributes(&ret->rec, &st, ret->flags & REC_ORIGIN_PUBLIC);
	return 0;
}

/* -ENOENT: no such name; -ENOTDIR: something else. */
static int spot_child(struct store_view *v, const struct spot *p, const char *name, size_t len,
		      struct spot *ret)
{
	struct rec_name n;
	int r = p->ino ? store_view_name(v, p->ino, name, len, &n) : -ENOENT;

	if (r == 0)
		r = n.ino ? spot_load(v, n.ino, ret) : -ENOENT;
	else if (r == -ENOENT)
		r = spot_host_child(p, name, len, ret);
	if (r == 0 && !S_ISDIR(ret->rec.mode))
		r = -ENOTDIR;
	if (r < 0)
		spot_release(ret);
	return r;
}

/* The next component of an absolute path: 1, or 0 at its end, or -EINVAL for "." and "..". */
static int next_name(const char **path, const char **ret_name, size_t *ret_len)
{
	const char *p = *path + strspn(*path, "/");
	size_t len = strcspn(p, "/");

	if (len == 0)
		return 0;
	if ((len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.') ||
	    len > STORE_NAME_MAX)
		return -EINVAL;
	*ret_name = p;
	*ret_len = len;
	*path = p + len;
	return 1;
}

struct laying {
	struct store *s;
	struct store_view *v;
	struct store_batch *b;
	struct timespec now;
};

/* Record @p as @name of @parent, with a number of its own. */
static int lay_dir(struct laying *l, const struct spot *parent, const char *name, size_t len,
		   struct spot *p)
{
	struct rec_name n = {.type = S_IFDIR};
	int r = store_reserve_inos(l->s, 1, &p->ino);

	n.ino = p->ino;
	if (r == 0)
		r = hostbase_set_place(&p->rec, parent->ino, name, len);
	if (r == 0 && p->root && !p->rec.origin.root)
		r = hostbase_set_origin(&p->rec, p->root, p->rel, p->flags);
	if (r == 0)
		r = store_batch_inode(l->b, p->ino, &p->rec);
	return r < 0 ? r : store_batch_name(l->b, parent->ino, name, len, &n);
}

/* The parent has one directory more. */
static int lay_parent(struct laying *l, struct spot *p)
{
	p->rec.nlink++;
	p->rec.mtime = p->rec.ctime = l->now;
	return store_batch_inode(l->b, p->ino, &p->rec);
}

/* The directory that shows @root. */
static int mount_spot(struct laying *l, const char *root, struct spot *ret)
{
	struct stat st;

	if (stat(root, &st) < 0)
		return ret_nerrno();
	hostbase_set_times(&ret->rec, &l->now);
	set_attributes(&ret->rec, &st, false);
	return hostbase_set_origin(&ret->rec, root, "", 0);
}

static int plain_spot(struct laying *l, struct spot *ret)
{
	hostbase_set_times(&ret->rec, &l->now);
	ret->rec.mode = S_IFDIR | 0755;
	ret->rec.nlink = 2;
	return 0;
}

/* A new directory at the name: one that shows @root, an empty one, or the host's that @child is. */
static int lay_new(struct laying *l, struct spot *at, const char *name, size_t len,
		   const char *root, bool is_new, struct spot *child)
{
	int r = 0;

	if (root || is_new) { /* what is there, if anything, is hidden by the mount */
		spot_release(child);
		r = root ? mount_spot(l, root, child) : plain_spot(l, child);
	}
	if (r == 0)
		r = lay_dir(l, at, name, len, child);
	return r == 0 && is_new ? lay_parent(l, at) : r;
}

/* One component of the mount path: find or make it below @at, which becomes it. */
static int lay_component(struct laying *l, struct spot *at, const char *name, size_t len,
			 const char *root)
{
	cleanup_spot struct spot child = {0};
	int r = spot_child(l->v, at, name, len, &child);

	if (r < 0 && r != -ENOENT)
		return r;
	if (root || r == -ENOENT || !child.ino)
		r = lay_new(l, at, name, len, root, r == -ENOENT, &child);
	if (r < 0)
		return r;
	spot_release(at);
	*at = child;
	child = (struct spot){0};
	return 0;
}

static int lay(struct laying *l, const char *root, const char *mount)
{
	cleanup_spot struct spot at = {0};
	const char *name;
	size_t len;
	int r = spot_load(l->v, STORE_ROOT_INO, &at);

	if (r == -ENOENT) { /* an empty tree */
		at.ino = STORE_ROOT_INO;
		r = plain_spot(l, &at);
		if (r == 0)
			r = store_batch_inode(l->b, at.ino, &at.rec);
	}
	while (r == 0 && next_name(&mount, &name, &len) == 1)
		r = lay_component(l, &at, name, len, mount[strspn(mount, "/")] ? NULL : root);
	return r;
}

static int check_paths(const char *root, const char *mount, struct diag *diag)
{
	const char *name, *p = mount;
	struct stat st;
	size_t len;
	int r, n = 0;

	if (mount[0] != '/')
		return diag_set(
			diag, -EINVAL,
			"the place for the host directory must be an absolute path, not \"%s\"",
			mount);
	while ((r = next_name(&p, &name, &len)) == 1)
		n++;
	if (r < 0 || n == 0)
		return diag_set(diag, -EINVAL, "a host directory cannot be shown at \"%s\"", mount);
	if (root[0] != '/' || strlen(root) >= REC_ORIGIN_MAX)
		return diag_set(diag, -EINVAL,
				"the host directory must be an absolute path, not \"%s\"", root);
	if (stat(root, &st) < 0)
		return diag_set(diag, ret_nerrno(), "cannot open the host directory \"%s\": %s",
				root, err_text(errno));
	if (!S_ISDIR(st.st_mode))
		return diag_set(diag, -ENOTDIR, "\"%s\" is not a directory", root);
	return 0;
}

static int write_overlay(struct store *s, store_layer layer, const char *root, const char *mount)
{
	struct laying l = {.s = s, .now = hostbase_now()};
	int r = store_view_open(s, layer, &l.v);

	if (r < 0)
		return r;
	r = store_batch_begin(s, layer, &l.b);
	if (r == 0) {
		r = lay(&l, root, mount);
		if (r < 0)
			store_batch_abort(l.b);
		else
			r = store_batch_commit(l.b);
	}
	store_view_close(l.v);
	return r < 0 ? r : store_layer_seal(s, layer);
}

int hostbase_overlay(struct store *s, store_layer parent, const char *root, const char *mount,
		     struct diag *diag, store_layer *ret)
{
	store_layer layer;
	int r = check_paths(root, mount, diag);

	if (r < 0)
		return r;
	r = store_layer_new(s, parent, &layer);
	if (r == 0)
		r = write_overlay(s, layer, root, mount);
	if (r == -ENOTDIR)
		return diag_set(diag, r,
				"\"%s\" lies below something that is not a directory in this tree",
				mount);
	if (r < 0)
		return diag_set(diag, r, "cannot show \"%s\" at \"%s\": %s", root, mount,
				err_text(r));
	*ret = layer;
	return 0;
}

int hostbase_overlay_at(struct store *s, store_layer layer, const char *mount, struct buf *ret_root)
{
	cleanup_spot struct spot at = {0};
	struct store_view *v;
	const char *name;
	size_t len;
	int r = store_view_open(s, layer, &v);

	if (r < 0)
		return r;
	r = spot_load(v, STORE_ROOT_INO, &at);
	while (r == 0 && (r = next_name(&mount, &name, &len)) == 1) {
		struct spot child = {0};

		r = spot_child(v, &at, name, len, &child);
		if (r == 0) {
			spot_release(&at);
			at = child;
		}
	}
	store_view_close(v);
	if (r < 0)
		return r == -ENOTDIR ? -ENOENT : r;
	if (!at.root)
		return -ENOENT;
	buf_clear(ret_root);
	return *at.rel ? buf_printf(ret_root, "%s/%s", at.root, at.rel)
		       : buf_puts(ret_root, at.root);
}
