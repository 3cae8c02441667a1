/* What the policy says about places and inodes. Nothing here looks at what a place holds, but for the places of a
 * file with several. */
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

int node_policy(struct ovl *o, struct node *n)
{
	if (n->pol != POL_UNKNOWN)
		return n->pol;
	n->pol = n->ino == STORE_ROOT_INO ? policy_root(o->policy) : policy_of_places(o, n);
	return n->pol == POL_UNKNOWN ? policy_leaf(POLICY_DENY) : n->pol;
}

int name_policy(struct ovl *o, struct node *dir, const char *name, size_t len)
{
	return policy_child(o->policy, node_policy(o, dir), name, len);
}

void node_found(struct ovl *o, struct node *dir, const char *name, size_t len, struct node *n)
{
	int s;

	if (policy_trivial(o->policy))
		return;
	s = name_policy(o, dir, name, len);
	if (S_ISDIR(n->rec.mode) || n->rec.nlink < 2) {
		n->pol = s;
		return;
	}
	/* A file with several places may be used only as all of them may. */
	(void)node_policy(o, n);
	n->pol = n->pol == POL_UNKNOWN ? policy_unseen(o->policy, s)
				       : policy_meet(o->policy, n->pol, s);
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

static bool allows(struct ovl *o, int state, unsigned what)
{
	return (policy_may(o->policy, state) & what) == what;
}

/* The path of @n, and of @name in it. Looking for it may load what nobody holds: not @n, which is in use. */
static int place_path(struct ovl *o, struct node *n, const char *name, size_t len, struct buf *out)
{
	int r;

	node_pin(n);
	r = path_of(o, n->ino, out);
	atomic_fetch_sub(&n->pins, 1);
	if (r == 0 && name && out->len > 1)
		r = buf_put(out, "/", 1);
	return r == 0 && name ? buf_put(out, name, len) : r;
}

/* @other: as in struct denial_of. */
static int refuse(struct ovl *o, struct node *n, const char *name, size_t len, unsigned what,
		  const char *op, const char *other)
{
	/* A longer one, which a command makes step by step, is not worth the memory. */
	cleanup_buf struct buf path = {.max = 4096};
	struct denial_of of = {.op = op, .other = other, .need = POLICY_READ};

	if (!op || place_path(o, n, name, len, &path) < 0)
		return -EACCES;
	if (what & (POLICY_MAY_WRITE | POLICY_MAY_PUT | POLICY_MAY_MKDIR))
		of.need = POLICY_WRITE;
	of.path = (const char *)path.data;
	denials_note(&o->denials, o->policy, &of);
	return -EACCES;
}

int node_may(struct ovl *o, struct node *n, unsigned what, const char *op)
{
	if (policy_trivial(o->policy) || allows(o, node_policy(o, n), what))
		return 0;
	return refuse(o, n, NULL, 0, what, op, "another link of it is at a place that is closed");
}

int name_may(struct ovl *o, struct node *dir, const char *name, size_t len, unsigned what,
	     const char *op)
{
	if (policy_trivial(o->policy) || allows(o, name_policy(o, dir, name, len), what))
		return 0;
	return refuse(o, dir, name, len, what, op,
		      "a rule names something below it, so only a directory can be made here");
}

int name_may_look(struct ovl *o, struct node *dir, const char *name, size_t len, const char *op)
{
	int s;

	if (policy_trivial(o->policy))
		return 0;
	s = name_policy(o, dir, name, len);
	if (allows(o, s, POLICY_MAY_PASS))
		return 0;
	(void)refuse(o, dir, name, len, POLICY_MAY_PASS, op, "");
	return policy_hides(o->policy, s) ? 1 : -EACCES;
}

int name_may_go(struct ovl *o, struct node *dir, const char *name, size_t len, const char *op)
{
	int r;

	if (policy_trivial(o->policy))
		return 0;
	r = name_may(o, dir, name, len, POLICY_MAY_WRITE, op);
	if (r == 0 && policy_pinned(o->policy, node_policy(o, dir), name, len))
		r = refuse(o, dir, name, len, POLICY_MAY_WRITE, op,
			   "a rule names it or something below it, so it stays where it is");
	return r;
}

/* ---- for the front end ---- */

struct each_denial {
	int (*fn)(void *arg, const struct ovl_denial *d);
	void *arg;
};

static int each_denial(void *arg, const struct denial *x)
{
	const struct each_denial *e = arg;
	const struct ovl_denial d = {
		.path = x->path, .op = x->op, .why = x->why, .count = x->count};

	return e->fn(e->arg, &d);
}

int ovl_denials(struct ovl *o, uint64_t since, int (*fn)(void *arg, const struct ovl_denial *d),
		void *arg, uint64_t *ret_total)
{
	struct each_denial e = {.fn = fn, .arg = arg};

	return denials_each(&o->denials, since, each_denial, &e, ret_total);
}

uint64_t ovl_denied(struct ovl *o)
{
	return denials_seq(&o->denials);
}

bool ovl_opens_matter(const struct ovl *o)
{
	return policy_carves(o->policy);
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
	      allows(o, n->pol, S_ISDIR(n->rec.mode) ? POLICY_MAY_LIST : what);
	unlock(o);
	if (yes)
		return 0;
	lock_excl(o);
	r = node_get(o, ino, &n);
	if (r == 0 && S_ISDIR(n->rec.mode))
		r = node_may(o, n, POLICY_MAY_LIST, "list");
	else if (r == 0)
		r = node_may(o, n, what, change ? "open for writing" : "open");
	unlock(o);
	return r;
}
