#include <string.h>

#include "base/cleanup.h"
#include "store/batch.h"
#include "store/codec.h"

/* One commit under way. */
struct tx {
	struct store_batch *b;
	MDB_txn *t;
	struct store_layer_rec rec;
	struct store_anc *parent; /* what the layer's parent sees */
	struct store_pen pen;
};

/* ---- committing ---- */

/* Write this layer's version of a key. A key that a layer wrote once stays until the layer goes (an
 * empty value takes it back), so that the journal names each key once. */
static int put_key(struct tx *x, enum store_db db, const uint8_t *prefix, size_t n, const void *p,
		   size_t len)
{
	struct key k = {.len = n};
	MDB_val kv, v = {len, (void *)(uintptr_t)p};
	int r;

	memcpy(k.b, prefix, n);
	key_layer(&k, x->b->layer);
	kv = key_val(&k);
	r = store_tx_put(x->b->s, x->t, db, &kv, &v, MDB_NOOVERWRITE);
	if (r == 0)
		return store_pen_add(&x->pen, db, prefix, n);
	if (r != -EEXIST)
		return r;
	return store_tx_put(x->b->s, x->t, db, &kv, &v, 0);
}

/* ---- truncation ---- */

#define CUT_STEP 512

struct cut {
	struct buf blocks; /* uint64_t each */
	uint64_t next;
};

static int cut_collect(void *arg, const uint8_t *mid, size_t n, const MDB_val *val)
{
	struct cut *c = arg;
	uint64_t block;
	int r;

	if (n != 8)
		return -EBADMSG;
	block = key_get_be64(mid);
	c->next = block;
	if (c->blocks.len >= CUT_STEP * sizeof(block))
		return 1;             /* not taken: go on from here */
	if (val && val->mv_size == 4) /* a hole already */
		return 0;
	r = buf_put(&c->blocks, &block, sizeof(block));
	return r;
}

/* @c may be used again after the put: every use of it begins with a seek. */
static int cut_block(struct tx *x, MDB_cursor *c, const uint8_t *ino, uint64_t block)
{
	static const uint8_t hole[4];
	struct key k = {.len = 8};
	MDB_val val;
	int r;

	memcpy(k.b, ino, 8);
	key_num(&k, block);
	/* What the layer's parent shows decides whether a hole is needed to hide it. */
	r = store_ver_find(c, DB_EXTENTS, x->parent, k.b, k.len, &val);
	if (r < 0 && r != -ENOENT && r != -EBADMSG)
		return r;
	/* what is damaged is hidden, too */
	return put_key(x, DB_EXTENTS, k.b, k.len, hole,
		       r == -EBADMSG || (r == 0 && val.mv_size > 4) ? 4 : 0);
}

static int cut_step(struct tx *x, MDB_cursor *c, const uint8_t *ino, struct cut *cut)
{
	struct key from = {.len = 8};
	int r, more;

	memcpy(from.b, ino, 8);
	key_num(&from, cut->next);
	buf_clear(&cut->blocks);
	more = store_ver_scan(c, DB_EXTENTS, x->b->anc, from.b, from.len, 8, cut_collect, cut);
	if (more < 0)
		return more;
	for (size_t i = 0; i < cut->blocks.len; i += sizeof(uint64_t)) {
		uint64_t block;

		memcpy(&block, cut->blocks.data + i, sizeof(block));
		r = cut_block(x, c, ino, block);
		if (r < 0)
			return r;
	}
	return more;
}

static int do_cut(struct tx *x, const uint8_t *key)
{
	struct cut cut = {.next = key_get_be64(key + 8)};
	MDB_cursor *c;
	int r = store_lm_err(mdb_cursor_open(x->t, x->b->s->db[DB_EXTENTS], &c));

	if (r < 0)
		return r;
	do
		r = cut_step(x, c, key, &cut);
	while (r > 0);
	mdb_cursor_close(c);
	buf_release(&cut.blocks);
	return r;
}

/* ---- an inode that never was ---- */

/* Up to GONE_STEP keys of this layer that begin with @ino, from @from on; 1 when there may be more,
 * with @from moved past what was looked at. */
#define GONE_STEP 512

static int gone_collect(struct tx *x, MDB_cursor *c, const uint8_t *ino, struct key *from,
			struct buf *keys)
{
	MDB_val key = key_val(from), val;
	size_t n = 0;
	int r = store_cur_raw(c, &key, &val, MDB_SET_RANGE);

	for (; r == 0; r = store_cur_raw(c, &key, &val, MDB_NEXT)) {
		struct key k = {.len = key.mv_size};

		if (key.mv_size < 16 || key.mv_size > KEY_MAX || memcmp(key.mv_data, ino, 8))
			return 0;
		memcpy(k.b, key.mv_data, k.len);
		if (n == GONE_STEP) {
			*from = k;
			return 1;
		}
		if (~key_get_be64(k.b + k.len - 8) != x->b->layer || val.mv_size == STORE_SUM_LEN)
			continue;
		r = buf_put(keys, &k, sizeof(k));
		if (r < 0)
			return r;
		n++;
	}
	return r == -ENOENT ? 0 : r;
}

static int gone_db(struct tx *x, enum store_db db, const uint8_t *ino)
{
	cleanup_buf struct buf keys = {0};
	struct key from = {.len = 8};
	int more;

	memcpy(from.b, ino, 8);
	do {
		MDB_cursor *c;
		int r = store_lm_err(mdb_cursor_open(x->t, x->b->s->db[db], &c));

		if (r < 0)
			return r;
		buf_clear(&keys);
		more = gone_collect(x, c, ino, &from, &keys);
		mdb_cursor_close(c);
		for (size_t i = 0; more >= 0 && i < keys.len; i += sizeof(struct key)) {
			struct key k;

			memcpy(&k, keys.data + i, sizeof(k));
			r = put_key(x, db, k.b, k.len - 8, "", 0);
			if (r < 0)
				return r;
		}
	} while (more > 0);
	return more;
}

static int do_gone(struct tx *x, const uint8_t *ino)
{
	static const enum store_db dbs[] = {DB_INODES, DB_EXTENTS, DB_XATTRS, DB_LINKS};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(dbs); i++)
		r = gone_db(x, dbs[i], ino);
	return r;
}

/* ---- the transaction ---- */

static int apply(struct tx *x)
{
	const uint8_t *p = x->b->ops.data, *end = p + x->b->ops.len;
	int r = 0;

	while (r == 0 && p < end) {
		struct op_head h;

		memcpy(&h, p, sizeof(h));
		p += sizeof(h);
		switch ((enum op)h.op) {
		case OP_PUT:
			r = put_key(x, h.db, p, h.klen, p + h.klen, h.vlen);
			break;
		case OP_CUT:
			r = do_cut(x, p);
			break;
		case OP_GONE:
			r = do_gone(x, p);
			break;
		}
		p += (size_t)h.klen + h.vlen;
	}
	return r;
}

/* Before the records that name them; a collector cannot be at work meanwhile. What is new is charged to the layer. */
static int put_small(struct tx *x)
{
	struct buf *b = &x->b->small;
	int r = b->len ? store_seen_open(x->b->s) : 0;

	for (size_t i = 0; r >= 0 && i < b->len; i += sizeof(struct small)) {
		struct small *c = (struct small *)(void *)(b->data + i);

		r = store_chunk_put_small(x->b->s, x->t, &c->d, c->data, c->len);
		c->added = r > 0;
		x->rec.bytes += r > 0 ? c->len : 0;
	}
	return r < 0 ? r : 0;
}

static void small_written(const struct store_batch *b)
{
	const struct small *c = (const void *)b->small.data;

	for (size_t i = 0; i < b->small.len / sizeof(*c); i++)
		if (c[i].added)
			store_written_add(b->s, store_chunk_room(c[i].len));
}

/* With the meta writer lock held no collector can be at work, so what is there stays there (S5); one that
 * has begun looks at what was noted before it goes on. */
static int check_chunks(struct tx *x)
{
	const struct buf *b = &x->b->named;
	int r = b->len ? store_seen_open(x->b->s) : 0;

	if (r < 0)
		return r;
	for (size_t i = 0; i < b->len; i += sizeof(struct named)) {
		struct named n;

		memcpy(&n, b->data + i, sizeof(n));
		store_seen_note(x->b->s, &n.d);
		r = store_chunk_has(x->b->s, x->t, &n.d, n.len);
		if (r == -ENOENT && x->b->damaged)
			continue;
		if (r < 0)
			return r == -ENOENT ? -EAGAIN : r;
		x->rec.bytes += store_fresh_take(x->b->s, &n.d, x);
	}
	return 0;
}

/* Of chunks that are charged twice, or of a batch that failed, the account would be wrong. */
static void charged(struct tx *x, bool done)
{
	const struct buf *b = &x->b->named;

	for (size_t i = 0; i < b->len; i += sizeof(struct named)) {
		struct named n;

		memcpy(&n, b->data + i, sizeof(n));
		store_fresh_charged(x->b->s, &n.d, x, done);
	}
}

static int commit_tx(struct tx *x)
{
	struct store *s = x->b->s;
	int r = store_layer_read(s, x->t, x->b->layer, &x->rec);

	x->pen = (struct store_pen){.s = s, .txn = x->t, .layer = x->b->layer, .rec = &x->rec};
	if (r < 0)
		return r;
	if (x->rec.state != STORE_LAYER_OPEN)
		return -ESTALE; /* S1 */
	r = put_small(x);
	if (r == 0)
		r = check_chunks(x);
	if (r == 0)
		r = store_anc_get(s, x->t, x->rec.parent, &x->parent);
	if (r == 0)
		r = apply(x);
	if (r == 0)
		r = store_pen_flush(&x->pen);
	if (!x->b->uncounted)
		x->rec.batches++;
	if (r == 0)
		r = store_layer_write(s, x->t, x->b->layer, &x->rec);
	return r < 0 ? r : store_tx_commit(s, &x->t);
}

int store_batch_commit(struct store_batch *b)
{
	struct tx x = {.b = b};
	bool any = b->ops.len || b->counts;
	int r = any ? store_tx_begin(b->s, &x.t) : 0;

	if (r == 0 && any)
		r = commit_tx(&x);
	charged(&x, r == 0);
	if (r == 0)
		small_written(b);
	store_tx_abortp(&x.t);
	store_anc_unref(x.parent);
	buf_release(&x.pen.entries);
	store_batch_abort(b);
	return r;
}
