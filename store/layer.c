#include <string.h>
#include <time.h>

#include "store/codec.h"

int store_layer_read(struct store *s, MDB_txn *txn, store_layer layer, struct store_layer_rec *ret)
{
	uint8_t kb[8];
	MDB_val k = {8, kb}, v;
	int r;

	key_be64(kb, layer);
	r = store_tx_get(s, txn, DB_LAYERS, &k, &v);
	return r < 0 ? r : store_layer_decode(&v, ret);
}

int store_layer_write(struct store *s, MDB_txn *txn, store_layer layer,
		      const struct store_layer_rec *rec)
{
	uint8_t kb[8], p[STORE_LAYER_MAX];
	MDB_val k = {8, kb}, v = {store_layer_encode(rec, p), p};

	key_be64(kb, layer);
	return store_tx_put(s, txn, DB_LAYERS, &k, &v, 0);
}

int store_pen_flush(struct store_pen *p)
{
	uint8_t kb[16];
	MDB_val k = {sizeof(kb), kb}, v = {p->entries.len, p->entries.data};
	int r;

	if (p->entries.len == 0)
		return 0;
	key_be64(kb, p->layer);
	key_be64(kb + 8, p->rec->journal++);
	r = store_tx_put(p->s, p->txn, DB_JOURNAL, &k, &v, 0);
	buf_clear(&p->entries);
	return r;
}

int store_pen_add(struct store_pen *p, enum store_db db, const uint8_t *k, size_t n)
{
	uint8_t head[3];
	int r = 0;

	store_journal_head(db, n, head);
	if (p->entries.len + sizeof(head) + n > STORE_JOURNAL_MAX)
		r = store_pen_flush(p);
	if (r == 0)
		r = buf_put(&p->entries, head, sizeof(head));
	if (r == 0)
		r = buf_put(&p->entries, k, n);
	p->rec->records++;
	return r;
}

int store_layer_add(struct store *s, MDB_txn *txn, store_layer parent, store_layer *ret)
{
	struct store_layer_rec rec = {.parent = parent, .state = STORE_LAYER_OPEN};
	uint64_t layer;
	int r = store_tx_count(s, txn, "next_layer", 1, &layer);

	if (r < 0)
		return r;
	(void)clock_gettime(CLOCK_REALTIME, &rec.created);
	r = store_layer_write(s, txn, layer, &rec);
	if (r == 0)
		*ret = layer;
	return r;
}

int store_layer_drop(struct store *s, MDB_txn *txn, store_layer layer)
{
	struct store_layer_rec rec;
	uint8_t kb[8];
	MDB_val k = {8, kb};
	int r = store_layer_read(s, txn, layer, &rec);

	if (r < 0 || rec.state != STORE_LAYER_OPEN)
		return r;
	if (rec.records == 0) {
		key_be64(kb, layer);
		return store_tx_del(s, txn, DB_LAYERS, &k);
	}
	rec.state = STORE_LAYER_DROPPED;
	return store_layer_write(s, txn, layer, &rec);
}

int store_layer_get(struct store *s, store_layer layer, struct store_layer_info *ret)
{
	cleanup_rd struct store_rd rd = {0};
	struct store_layer_rec rec;
	int r = store_rd_begin(s, &rd);

	if (r == 0)
		r = store_layer_read(s, rd.r->txn, layer, &rec);
	if (r < 0)
		return r;
	*ret = (struct store_layer_info){.layer = layer,
					 .parent = rec.parent,
					 .state = rec.state,
					 .created = rec.created,
					 .records = rec.records,
					 .bytes = rec.bytes,
					 .batches = rec.batches};
	return 0;
}

int store_layer_new(struct store *s, store_layer parent, store_layer *ret)
{
	cleanup_tx MDB_txn *t = NULL;
	struct store_layer_rec rec;
	store_layer layer;
	int r = store_tx_begin(s, &t);

	if (r == 0 && parent) {
		r = store_layer_read(s, t, parent, &rec);
		if (r == 0 && rec.state != STORE_LAYER_SEALED)
			r = -EINVAL;
	}
	if (r == 0)
		r = store_layer_add(s, t, parent, &layer);
	if (r == 0)
		r = store_tx_commit(s, &t);
	if (r == 0)
		*ret = layer;
	return r;
}

int store_layer_seal(struct store *s, store_layer layer)
{
	cleanup_tx MDB_txn *t = NULL;
	struct store_layer_rec rec;
	int r = store_tx_begin(s, &t);

	if (r == 0)
		r = store_layer_read(s, t, layer, &rec);
	if (r < 0)
		return r;
	if (rec.state == STORE_LAYER_SEALED)
		return 0;
	if (rec.state != STORE_LAYER_OPEN)
		return -ESTALE;
	rec.state = STORE_LAYER_SEALED;
	r = store_layer_write(s, t, layer, &rec);
	return r < 0 ? r : store_tx_commit(s, &t);
}

static int discard_one(struct store *s, MDB_txn *t, store_layer layer)
{
	struct store_layer_rec rec;
	int r = store_layer_read(s, t, layer, &rec);

	if (r < 0 || rec.state == STORE_LAYER_OPEN)
		return r == -ENOENT ? 0 : r < 0 ? r : store_layer_drop(s, t, layer);
	if (rec.state != STORE_LAYER_SEALED || !store_digest_is_zero(&rec.commit))
		return 0;
	rec.state = STORE_LAYER_DROPPED;
	return store_layer_write(s, t, layer, &rec);
}

int store_layers_discard(struct store *s, const store_layer *layers, size_t n)
{
	cleanup_tx MDB_txn *t = NULL;
	int r = store_tx_begin(s, &t);

	while (r == 0 && n)
		r = discard_one(s, t, layers[--n]);
	return r < 0 ? r : store_tx_commit(s, &t);
}

/* What both see is a chain, and numbers grow along it: the nearest is the greatest. */
static store_layer nearest(const struct store_anc *x, const struct store_anc *y)
{
	for (size_t w = x->words < y->words ? x->words : y->words; w--;) {
		uint64_t m = x->bits[w] & y->bits[w];

		if (m)
			return w * 64 + 63 - (unsigned)__builtin_clzll(m);
	}
	return 0;
}

/* *ret_old: it was merged into the one above it (gc_merge.c) since we last looked at who sees whom. */
static int common(struct store *s, store_layer a, store_layer b, store_layer *ret, bool *ret_old)
{
	cleanup_rd struct store_rd rd = {0};
	struct store_anc *x = NULL, *y = NULL;
	struct store_layer_rec rec = {.state = STORE_LAYER_SEALED};
	int r = store_rd_begin(s, &rd), k = 0;

	if (r == 0)
		r = store_anc_get(s, rd.r->txn, a, &x);
	if (r == 0)
		r = store_anc_get(s, rd.r->txn, b, &y);
	*ret = r == 0 ? nearest(x, y) : 0;
	store_anc_unref(x);
	store_anc_unref(y);
	if (*ret)
		k = store_layer_read(s, rd.r->txn, *ret, &rec);
	*ret_old = k == -ENOENT || rec.state == STORE_LAYER_DROPPED;
	return r;
}

int store_layer_common(struct store *s, store_layer a, store_layer b, store_layer *ret)
{
	store_layer l;
	bool old;
	int r = common(s, a, b, &l, &old);

	if (r == 0 && old) {
		store_anc_forget(s);
		r = common(s, a, b, &l, &old);
	}
	if (r == 0)
		*ret = l;
	return r;
}

/* ---- journal ---- */

struct journal_call {
	int (*fn)(void *arg, enum store_key_kind kind, store_ino ino, const char *name, size_t len,
		  uint64_t block);
	void *arg;
};

static int entry(void *arg, enum store_db db, const uint8_t *k, size_t n)
{
	const struct journal_call *c = arg;
	store_ino ino = key_get_be64(k);

	switch ((int)db) {
	case DB_INODES:
		return c->fn(c->arg, STORE_KEY_INODE, ino, NULL, 0, 0);
	case DB_EXTENTS:
		return c->fn(c->arg, STORE_KEY_EXTENT, ino, NULL, 0, key_get_be64(k + 8));
	case DB_LINKS:
		return c->fn(c->arg, STORE_KEY_LINK, ino, (const char *)k + 16, n - 17,
			     key_get_be64(k + 8));
	default:
		return c->fn(c->arg, db == DB_NAMES ? STORE_KEY_NAME : STORE_KEY_XATTR, ino,
			     (const char *)k + 8, n - 9, 0);
	}
}

int store_layer_journal(struct store *s, store_layer layer,
			int (*fn)(void *arg, enum store_key_kind kind, store_ino ino,
				  const char *name, size_t len, uint64_t block),
			void *arg)
{
	struct journal_call c = {fn, arg};
	cleanup_rd struct store_rd rd = {0};
	struct store_layer_rec rec;
	uint8_t kb[16];
	MDB_val k = {16, kb}, v;
	MDB_cursor *cur;
	int r = store_rd_begin(s, &rd);

	if (r == 0)
		r = store_layer_read(s, rd.r->txn, layer, &rec);
	if (r == 0)
		r = store_rd_cursor(&rd, DB_JOURNAL, &cur);
	if (r < 0)
		return r;
	key_be64(kb, layer);
	key_be64(kb + 8, 0);
	r = store_cur_raw(cur, &k, &v, MDB_SET_RANGE);
	while (r == 0 && k.mv_size == 16 && key_get_be64(k.mv_data) == layer) {
		r = store_sum_strip(DB_JOURNAL, &k, &v);
		if (r == 0)
			r = store_journal_each(&v, entry, &c);
		if (r)
			return r;
		r = store_cur_raw(cur, &k, &v, MDB_NEXT);
	}
	return r == -ENOENT ? 0 : r;
}
