#include "store/codec.h"

#include <string.h>
#include <sys/stat.h>

/* ---- keys ---- */

bool store_db_versioned(enum store_db db)
{
	return db <= DB_LINKS;
}

/* A name, its NUL, and @after more bytes up to the end. */
static int take_name(const uint8_t *p, size_t n, size_t after, size_t min, size_t max,
		     struct store_key *k)
{
	if (n < after + 1 + min || n > after + 1 + max)
		return -EBADMSG;
	k->name = (const char *)p;
	k->len = n - after - 1;
	return !memchr(p, 0, k->len) && p[k->len] == 0 ? 0 : -EBADMSG;
}

static int file_name(const uint8_t *p, size_t n, struct store_key *k)
{
	int r = take_name(p, n, 0, 1, STORE_NAME_MAX, k);

	return r == 0 && memchr(k->name, '/', k->len) ? -EBADMSG : r;
}

/* What stands before the layer. */
static int versioned(enum store_db db, const uint8_t *p, size_t n, struct store_key *k)
{
	if (n < 8)
		return -EBADMSG;
	k->ino = key_get_be64(p);
	if (db == DB_INODES)
		return n == 8 ? 0 : -EBADMSG;
	if (db == DB_NAMES)
		return file_name(p + 8, n - 8, k);
	if (db == DB_XATTRS)
		return take_name(p + 8, n - 8, 0, 1, STORE_NAME_MAX, k);
	if (n < 16)
		return -EBADMSG;
	k->block = key_get_be64(p + 8);
	if (db == DB_EXTENTS)
		return n == 16 ? 0 : -EBADMSG;
	return file_name(p + 16, n - 16, k);
}

static int text_key(const uint8_t *p, size_t n, size_t max, struct store_key *k)
{
	k->name = (const char *)p;
	k->len = n;
	return n >= 1 && n <= max && !memchr(p, 0, n) ? 0 : -EBADMSG;
}

int store_key_decode(enum store_db db, const void *key, size_t n, struct store_key *ret)
{
	const uint8_t *p = key;
	int r;

	*ret = (struct store_key){0};
	if (store_db_versioned(db)) {
		if (n < 16)
			return -EBADMSG;
		ret->layer = ~key_get_be64(p + n - 8);
		return ret->layer ? versioned(db, p, n - 8, ret) : -EBADMSG;
	}
	switch ((int)db) {
	case DB_LAYERS:
		if (n != 8)
			return -EBADMSG;
		ret->layer = key_get_be64(p);
		return ret->layer ? 0 : -EBADMSG;
	case DB_JOURNAL:
		if (n != 16)
			return -EBADMSG;
		ret->layer = key_get_be64(p);
		ret->number = key_get_be64(p + 8);
		return ret->layer ? 0 : -EBADMSG;
	case DB_COMMIT_INDEX:
	case DB_MOVES:
		r = take_name(p, n, 8, db == DB_MOVES, 64, ret);
		if (r == 0)
			ret->number = key_get_be64(p + n - 8);
		return r;
	case DB_REFS:
	case DB_META:
		return text_key(p, n, 255, ret);
	case DB_ENVS:
		return text_key(p, n, 64, ret);
	default: /* by digest */
		if (n != DIGEST_LEN)
			return -EBADMSG;
		memcpy(ret->id.b, p, DIGEST_LEN);
		return 0;
	}
}

static void put_text(struct key *k, const struct store_key *from)
{
	memcpy(k->b + k->len, from->name, from->len);
	k->len += from->len;
}

void store_key_encode(enum store_db db, const struct store_key *k, struct key *ret)
{
	ret->len = 0;
	switch ((int)db) {
	case DB_LAYERS:
		key_num(ret, k->layer);
		return;
	case DB_JOURNAL:
		key_num(ret, k->layer);
		key_num(ret, k->number);
		return;
	case DB_COMMIT_INDEX:
	case DB_MOVES:
		key_name(ret, k->name, k->len);
		key_num(ret, k->number);
		return;
	case DB_REFS:
	case DB_META:
	case DB_ENVS:
		put_text(ret, k);
		return;
	case DB_INODES:
	case DB_NAMES:
	case DB_EXTENTS:
	case DB_XATTRS:
	case DB_LINKS:
		key_num(ret, k->ino);
		if (db == DB_EXTENTS || db == DB_LINKS)
			key_num(ret, k->block);
		if (k->name)
			key_name(ret, k->name, k->len);
		key_layer(ret, k->layer);
		return;
	default:
		memcpy(ret->b, k->id.b, DIGEST_LEN);
		ret->len = DIGEST_LEN;
		return;
	}
}

/* ---- values ---- */

void store_name_encode(const struct rec_name *n, uint8_t p[static STORE_NAME_LEN])
{
	key_be64(p, n->ino);
	key_be32(p + 8, n->ino ? n->type : 0);
}

int store_name_decode(const MDB_val *v, struct rec_name *ret)
{
	if (v->mv_size != STORE_NAME_LEN)
		return -EBADMSG;
	ret->ino = key_get_be64(v->mv_data);
	ret->type = key_get_be32((const uint8_t *)v->mv_data + 8);
	return (ret->type & ~(uint32_t)S_IFMT) == 0 && (ret->ino || !ret->type) ? 0 : -EBADMSG;
}

size_t store_extent_encode(const struct store_extent *e, uint8_t p[static STORE_EXTENT_LEN])
{
	key_be32(p, e->len);
	if (e->len == 0)
		return 4;
	memcpy(p + 4, e->chunk.b, DIGEST_LEN);
	return STORE_EXTENT_LEN;
}

int store_extent_decode(const MDB_val *v, struct store_extent *e)
{
	if (v->mv_size != 4 && v->mv_size != STORE_EXTENT_LEN)
		return -EBADMSG;
	e->len = key_get_be32(v->mv_data);
	if ((e->len == 0) != (v->mv_size == 4) || e->len > STORE_BLOCK)
		return -EBADMSG;
	if (e->len)
		memcpy(e->chunk.b, (const uint8_t *)v->mv_data + 4, DIGEST_LEN);
	else
		memset(e->chunk.b, 0, DIGEST_LEN);
	return 0;
}

size_t store_layer_encode(const struct store_layer_rec *rec, uint8_t p[static STORE_LAYER_MAX])
{
	key_be64(p, rec->parent);
	key_be32(p + 8, rec->state);
	key_be64(p + 12, (uint64_t)rec->created.tv_sec);
	key_be32(p + 20, (uint32_t)rec->created.tv_nsec);
	key_be64(p + 24, rec->records);
	key_be64(p + 32, rec->bytes);
	key_be64(p + 40, rec->journal);
	memcpy(p + 48, rec->commit.b, DIGEST_LEN);
	if (rec->state != STORE_LAYER_OPEN || !rec->batches)
		return STORE_LAYER_LEN;
	key_be64(p + STORE_LAYER_LEN, rec->batches);
	return STORE_LAYER_MAX;
}

int store_layer_decode(const MDB_val *v, struct store_layer_rec *ret)
{
	const uint8_t *p = v->mv_data;
	uint32_t nsec;

	if (v->mv_size != STORE_LAYER_LEN && v->mv_size != STORE_LAYER_MAX)
		return -EBADMSG;
	nsec = key_get_be32(p + 20);
	ret->parent = key_get_be64(p);
	ret->state = key_get_be32(p + 8);
	ret->created.tv_sec = (time_t)key_get_be64(p + 12);
	ret->created.tv_nsec = (long)nsec;
	ret->records = key_get_be64(p + 24);
	ret->bytes = key_get_be64(p + 32);
	ret->journal = key_get_be64(p + 40);
	memcpy(ret->commit.b, p + 48, DIGEST_LEN);
	ret->batches = 0;
	if (v->mv_size == STORE_LAYER_MAX) {
		ret->batches = key_get_be64(p + STORE_LAYER_LEN);
		if (!ret->batches || ret->state != STORE_LAYER_OPEN)
			return -EBADMSG;
	}
	return ret->state >= STORE_LAYER_OPEN && ret->state <= STORE_LAYER_DROPPED &&
			       nsec <= 999999999
		       ? 0
		       : -EBADMSG;
}

int store_there_decode(const MDB_val *v, bool *ret_there, const void **ret_p, size_t *ret_n)
{
	const uint8_t *p = v->mv_data;

	if (v->mv_size < 1 || p[0] > 1 || (v->mv_size > 1 && (!p[0] || !ret_p)))
		return -EBADMSG;
	*ret_there = p[0];
	if (ret_p) {
		*ret_p = p + 1;
		*ret_n = v->mv_size - 1;
	}
	return 0;
}

int store_num_decode(const MDB_val *v, uint64_t *ret)
{
	if (v->mv_size != 8)
		return -EBADMSG;
	*ret = key_get_be64(v->mv_data);
	return 0;
}

/* ---- journal ---- */

static const uint8_t kinds[] = {
	[DB_INODES] = STORE_KEY_INODE, [DB_NAMES] = STORE_KEY_NAME, [DB_EXTENTS] = STORE_KEY_EXTENT,
	[DB_XATTRS] = STORE_KEY_XATTR, [DB_LINKS] = STORE_KEY_LINK,
};

void store_journal_head(enum store_db db, size_t n, uint8_t p[static 3])
{
	p[0] = kinds[db];
	p[1] = (uint8_t)(n >> 8);
	p[2] = (uint8_t)n;
}

static int entry(const uint8_t *p, size_t n, store_journal_fn fn, void *arg)
{
	for (enum store_db db = DB_INODES; db <= DB_LINKS; db++) {
		struct store_key k = {0};

		if (kinds[db] != p[0])
			continue;
		if (versioned(db, p + 3, n, &k) < 0)
			return -EBADMSG;
		return fn(arg, db, p + 3, n);
	}
	return -EBADMSG;
}

int store_journal_each(const MDB_val *v, store_journal_fn fn, void *arg)
{
	const uint8_t *p = v->mv_data, *end = p + v->mv_size;
	int r = v->mv_size ? 0 : -EBADMSG;

	while (p < end && r == 0) {
		size_t n;

		if (end - p < 3)
			return -EBADMSG;
		n = (size_t)p[1] << 8 | p[2];
		if ((size_t)(end - p) - 3 < n)
			return -EBADMSG;
		r = entry(p, n, fn, arg);
		p += 3 + n;
	}
	return r;
}
