/* Taking names away: unlink, rmdir; and when the caller has counted that. */
#include "fs/core/remove.h"

int dir_is_empty(struct ovl *o, struct node *n)
{
	int r = listing_load(o, n, true);

	if (r < 0)
		return r;
	return listing_empty(n->listing) ? 0 : -ENOTEMPTY;
}

void drop_link(struct ovl *o, struct node *n, store_ino parent, struct place_plan *p,
	       const struct timespec *now)
{
	const struct node *dir = node_find(o, parent);

	place_do(o, n, p);
	n->rec.nlink = S_ISDIR(n->rec.mode) || n->rec.nlink == 0 ? 0 : n->rec.nlink - 1;
	n->rec.ctime = *now;
	if (n->rec.nlink > 0) {
		n->dropped_in = parent;
		n->dropped_at = dir ? dir->turns : 0;
		n->drops = n->drops + 1 ? n->drops + 1 : 1;
		n->settling = false;
		node_moved(o, n);
	} else if (atomic_load(&n->nlookup) > 0 || n->held) {
		redo_orphan(o, n);
	}
	node_dirty(o, n);
}

/* @n is what @name of @dir means; both are pinned. */
static int remove_found(struct ovl *o, struct node *dir, const char *name, size_t len,
			const struct found *f, struct node *n, bool isdir)
{
	cleanup_name struct name *e = NULL;
	cleanup_place struct place_plan plan = {0};
	struct timespec now = now_real();
	bool in_use = atomic_load(&n->nlookup) > 0 || n->held || n->rec.nlink > 1;
	int r = name_may_go(o, dir, name, len, isdir ? "rmdir" : "unlink");

	if (r == 0 && isdir != S_ISDIR(n->rec.mode))
		r = isdir ? -ENOTDIR : -EISDIR;
	if (r == 0 && isdir)
		r = dir_is_empty(o, n);
	if (r == 0)
		r = host_materialise(o, dir);
	/* An untouched host file that nobody looks at, with no other name, needs no record. */
	if (r == 0 && in_use)
		r = host_materialise(o, n);
	if (r == 0)
		r = name_prepare(o, dir, name, len, &e);
	if (r == 0 && !n->host_only)
		r = place_del(o, n, dir->ino, name, len, &plan);
	if (r < 0)
		return r;
	name_set(o, &e, f, 0, 0);
	dir_touched(o, dir, &now, isdir ? -1 : 0);
	dir->turns++;
	if (!n->host_only)
		drop_link(o, n, dir->ino, &plan, &now);
	return 0;
}

static int remove_locked(struct ovl *o, store_ino parent, const char *name, size_t len, bool isdir)
{
	struct node *dir, *n = NULL;
	struct found f;
	int r = node_get_dir(o, parent, true, &dir);

	if (r < 0)
		return r;
	node_pin(dir);
	r = name_may_look(o, dir, name, len, isdir ? "rmdir" : "unlink");
	if (r == 0)
		r = name_node(o, dir, name, len, &f, &n);
	if (r > 0 || (r == 0 && !n))
		r = -ENOENT;
	if (r == 0) {
		node_pin(n);
		r = remove_found(o, dir, name, len, &f, n, isdir);
		node_put(o, n);
	}
	node_put(o, dir);
	return r;
}

static int remove_name(struct ovl *o, store_ino parent, const char *name, bool isdir)
{
	size_t len;
	int r = name_check(name, &len);

	if (r < 0)
		return r;
	if (!strcmp(name, "."))
		return isdir ? -EINVAL : -EISDIR;
	if (!strcmp(name, ".."))
		return isdir ? -ENOTEMPTY : -EISDIR;
	r = change_begin(o, false);
	if (r < 0)
		return r;
	lock_excl(o);
	r = remove_locked(o, parent, name, len, isdir);
	if (r == 0)
		redo_arm(o, 0, 0);
	unlock(o);
	change_end(o);
	return r;
}

int ovl_unlink(struct ovl *o, store_ino parent, const char *name)
{
	return remove_name(o, parent, name, false);
}

int ovl_rmdir(struct ovl *o, store_ino parent, const char *name)
{
	return remove_name(o, parent, name, true);
}

store_ino ovl_unsettled(struct ovl *o, store_ino ino, uint32_t *ret_which)
{
	struct node *n;
	store_ino dir = 0;

	lock_excl(o);
	n = node_find(o, ino);
	if (n && !n->settling) {
		dir = n->dropped_in;
		*ret_which = n->drops;
		n->settling = true;
	}
	unlock(o);
	return dir;
}

void ovl_settled(struct ovl *o, store_ino ino, uint32_t which)
{
	struct node *n;

	lock_excl(o);
	n = node_find(o, ino);
	/* A later removal has to be waited for by itself. */
	if (n && n->drops == which)
		n->dropped_in = 0;
	unlock(o);
}
