/* Listing a directory. */
#include <stdlib.h>

#include "fs/core/ovl_internal.h"

#define INO_UNKNOWN 0xffffffffu /* as the kernel and libfuse spell it in a listing */

typedef int (*readdir_fn)(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e);

struct dirread {
	struct ovl *o;
	struct node *dir;
	bool plus;
	readdir_fn fn;
	void *arg;
	bool given;  /* something was taken in this call */
	int host_fd; /* of the host's directory, once one of its names was asked for; -1 */
};

static int give(struct dirread *d, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	int r = d->fn(d->arg, name, cookie, e);

	d->given = d->given || !r;
	return r;
}

static int emit_dots(struct dirread *d, uint64_t cookie)
{
	struct ovl_entry e = {.ino = d->dir->ino};

	e.attr.st.st_ino = e.ino;
	e.attr.st.st_mode = S_IFDIR;
	if (cookie < 1 && give(d, ".", 1, &e))
		return 1;
	if (d->dir->rec.parent)
		e.ino = e.attr.st.st_ino = d->dir->rec.parent;
	return cookie < 2 && give(d, "..", 2, &e);
}

/* A name whose file cannot be looked at (a mount of somebody else's, a directory without x, a damaged record) is
 * listed all the same: one of them must not hide the others. */
static int emit_name(struct dirread *d, const struct listing_entry *le)
{
	struct ovl_entry e = {.attr.st = {.st_ino = INO_UNKNOWN, .st_mode = le->type}};

	e.ino = d->plus ? 0 : INO_UNKNOWN;
	return give(d, le->name, le->cookie, &e) ? 1 : 0;
}

/* EX. Give back the reference that looking @ino up took. */
static void unlook(struct dirread *d, store_ino ino)
{
	struct node *n = node_find(d->o, ino);

	if (n) {
		atomic_fetch_sub(&n->nlookup, 1);
		node_reap(d->o, n);
	}
}

/* EX. The inode that the host's name has shown, when the host has been asked of it not long ago; else NULL. */
static struct node *believed(struct dirread *d, const struct listing_entry *le)
{
	struct node *n = le->ino ? node_find(d->o, le->ino) : NULL;

	return n && n->host_only && n->rec.parent == d->dir->ino && n->rec.name_len == le->len &&
			       !memcmp(n->rec.name, le->name, le->len) && !host_stale(d->o, n)
		       ? n
		       : NULL;
}

/* EX. A name of the host is one that neither memory nor the store knows: the listing is kept right. */
static int look_up(struct dirread *d, struct listing_entry *le, struct ovl_entry *ret)
{
	const struct node *n = le->host ? believed(d, le) : NULL;
	struct stat st;
	int r;

	if (n)
		return lookup_believed(d->o, d->dir, n->ino, ret);
	if (!le->host)
		return lookup_locked(d->o, d->dir, le->name, le->len, true, ret);
	r = host_stat_next(d->o, d->dir, &d->host_fd, le->name, le->len, &st);
	if (r == -ENOENT)
		*ret = (struct ovl_entry){0};
	if (r == 0)
		r = lookup_host(d->o, d->dir, le->name, le->len, &st, ret);
	/* As in number_host: what lookup says is what a listing shows. */
	if (r == 0)
		le->ino = ret->ino;
	return r == -ENOENT ? 0 : r;
}

/* EX. 1 to stop, 0 to go on (also past a host name that went away). */
static int emit_plus(struct dirread *d, struct listing_entry *le)
{
	struct ovl_entry e;
	store_ino ino;
	int r = look_up(d, le, &e);

	if (r == -EIO || r == -EACCES || (r < 0 && r != -ENOMEM && le->host))
		return emit_name(d, le);
	if (r < 0 || !e.ino)
		return r;
	ino = e.ino;
	/* What must not be taken over is not offered. */
	if (e.attr.unsettled)
		e.ino = e.attr.unsettled = 0;
	r = give(d, le->name, le->cookie, &e);
	if (r || !e.ino)
		unlook(d, ino);
	return r ? 1 : 0;
}

/* EX. A host name gets its number when it is listed; d_ino must be what lookup will say. */
static int number_host(struct dirread *d, struct listing_entry *le)
{
	struct stat st;
	struct node *n;
	int r = host_stat_child(d->o, d->dir, le->name, le->len, &st);

	if (r == 0)
		r = host_number_of(d->o, d->dir, le->name, le->len, &st, &le->ino);
	if (r < 0)
		return r;
	le->type = st.st_mode & S_IFMT;
	n = node_find(d->o, le->ino);
	if (n)
		node_reap(d->o, n);
	return 0;
}

static int emit_plain(struct dirread *d, struct listing_entry *le)
{
	struct ovl_entry e = {0};
	int r = le->ino ? 0 : number_host(d, le);

	if (r == -ENOENT)
		return 0;
	if (r < 0 && r != -ENOMEM && le->host)
		return emit_name(d, le);
	if (r < 0)
		return r;
	e.ino = le->ino;
	e.attr.st.st_ino = le->ino;
	e.attr.st.st_mode = le->type;
	return give(d, le->name, le->cookie, &e) ? 1 : 0;
}

/* Does the policy let the directory show it? @ret_named: with its name alone. */
static bool shown(struct dirread *d, const struct listing_entry *le, bool *ret_named)
{
	struct policy *p = d->o->policy;
	int dir, s;

	*ret_named = false;
	if (policy_trivial(p))
		return true;
	dir = node_policy(d->o, d->dir);
	s = policy_child(p, dir, le->name, le->len);
	*ret_named = !(policy_may(p, s) & POLICY_MAY_PASS);
	return policy_shows(p, dir, s);
}

static int emit_all(struct dirread *d, uint64_t cookie)
{
	struct listing *l = d->dir->listing;
	bool named;
	int r;

	if (d->dir->rec.nlink == 0)
		return 0;
	if (emit_dots(d, cookie))
		return 1;
	for (size_t i = listing_seek(l, cookie + 1); i < l->n; i++) {
		if (!l->slots[i] || !shown(d, l->slots[i], &named))
			continue;
		r = named     ? emit_name(d, l->slots[i])
		    : d->plus ? emit_plus(d, l->slots[i])
			      : emit_plain(d, l->slots[i]);
		/* What was given stays given, with its references: the next call meets the error. */
		if (r < 0 && d->given)
			return 1;
		if (r != 0)
			return r;
	}
	return 0;
}

/* EX. There will be a next part: whoever serves it has to know this order. */
static void keep_order(struct ovl *o, struct node *n)
{
	if (o->journal && n && n->listing && !n->listing->logged)
		redo_listing(o, n);
}

void ovl_keep_order(struct ovl *o, store_ino dir)
{
	const struct node *n;
	bool kept;

	lock_shared(o);
	n = node_find(o, dir);
	kept = !o->journal || !n || !n->listing || n->listing->logged;
	unlock(o);
	if (kept)
		return;
	lock_excl(o);
	keep_order(o, node_find(o, dir));
	unlock(o);
}

int ovl_readdir(struct ovl *o, store_ino dir, uint64_t cookie, bool plus,
		int (*fn)(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e),
		void *arg)
{
	struct dirread d = {.o = o, .plus = plus, .fn = fn, .arg = arg, .host_fd = -1};
	int r;

	lock_shared(o);
	d.dir = node_find(o, dir);
	/* Only a listing that is there and has no host behind it can be read beside other readers. */
	if (!plus && d.dir && d.dir->listing && !d.dir->rec.origin.root &&
	    d.dir->pol != POL_UNKNOWN && policy_may(o->policy, d.dir->pol) & POLICY_MAY_LIST) {
		r = emit_all(&d, cookie);
		unlock(o);
		if (r > 0)
			ovl_keep_order(o, dir);
		return r < 0 ? r : 0;
	}
	unlock(o);
	lock_excl(o);
	r = node_get_dir(o, dir, false, &d.dir);
	if (r == 0)
		r = node_may(o, d.dir, POLICY_MAY_LIST, "list");
	if (r == 0 && d.dir->rec.nlink > 0)
		r = listing_load(o, d.dir, cookie == 0);
	if (r == 0) {
		/* A node that only this call brought in goes with it, listing and all. */
		node_pin(d.dir);
		r = emit_all(&d, cookie);
		if (r > 0)
			keep_order(o, d.dir);
		atomic_fetch_sub(&d.dir->pins, 1);
		node_reap(o, d.dir);
	}
	unlock(o);
	cleanup_fdp(&d.host_fd);
	return r < 0 ? r : 0;
}

bool ovl_names_change(struct ovl *o, store_ino dir)
{
	const struct node *n;
	bool yes;

	lock_shared(o);
	n = node_find(o, dir);
	yes = n && n->rec.origin.root;
	unlock(o);
	return yes;
}
