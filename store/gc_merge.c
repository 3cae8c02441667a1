/* States that are not kept any more, but on which others stand: merged into the one that stands on them.
 *
 * What a layer shows does not change by it: what only the older one has is copied into the newer one, entry by entry, while both stay in
 * their places; then the newer one gets the older one's parent, in one transaction. So whoever walks from layer to layer and asks each for
 * its parent before its journal misses nothing. The older one is left as garbage, which the next run removes. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "store/codec.h"
#include "store/gc.h"

#define MERGE_US 4000 /* of work in one transaction */

struct merge {
	struct gc *g;
	MDB_txn *t;
	store_layer from, to;
	struct store_layer_rec rec; /* of @to */
	struct store_pen pen;       /* of @to */
	uint64_t next;              /* journal record of @from to go on with */
};

/* ---- which ---- */

/* A dead one that is still there, being damaged, stands on its parent, too. */
static void count_children(struct gc *g)
{
	for (size_t i = 0; i < g->nlayers; i++) {
		const struct gc_layer *l = &g->layers[i];
		struct gc_layer *p = l->live || l->stays ? gc_layer_find(g, l->parent) : NULL;

		if (!p)
			continue;
		p->children++;
		p->child = l->n;
	}
}

/* Could it be merged into its child, as far as is known? */
static struct gc_layer *child_of(const struct gc *g, const struct gc_layer *l)
{
	struct gc_layer *c = l->children == 1 ? gc_layer_find(g, l->child) : NULL;

	if (!l->live || l->named || l->state != STORE_LAYER_SEALED || !l->parent || !c ||
	    !c->live || c->state != STORE_LAYER_SEALED)
		return NULL;
	return c;
}

/* ---- one entry ---- */

static MDB_val versioned(struct key *k, const uint8_t *p, size_t n, store_layer layer)
{
	memcpy(k->b, p, n);
	k->len = n;
	key_layer(k, layer);
	return key_val(k);
}

/* @p is the key without its layer. What the newer layer wrote wins; what it took back shows the older one's. */
static int copy_key(void *arg, enum store_db db, const uint8_t *p, size_t n)
{
	struct merge *m = arg;
	cleanup_buf struct buf value = {0};
	struct key from, to;
	MDB_val kf, kt, v, have;
	int r, there;

	if (n > KEY_MAX - 8)
		return -EBADMSG;
	kf = versioned(&from, p, n, m->from);
	kt = versioned(&to, p, n, m->to);
	r = store_tx_get(m->g->s, m->t, db, &kf, &v);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	there = store_tx_get(m->g->s, m->t, db, &kt, &have);
	if (there < 0 && there != -ENOENT)
		return there;
	if (there == 0 && (have.mv_size > 0 || v.mv_size == 0))
		return 0;
	/* What is written next moves what was read. */
	r = buf_put(&value, v.mv_data, v.mv_size);
	v = (MDB_val){value.len, value.data};
	if (r == 0)
		r = store_tx_put(m->g->s, m->t, db, &kt, &v, 0);
	return r < 0 || there == 0 ? r : store_pen_add(&m->pen, db, p, n);
}

/* The next record of the older one's journal; -ENOENT: there is none. */
static int copy_record(struct merge *m)
{
	cleanup_buf struct buf copy = {0};
	uint8_t from[16];
	MDB_val k = {16, from}, v;
	MDB_cursor *c;
	int r = gc_cursor(m->t, m->g->s->db[DB_JOURNAL], &c);

	if (r < 0)
		return r;
	key_be64(from, m->from);
	key_be64(from + 8, m->next);
	r = store_cur_get(c, DB_JOURNAL, &k, &v, MDB_SET_RANGE);
	if (r == 0 && (k.mv_size != 16 || key_get_be64(k.mv_data) != m->from))
		r = -ENOENT;
	if (r == 0) {
		m->next = key_get_be64((const uint8_t *)k.mv_data + 8) + 1;
		r = buf_put(&copy, v.mv_data, v.mv_size);
	}
	mdb_cursor_close(c);
	return r < 0 ? r : store_journal_each(&(MDB_val){copy.len, copy.data}, copy_key, m);
}

/* ---- one pair ---- */

/* Under the writer lock: nothing has begun to name the older one, and the newer one is what it was. 1: so it is. */
static int still_so(struct merge *m)
{
	const struct gc_layer *l = gc_layer_find(m->g, m->from);
	struct store_layer_rec rec;
	int r = gc_reach_moving(m->g, m->t);

	if (r == 0)
		r = gc_root_new(m->g, m->t);
	if (r == 0)
		r = store_layer_read(m->g->s, m->t, m->from, &rec);
	if (r == 0)
		r = store_layer_read(m->g->s, m->t, m->to, &m->rec);
	if (r < 0)
		return r;
	return !l->named && rec.state == STORE_LAYER_SEALED && m->rec.parent == m->from &&
	       m->rec.state == STORE_LAYER_SEALED;
}

static int join(struct merge *m)
{
	struct store_layer_rec old;
	int r = store_layer_read(m->g->s, m->t, m->from, &old);

	m->rec.parent = old.parent;
	if (r == 0)
		r = store_layer_write(m->g->s, m->t, m->to, &m->rec);
	return r < 0 ? r : gc_condemn(m->g, m->t, m->from);
}

/* A few milliseconds of it. 1: there is more; 0: done; -ESTALE: it is not to be merged any more. */
static int merge_some(struct merge *m)
{
	cleanup_tx MDB_txn *t = NULL;
	int64_t until = gc_clock_us() + MERGE_US;
	int r = store_tx_begin(m->g->s, &t), more = 0;

	m->t = m->pen.txn = t;
	if (r == 0)
		r = still_so(m);
	if (r <= 0)
		return r < 0 ? r : -ESTALE;
	do
		more = copy_record(m);
	while (more == 0 && gc_clock_us() < until);
	if (more < 0 && more != -ENOENT)
		return more;
	r = store_pen_flush(&m->pen);
	if (r == 0 && more == 0)
		r = store_layer_write(m->g->s, t, m->to, &m->rec);
	if (r == 0 && more == -ENOENT)
		r = join(m);
	if (r == 0)
		r = store_tx_commit(m->g->s, &t);
	return r < 0 ? r : more == 0;
}

static int merge(struct gc *g, const struct gc_layer *l, const struct gc_layer *child)
{
	struct merge m = {.g = g, .from = l->n, .to = child->n};
	int r;

	m.pen = (struct store_pen){.s = g->s, .layer = m.to, .rec = &m.rec};
	do {
		r = gc_tell(g, STORE_GC_ERASE, g->res->records, 0);
		if (r == 0)
			r = merge_some(&m);
		gc_pause();
	} while (r > 0);
	buf_release(&m.pen.entries);
	return r;
}

int gc_merge(struct gc *g)
{
	int r = 0;

	count_children(g);
	/* Newest first, so that nothing is copied twice. */
	for (size_t i = g->commits.len; r == 0 && i; i -= sizeof(struct gc_commit)) {
		struct gc_layer *l, *child, *parent;
		struct gc_commit c;

		memcpy(&c, g->commits.data + i - sizeof(c), sizeof(c));
		l = c.automatic ? gc_layer_find(g, c.layer) : NULL;
		child = l ? child_of(g, l) : NULL;
		if (!child)
			continue;
		r = g->o->dry_run ? 0 : merge(g, l, child);
		if (r == -ESTALE || r == -EBADMSG) { /* it stays; damage is told by fsck */
			r = 0;
			continue;
		}
		if (r < 0)
			break;
		if (g->o->dry_run)
			g->res->states++;
		g->res->merged++;
		child->parent = l->parent;
		parent = gc_layer_find(g, l->parent);
		if (parent)
			parent->child = child->n;
		l->children = 0;
	}
	return r < 0 ? diag_set(g->diag, r, "cannot merge states: %s", err_text(r)) : 0;
}
