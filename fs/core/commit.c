/* A commit: what was partly copied from the host is completed, everything is flushed, the layer is
 * sealed by the caller, and the tree goes on in a new layer over it. */
#include <stdlib.h>

#include "fs/core/file.h"

#define COMPLETE_PIECE  (UINT64_C(8) << 20)
#define COMPLETE_ROUNDS 4

bool rec_is_partial(const struct rec_inode *r)
{
	/* With its bytes untouched it is a host file like those without a record. */
	return S_ISREG(r->mode) && r->origin.root && r->origin.valid > 0 && r->nlink > 0 &&
	       (r->content != REC_EMPTY || r->origin.valid != r->origin.size ||
		r->size != r->origin.size);
}

struct inos {
	store_ino *v;
	size_t n, cap;
};

static int inos_add(struct inos *l, store_ino ino)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		store_ino *more = realloc(l->v, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		l->v = more;
		l->cap = cap;
	}
	l->v[l->n++] = ino;
	return 0;
}

static int inos_add_fn(void *arg, store_ino ino)
{
	return inos_add(arg, ino);
}

static int see_key(void *arg, enum store_key_kind kind, store_ino ino, const char *name, size_t len,
		   uint64_t block)
{
	(void)name;
	(void)len;
	(void)block;
	return kind == STORE_KEY_INODE ? inos_add(arg, ino) : 0;
}

/* What @ino, without a name, leaves behind: records of this layer alone, or one that hides an older
 * inode and stays (see node_end). */
static int end_leftover(struct ovl *o, struct store_view **below, store_ino ino)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	struct store_layer_info li;
	int r = 0;

	if (!*below) {
		r = store_layer_get(o->store, o->layer, &li);
		if (r == 0 && li.parent)
			r = store_view_open(o->store, li.parent, below);
		if (r < 0)
			return r;
	}
	if (*below)
		r = store_view_inode(*below, ino, &rec);
	return r == -ENOENT || !*below ? node_dead(o, ino) : r;
}

static int see_leftover(struct ovl *o, struct store_view **below, store_ino ino)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	const struct node *n;
	int r = store_view_inode(o->view, ino, &rec);

	/* A log said what became of it since: the store does not know. It need not have spoken of the bytes. */
	n = o->resumed ? NULL : node_find(o, ino);
	if (n)
		return rec_is_partial(&n->rec) ? ino_set_add(&o->partial, ino) : 0;
	/* Damage is told to whoever reads the inode; the rest of the tree opens. */
	if (r < 0)
		return r == -ENOENT || r == -EBADMSG ? 0 : r;
	/* With a journal to go on from, somebody may have it open. */
	if (rec.nlink == 0)
		return o->resumed ? 0 : end_leftover(o, below, ino);
	return rec_is_partial(&rec) ? ino_set_add(&o->partial, ino) : 0;
}

int leftovers_load(struct ovl *o)
{
	struct store_view *below = NULL;
	struct inos l = {0};
	int r = store_layer_journal(o->store, o->layer, see_key, &l);

	for (size_t i = 0; r == 0 && i < l.n; i++)
		r = see_leftover(o, &below, l.v[i]);
	if (below)
		store_view_close(below);
	free(l.v);
	return r;
}

/* EX. Files whose bytes were changed here and still come from the host in part. */
static int list_partial(struct ovl *o, struct inos *l)
{
	int r = ino_set_each(&o->partial, inos_add_fn, l);

	for (struct node *n = o->dirty_first; r == 0 && n; n = n->dirty_next) {
		if (n->content && n->rec.nlink > 0 && content_incomplete(n->content->c))
			r = inos_add(l, n->ino);
	}
	return r;
}

static int complete_held(struct ovl *o, const struct held *h, uint64_t max)
{
	int r = content_complete_some(h->c->c, max);

	if (r < 0)
		return r;
	lock_shared(o);
	pthread_mutex_lock(&h->n->lock);
	node_dirty(o, h->n); /* its times do not change */
	pthread_mutex_unlock(&h->n->lock);
	unlock(o);
	return r;
}

/* o->freeze held, in either way. At most about @max bytes: 1 when more is left. */
static int complete_some(struct ovl *o, store_ino ino, uint64_t max)
{
	struct held h;
	int r = file_hold(o, ino, false, &h);

	if (r == -ESTALE) { /* removed meanwhile */
		lock_excl(o);
		ino_set_del(&o->partial, ino);
		unlock(o);
		return 0;
	}
	if (r < 0)
		return r;
	if (content_incomplete(h.c->c))
		r = complete_held(o, &h, max);
	file_drop(o, &h, false, NULL);
	return r == -EBADMSG ? -EIO : r;
}

static int own_record(struct ovl *o, store_ino ino, bool *ret_file)
{
	struct node *n;
	int r;

	lock_excl(o);
	r = node_get(o, ino, &n);
	if (r == 0)
		r = host_materialise(o, n);
	if (r == 0)
		*ret_file = S_ISREG(n->rec.mode) && n->rec.origin.root;
	unlock(o);
	return r;
}

static int own_bytes(struct ovl *o, store_ino ino)
{
	struct held h;
	int r = file_hold(o, ino, false, &h);

	if (r < 0)
		return r;
	r = complete_held(o, &h, COMPLETE_PIECE);
	file_drop(o, &h, false, NULL);
	return r;
}

static bool all_recorded(const struct listing *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->slots[i] && l->slots[i]->host)
			return false;
	return true;
}

/* EX. The root of what is laid over the tree stays that. */
static int let_go(struct ovl *o, struct node *n)
{
	struct rec_origin *og = &n->rec.origin;
	int r = 0;

	if (!og->root || n->host_only || !og->rel || !*og->rel)
		return 0;
	if (S_ISDIR(n->rec.mode)) {
		r = listing_load(o, n, true);
		if (r < 0 || !all_recorded(n->listing))
			return r;
	}
	free(og->root);
	free(og->rel);
	*og = (struct rec_origin){0};
	n->src = NULL;
	node_dirty(o, n);
	return 0;
}

static int own_end(struct ovl *o, store_ino ino, bool dir)
{
	struct node *n;
	int r = change_begin(o, true);

	if (r < 0)
		return r;
	lock_excl(o);
	r = node_get(o, ino, &n);
	if (r == 0 && S_ISDIR(n->rec.mode) == dir)
		r = let_go(o, n);
	unlock(o);
	change_end(o);
	return r;
}

int ovl_own_names(struct ovl *o, store_ino ino)
{
	return own_end(o, ino, true);
}

int ovl_own(struct ovl *o, store_ino ino)
{
	bool file = false;
	int r = change_begin(o, true);

	if (r < 0)
		return r;
	r = own_record(o, ino, &file);
	change_end(o);
	for (int more = 1; r == 0 && file && more > 0;) {
		r = change_begin(o, true);
		if (r < 0)
			return r;
		more = own_bytes(o, ino);
		change_end(o);
		r = more < 0 ? more : 0;
	}
	if (r == 0)
		r = own_end(o, ino, false);
	return r == -EBADMSG ? -EIO : r;
}

/* In pieces, with o->freeze given back between them: who waits for it (a flush, and behind that every
 * change) waits for one piece of a large file, not for all of it. */
static int complete_one(struct ovl *o, store_ino ino, bool frozen)
{
	int r = 1;

	while (r > 0) {
		if (!frozen)
			pthread_rwlock_rdlock(&o->freeze);
		r = complete_some(o, ino, COMPLETE_PIECE);
		if (!frozen)
			pthread_rwlock_unlock(&o->freeze);
	}
	return r;
}

/* Not @strict: what cannot be completed, because its host file is not what it was, stays as it is.
 * *ret_n: how many there were to be completed. */
static int complete_all(struct ovl *o, bool strict, bool frozen, size_t *ret_n)
{
	struct inos l = {0};
	int r;

	lock_excl(o);
	r = list_partial(o, &l);
	unlock(o);
	for (size_t i = 0; r == 0 && i < l.n; i++) {
		r = complete_one(o, l.v[i], frozen);
		if (r == -EIO && !strict)
			r = 0;
	}
	*ret_n = l.n;
	free(l.v);
	return r;
}

/* The bulk while others go on changing things; only what they add is left for the end. A large host file
 * that is first written to meanwhile is taken along, too: a bounded number of times. */
static int complete_bulk(struct ovl *o, bool strict)
{
	int r = 0;

	for (size_t i = 0, n = 1; r == 0 && n > 0 && i < COMPLETE_ROUNDS; i++) {
		r = complete_all(o, strict, false, &n);
		if (r == 0)
			r = flush_join(o);
	}
	return r;
}

int commit_go_on(struct ovl *o)
{
	struct store_view *view, *old;
	int r = o->child ? store_view_open(o->store, o->child, &view) : 0;

	if (r < 0 || !o->child)
		return r;
	lock_excl(o);
	old = o->view;
	o->view = view;
	o->layer = o->child;
	o->child = 0;
	o->born_mark = o->ino_next == o->ino_end ? UINT64_MAX : o->ino_next;
	ino_set_release(&o->partial);
	atomic_store(&o->changes_sealed, atomic_load(&o->changes));
	atomic_store(&o->reopened_dirty, false);
	content_env_set_view(o->cenv, view);
	synclog_layer(o);
	if (o->journal)
		journal_set_base(o->journal, o->layer, o->seed);
	unlock(o);
	store_view_close(old);
	return 0;
}

struct sealing {
	bool strict;
	int (*seal)(void *arg, store_layer *ret_open);
	void *arg;
};

/* *ret_flush is what those learn who wait for a flush. */
static int commit_frozen(struct ovl *o, const struct sealing *s, int *ret_flush)
{
	size_t n;
	int r = complete_all(o, s->strict, true, &n);

	*ret_flush = flush_now(o, true);
	if (r == 0)
		r = *ret_flush;
	if (r == 0)
		r = s->seal(s->arg, &o->child);
	/* It is sealed, whatever happens now: who flushes or changes next tries again to go on. */
	if (r == 0)
		(void)!commit_go_on(o);
	else
		o->child = 0;
	return r;
}

static int commit(struct ovl *o, const struct sealing *s)
{
	int r, flushed;

	if (o->flags & OVL_RDONLY)
		return -EROFS;
	r = complete_bulk(o, s->strict);
	if (r < 0)
		return r;
	flush_acquire(o);
	pthread_rwlock_wrlock(&o->freeze);
	r = commit_frozen(o, s, &flushed);
	pthread_rwlock_unlock(&o->freeze);
	flush_release(o, flushed);
	return r;
}

int ovl_commit(struct ovl *o, int (*seal)(void *arg, store_layer *ret_open), void *arg)
{
	return commit(o, &(struct sealing){true, seal, arg});
}

int ovl_commit_as_is(struct ovl *o, int (*seal)(void *arg, store_layer *ret_open), void *arg)
{
	return commit(o, &(struct sealing){false, seal, arg});
}
