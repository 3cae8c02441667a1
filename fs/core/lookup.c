/* Finding inodes by name and by path, and giving them back. */
#include <stdlib.h>

#include "base/io.h"
#include "fs/core/ovl_internal.h"

#define WALK_LINKS_MAX 40
#define OVERTAKEN_MS   5000

static uint32_t name_ttl(const struct ovl *o, const struct node *dir, bool host)
{
	return host ? host_ttl(o, dir->rec.origin.flags) : OVL_FOREVER;
}

int lookup_locked(struct ovl *o, struct node *dir, const char *name, size_t len, bool judged,
		  struct ovl_entry *ret)
{
	const char *op = judged ? NULL : "lookup";
	struct found f;
	struct node *n;
	int r = judged ? 0 : name_may_look(o, dir, name, len, op);

	if (r > 0) { /* whatever is there, and for ever */
		*ret = (struct ovl_entry){.valid_ms = OVL_FOREVER};
		return 0;
	}
	if (r == 0)
		r = name_node(o, dir, name, len, &f, &n);
	if (r < 0)
		return r;
	if (!n) {
		*ret = (struct ovl_entry){.valid_ms =
						  name_ttl(o, dir, dir->rec.origin.root != NULL)};
		return 0;
	}
	/* Another of its places may be closed. */
	r = node_may(o, n, POLICY_MAY_PASS, op);
	if (r < 0) {
		node_reap(o, n);
		return r;
	}
	node_entry(o, n, name_ttl(o, dir, f.host), ret);
	return 0;
}

static int show_host(struct ovl *o, struct node *dir, struct node *n, struct ovl_entry *ret)
{
	int r = node_may(o, n, POLICY_MAY_PASS, NULL);

	if (r < 0)
		node_reap(o, n);
	else
		node_entry(o, n, name_ttl(o, dir, true), ret);
	return r;
}

int lookup_host(struct ovl *o, struct node *dir, const char *name, size_t len,
		const struct stat *st, struct ovl_entry *ret)
{
	struct node *n;
	int r = host_node(o, dir, name, len, st, &n);

	if (r < 0)
		return r;
	node_found(o, dir, name, len, n);
	return show_host(o, dir, n, ret);
}

int lookup_believed(struct ovl *o, struct node *dir, store_ino ino, struct ovl_entry *ret)
{
	return show_host(o, dir, node_find(o, ino), ret);
}

/* Under o->lock shared. -EAGAIN: it is unknown, or a refusal, which takes more than this. */
static int look_fast(struct ovl *o, struct node *dir, const char *name, size_t len)
{
	int s;

	if (policy_trivial(o->policy))
		return 0;
	if (dir->pol == POL_UNKNOWN)
		return -EAGAIN;
	s = policy_child(o->policy, dir->pol, name, len);
	return policy_may(o->policy, s) & POLICY_MAY_PASS ? 0 : -EAGAIN;
}

/* Under o->lock shared: what is in memory is answered beside other lookups. */
static int lookup_fast(struct ovl *o, store_ino parent, const char *name, size_t len,
		       struct ovl_entry *ret)
{
	struct node *dir = node_find(o, parent), *n;
	struct found f;
	int r;

	if (!dir || !S_ISDIR(dir->rec.mode) || dir->rec.nlink == 0)
		return -EAGAIN;
	r = look_fast(o, dir, name, len);
	if (r == 0)
		r = name_lookup(o, dir, name, len, false, &f);
	if (r < 0)
		return r;
	if (!f.ino) {
		*ret = (struct ovl_entry){.valid_ms =
						  name_ttl(o, dir, dir->rec.origin.root != NULL)};
		return 0;
	}
	n = node_find(o, f.ino);
	if (!n || (!policy_trivial(o->policy) && (n->pol == POL_UNKNOWN || n->rec.nlink > 1)))
		return -EAGAIN;
	pthread_mutex_lock(&n->lock);
	node_entry(o, n, name_ttl(o, dir, f.host), ret);
	pthread_mutex_unlock(&n->lock);
	return 0;
}

static int lookup_dot(struct ovl *o, store_ino ino, const char *name, struct ovl_entry *ret)
{
	struct node *n;
	int r;

	lock_excl(o);
	r = node_get(o, ino, &n);
	if (r == 0 && name[1] && !S_ISDIR(n->rec.mode))
		r = -ENOTDIR;
	if (r == 0 && name[1] && n->rec.parent)
		r = node_get(o, n->rec.parent, &n);
	if (r == 0)
		r = node_may(o, n, POLICY_MAY_PASS, "lookup");
	if (r == 0)
		node_entry(o, n, 0, ret);
	unlock(o);
	return r;
}

int ovl_lookup(struct ovl *o, store_ino parent, const char *name, struct ovl_entry *ret)
{
	struct node *dir;
	size_t len;
	int r = name_check(name, &len);

	if (r < 0)
		return r;
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return lookup_dot(o, parent, name, ret);
	lock_shared(o);
	r = lookup_fast(o, parent, name, len, ret);
	unlock(o);
	if (r != -EAGAIN)
		return r;
	lock_excl(o);
	r = node_get_dir(o, parent, true, &dir);
	if (r == 0)
		r = lookup_locked(o, dir, name, len, false, ret);
	unlock(o);
	return r;
}

/* EX. More is given back than was counted here: with them go all that a dead process has counted, as the
 * kernel gives those back at once. */
static void forget_old(struct ovl *o, struct node *n, store_ino ino)
{
	if (n)
		n->held = false; /* node_reap says so to the journal */
	else if (ino_set_has(&o->old_known, ino))
		redo_forgot(o, ino);
	known_forget(o, ino);
}

/* The kernel hands out requests before what it gives back, so that a FORGET of what a dead process has counted may come
 * after the answer to a later lookup, and be greater than what was counted here. Then that reference stays. Where it was
 * meant after all, the inode is held until the mount is over. */
static bool given_since(const struct node *n)
{
	return atomic_load(&n->nlookup) > 0 && io_now_ms() - atomic_load(&n->given) < OVERTAKEN_MS;
}

void ovl_forget(struct ovl *o, store_ino ino, uint64_t n)
{
	struct node *node;
	bool last = false, old;

	if (n == 0)
		return;
	lock_shared(o);
	node = node_find(o, ino);
	old = o->resumed && (!node || node->held);
	if (node) {
		uint64_t had = atomic_load(&node->nlookup);

		old = old && had < n;
		if (old && given_since(node))
			n = 0;
		/* A front end that counts wrongly must not bring down the count of others. */
		while (!atomic_compare_exchange_weak(&node->nlookup, &had, had > n ? had - n : 0))
			;
		last = had <= n;
	}
	unlock(o);
	if (!last && !old)
		return;
	/* Without o->freeze, although the end of an inode is a change: a snapshot is taken under EX. */
	lock_excl(o);
	node = node_find(o, ino);
	if (old)
		forget_old(o, node, ino);
	if (node)
		node_reap(o, node);
	unlock(o);
}

int ovl_readlink(struct ovl *o, store_ino ino, char ret_target[static 4096])
{
	struct node *n;
	int r;

	lock_excl(o);
	r = node_get(o, ino, &n);
	if (r == 0 && !S_ISLNK(n->rec.mode))
		r = -EINVAL;
	if (r == 0)
		r = node_may(o, n, POLICY_MAY_PASS, "read");
	if (r < 0) {
		unlock(o);
		return r;
	}
	if (n->rec.target) {
		size_t len = strlen(n->rec.target);

		if (len < 4096)
			memcpy(ret_target, n->rec.target, len + 1);
		else
			r = -EIO;
	} else {
		r = n->src ? hostsrc_readlink(n->src->h, n->rec.origin.rel, ret_target) : -EIO;
		/* Something else has its name: the caller is to look for that anew. */
		if (n->host_only && (r == -EINVAL || r == -ENOENT)) {
			host_lost(o, n);
			r = -ESTALE;
		}
	}
	unlock(o);
	return r;
}

/* ---- paths ---- */

static int first_place(void *arg, store_ino parent, const char *name, size_t len)
{
	struct name **ret = arg;
	struct name *e = calloc(1, sizeof(*e) + len + 1);

	if (!e)
		return -ENOMEM;
	e->ino = parent;
	e->len = len;
	memcpy(e->name, name, len);
	*ret = e;
	return 1;
}

int path_of(struct ovl *o, store_ino ino, struct buf *out)
{
	struct name *parts = NULL; /* innermost last */
	int r = 0;

	for (unsigned depth = 0; r == 0 && ino != STORE_ROOT_INO; depth++) {
		struct name *e = NULL;
		struct node *n;

		r = depth < 65536 ? node_get(o, ino, &n) : -ELOOP;
		if (r == 0 && n->rec.nlink == 0)
			r = -ESTALE;
		if (r == 0) {
			r = place_each(o, n, first_place, &e);
			r = r == 1 ? 0 : r == 0 ? -ESTALE : r;
		}
		if (r == 0) {
			ino = e->ino;
			e->next = parts;
			parts = e;
			node_reap(o, n);
		}
	}
	if (r == 0 && !parts)
		r = buf_puts(out, "/");
	for (struct name *e = parts, *next; e; e = next) {
		next = e->next;
		if (r == 0)
			r = buf_put(out, "/", 1);
		if (r == 0)
			r = buf_put(out, e->name, e->len);
		free(e);
	}
	return r;
}

int ovl_path(struct ovl *o, store_ino ino, struct buf *out)
{
	int r;

	lock_excl(o);
	r = path_of(o, ino, out);
	unlock(o);
	return r;
}

struct walk {
	struct ovl *o;
	store_ino at; /* one reference held, but on the root */
	unsigned links;
	struct ovl_entry e;
};

static void walk_step(struct walk *w, const struct ovl_entry *e)
{
	ovl_forget(w->o, w->at, 1);
	w->at = e->ino;
	w->e = *e;
}

static int walk_root(struct walk *w)
{
	struct ovl_entry e = {0};
	int r = ovl_lookup(w->o, STORE_ROOT_INO, ".", &e);

	if (r == 0)
		walk_step(w, &e);
	return r;
}

static int walk_path(struct walk *w, const char *path, bool last_too);

static int walk_link(struct walk *w, const struct ovl_entry *link)
{
	char target[4096];
	int r = ovl_readlink(w->o, link->ino, target);

	if (r == 0 && ++w->links > WALK_LINKS_MAX)
		r = -ELOOP;
	if (r == 0 && !*target)
		r = -ENOENT;
	if (r == 0 && *target == '/')
		r = walk_root(w);
	return r < 0 ? r : walk_path(w, target, true);
}

static int walk_path(struct walk *w, const char *path, bool last_too)
{
	while (*(path += strspn(path, "/"))) {
		size_t len = strcspn(path, "/");
		const char *rest = path + len + strspn(path + len, "/");
		char name[STORE_NAME_MAX + 1];
		struct ovl_entry e;
		int r;

		if (len > STORE_NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, path, len);
		name[len] = '\0';
		r = ovl_lookup(w->o, w->at, name, &e);
		if (r < 0)
			return r;
		if (!e.ino)
			return -ENOENT;
		/* "link/" names what the link points to */
		if (S_ISLNK(e.attr.st.st_mode) && (path[len] || last_too)) {
			r = walk_link(w, &e);
			ovl_forget(w->o, e.ino, 1);
			if (r < 0)
				return r;
		} else {
			walk_step(w, &e);
		}
		if (path[len] && !S_ISDIR(w->e.attr.st.st_mode))
			return -ENOTDIR;
		path = rest;
	}
	return 0;
}

int ovl_walk(struct ovl *o, const char *path, struct ovl_entry *ret)
{
	struct walk w = {.o = o, .at = 0};
	int r;

	if (path[0] != '/')
		return -EINVAL;
	r = walk_root(&w);
	if (r == 0)
		r = walk_path(&w, path, false);
	if (r < 0) {
		if (w.at)
			ovl_forget(o, w.at, 1);
		return r;
	}
	*ret = w.e;
	return 0;
}
