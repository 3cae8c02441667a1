/* Writing what changed into the store: a snapshot, taken while changes are held off for a moment, and
 * then one transaction for which nobody waits. */
#include <stdlib.h>

#include "fs/core/journal.h"
#include "fs/core/ovl_internal.h"

#define CLEAN_PORTION 256 /* nodes or names marked clean in one hold of o->lock */
#define EAGAIN_TRIES  8

struct flush_node {
	struct node *n; /* pinned */
	struct rec_inode rec;
	struct content_ref *c; /* NULL: the content did not change */
	struct content_snap *cs;
	struct bigx *bigx; /* copies */
	struct place *places;
};

struct flush {
	struct ovl *o;
	uint64_t gen; /* everything changed up to here is in it */
	struct flush_node *nodes;
	size_t nnodes;
	struct name **names; /* stay: a snapshot sets name.covers */
	struct rec_name *values;
	const struct hidden **hidden; /* of names; NULL: none */
	size_t nnames;
	struct content_snap **snaps; /* of nodes, without gaps */
	size_t nsnaps;
	bool frozen; /* by the caller, all the time */
};

/* ---- the snapshot: o->freeze and o->lock exclusive ---- */

static int copy_bigx(const struct node *n, struct flush_node *fn)
{
	for (const struct bigx *b = n->bigx; b; b = b->next) {
		struct bigx *c = calloc(1, sizeof(*c));

		if (!c)
			return -ENOMEM;
		c->next = fn->bigx;
		fn->bigx = c;
		c->len = b->len;
		c->name = strdup(b->name);
		c->value = b->value ? malloc(b->len ? b->len : 1) : NULL;
		if (!c->name || (b->value && !c->value))
			return -ENOMEM;
		if (b->len)
			memcpy(c->value, b->value, b->len);
	}
	return 0;
}

static int copy_places(const struct node *n, struct flush_node *fn)
{
	for (const struct place *p = n->places; p; p = p->next) {
		struct place *c = malloc(sizeof(*c) + p->len + 1);

		if (!c)
			return -ENOMEM;
		memcpy(c, p, sizeof(*c) + p->len + 1);
		c->next = fn->places;
		fn->places = c;
	}
	return 0;
}

/* An inode without links is written only to end its older record; its bytes only when there are too
 * many to keep in memory. */
static bool skip_node(const struct node *n, bool orphans)
{
	return n->gone || (n->rec.nlink == 0 && !n->in_store && !orphans);
}

static int take_node(struct flush *f, struct node *n, bool orphans)
{
	struct flush_node *fn = &f->nodes[f->nnodes];
	int r;

	pthread_mutex_lock(&n->lock);
	r = rec_inode_copy(&fn->rec, &n->rec);
	if (r == 0) {
		fn->n = n;
		node_pin(n);
		f->nnodes++;
		r = copy_bigx(n, fn);
	}
	if (r == 0)
		r = copy_places(n, fn);
	if (r == 0 && n->content && content_is_dirty(n->content->c) &&
	    (n->rec.nlink > 0 || orphans)) {
		fn->c = n->content;
		atomic_fetch_add(&fn->c->refs, 1);
	}
	pthread_mutex_unlock(&n->lock);
	return r;
}

/* o->freeze alone: nobody can write, and a reader that holds a content while it waits for the disk
 * must not hold up lookups. */
static int take_contents(struct flush *f)
{
	for (size_t i = 0; i < f->nnodes; i++) {
		struct flush_node *fn = &f->nodes[i];
		int r = fn->c ? content_snap_take(fn->c->c, &fn->cs) : 0;

		if (r < 0)
			return r;
		if (fn->cs)
			f->snaps[f->nsnaps++] = fn->cs;
	}
	return 0;
}

static int take_names(struct flush *f)
{
	struct ovl *o = f->o;

	for (size_t i = 0; i < o->names.nslots; i++) {
		for (struct table_link *l = o->names.slots[i]; l; l = l->next) {
			struct name *e = (struct name *)l;

			e->covers = true;
			f->values[f->nnames] = (struct rec_name){.ino = e->ino, .type = e->type};
			/* Of a directory that is gone nobody asks. */
			f->hidden[f->nnames] = e->dir->rec.nlink > 0 ? e->hidden : NULL;
			f->names[f->nnames++] = e;
		}
	}
	return 0;
}

static int take_alloc(struct flush *f)
{
	struct ovl *o = f->o;

	f->nodes = calloc(o->ndirty + 1, sizeof(*f->nodes));
	f->snaps = calloc(o->ndirty + 1, sizeof(*f->snaps));
	f->names = calloc(o->nnames + 1, sizeof(struct name *));
	f->values = calloc(o->nnames + 1, sizeof(*f->values));
	f->hidden = calloc(o->nnames + 1, sizeof(struct hidden *));
	return f->nodes && f->snaps && f->names && f->values && f->hidden ? 0 : -ENOMEM;
}

static int snapshot(struct flush *f)
{
	struct ovl *o = f->o;
	/* With a journal all of them: it is cut after this flush. */
	bool orphans = o->journal || content_env_dirty(o->cenv) > orphans_max(o);
	int r = take_alloc(f);

	if (o->journal) {
		journal_mark(o->journal);
		o->redo_epoch++;
	}

	f->gen = atomic_load(&o->gen);
	for (struct node *n = o->dirty_first; r == 0 && n; n = n->dirty_next) {
		if (!skip_node(n, orphans))
			r = take_node(f, n, orphans);
	}
	if (r < 0)
		return r;
	ino_set_move(&o->dying, &o->dead);
	return take_names(f);
}

/* ---- storing: no lock ---- */

static int put_node(struct store_batch *b, struct flush_node *fn)
{
	int r = fn->cs ? content_snap_store(fn->cs, b, &fn->rec) : 0;

	if (r == 0)
		r = store_batch_inode(b, fn->n->ino, &fn->rec);
	for (const struct bigx *x = fn->bigx; r == 0 && x; x = x->next)
		r = store_batch_xattr(b, fn->n->ino, x->name, x->value, x->len);
	for (const struct place *p = fn->places; r == 0 && p; p = p->next)
		r = store_batch_link(b, fn->n->ino, p->parent, p->name, p->len, p->present);
	return r;
}

static int put_hidden(struct store_batch *b, const struct name *e, const struct hidden *h)
{
	char key[HIDDEN_KEY_LEN];
	uint8_t bytes[HIDDEN_LEN];

	hidden_key(e->name, e->len, key);
	hidden_encode(h, bytes);
	return store_batch_xattr(b, e->dir->ino, key, bytes, sizeof(bytes));
}

static int put_gone(void *arg, store_ino ino)
{
	return store_batch_inode_gone(arg, ino);
}

static int fill_batch(struct flush *f, struct store_batch *b)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < f->nnodes; i++)
		r = put_node(b, &f->nodes[i]);
	for (size_t i = 0; r == 0 && i < f->nnames; i++) {
		const struct name *e = f->names[i];

		r = store_batch_name(b, e->dir->ino, e->name, e->len, &f->values[i]);
		if (r == 0 && f->hidden[i])
			r = put_hidden(b, e, f->hidden[i]);
	}
	/* Changed by nobody while this flush runs. */
	return r < 0 ? r : ino_set_each(&f->o->dying, put_gone, b);
}

/* From the snapshot to the commit an fsync need not wait: its frame stands on what the last flush left, whose number this one then
 * leaves as it is. The frames say all that came after that one, so they may be applied over this one, too. */
static void let_frames_in(struct flush *f)
{
	struct flush_group *g = &f->o->fl;

	if (f->frozen) /* who writes one would wait for us, and we for him */
		return;
	pthread_mutex_lock(&g->lock);
	g->open = true;
	pthread_cond_broadcast(&g->cond);
	pthread_mutex_unlock(&g->lock);
}

static void keep_frames_out(struct flush *f)
{
	struct flush_group *g = &f->o->fl;

	pthread_mutex_lock(&g->lock);
	g->open = false;
	while (g->framing)
		pthread_cond_wait(&g->cond, &g->lock);
	pthread_mutex_unlock(&g->lock);
}

/* @last: what is missing now is not put again. */
static int store_once(struct flush *f, bool last)
{
	struct sync_log *l = &f->o->slog;
	struct store_batch *b;
	int r = store_batch_begin(f->o->store, f->o->layer, &b);

	if (r < 0)
		return r;
	if (last)
		store_batch_damaged(b);
	r = fill_batch(f, b);
	if (r < 0) {
		store_batch_abort(b);
		return r;
	}
	keep_frames_out(f);
	/* What the log says is over, also when nothing of it is left. */
	if (l->since)
		store_batch_uncounted(b);
	else if (l->any)
		store_batch_count(b);
	return store_batch_commit(b);
}

static int store_all(struct flush *f)
{
	int r;

	let_frames_in(f);
	r = content_snaps_put(f->snaps, f->nsnaps);
	/* Another process's collector may take a chunk between its put and the record that names it:
	 * content_snap_store puts it again. What it cannot put again in so many times the store has lost. */
	for (int i = 0; r == 0 && i < EAGAIN_TRIES; i++) {
		r = store_once(f, i == EAGAIN_TRIES - 1);
		if (r != -EAGAIN)
			return r;
		r = 0;
	}
	return r < 0 ? r : -EIO;
}

/* ---- afterwards ---- */

static void forget_bigx(struct node *n, uint64_t gen)
{
	for (struct bigx **p = &n->bigx, *b; (b = *p);) {
		if (b->gen > gen) {
			p = &b->next;
			continue;
		}
		*p = b->next;
		b->next = NULL;
		bigx_free(b);
	}
}

static void forget_places(struct node *n, uint64_t gen)
{
	for (struct place **p = &n->places, *b; (b = *p);) {
		if (b->gen > gen) {
			p = &b->next;
			continue;
		}
		*p = b->next;
		free(b);
	}
}

/* Where the bytes are now; the rest of the record may have changed since. */
static void adopt_content(struct rec_inode *to, struct rec_inode *from)
{
	free(to->data);
	to->data = from->data;
	from->data = NULL;
	to->data_len = from->data_len;
	to->content = from->content;
	to->chunk = from->chunk;
	to->chunk_len = from->chunk_len;
	to->size = from->size;
	to->blocks = from->blocks;
	to->origin.valid = from->origin.valid;
	to->origin.dev = from->origin.dev;
	to->origin.ino = from->origin.ino;
	to->origin.size = from->origin.size;
	to->origin.mtime = from->origin.mtime;
}

/* EX. */
static void node_flushed(struct ovl *o, struct flush *f, struct flush_node *fn)
{
	struct node *n = fn->n;

	n->in_store = true;
	if (fn->cs) {
		adopt_content(&n->rec, &fn->rec);
		if (!rec_is_partial(&fn->rec))
			ino_set_del(&o->partial, n->ino);
		else if (ino_set_add(&o->partial, n->ino) < 0)
			node_dirty(o, n); /* a commit looks at what is dirty, too */
	}
	forget_bigx(n, f->gen);
	forget_places(n, f->gen);
	if (n->gen <= f->gen)
		node_clean(o, n);
	/* One reference is the flush's. Under EX nobody takes another. */
	if (fn->cs && content_size(fn->c->c) <= STORE_BLOCK)
		node_drop_content(n, fn->c, 2);
}

static void node_done(struct ovl *o, struct flush_node *fn)
{
	struct node *n = fn->n;

	atomic_fetch_sub(&n->pins, 1);
	node_reap(o, n);
}

/* Names before nodes: a directory must not go while it has names. Contents before nodes, and without
 * o->lock: a reader may hold a content's lock while it waits for the disk. */
static void clean_all(struct flush *f, bool ok)
{
	struct ovl *o = f->o;

	for (size_t i = 0; ok && i < f->nnames;) {
		lock_excl(o);
		for (size_t k = 0; k < CLEAN_PORTION && i < f->nnames; k++, i++)
			name_committed(o, f->names[i], f->gen);
		unlock(o);
	}
	for (size_t i = 0; i < f->nsnaps; i++)
		content_snap_done(f->snaps[i], ok);
	for (size_t i = 0; i < f->nnodes;) {
		lock_excl(o);
		for (size_t k = 0; k < CLEAN_PORTION && i < f->nnodes; k++, i++) {
			if (ok)
				node_flushed(o, f, &f->nodes[i]);
			node_done(o, &f->nodes[i]);
		}
		unlock(o);
	}
}

/* What ended is gone from the store, or waits for the next flush. */
static void bury(struct ovl *o, bool ok)
{
	lock_excl(o);
	if (ok)
		ino_set_release(&o->dying);
	else
		ino_set_move(&o->dead, &o->dying);
	unlock(o);
}

static void flush_free(struct flush *f)
{
	for (size_t i = 0; i < f->nnodes; i++) {
		rec_inode_release(&f->nodes[i].rec);
		bigx_free(f->nodes[i].bigx);
		content_unref(f->nodes[i].c);
		for (struct place *p = f->nodes[i].places, *next; p; p = next) {
			next = p->next;
			free(p);
		}
	}
	free(f->nodes);
	free(f->snaps);
	free(f->names);
	free(f->values);
	free((void *)f->hidden);
}

int flush_now(struct ovl *o, bool frozen)
{
	struct flush f = {.o = o, .frozen = frozen};
	uint64_t at = 0;
	int r;

	o->slog.since = false;
	if (!frozen)
		pthread_rwlock_wrlock(&o->freeze);
	r = commit_go_on(o);
	/* EX, not shared: setting name.covers must not race with a lookup. */
	lock_excl(o);
	if (r == 0 && o->journal)
		at = journal_end(o->journal);
	if (r == 0)
		r = snapshot(&f);
	unlock(o);
	if (r == 0)
		r = take_contents(&f);
	if (!frozen)
		pthread_rwlock_unlock(&o->freeze);
	if (r == 0 && (f.nnodes || f.nnames || o->dying.t.n || o->slog.any))
		r = store_all(&f);
	keep_frames_out(&f);
	/* Before anything that it names is used again. */
	if (r == 0 && o->journal)
		journal_cut(o->journal);
	if (r == 0)
		synclog_flushed(o, at);
	else
		synclog_failed(o);
	clean_all(&f, r == 0);
	bury(o, r == 0);
	flush_free(&f);
	return r == -EBADMSG ? -EIO : r;
}
