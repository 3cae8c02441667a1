#include <string.h>
#include <time.h>

#include "store/key.h"
#include "store/store_internal.h"

/* parent, state, created, records, bytes, journal, commit */
#define LAYER_LEN (8 + 4 + 8 + 4 + 8 + 8 + 8 + DIGEST_LEN)

int store_layer_read(struct store *s, MDB_txn *txn, store_layer layer, struct store_layer_rec *ret)
{
	uint8_t kb[8];
	MDB_val k = {8, kb}, v;
	const uint8_t *p;
	int r;

	key_be64(kb, layer);
	r = store_tx_get(s, txn, DB_LAYERS, &k, &v);
	if (r < 0)
		return r;
	if (v.mv_size != LAYER_LEN)
		return -EBADMSG;
	p = v.mv_data;
	ret->parent = key_get_be64(p);
	ret->state = key_get_be32(p + 8);
	ret->created.tv_sec = (time_t)key_get_be64(p + 12);
	ret->created.tv_nsec = (long)key_get_be32(p + 20);
	ret->records = key_get_be64(p + 24);
	ret->bytes = key_get_be64(p + 32);
	ret->journal = key_get_be64(p + 40);
	memcpy(ret->commit.b, p + 48, DIGEST_LEN);
	return 0;
}

int store_layer_write(struct store *s, MDB_txn *txn, store_layer layer,
		      const struct store_layer_rec *rec)
{
	uint8_t kb[8], p[LAYER_LEN];
	MDB_val k = {8, kb}, v = {LAYER_LEN, p};

	key_be64(kb, layer);
	key_be64(p, rec->parent);
	key_be32(p + 8, rec->state);
	key_be64(p + 12, (uint64_t)rec->created.tv_sec);
	key_be32(p + 20, (uint32_t)rec->created.tv_nsec);
	key_be64(p + 24, rec->records);
	key_be64(p + 32, rec->bytes);
	key_be64(p + 40, rec->journal);
	memcpy(p + 48, rec->commit.b, DIGEST_LEN);
	return store_tx_put(s, txn, DB_LAYERS, &k, &v, 0);
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
					 .bytes = rec.bytes};
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

int store_layer_common(struct store *s, store_layer a, store_layer b, store_layer *ret)
{
	cleanup_rd struct store_rd rd = {0};
	struct store_anc *x = NULL, *y = NULL;
	store_layer l = 0;
	int r = store_rd_begin(s, &rd);

	if (r == 0)
		r = store_anc_get(s, rd.r->txn, a, &x);
	if (r == 0)
		r = store_anc_get(s, rd.r->txn, b, &y);
	/* What both see is a chain, and numbers grow along it: the nearest is the greatest. */
	for (size_t w = r == 0 ? (x->words < y->words ? x->words : y->words) : 0; w-- && !l;) {
		uint64_t m = x->bits[w] & y->bits[w];

		if (m)
			l = w * 64 + 63 - (unsigned)__builtin_clzll(m);
	}
	store_anc_unref(x);
	store_anc_unref(y);
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

/* One entry: kind, length, and the key without its layer. */
static int entry(const struct journal_call *c, enum store_key_kind kind, const uint8_t *k, size_t n)
{
	uint64_t ino;

	if (n < 8)
		return -EBADMSG;
	ino = key_get_be64(k);
	switch (kind) {
	case STORE_KEY_INODE:
		return n == 8 ? c->fn(c->arg, kind, ino, NULL, 0, 0) : -EBADMSG;
	case STORE_KEY_EXTENT:
		return n == 16 ? c->fn(c->arg, kind, ino, NULL, 0, key_get_be64(k + 8)) : -EBADMSG;
	case STORE_KEY_NAME:
	case STORE_KEY_XATTR:
		return n > 9 ? c->fn(c->arg, kind, ino, (const char *)k + 8, n - 9, 0) : -EBADMSG;
	case STORE_KEY_LINK:
		return n > 17 ? c->fn(c->arg, kind, ino, (const char *)k + 16, n - 17,
				      key_get_be64(k + 8))
			      : -EBADMSG;
	}
	return -EBADMSG;
}

static int entries(const struct journal_call *c, const MDB_val *v)
{
	const uint8_t *p = v->mv_data, *end = p + v->mv_size;
	int r = 0;

	while (p < end && r == 0) {
		size_t n;

		if (end - p < 3)
			return -EBADMSG;
		n = (size_t)p[1] << 8 | p[2];
		if ((size_t)(end - p) - 3 < n)
			return -EBADMSG;
		r = entry(c, p[0], p + 3, n);
		p += 3 + n;
	}
	return r;
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
			r = entries(&c, &v);
		if (r)
			return r;
		r = store_cur_raw(cur, &k, &v, MDB_NEXT);
	}
	return r == -ENOENT ? 0 : r;
}
