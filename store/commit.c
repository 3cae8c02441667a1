#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/mp.h"
#include "store/key.h"
#include "store/store_internal.h"

#define COMMIT_VERSION 1
#define COMMIT_FIELDS  12

void store_commit_release(struct store_commit *c)
{
	free(c->message);
	memset(c, 0, sizeof(*c));
}

bool store_digest_is_zero(const struct digest *d)
{
	static const struct digest zero;

	return !memcmp(d, &zero, sizeof(zero));
}

/* ---- the record ---- */

int store_commit_encode(const struct store_commit *c, struct buf *b)
{
	const uint64_t nums[] = {c->added, c->modified, c->deleted};
	int r = mp_put_array(b, COMMIT_FIELDS);

	if (r == 0)
		r = mp_put_uint(b, COMMIT_VERSION);
	if (r == 0)
		r = mp_put_bin(b, c->parent.b, DIGEST_LEN);
	if (r == 0)
		r = mp_put_uint(b, c->layer);
	if (r == 0)
		r = mp_put_uint(b, c->kind);
	if (r == 0)
		r = mp_put_int(b, c->time.tv_sec);
	if (r == 0)
		r = mp_put_uint(b, (uint64_t)c->time.tv_nsec);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(nums); i++)
		r = mp_put_uint(b, nums[i]);
	if (r == 0)
		r = mp_put_cstr(b, c->env);
	if (r == 0)
		r = mp_put_cstr(b, c->label);
	return r ? r : mp_put_cstr(b, c->message);
}

static int copy_text(const msgpack_object *o, char *ret, size_t cap)
{
	const char *s;
	size_t n;
	int r = mp_as_str(o, &s, &n);

	if (r < 0)
		return r;
	if (n >= cap || memchr(s, 0, n))
		return -EBADMSG;
	memcpy(ret, s, n);
	ret[n] = 0;
	return 0;
}

static int decode_fields(const msgpack_object *f, struct store_commit *c)
{
	uint64_t version, kind, nsec;
	int64_t sec;
	const void *parent;
	size_t n;
	int r = mp_as_uint(&f[0], COMMIT_VERSION, &version);

	if (r == 0)
		r = mp_as_bin(&f[1], &parent, &n);
	if (r == 0 && n != DIGEST_LEN)
		r = -EBADMSG;
	if (r == 0)
		memcpy(c->parent.b, parent, DIGEST_LEN);
	if (r == 0)
		r = mp_as_uint(&f[2], UINT64_MAX, &c->layer);
	if (r == 0)
		r = mp_as_uint(&f[3], STORE_BASE, &kind);
	if (r == 0)
		r = mp_as_int(&f[4], &sec);
	if (r == 0)
		r = mp_as_uint(&f[5], 999999999, &nsec);
	if (r == 0)
		r = mp_as_uint(&f[6], UINT64_MAX, &c->added);
	if (r == 0)
		r = mp_as_uint(&f[7], UINT64_MAX, &c->modified);
	if (r == 0)
		r = mp_as_uint(&f[8], UINT64_MAX, &c->deleted);
	if (r == 0)
		r = copy_text(&f[9], c->env, sizeof(c->env));
	if (r == 0)
		r = copy_text(&f[10], c->label, sizeof(c->label));
	if (r == 0 && f[11].type != MSGPACK_OBJECT_NIL)
		r = mp_dup_str(&f[11], &c->message);
	if (r < 0)
		return r;
	c->kind = (enum store_commit_kind)kind;
	c->time.tv_sec = sec;
	c->time.tv_nsec = (long)nsec;
	return 0;
}

/* msgpack can spell one value in several ways; only the one that the encoder writes is a record. */
static int canonical(const struct store_commit *c, const MDB_val *v)
{
	cleanup_buf struct buf b = {0};
	int r = store_commit_encode(c, &b);

	return r == 0 && !store_same_bytes(&b, v) ? -EBADMSG : r;
}

int store_commit_decode(const MDB_val *v, const struct digest *id, struct store_commit *ret)
{
	struct store_commit c = {.id = *id};
	struct mp_doc d = {0};
	int r = mp_parse(v->mv_data, v->mv_size, &d);

	if (r < 0)
		return r;
	if (d.root.type != MSGPACK_OBJECT_ARRAY || d.root.via.array.size != COMMIT_FIELDS)
		r = -EBADMSG;
	if (r == 0)
		r = decode_fields(d.root.via.array.ptr, &c);
	mp_release(&d);
	if (r == 0)
		r = canonical(&c, v);
	if (r < 0) {
		store_commit_release(&c);
		return r == -ENOMEM ? r : -EBADMSG;
	}
	*ret = c;
	return 0;
}

/* ---- the index: environment ("" for all), NUL, sequence ---- */

size_t store_commit_index_key(uint8_t k[static 80], const char *env, uint64_t seq)
{
	size_t n = strlen(env) + 1;

	memcpy(k, env, n);
	key_be64(k + n, seq);
	return n + 8;
}

static int index_add(struct store *s, MDB_txn *txn, const char *env, uint64_t seq,
		     const struct digest *id)
{
	uint8_t kb[80];
	MDB_val k = {store_commit_index_key(kb, env, seq), kb};
	MDB_val v = {DIGEST_LEN, (void *)(uintptr_t)id->b};

	return store_tx_put(s, txn, DB_COMMIT_INDEX, &k, &v, 0);
}

int store_commit_add(struct store *s, MDB_txn *txn, const struct store_commit *c)
{
	cleanup_buf struct buf b = {0};
	MDB_val k = {DIGEST_LEN, (void *)(uintptr_t)c->id.b}, v;
	uint64_t seq;
	int r;

	if (store_digest_is_zero(&c->id) || c->kind < STORE_COMMIT || c->kind > STORE_BASE ||
	    c->time.tv_nsec < 0 || c->time.tv_nsec > 999999999)
		return -EINVAL;
	r = store_commit_encode(c, &b);
	if (r < 0)
		return r;
	v = (MDB_val){b.len, b.data};
	r = store_tx_put(s, txn, DB_COMMITS, &k, &v, MDB_NOOVERWRITE);
	if (r == 0)
		r = store_tx_count(s, txn, "next_commit", 1, &seq);
	if (r == 0)
		r = index_add(s, txn, "", seq, &c->id);
	return r < 0 ? r : index_add(s, txn, c->env, seq, &c->id);
}

/* ---- reading ---- */

static int get(struct store_rd *rd, const struct digest *id, struct store_commit *ret)
{
	MDB_val k = {DIGEST_LEN, (void *)(uintptr_t)id->b}, v;
	int r = store_rd_get(rd, DB_COMMITS, &k, &v);

	return r < 0 ? r : store_commit_decode(&v, id, ret);
}

int store_commit_get(struct store *s, const struct digest *id, struct store_commit *ret)
{
	cleanup_rd struct store_rd rd = {0};
	int r = store_rd_begin(s, &rd);

	return r < 0 ? r : get(&rd, id, ret);
}

int store_commit_of_layer(struct store *s, store_layer layer, struct store_commit *ret)
{
	cleanup_rd struct store_rd rd = {0};
	struct store_layer_rec rec;
	int r = store_rd_begin(s, &rd);

	if (r == 0)
		r = store_layer_read(s, rd.r->txn, layer, &rec);
	if (r == 0 && store_digest_is_zero(&rec.commit))
		r = -ENOENT;
	return r < 0 ? r : get(&rd, &rec.commit, ret);
}

/* What the index names, or what is left of it: one that is damaged must not hide the others. */
static int lend(struct store_rd *rd, const MDB_val *k, MDB_val *v,
		int (*fn)(void *arg, const struct store_commit *c), void *arg)
{
	struct store_commit c = {0};
	struct digest id = {0};
	int r = store_sum_strip(DB_COMMIT_INDEX, k, v);

	if (r == 0 && v->mv_size != DIGEST_LEN)
		r = -EBADMSG;
	if (r == 0) {
		memcpy(id.b, v->mv_data, DIGEST_LEN);
		r = get(rd, &id, &c);
	}
	if (r == -EBADMSG || r == -ENOENT) {
		store_commit_release(&c);
		c = (struct store_commit){.id = id, .damaged = true};
		r = 0;
	}
	if (r == 0)
		r = fn(arg, &c);
	store_commit_release(&c);
	return r;
}

int store_head_read(struct store *s, MDB_txn *t, store_layer layer, store_layer *ret)
{
	for (;;) {
		struct store_layer_rec rec = {0};
		struct store_commit c = {0};
		MDB_val k, v;
		bool automatic;
		int r = store_layer_read(s, t, layer, &rec);

		if (r < 0)
			return r;
		*ret = layer;
		if (store_digest_is_zero(&rec.commit) || !rec.parent)
			return 0;
		k = (MDB_val){DIGEST_LEN, rec.commit.b};
		r = store_tx_get(s, t, DB_COMMITS, &k, &v);
		if (r == 0)
			r = store_commit_decode(&v, &rec.commit, &c);
		automatic = r == 0 && c.kind == STORE_AUTO;
		store_commit_release(&c);
		if (r < 0 || !automatic)
			return r;
		layer = rec.parent;
	}
}

int store_head_commit(struct store *s, store_layer layer, store_layer *ret)
{
	cleanup_rd struct store_rd rd = {0};
	int r = store_rd_begin(s, &rd);

	return r < 0 ? r : store_head_read(s, rd.r->txn, layer, ret);
}

int store_commits(struct store *s, const char *env,
		  int (*fn)(void *arg, const struct store_commit *c), void *arg)
{
	cleanup_rd struct store_rd rd = {0};
	uint8_t kb[80];
	MDB_val k, v;
	MDB_cursor *c;
	size_t n;
	int r;

	if (env && !store_env_name_valid(env))
		return -EINVAL;
	r = store_rd_begin(s, &rd);
	if (r == 0)
		r = store_rd_cursor(&rd, DB_COMMIT_INDEX, &c);
	if (r < 0)
		return r;
	n = store_commit_index_key(kb, env ? env : "", UINT64_MAX);
	k = (MDB_val){n, kb};
	r = store_cur_raw(c, &k, &v, MDB_SET_RANGE);
	/* The seek stands behind the last one, or nowhere when nothing follows. */
	r = store_cur_raw(c, &k, &v, r == 0 ? MDB_PREV : MDB_LAST);
	while (r == 0 && k.mv_size == n && !memcmp(k.mv_data, kb, n - 8)) {
		r = lend(&rd, &k, &v, fn, arg);
		if (r)
			return r;
		r = store_cur_raw(c, &k, &v, MDB_PREV);
	}
	return r == -ENOENT ? 0 : r;
}
