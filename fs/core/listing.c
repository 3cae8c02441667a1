/* All names of one directory, numbered in order of insertion: what readdir walks. */
#include <stdlib.h>

#include "base/io.h"
#include "fs/core/ovl_internal.h"

#define COOKIE_FIRST 3 /* 1 and 2 are "." and ".." */

int listing_new(struct listing **ret)
{
	struct listing *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->next = COOKIE_FIRST;
	*ret = l;
	return 0;
}

void listing_free(struct listing *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		free(l->slots[i]);
	free(l->slots);
	table_release(&l->hash);
	free(l);
}

bool listing_empty(const struct listing *l)
{
	return l->hash.n == 0;
}

struct listing_entry *listing_find(const struct ovl *o, const struct listing *l, const char *name,
				   size_t len)
{
	struct table_link *k = table_find(&l->hash, table_hash(o->seed, name, len));

	for (; k; k = table_next(k)) {
		struct listing_entry *e = (struct listing_entry *)k;

		if (e->len == len && !memcmp(e->name, name, len))
			return e;
	}
	return NULL;
}

static int listing_add(struct ovl *o, store_ino dir, struct listing *l, const char *name,
		       size_t len, struct listing_entry **ret)
{
	struct listing_entry *e;

	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 8;
		struct listing_entry **more = realloc(l->slots, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		l->slots = more;
		l->cap = cap;
	}
	e = calloc(1, sizeof(*e) + len + 1);
	if (!e)
		return -ENOMEM;
	memcpy(e->name, name, len);
	e->len = len;
	if (table_add(&l->hash, &e->link, table_hash(o->seed, name, len)) < 0) {
		free(e);
		return -ENOMEM;
	}
	e->cookie = l->next++;
	if (l->logged)
		redo_listed(o, dir, e);
	e->slot = l->n;
	l->slots[l->n++] = e;
	*ret = e;
	return 0;
}

/* The slot of @cookie, or of the next one after it. Slots are in the order of their cookies. */
size_t listing_seek(const struct listing *l, uint64_t cookie)
{
	size_t lo = 0, hi = l->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2, at = mid;

		while (at < hi && !l->slots[at])
			at++;
		if (at == hi)
			hi = mid;
		else if (l->slots[at]->cookie < cookie)
			lo = at + 1;
		else
			hi = mid;
	}
	return lo;
}

static void listing_compact(struct listing *l)
{
	size_t k = 0;

	for (size_t i = 0; i < l->n; i++) {
		if (l->slots[i]) {
			l->slots[k] = l->slots[i];
			l->slots[k]->slot = k;
			k++;
		}
	}
	l->n = k;
}

static void listing_del(struct listing *l, struct listing_entry *e)
{
	l->slots[e->slot] = NULL;
	table_del(&l->hash, &e->link);
	free(e);
	while (l->n > 0 && !l->slots[l->n - 1])
		l->n--;
	/* Each compaction is paid for by the removals before it. Also bounds the gaps that
	 * listing_seek has to step over. */
	if (l->n > 2 * l->hash.n + 64)
		listing_compact(l);
}

void listing_set(struct ovl *o, struct node *dir, const char *name, size_t len, store_ino ino,
		 uint32_t type)
{
	struct listing *l = dir->listing;
	struct listing_entry *e;

	if (!l)
		return;
	e = listing_find(o, l, name, len);
	if (ino == 0) {
		if (e)
			listing_del(l, e);
		return;
	}
	if (!e && listing_add(o, dir->ino, l, name, len, &e) < 0) {
		listing_free(l);
		dir->listing = NULL;
		return;
	}
	e->ino = ino;
	e->type = type;
	e->host = false;
}

void listing_rename(struct ovl *o, struct node *dir, const char *name, size_t len, const char *to,
		    size_t tolen)
{
	struct listing *l = dir->listing;
	struct listing_entry *e = l ? listing_find(o, l, name, len) : NULL, *k;

	if (!e || listing_find(o, l, to, tolen))
		return;
	k = calloc(1, sizeof(*k) + tolen + 1);
	if (!k || table_add(&l->hash, &k->link, table_hash(o->seed, to, tolen)) < 0) {
		free(k);
		listing_free(l);
		dir->listing = NULL;
		return;
	}
	memcpy(k->name, to, tolen);
	k->len = tolen;
	k->cookie = e->cookie;
	k->slot = e->slot;
	l->slots[k->slot] = k;
	table_del(&l->hash, &e->link);
	free(e);
}

struct load {
	struct ovl *o;
	struct node *dir;
	struct listing *l;
	struct table hidden; /* of struct tomb */
};

/* Tombstones of the store, so that a host name can be tested without a read of the store. */
struct tomb {
	struct table_link link;
	size_t len;
	char name[];
};

static int load_tomb(struct load *ld, const char *name, size_t len)
{
	struct tomb *t = calloc(1, sizeof(*t) + len + 1);

	if (!t)
		return -ENOMEM;
	t->len = len;
	memcpy(t->name, name, len);
	if (table_add(&ld->hidden, &t->link, table_hash(ld->o->seed, name, len)) < 0) {
		free(t);
		return -ENOMEM;
	}
	return 0;
}

static bool load_hidden(const struct load *ld, const char *name, size_t len)
{
	struct table_link *k = table_find(&ld->hidden, table_hash(ld->o->seed, name, len));

	for (; k; k = table_next(k)) {
		const struct tomb *t = (const struct tomb *)k;

		if (t->len == len && !memcmp(t->name, name, len))
			return true;
	}
	return false;
}

static void load_release(struct load *ld)
{
	for (size_t i = 0; i < ld->hidden.nslots; i++) {
		for (struct table_link *l = ld->hidden.slots[i], *next; l; l = next) {
			next = l->next;
			free(l);
		}
	}
	table_release(&ld->hidden);
}

static int load_stored(void *arg, const char *name, size_t len, const struct rec_name *rn)
{
	struct load *ld = arg;
	struct listing_entry *e;
	int r;

	if (rn->ino == 0)
		return ld->dir->rec.origin.root ? load_tomb(ld, name, len) : 0;
	e = listing_find(ld->o, ld->l, name, len);
	r = e ? 0 : listing_add(ld->o, ld->dir->ino, ld->l, name, len, &e);
	if (r < 0)
		return r;
	e->ino = rn->ino;
	e->type = rn->type;
	e->host = false;
	e->seen = true;
	return 0;
}

static int load_dirty(struct load *ld)
{
	for (const struct name *n = ld->dir->names; n; n = n->next) {
		struct rec_name rn = {.ino = n->ino, .type = n->type};
		struct listing_entry *e = listing_find(ld->o, ld->l, n->name, n->len);
		int r = 0;

		if (n->ino == 0 && e)
			listing_del(ld->l, e);
		if (n->ino == 0)
			r = load_tomb(ld, n->name, n->len);
		else
			r = load_stored(ld, n->name, n->len, &rn);
		if (r < 0)
			return r;
	}
	return 0;
}

static int load_host(void *arg, const char *name, uint64_t ino, unsigned type)
{
	struct load *ld = arg;
	size_t len = strlen(name);
	struct listing_entry *e;
	int r;

	(void)ino;
	if (load_hidden(ld, name, len))
		return 0;
	e = listing_find(ld->o, ld->l, name, len);
	r = e ? 0 : listing_add(ld->o, ld->dir->ino, ld->l, name, len, &e);
	if (r < 0)
		return r;
	if (!e->ino) {
		e->host = true;
		e->type = DTTOIF(type);
	}
	if (e->host)
		e->ino = 0; /* numbered when it is shown: the name may mean another file now */
	e->seen = true;
	return 0;
}

/* The store's names, the changed ones over them, and the host's where neither says anything. */
static int load_all(struct load *ld)
{
	struct node *dir = ld->dir;
	struct host_source *src;
	struct stat st;
	int r = 0;

	if (!dir->new_dir && dir->in_store)
		r = store_view_names(ld->o->view, dir->ino, load_stored, ld);
	if (r == 0)
		r = load_dirty(ld);
	if (r < 0 || !dir->rec.origin.root)
		return r;
	r = host_source_of(ld->o, dir, &src);
	if (r < 0 || !src)
		return r;
	r = hostsrc_stat(src->h, dir->rec.origin.rel, &st);
	if (r == 0) {
		ld->l->host_mtime = st.st_mtim;
		ld->l->racy = hostsrc_racy(&st);
		r = hostsrc_list(src->h, dir->rec.origin.rel, load_host, ld);
	}
	ld->l->checked = io_now_ms();
	return r == -ENOENT || r == -ENOTDIR ? 0 : r; /* the directory went away below us */
}

/* The order that a dead process gave: somebody is in the middle of it. What is not there any more goes, what
 * is new comes behind. A name that went and came again stands where it came last. */
static int load_order(void *arg, const char *name, size_t len, uint64_t cookie)
{
	struct load *ld = arg;
	struct listing_entry *e;
	int r;

	if (cookie < ld->l->next)
		return 0;
	e = listing_find(ld->o, ld->l, name, len);
	if (e)
		listing_del(ld->l, e);
	ld->l->next = cookie;
	r = listing_add(ld->o, ld->dir->ino, ld->l, name, len, &e);
	if (r == 0)
		e->host = true; /* goes unless it is seen */
	return r;
}

static bool listing_current(struct ovl *o, struct node *dir)
{
	struct listing *l = dir->listing;
	struct host_source *src;
	struct stat st;

	if (!dir->rec.origin.root || io_now_ms() - l->checked < o->host_ttl_ms)
		return true;
	if (host_source_of(o, dir, &src) < 0 || !src)
		return true;
	if (hostsrc_stat(src->h, dir->rec.origin.rel, &st) < 0)
		return false;
	l->checked = io_now_ms();
	return !l->racy && st.st_mtim.tv_sec == l->host_mtime.tv_sec &&
	       st.st_mtim.tv_nsec == l->host_mtime.tv_nsec;
}

int listing_load(struct ovl *o, struct node *dir, bool fresh)
{
	struct load ld = {.o = o, .dir = dir, .l = dir->listing};
	int r = 0;

	if (dir->listing && (!fresh || listing_current(o, dir)))
		return 0;
	if (!dir->listing) {
		r = listing_new(&ld.l);
		if (r == 0 && o->resumed)
			r = known_order(o, dir->ino, load_order, &ld);
		if (r < 0) {
			listing_free(ld.l);
			return r;
		}
		ld.l->logged = o->resumed && known_ordered(o, dir->ino);
		dir->known |= ld.l->logged;
	}
	for (size_t i = 0; i < ld.l->n; i++) {
		if (ld.l->slots[i])
			ld.l->slots[i]->seen = !ld.l->slots[i]->host;
	}
	r = load_all(&ld);
	load_release(&ld);
	if (r < 0) {
		if (!dir->listing)
			listing_free(ld.l);
		return r == -EBADMSG ? -EIO : r;
	}
	dir->listing = ld.l;
	for (size_t i = ld.l->n; i-- > 0;) {
		if (i < ld.l->n && ld.l->slots[i] && !ld.l->slots[i]->seen)
			listing_del(ld.l, ld.l->slots[i]);
	}
	return 0;
}
