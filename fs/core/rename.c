/* rename, with RENAME_NOREPLACE, RENAME_EXCHANGE and RENAME_WHITEOUT. */
#include <linux/fs.h>

#include "fs/core/remove.h"

/* One end of a rename; its nodes are pinned. */
struct end {
	struct node *dir;
	const char *name;
	size_t len;
	struct found f;
	struct node *n; /* NULL: no such name */
	struct name *e; /* prepared */
};

/* @hidden: what is said of a name that the policy hides. */
static int end_find(struct ovl *o, store_ino parent, struct end *e, int hidden)
{
	struct node *dir;
	int r = node_get_dir(o, parent, true, &dir);

	if (r < 0)
		return r;
	e->dir = dir;
	node_pin(dir);
	r = name_may_look(o, dir, e->name, e->len, "rename");
	if (r > 0)
		r = hidden;
	if (r == 0)
		r = name_node(o, dir, e->name, e->len, &e->f, &e->n);
	if (r == 0 && e->n)
		node_pin(e->n);
	return r;
}

static void end_release(struct ovl *o, struct end *e)
{
	name_cancel(e->e);
	node_put(o, e->n);
	node_put(o, e->dir);
}

/* -EINVAL when @dir is @top or lies below it. */
static int not_below(struct ovl *o, struct node *dir, const struct node *top)
{
	for (unsigned depth = 0; dir->ino != STORE_ROOT_INO; depth++) {
		int r;

		if (dir == top)
			return -EINVAL;
		if (!dir->rec.parent || depth > 65536)
			return -EIO;
		r = node_get(o, dir->rec.parent, &dir);
		if (r < 0)
			return r;
	}
	return 0;
}

static int check_replace(struct ovl *o, const struct end *from, const struct end *to)
{
	bool a = S_ISDIR(from->n->rec.mode), b;

	if (!to->n)
		return 0;
	b = S_ISDIR(to->n->rec.mode);
	if (a && !b)
		return -ENOTDIR;
	if (!a && b)
		return -EISDIR;
	return b ? dir_is_empty(o, to->n) : 0;
}

static int check_tree(struct ovl *o, struct end *from, struct end *to, bool exchange)
{
	int r = 0;

	if (S_ISDIR(from->n->rec.mode) && from->dir != to->dir)
		r = not_below(o, to->dir, from->n);
	/* The other way round: an ancestor of the source is not empty, and an exchange would make a
	 * loop. */
	if (r == 0 && to->n && S_ISDIR(to->n->rec.mode) && from->dir != to->dir) {
		r = not_below(o, from->dir, to->n);
		if (r == -EINVAL && !exchange)
			r = -ENOTEMPTY;
	}
	return r;
}

static int check(struct ovl *o, struct end *from, struct end *to, unsigned flags)
{
	bool exchange = flags & RENAME_EXCHANGE;
	int r;

	if (!from->n || (exchange && !to->n))
		return -ENOENT;
	if (to->n && flags & RENAME_NOREPLACE)
		return -EEXIST;
	r = check_tree(o, from, to, exchange);
	if (r == 0 && from->n == to->n)
		return 1; /* two names of one file: nothing is to be done */
	if (r == 0)
		r = may_rename(o, &(struct place_at){from->dir, from->name, from->len}, from->n,
			       &(struct place_at){to->dir, to->name, to->len}, to->n, exchange);
	if (r == 0 && flags & RENAME_WHITEOUT)
		r = name_may(o, from->dir, from->name, from->len, POLICY_MAY_WRITE | POLICY_MAY_PUT,
			     "rename");
	if (r == 0 && !exchange)
		r = check_replace(o, from, to);
	return r;
}

static int prepare(struct ovl *o, struct end *from, struct end *to)
{
	int r = host_materialise(o, from->dir);

	if (r == 0)
		r = host_materialise(o, to->dir);
	if (r == 0)
		r = host_materialise(o, from->n);
	if (r == 0 && to->n)
		r = host_materialise(o, to->n);
	if (r == 0)
		r = name_prepare(o, from->dir, from->name, from->len, &from->e);
	if (r == 0)
		r = name_prepare(o, to->dir, to->name, to->len, &to->e);
	return r;
}

/* The plan for @n, which goes from one end to the other. */
static int plan_move(struct node *n, const struct end *from, const struct end *to,
		     struct place_plan *p)
{
	return place_move(n, from->dir->ino, from->name, from->len, to->dir->ino, to->name, to->len,
			  p);
}

static void moved(struct ovl *o, struct node *n, const struct end *to, struct place_plan *p,
		  const struct timespec *now)
{
	place_do(o, n, p);
	n->rec.ctime = *now;
	node_moved(o, n);
	if (S_ISDIR(n->rec.mode) || n->rec.nlink < 2)
		node_found(o, to->dir, to->name, to->len, n);
	node_dirty(o, n);
}

/* What a file system that lies over this one takes for "nothing here", for the old name. */
static int make_whiteout(struct ovl *o, const struct end *from, const struct ovl_cred *cred,
			 const struct timespec *now, struct node **ret)
{
	const struct new_inode what = {.mode = S_IFCHR, .rdev = 0};
	struct node *n;
	int r = node_make(o, from->dir, &what, cred, now, &n);

	if (r < 0)
		return r;
	r = node_set_place(n, from->dir->ino, from->name, from->len);
	if (r < 0)
		node_unmake(o, n);
	else
		*ret = n;
	return r;
}

/* The old name is @white's from now on, or nobody's. */
static void leave(struct ovl *o, struct end *from, struct node *white)
{
	if (!white) {
		name_set(o, &from->e, &from->f, 0, 0);
		return;
	}
	node_found(o, from->dir, from->name, from->len, white);
	name_set(o, &from->e, &from->f, white->ino, white->rec.mode & S_IFMT);
	node_dirty(o, white);
}

/* @cred: of the whiteout, NULL for none. */
static int replace(struct ovl *o, struct end *from, struct end *to, const struct ovl_cred *cred)
{
	cleanup_place struct place_plan move = {0}, drop = {0};
	struct timespec now = now_real();
	struct node *old = to->n, *white = NULL;
	bool isdir = S_ISDIR(from->n->rec.mode), olddir = old && S_ISDIR(old->rec.mode);
	int r = plan_move(from->n, from, to, &move);

	if (r == 0 && old)
		r = place_del(o, old, to->dir->ino, to->name, to->len, &drop);
	if (r == 0 && cred)
		r = make_whiteout(o, from, cred, &now, &white);
	if (r < 0)
		return r;
	moved(o, from->n, to, &move, &now);
	if (from->dir == to->dir && !white)
		listing_rename(o, from->dir, from->name, from->len, to->name, to->len);
	leave(o, from, white);
	name_set(o, &to->e, &to->f, from->n->ino, from->n->rec.mode & S_IFMT);
	dir_touched(o, from->dir, &now, isdir ? -1 : 0);
	dir_touched(o, to->dir, &now, (isdir ? 1 : 0) - (olddir ? 1 : 0));
	from->dir->turns++;
	to->dir->turns++;
	if (old)
		drop_link(o, old, to->dir->ino, &drop, &now);
	return 0;
}

static int exchange(struct ovl *o, struct end *from, struct end *to)
{
	cleanup_place struct place_plan there = {0}, back = {0};
	struct timespec now = now_real();
	int a = S_ISDIR(from->n->rec.mode), b = S_ISDIR(to->n->rec.mode);
	int r = plan_move(from->n, from, to, &there);

	if (r == 0)
		r = plan_move(to->n, to, from, &back);
	if (r < 0)
		return r;
	moved(o, from->n, to, &there, &now);
	moved(o, to->n, from, &back, &now);
	name_set(o, &from->e, &from->f, to->n->ino, to->n->rec.mode & S_IFMT);
	name_set(o, &to->e, &to->f, from->n->ino, from->n->rec.mode & S_IFMT);
	dir_touched(o, from->dir, &now, b - a);
	dir_touched(o, to->dir, &now, a - b);
	from->dir->turns++;
	to->dir->turns++;
	return 0;
}

static int rename_locked(struct ovl *o, store_ino parent, store_ino newparent, struct end *from,
			 struct end *to, unsigned flags, const struct ovl_cred *cred)
{
	int r = end_find(o, parent, from, -ENOENT);

	if (r == 0)
		r = end_find(o, newparent, to, -EACCES);
	if (r == 0)
		r = check(o, from, to, flags);
	if (r == 0)
		r = prepare(o, from, to);
	if (r == 0 && flags & RENAME_EXCHANGE)
		r = exchange(o, from, to);
	else if (r == 0)
		r = replace(o, from, to, flags & RENAME_WHITEOUT ? cred : NULL);
	return r > 0 ? 0 : r; /* 1: nothing was to be done */
}

int ovl_rename(struct ovl *o, store_ino parent, const char *name, store_ino newparent,
	       const char *newname, unsigned flags)
{
	store_ino moved[2];

	return ovl_rename_told(o, parent, name, newparent, newname, flags, NULL, moved);
}

int ovl_rename_told(struct ovl *o, store_ino parent, const char *name, store_ino newparent,
		    const char *newname, unsigned flags, const struct ovl_cred *cred,
		    store_ino ret_moved[static 2])
{
	const unsigned known = RENAME_NOREPLACE | RENAME_EXCHANGE | (cred ? RENAME_WHITEOUT : 0);
	struct end from = {.name = name}, to = {.name = newname};
	int r = name_check(name, &from.len);

	if (r == 0)
		r = name_check(newname, &to.len);
	if (r < 0)
		return r;
	if (flags & ~known || (flags & RENAME_EXCHANGE && flags != RENAME_EXCHANGE))
		return -EINVAL;
	if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(newname, ".") ||
	    !strcmp(newname, ".."))
		return -EBUSY;
	r = change_begin(o, flags & RENAME_WHITEOUT);
	if (r < 0)
		return r;
	lock_excl(o);
	r = rename_locked(o, parent, newparent, &from, &to, flags, cred);
	ret_moved[0] = from.n ? from.n->ino : 0;
	ret_moved[1] = to.n && flags & RENAME_EXCHANGE ? to.n->ino : 0;
	end_release(o, &from);
	end_release(o, &to);
	if (r == 0)
		redo_arm(o, 0, 0);
	unlock(o);
	change_end(o);
	return r;
}
