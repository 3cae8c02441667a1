/* What the policy says about places and inodes. Nothing here looks at what a place holds, but for the places of a
 * file with several. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/landlock.h"
#include "fs/core/ovl_internal.h"

/* ---- states ---- */

struct meet {
	struct ovl *o;
	int state;
	unsigned n;
};

static int meet_place(void *arg, store_ino parent, const char *name, size_t len)
{
	struct meet *m = arg;
	struct node *dir;
	int s, r = node_get(m->o, parent, &dir);

	/* A directory that is gone holds no place; one that cannot be read may hold one that is closed. */
	if (r < 0)
		return r == -ESTALE ? 0 : r;
	s = name_policy(m->o, dir, name, len);
	m->state = m->n ? policy_meet(m->o->policy, m->state, s) : s;
	m->n++;
	return 0;
}

/* Are there links that the tree does not show? Those of host files are the host's. */
static bool has_unseen(const struct node *n, unsigned places)
{
	return !S_ISDIR(n->rec.mode) && n->rec.nlink > 1 && places < n->rec.nlink;
}

/* POL_UNKNOWN: no place is recorded, for its names are the host's. */
static int policy_of_places(struct ovl *o, struct node *n)
{
	struct meet m = {.o = o, .state = policy_leaf(POLICY_DENY)};
	int r = 0;

	if (n->rec.parent)
		r = meet_place(&m, n->rec.parent, n->rec.name ? n->rec.name : "", n->rec.name_len);
	else
		r = place_each(o, n, meet_place, &m);
	if (r < 0)
		return policy_leaf(POLICY_DENY);
	if (m.n == 0 && n->rec.nlink > 0)
		return POL_UNKNOWN;
	return has_unseen(n, m.n) ? policy_unseen(o->policy, m.state) : m.state;
}

static void settle(struct ovl *o, struct node *n)
{
	n->pol = n->ino == STORE_ROOT_INO ? policy_root(o->policy) : policy_of_places(o, n);
}

static int see_parent(void *arg, store_ino parent, const char *name, size_t len)
{
	(void)name, (void)len;
	*(store_ino *)arg = parent;
	return 1;
}

/* NULL: @dir is the root, or gone, or its name is the host's. */
static struct node *directory_above(struct ovl *o, struct node *dir)
{
	store_ino ino = dir->rec.parent;
	struct node *up;

	if (dir->ino == STORE_ROOT_INO || (!ino && place_each(o, dir, see_parent, &ino) != 1))
		return NULL;
	return node_get(o, ino, &up) == 0 ? up : NULL;
}

/* From the first directory above that is known down to @dir: in a loop, for a tree may be deeper than a stack. */
static int settle_down_to(struct ovl *o, struct node *dir)
{
	cleanup_free struct node **way = NULL;
	size_t n = 0, max = 0;

	for (; dir && dir->pol == POL_UNKNOWN; dir = directory_above(o, dir)) {
		if (n > o->nodes.n) /* a loop in damaged records */
			return -ELOOP;
		if (n == max) {
			struct node **more;

			max = max ? max * 2 : 64;
			more = reallocarray(way, max, sizeof(struct node *));
			if (!more)
				return -ENOMEM;
			way = more;
		}
		way[n++] = dir;
	}
	while (n > 0)
		settle(o, way[--n]);
	return 0;
}

int node_policy(struct ovl *o, struct node *n)
{
	if (n->pol != POL_UNKNOWN)
		return n->pol;
	if (!S_ISDIR(n->rec.mode))
		settle(o, n);
	else if (settle_down_to(o, n) < 0)
		return policy_leaf(POLICY_DENY);
	return n->pol == POL_UNKNOWN ? policy_leaf(POLICY_DENY) : n->pol;
}

int name_policy(struct ovl *o, struct node *dir, const char *name, size_t len)
{
	return policy_child(o->policy, node_policy(o, dir), name, len);
}

void node_found(struct ovl *o, struct node *dir, const char *name, size_t len, struct node *n)
{
	bool several;
	int s;

	if (policy_trivial(o->policy))
		return;
	s = name_policy(o, dir, name, len);
	several = !S_ISDIR(n->rec.mode) && n->rec.nlink > 1;
	if (several)
		(void)node_policy(o, n);
	n->pol = judge_found(o->policy, n->pol, s, several);
}

static int any_place(void *arg, store_ino parent, const char *name, size_t len)
{
	(void)arg, (void)parent, (void)name, (void)len;
	return 1;
}

void node_moved(struct ovl *o, struct node *n)
{
	/* When all names that are left are the host's, no place is known: what was said of these and of those that
	 * are gone still holds. */
	if (!policy_trivial(o->policy) && place_each(o, n, any_place, NULL) != 0)
		n->pol = POL_UNKNOWN;
}

/* ---- verdicts ---- */

/* The path of @where. Looking for it may load what nobody holds: not that, which is in use. */
int place_path(void *ovl, void *where, struct buf *out)
{
	struct node *n = where;
	int r;

	node_pin(n);
	r = path_of(ovl, n->ino, out);
	atomic_fetch_sub(&n->pins, 1);
	return r;
}

static struct judge_node judged(struct ovl *o, struct node *n)
{
	return (struct judge_node){.where = n,
				   .state = policy_trivial(o->policy) ? 0 : node_policy(o, n),
				   .isdir = S_ISDIR(n->rec.mode)};
}

static struct judge_name judged_name(struct ovl *o, struct node *dir, const char *name, size_t len)
{
	return (struct judge_name){.where = dir,
				   .dir = policy_trivial(o->policy) ? 0 : node_policy(o, dir),
				   .name = name,
				   .len = len};
}

int node_may(struct ovl *o, struct node *n, unsigned what, const char *op)
{
	const struct judge_node j = judged(o, n);

	return judge_node(&o->judge, &j, what, op);
}

int name_may(struct ovl *o, struct node *dir, const char *name, size_t len, unsigned what,
	     const char *op)
{
	const struct judge_name j = judged_name(o, dir, name, len);

	return judge_name(&o->judge, &j, what, op);
}

int name_may_look(struct ovl *o, struct node *dir, const char *name, size_t len, const char *op)
{
	const struct judge_name j = judged_name(o, dir, name, len);

	return judge_look(&o->judge, &j, op);
}

int name_may_go(struct ovl *o, struct node *dir, const char *name, size_t len, const char *op)
{
	const struct judge_name j = judged_name(o, dir, name, len);

	return judge_go(&o->judge, &j, op);
}

int may_rename(struct ovl *o, const struct place_at *from, struct node *n,
	       const struct place_at *to, struct node *old, bool exchange)
{
	const struct judge_name a = judged_name(o, from->dir, from->name, from->len);
	const struct judge_name b = judged_name(o, to->dir, to->name, to->len);
	const struct judge_node x = judged(o, n), y = judged(o, old ? old : n);

	return judge_rename(&o->judge, &a, &x, &b, old ? &y : NULL, exchange);
}

/* ---- for the front end ---- */

int ovl_denials(struct ovl *o, uint64_t since, int (*fn)(void *arg, const struct denial *d),
		void *arg, uint64_t *ret_total)
{
	return denials_each(&o->judge.denials, since, fn, arg, ret_total);
}

uint64_t ovl_denied(struct ovl *o)
{
	return denials_seq(&o->judge.denials);
}

/* Is a rule made for @path, which the policy makes writable, about just that? Where something is missing one for the
 * nearest directory above stands in for it, and a symbolic link leads one elsewhere. */
static int is_inexact(void *ovl, const char *path)
{
	cleanup_buf struct buf is = {0};
	struct ovl_entry e;
	bool exact;

	if (ovl_walk(ovl, path, &e) < 0)
		return 1;
	exact = !S_ISLNK(e.attr.st.st_mode) && ovl_path(ovl, e.ino, &is) == 0 &&
		!strcmp((const char *)is.data, path);
	ovl_forget(ovl, e.ino, 1);
	return !exact;
}

bool ovl_opens_matter(struct ovl *o)
{
	if (policy_trivial(o->policy))
		return false;
	return policy_carves(o->policy) || landlock_abi() < 0 ||
	       policy_writable(o->policy, is_inexact, o) != 0;
}

int ovl_may_open(struct ovl *o, store_ino ino, bool change)
{
	struct node *n;
	unsigned what;
	bool yes;
	int r;

	if (policy_trivial(o->policy))
		return 0;
	what = change ? POLICY_MAY_WRITE : POLICY_MAY_READ;
	lock_shared(o);
	n = node_find(o, ino);
	yes = n && n->pol != POL_UNKNOWN &&
	      policy_may(o->policy, n->pol) & (S_ISDIR(n->rec.mode) ? POLICY_MAY_LIST : what);
	unlock(o);
	if (yes)
		return 0;
	lock_excl(o);
	r = node_get(o, ino, &n);
	if (r == 0) {
		const struct judge_node j = judged(o, n);

		r = judge_open(&o->judge, &j, change);
	}
	unlock(o);
	return r;
}
