/* The end of the layers that nothing reaches: condemned first, so that nothing begins to reach them, then erased
 * by their journals. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "store/codec.h"
#include "store/gc.h"

#define CONDEMN_N 128  /* layers in one transaction */
#define PRUNE_N   512  /* moves in one transaction */
#define ERASE_US  4000 /* of work in one transaction */

/* ---- condemning ---- */

int gc_root_new(struct gc *g, MDB_txn *t)
{
	uint8_t from[8];
	MDB_cursor *c;
	MDB_val k = {8, from}, v;
	int r = gc_cursor(t, g->s->db[DB_LAYERS], &c), got;

	if (r < 0)
		return r;
	key_be64(from, g->next_layer);
	for (got = store_cur_raw(c, &k, &v, MDB_SET_RANGE); got == 0 && r == 0;
	     got = store_cur_raw(c, &k, &v, MDB_NEXT)) {
		struct store_layer_rec rec;

		r = k.mv_size == 8 ? store_layer_read(g->s, t, key_get_be64(k.mv_data), &rec)
				   : -EBADMSG;
		if (r == 0)
			r = gc_reach(g, rec.parent);
	}
	mdb_cursor_close(c);
	return r < 0 ? r : got == -ENOENT ? 0 : got;
}

static int del_if_there(struct gc *g, MDB_txn *t, enum store_db db, const void *p, size_t n)
{
	MDB_val k = {n, (void *)(uintptr_t)p}, v;
	/* A read can be left in the middle when it comes to a damaged page, a removal cannot (guard.h). */
	int r = store_tx_get(g->s, t, db, &k, &v);

	if (r == 0)
		r = store_tx_del(g->s, t, db, &k);

	return r == -ENOENT ? 0 : r;
}

static int forget_commit(struct gc *g, MDB_txn *t, store_layer layer)
{
	const struct gc_commit want = {.layer = layer}, *c;
	uint8_t kb[80];
	int r;

	c = g->commits.len ? bsearch(&want, g->commits.data, g->commits.len / sizeof(want),
				     sizeof(want), gc_by_layer)
			   : NULL;
	if (!c)
		return 0;
	r = del_if_there(g, t, DB_COMMITS, c->id.b, DIGEST_LEN);
	if (r == 0)
		r = del_if_there(g, t, DB_COMMIT_INDEX, kb, store_commit_index_key(kb, "", c->seq));
	if (r == 0)
		r = del_if_there(g, t, DB_COMMIT_INDEX, kb,
				 store_commit_index_key(kb, c->env, c->seq));
	if (r == 0)
		g->res->states++;
	return r;
}

int gc_condemn(struct gc *g, MDB_txn *t, store_layer layer)
{
	struct store_layer_rec rec;
	int r = store_layer_read(g->s, t, layer, &rec);

	if (r == 0)
		r = forget_commit(g, t, layer);
	if (r < 0 || rec.state == STORE_LAYER_DROPPED)
		return r;
	rec.state = STORE_LAYER_DROPPED;
	rec.commit = (struct digest){0};
	return store_layer_write(g->s, t, layer, &rec);
}

/* Children before parents: what stands on a condemned layer is condemned, at every moment. *@i is one above
 * the next one. */
static int condemn_some(struct gc *g, size_t *i)
{
	cleanup_tx MDB_txn *t = NULL;
	size_t n = 0;
	int r = store_tx_begin(g->s, &t);

	if (r == 0)
		r = gc_reach_moving(g, t);
	if (r == 0)
		r = gc_root_new(g, t);
	for (; r == 0 && *i && n < CONDEMN_N; --*i) {
		const struct gc_layer *l = &g->layers[*i - 1];

		if (l->live)
			continue;
		r = gc_condemn(g, t, l->n);
		n++;
	}
	return r < 0 || n == 0 ? r : store_tx_commit(g->s, &t);
}

static int prune_some(struct gc *g, size_t *i)
{
	cleanup_tx MDB_txn *t = NULL;
	uint64_t n = 0;
	int r = store_tx_begin(g->s, &t);

	for (; r == 0 && *i < g->moves.len && n < PRUNE_N; n++) {
		r = del_if_there(g, t, DB_MOVES, g->moves.data + *i + 1, g->moves.data[*i]);
		*i += 1 + (size_t)g->moves.data[*i];
	}
	if (r == 0)
		r = store_tx_commit(g->s, &t);
	if (r == 0)
		g->res->moves += n;
	return r;
}

static int prune_moves(struct gc *g)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < g->moves.len;) {
		r = prune_some(g, &i);
		gc_pause();
	}
	return r;
}

/* ---- erasing ---- */

struct erase {
	struct gc *g;
	MDB_txn *t;
	store_layer layer;
	uint64_t records;
};

/* One entry of the journal: @p is the key without its layer. */
static int erase_key(void *arg, enum store_db db, const uint8_t *p, size_t n)
{
	struct erase *x = arg;
	struct key k = {.len = n};

	if (n > KEY_MAX - 8)
		return -EBADMSG;
	memcpy(k.b, p, n);
	key_layer(&k, x->layer);
	x->records++;
	return del_if_there(x->g, x->t, db, k.b, k.len);
}

/* The layer's first journal record; -ENOENT: there is none left. */
static int erase_one(struct erase *x)
{
	cleanup_buf struct buf copy = {0};
	uint8_t from[16] = {0}, kb[16];
	MDB_val k = {16, from}, v;
	MDB_cursor *c;
	int r = gc_cursor(x->t, x->g->s->db[DB_JOURNAL], &c);

	if (r < 0)
		return r;
	key_be64(from, x->layer);
	r = store_cur_get(c, DB_JOURNAL, &k, &v, MDB_SET_RANGE);
	/* one that is damaged may be of another layer, but then there is none of this one */
	if (r != -ENOENT && (k.mv_size != 16 || memcmp(k.mv_data, from, 8) != 0))
		r = -ENOENT;
	if (r == 0) {
		memcpy(kb, k.mv_data, 16);
		r = buf_put(&copy, v.mv_data, v.mv_size); /* what follows moves it */
	}
	mdb_cursor_close(c);
	if (r == 0)
		r = store_journal_each(&(MDB_val){copy.len, copy.data}, erase_key, x);
	return r < 0 ? r : del_if_there(x->g, x->t, DB_JOURNAL, kb, 16);
}

/* A few milliseconds of it; 1 when there is more. */
static int erase_some(struct gc *g, store_layer layer)
{
	cleanup_tx MDB_txn *t = NULL;
	struct erase x = {.g = g, .layer = layer};
	int64_t until = gc_clock_us() + ERASE_US;
	uint8_t kb[8];
	int r = store_tx_begin(g->s, &t), more;

	if (r < 0)
		return r;
	x.t = t;
	/* On a full disk little at a time: each transaction needs the pages that those before it freed. */
	do
		more = erase_one(&x);
	while (more == 0 && !g->enospc && gc_clock_us() < until);
	if (more < 0 && more != -ENOENT)
		return more;
	key_be64(kb, layer);
	if (more == -ENOENT)
		r = del_if_there(g, t, DB_LAYERS, kb, 8);
	if (r == 0)
		r = store_tx_commit(g->s, &t);
	if (r == 0)
		g->res->records += x.records;
	return r < 0 ? r : more == 0;
}

static int erase_layer(struct gc *g, struct gc_layer *l)
{
	store_layer layer = l->n;
	int r;

	do {
		r = gc_tell(g, STORE_GC_ERASE, g->res->records, 0);
		if (r == 0)
			r = erase_some(g, layer);
		gc_pause();
	} while (r > 0);
	if (r == -EBADMSG) { /* it stays, and what it names stays with it */
		g->res->damaged++;
		l->stays = true;
		return 0;
	}
	if (r == 0)
		g->res->layers++;
	return r;
}

int gc_layers_erase(struct gc *g)
{
	size_t i = g->nlayers;
	int r = prune_moves(g);

	while (r == 0 && i) {
		r = condemn_some(g, &i);
		gc_pause();
	}
	for (i = g->nlayers; r == 0 && i; i--)
		if (!g->layers[i - 1].live)
			r = erase_layer(g, &g->layers[i - 1]);
	if (r < 0)
		return diag_set(g->diag, r, "cannot remove records: %s", err_text(r));
	return 0;
}
