#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "store/guard.h"
#include "store/key.h"
#include "store/making.h"
#include "store/proof.h"
#include "store/store_internal.h"

/*
 * A stored chunk: codec, raw length in three bytes, then the bytes.
 *
 * What fits one LMDB page lies in the meta environment, what needs several in the chunk environment:
 * freed single pages are of no use to a value of 33 pages, yet every allocation searches them.
 */
#define HEAD       STORE_CHUNK_HEAD
#define SMALL_MAX  4080 /* page less LMDB's header */
#define CODEC_RAW  0
#define CODEC_ZSTD 1
#define PAGE_HEAD  16 /* LMDB's, before the bytes of a value of its own pages */
#define BASE_PROOF 64 /* bytes of a chunk */
#define PACKED     1u
#define HASHED     2u

/* Bytes in one transaction. Small, so that the memory of one serves the next: at 64 MiB every page is a
 * fresh fault, and putting takes three times the CPU time. */
#define WINDOW (8u << 20)

struct item {
	const struct store_chunk *c;
	const void *data;
	size_t len;
	void *owned;
	uint8_t codec;
	bool added;
};

static void head_write(uint8_t *p, uint8_t codec, size_t raw)
{
	p[0] = codec;
	p[1] = (uint8_t)(raw >> 16);
	p[2] = (uint8_t)(raw >> 8);
	p[3] = (uint8_t)raw;
}

size_t store_chunk_raw(const void *stored)
{
	const uint8_t *p = stored;

	return (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
}

bool store_chunk_is_raw(const void *stored)
{
	return *(const uint8_t *)stored == CODEC_RAW;
}

static MDB_val digest_key(const struct digest *d)
{
	return (MDB_val){DIGEST_LEN, (void *)(uintptr_t)d->b};
}

/* ---- looking ---- */

static int big_has(struct store *s, const struct digest *d)
{
	struct store_reader *rd;
	MDB_val k = digest_key(d), v;
	int r = store_reader_get(&s->chunks, &rd);

	if (r < 0)
		return r;
	r = store_lm_get(rd->txn, s->chunk_db, &k, &v);
	store_reader_put(&s->chunks, rd);
	return r;
}

int store_chunk_has(struct store *s, MDB_txn *meta, const struct digest *d, uint32_t len)
{
	MDB_val k = digest_key(d), v;
	int r = -ENOENT;

	/* The length says where it is unless it was compressed. */
	if (len + HEAD > SMALL_MAX)
		r = big_has(s, d);
	if (r == -ENOENT)
		r = store_tx_get(s, meta, DB_SMALL, &k, &v);
	if (r == -ENOENT && len + HEAD <= SMALL_MAX)
		r = big_has(s, d);
	return r;
}

/* ---- putting ---- */

static int item_encode(struct item *it, const struct store_chunk *c, unsigned flags)
{
	size_t cap = ZSTD_compressBound(c->len), n;

	*it = (struct item){.c = c, .data = c->data, .len = c->len};
	if (!(flags & PACKED) || c->len < 64)
		return 0;
	it->owned = malloc(cap);
	if (!it->owned)
		return -ENOMEM;
	n = ZSTD_compress(it->owned, cap, c->data, c->len, 1);
	if (ZSTD_isError(n) || n > c->len - c->len / 8)
		return 0;
	it->data = it->owned;
	it->len = n;
	it->codec = CODEC_ZSTD;
	return 0;
}

int store_chunk_pack(const void *raw, size_t len, uint8_t **ret, size_t *ret_len)
{
	struct store_chunk c = {.data = raw, .len = len};
	struct item it;
	int r = item_encode(&it, &c, PACKED);

	*ret = NULL;
	*ret_len = HEAD + it.len;
	if (r == 0 && it.codec == CODEC_ZSTD) {
		*ret = malloc(*ret_len);
		r = *ret ? 0 : -ENOMEM;
	}
	if (r == 0 && *ret) {
		head_write(*ret, it.codec, len);
		memcpy(*ret + HEAD, it.data, it.len);
	}
	free(it.owned);
	return r;
}

/* -EEXIST is no error: equal content is kept once (S3). */
static int item_put(MDB_txn *t, MDB_dbi db, struct item *it)
{
	MDB_val k = digest_key(&it->c->digest);
	MDB_val v = {HEAD + it->len, NULL};
	int r = store_lm_err(mdb_put(t, db, &k, &v, MDB_NOOVERWRITE | MDB_RESERVE));

	if (r < 0)
		return r == -EEXIST ? 0 : r;
	head_write(v.mv_data, it->codec, it->c->len);
	memcpy((uint8_t *)v.mv_data + HEAD, it->data, it->len);
	it->added = true;
	return 0;
}

int store_chunk_put_small(struct store *s, MDB_txn *meta, const struct digest *d, const void *data,
			  size_t len)
{
	struct store_chunk c = {data, len, *d};
	struct item it = {.c = &c, .data = data, .len = len};
	int r;

	static_assert(STORE_SMALL + HEAD == SMALL_MAX, "one page");
	store_seen_note(s, d);
	r = store_chunk_has(s, meta, d, (uint32_t)len);
	if (r == -ENOENT)
		r = item_put(meta, s->db[DB_SMALL], &it);
	return r < 0 ? r : it.added;
}

int64_t store_chunk_room(size_t len)
{
	return (int64_t)(HEAD + DIGEST_LEN + len);
}

static int items_write(struct store *s, struct making *mk, struct item *items, size_t n, bool small)
{
	cleanup_tx MDB_txn *t = NULL;
	MDB_dbi db = small ? s->db[DB_SMALL] : s->chunk_db;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		if ((items[i].len + HEAD <= SMALL_MAX) != small)
			continue;
		if (!t)
			r = small ? store_tx_begin(s, &t)
				  : store_lm_err(mdb_txn_begin(s->chunks.env, NULL, 0, &t));
		if (r == 0)
			r = item_put(t, db, &items[i]);
	}
	if (r < 0 || !t)
		return r;
	if (!small)
		making_commits(mk);
	r = store_tx_commit(s, &t);
	if (!small)
		making_committed(mk);
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (!items[i].added || (items[i].len + HEAD <= SMALL_MAX) != small)
			continue;
		store_fresh_add(s, &items[i].c->digest, (uint32_t)items[i].c->len);
		store_written_add(s, store_chunk_room(items[i].len));
	}
	return r;
}

/* Take chunks from @at on until a transaction is full: *@ret_took of them, *@ret_n to be written. */
static int window_fill(struct store *s, struct making *mk, size_t at, unsigned flags,
		       struct item *items, size_t *ret_n, size_t *ret_took)
{
	cleanup_rd struct store_rd rd = {0};
	const struct store_chunk *c = mk->c + at;
	size_t bytes = 0, k = 0, i;
	int r = making_want(mk, at); /* most of the waiting, before anything is held */

	if (r == 0)
		r = store_rd_begin(s, &rd);
	for (i = 0; r == 0 && i < mk->n - at && bytes < WINDOW; i++) {
		r = making_want(mk, at + i);
		if (r < 0 || c[i].len == 0)
			continue;
		/* before looking: what a collector passes over from now on it leaves there */
		store_seen_note(s, &c[i].digest);
		r = store_chunk_has(s, rd.r->txn, &c[i].digest, (uint32_t)c[i].len);
		if (r != -ENOENT)
			continue;
		r = item_encode(&items[k++], &c[i], flags);
		bytes += c[i].len;
	}
	*ret_n = k;
	*ret_took = i;
	return r;
}

static int put_all(struct store *s, struct making *mk, unsigned flags, struct item *items)
{
	size_t at = 0;
	int r = 0;

	while (r == 0 && at < mk->n) {
		size_t k, took;

		r = window_fill(s, mk, at, flags, items, &k, &took);
		if (r == 0)
			r = items_write(s, mk, items, k, false);
		if (r == 0)
			r = items_write(s, mk, items, k, true);
		for (size_t i = 0; i < k; i++)
			free(items[i].owned);
		at += took;
		if (r == 0)
			making_written(mk, at);
	}
	return r;
}

int store_chunk_digest(struct store *s, const void *data, size_t len, struct digest *ret)
{
	int r = digest_of(data, len, ret);

	if (r == 0)
		proofs_note(s->proofs, ret, data, len);
	return r;
}

static int hash_all(struct store *s, struct store_chunk *chunks, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int r;

		if (chunks[i].len == 0 || chunks[i].len > STORE_BLOCK)
			return -EINVAL;
		r = store_chunk_digest(s, chunks[i].data, chunks[i].len, &chunks[i].digest);
		if (r < 0)
			return r;
	}
	return 0;
}

static int put(struct store *s, struct store_chunk *chunks, size_t n, unsigned flags,
	       const struct store_making *m)
{
	cleanup_free struct item *items = calloc(n ? n : 1, sizeof(*items));
	struct making mk;
	int r = s->rdonly ? -EROFS : items ? store_seen_open(s) : -ENOMEM;

	if (r == 0)
		r = making_begin(&mk, s, chunks, n, m, flags & HASHED);
	if (r < 0)
		return r;
	r = put_all(s, &mk, flags, items);
	making_end(&mk);
	return r;
}

int store_chunks_put(struct store *s, struct store_chunk *chunks, size_t n)
{
	return put(s, chunks, n, 0, NULL);
}

int store_chunks_put_making(struct store *s, struct store_chunk *chunks, size_t n,
			    const struct store_making *m)
{
	return put(s, chunks, n, 0, m);
}

/* A collector that looked at the holds before ours has let go of the meta writer lock when we get it,
 * and has deleted what it would; the next one sees them. */
static int hold_barrier(struct store *s)
{
	cleanup_tx MDB_txn *t = NULL;

	return store_tx_begin(s, &t);
}

int store_chunks_put_held(struct store *s, struct store_chunk *chunks, size_t n)
{
	size_t held = 0;
	int r = s->rdonly ? -EROFS : hash_all(s, chunks, n);

	for (; r == 0 && held < n; held += r == 0)
		r = store_chunk_hold(s, &chunks[held].digest);
	if (r == 0)
		r = hold_barrier(s);
	if (r == 0)
		r = put(s, chunks, n, HASHED, NULL);
	while (r < 0 && held)
		store_chunk_unhold(s, &chunks[--held].digest);
	return r;
}

int store_chunks_put_packed(struct store *s, struct store_chunk *chunks, size_t n)
{
	return put(s, chunks, n, PACKED, NULL);
}

/* ---- getting ---- */

/*
 * Where the chunk map begins, so that an address in it becomes a file offset. A value with pages of
 * its own follows the page's header, whose first word is the page's number. Asked once: the page
 * may have to come from the disk. It may be damaged, too: what the file holds there must be what the map does.
 */
static int find_base(int fd, size_t psize, uintptr_t page, uintptr_t *ret)
{
	uint8_t there[PAGE_HEAD + BASE_PROOF];
	uint64_t pgno = 0;
	int r = 0;

	GUARD_BEGIN(g)
	memcpy(&pgno, (const void *)page, sizeof(pgno));
	if (page % psize || pgno >= page / psize ||
	    pread(fd, there, sizeof(there), (off_t)(pgno * psize)) != (ssize_t)sizeof(there) ||
	    memcmp(there, (const void *)page, sizeof(there)) != 0)
		r = -EBADMSG;
	else
		*ret = page - pgno * psize;
	GUARD_END(g, r);
	return r;
}

static uintptr_t map_base(struct store *s, const MDB_val *v)
{
	uintptr_t base = __atomic_load_n(&s->chunk_base, __ATOMIC_RELAXED);
	MDB_stat st;
	int fd;

	if (base)
		return base;
	if (mdb_env_stat(s->chunks.env, &st) || mdb_env_get_fd(s->chunks.env, &fd) ||
	    find_base(fd, st.ms_psize, (uintptr_t)v->mv_data - PAGE_HEAD, &base) < 0)
		return 0;
	__atomic_store_n(&s->chunk_base, base, __ATOMIC_RELAXED);
	return base;
}

/*
 * The stored bytes of a value: header to @head, the rest to @buf. Through the map every 4 KiB would
 * be a fault and a disk read of its own (ten times slower when cold), and a bad sector a SIGBUS;
 * pread has neither. The read transaction must stay open until this returns.
 */
static int fetch(struct store *s, const MDB_val *v, uint8_t head[static HEAD], void *buf,
		 size_t cap)
{
	size_t n = v->mv_size - HEAD;
	struct iovec iov[2] = {{head, HEAD}, {buf, n}};
	uintptr_t base;
	ssize_t got;
	int fd;

	if (v->mv_size <= HEAD || n > cap)
		return -EBADMSG;
	base = v->mv_size > SMALL_MAX ? map_base(s, v) : 0;
	if (!base || mdb_env_get_fd(s->chunks.env, &fd)) {
		int r = 0;

		GUARD_BEGIN(g)
		memcpy(head, v->mv_data, HEAD);
		memcpy(buf, (const uint8_t *)v->mv_data + HEAD, n);
		GUARD_END(g, r);
		return r;
	}
	do
		got = preadv(fd, iov, 2, (off_t)((uintptr_t)v->mv_data - base));
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno != EINVAL) /* an address before the map: of a damaged page */
		return ret_nerrno();
	return got >= 0 && (size_t)got == v->mv_size ? 0 : -EBADMSG;
}

/* @n stored bytes in @buf become @raw bytes in @buf. */
static int unpack(void **dctx, void *buf, size_t n, size_t cap, size_t raw)
{
	cleanup_free void *tmp = malloc(n);
	size_t k;

	if (!*dctx)
		*dctx = ZSTD_createDCtx();
	if (!tmp || !*dctx)
		return -ENOMEM;
	memcpy(tmp, buf, n);
	k = ZSTD_decompressDCtx(*dctx, buf, cap, tmp, n);
	return ZSTD_isError(k) || k != raw ? -EBADMSG : 0;
}

static ssize_t chunk_read(struct store *s, struct store_reader *rd, const MDB_val *v, void *buf,
			  size_t cap)
{
	uint8_t head[HEAD];
	size_t raw;
	int r = fetch(s, v, head, buf, cap);

	if (r < 0)
		return r;
	raw = store_chunk_raw(head);
	if (raw > cap || (head[0] == CODEC_RAW && raw != v->mv_size - HEAD))
		return -EBADMSG;
	if (head[0] == CODEC_ZSTD)
		r = unpack(&rd->dctx, buf, v->mv_size - HEAD, cap, raw);
	else if (head[0] != CODEC_RAW)
		r = -EBADMSG;
	return r < 0 ? r : (ssize_t)raw;
}

/* S4: no bytes are served that do not match their digest. Damage is what the digest says it is. */
static int check(struct store *s, const struct digest *d, const void *raw, size_t n)
{
	struct proof x;
	struct digest is;
	int r;

	if (n >= PROOF_MIN && proofs_find(s->proofs, d, &x) && x.len == n &&
	    proof_fits(s->proofs, &x, 0, raw, n))
		return 0;
	r = digest_of(raw, n, &is);
	if (r == 0 && memcmp(is.b, d->b, DIGEST_LEN) != 0)
		r = -EBADMSG;
	if (r == 0)
		proofs_note(s->proofs, d, raw, n);
	return r;
}

ssize_t store_chunk_get(struct store *s, const struct digest *d, void *buf, size_t cap)
{
	struct store_pool *pool = &s->chunks;
	MDB_val k = digest_key(d), v;
	struct store_reader *rd;
	ssize_t n;
	int r;

	if (cap < STORE_BLOCK)
		return -EINVAL;
	r = store_reader_get(pool, &rd);
	if (r < 0)
		return r;
	r = store_lm_get(rd->txn, s->chunk_db, &k, &v);
	if (r == -ENOENT) {
		store_reader_put(pool, rd);
		pool = &s->meta;
		r = store_reader_get(pool, &rd);
		if (r < 0)
			return r;
		r = store_tx_get(s, rd->txn, DB_SMALL, &k, &v);
	}
	n = r < 0 ? r : chunk_read(s, rd, &v, buf, cap);
	store_reader_put(pool, rd);
	if (n < 0)
		return n;
	r = check(s, d, buf, (size_t)n);
	return r < 0 ? r : n;
}

/* Pages of a value that is not compressed. Its size says so: a compressed one is smaller. */
static int fetch_pages(struct store *s, const struct proof *x, size_t off, void *buf, size_t n)
{
	MDB_val k = digest_key(&x->of), v;
	struct store_reader *rd;
	uintptr_t base;
	ssize_t got = -1;
	int fd, r = store_reader_get(&s->chunks, &rd);

	if (r < 0)
		return r;
	r = store_lm_get(rd->txn, s->chunk_db, &k, &v);
	base = r == 0 && v.mv_size == HEAD + x->len ? map_base(s, &v) : 0;
	if (base && mdb_env_get_fd(s->chunks.env, &fd) == 0)
		got = pread(fd, buf, n, (off_t)((uintptr_t)v.mv_data - base + HEAD + off));
	store_reader_put(&s->chunks, rd);
	return got >= 0 && (size_t)got == n ? 0 : -EAGAIN;
}

int store_chunk_get_part(struct store *s, const struct digest *d, size_t off, void *buf, size_t n,
			 size_t *ret_n)
{
	size_t first = off / PROOF_PAGE, start = first * PROOF_PAGE, end;
	cleanup_free uint8_t *tmp = NULL; /* unless whole pages are asked for */
	uint8_t *to;
	struct proof x;
	int r;

	if (!proofs_find(s->proofs, d, &x) || off >= x.len)
		return -EAGAIN;
	n = n < x.len - off ? n : x.len - off;
	end = (off + n + PROOF_PAGE - 1) / PROOF_PAGE * PROOF_PAGE;
	end = end < x.len ? end : x.len;
	if (start != off || end != off + n) {
		tmp = malloc(end - start);
		if (!tmp)
			return -ENOMEM;
	}
	to = tmp ? tmp : buf;
	r = fetch_pages(s, &x, start, to, end - start);
	if (r < 0 || !proof_fits(s->proofs, &x, first, to, end - start))
		return -EAGAIN;
	if (tmp)
		memcpy(buf, tmp + (off - start), n);
	*ret_n = n;
	return 0;
}

int store_chunk_check(const struct digest *d, const void *stored, size_t n, void **dctx)
{
	cleanup_free uint8_t *raw = NULL;
	const uint8_t *p = stored, *bytes = p + HEAD;
	struct digest is;
	size_t len;
	int r = 0;

	if (n <= HEAD || n > HEAD + STORE_BLOCK)
		return -EBADMSG;
	len = store_chunk_raw(p);
	if (len == 0 || len > STORE_BLOCK || p[0] > CODEC_ZSTD ||
	    (p[0] == CODEC_RAW && len != n - HEAD))
		return -EBADMSG;
	if (p[0] == CODEC_ZSTD) {
		raw = malloc(STORE_BLOCK);
		if (!raw)
			return -ENOMEM;
		memcpy(raw, bytes, n - HEAD);
		r = unpack(dctx, raw, n - HEAD, STORE_BLOCK, len);
		bytes = raw;
	}
	if (r == 0)
		r = digest_of(bytes, len, &is);
	return r == 0 && memcmp(is.b, d->b, DIGEST_LEN) != 0 ? -EBADMSG : r;
}

void store_chunk_check_end(void *dctx)
{
	ZSTD_freeDCtx(dctx);
}
