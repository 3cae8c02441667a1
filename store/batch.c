#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "store/batch.h"
#include "store/codec.h"

/* ---- collecting ---- */

bool store_name_ok(const char *name, size_t n)
{
	return n > 0 && n <= STORE_NAME_MAX && !memchr(name, 0, n) && !memchr(name, '/', n);
}

int store_batch_begin(struct store *s, store_layer layer, struct store_batch **ret)
{
	cleanup_rd struct store_rd rd = {0};
	struct store_layer_rec rec;
	struct store_batch *b;
	int r = s->rdonly ? -EROFS : store_rd_begin(s, &rd);

	if (r == 0)
		r = store_layer_read(s, rd.r->txn, layer, &rec);
	if (r == 0 && rec.state != STORE_LAYER_OPEN)
		r = -ESTALE;
	if (r < 0)
		return r;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->s = s;
	b->layer = layer;
	r = store_anc_get(s, rd.r->txn, layer, &b->anc);
	if (r < 0) {
		free(b);
		return r;
	}
	*ret = b;
	return 0;
}

void store_batch_abort(struct store_batch *b)
{
	if (!b)
		return;
	store_anc_unref(b->anc);
	buf_release(&b->ops);
	buf_release(&b->named);
	buf_release(&b->small);
	buf_release(&b->scratch);
	free(b);
}

void store_batch_count(struct store_batch *b)
{
	b->counts = true;
}

void store_batch_uncounted(struct store_batch *b)
{
	b->uncounted = true;
}

void store_batch_damaged(struct store_batch *b)
{
	b->damaged = true;
}

static int op_add(struct store_batch *b, enum op op, enum store_db db, const struct key *k,
		  const void *v, size_t n)
{
	struct op_head h = {.op = (uint8_t)op, .db = (uint8_t)db, .klen = (uint16_t)k->len};
	int r;

	if (n > UINT32_MAX / 2)
		return -E2BIG;
	h.vlen = (uint32_t)n;
	r = buf_reserve(&b->ops, sizeof(h) + k->len + n);
	if (r == 0)
		r = buf_put(&b->ops, &h, sizeof(h));
	if (r == 0)
		r = buf_put(&b->ops, k->b, k->len);
	return r < 0 ? r : buf_put(&b->ops, v, n);
}

static int name_chunk(struct store_batch *b, const struct digest *d, uint32_t len)
{
	struct named n = {*d, len};

	return buf_put(&b->named, &n, sizeof(n));
}

int store_batch_chunk(struct store_batch *b, const void *data, size_t len, struct digest *ret)
{
	struct small c = {.data = data, .len = (uint32_t)len};
	int r = len == 0 || len > STORE_SMALL ? -EINVAL : digest_of(data, len, &c.d);

	if (r == 0)
		r = buf_put(&b->small, &c, sizeof(c));
	if (r == 0)
		*ret = c.d;
	return r;
}

int store_batch_inode(struct store_batch *b, store_ino ino, const struct rec_inode *rec)
{
	struct key k = {0};
	int r;

	buf_clear(&b->scratch);
	r = rec_inode_encode(rec, &b->scratch);
	if (r == 0 && rec->content == REC_CHUNK)
		r = name_chunk(b, &rec->chunk, rec->chunk_len);
	key_num(&k, ino);
	return r < 0 ? r : op_add(b, OP_PUT, DB_INODES, &k, b->scratch.data, b->scratch.len);
}

int store_batch_name(struct store_batch *b, store_ino parent, const char *name, size_t len,
		     const struct rec_name *n)
{
	struct key k = {0};
	uint8_t v[STORE_NAME_LEN];

	if (!store_name_ok(name, len))
		return -EINVAL;
	key_num(&k, parent);
	key_name(&k, name, len);
	store_name_encode(n, v);
	return op_add(b, OP_PUT, DB_NAMES, &k, v, sizeof(v));
}

int store_batch_extent(struct store_batch *b, store_ino ino, const struct store_extent *e)
{
	struct key k = {0};
	uint8_t v[STORE_EXTENT_LEN];
	int r = 0;

	if (e->len > STORE_BLOCK)
		return -EINVAL;
	if (e->len)
		r = name_chunk(b, &e->chunk, e->len);
	key_num(&k, ino);
	key_num(&k, e->block);
	return r < 0 ? r : op_add(b, OP_PUT, DB_EXTENTS, &k, v, store_extent_encode(e, v));
}

int store_batch_extents_cut(struct store_batch *b, store_ino ino, uint64_t first)
{
	struct key k = {0};

	key_num(&k, ino);
	key_num(&k, first);
	return op_add(b, OP_CUT, DB_EXTENTS, &k, NULL, 0);
}

int store_batch_xattr(struct store_batch *b, store_ino ino, const char *name, const void *value,
		      size_t len)
{
	struct key k = {0};
	size_t n = strlen(name);
	uint8_t there = value != NULL;
	int r;

	if (n == 0 || n > STORE_NAME_MAX)
		return -EINVAL;
	buf_clear(&b->scratch);
	r = buf_put(&b->scratch, &there, 1);
	if (r == 0 && value)
		r = buf_put(&b->scratch, value, len);
	key_num(&k, ino);
	key_name(&k, name, n);
	return r < 0 ? r : op_add(b, OP_PUT, DB_XATTRS, &k, b->scratch.data, b->scratch.len);
}

int store_batch_link(struct store_batch *b, store_ino ino, store_ino parent, const char *name,
		     size_t len, bool present)
{
	struct key k = {0};
	uint8_t v = present;

	if (!store_name_ok(name, len))
		return -EINVAL;
	key_num(&k, ino);
	key_num(&k, parent);
	key_name(&k, name, len);
	return op_add(b, OP_PUT, DB_LINKS, &k, &v, 1);
}

int store_batch_inode_gone(struct store_batch *b, store_ino ino)
{
	struct key k = {0};

	key_num(&k, ino);
	return op_add(b, OP_GONE, DB_INODES, &k, NULL, 0);
}
