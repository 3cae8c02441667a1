/*
 * What is at rest, compressed: the write path stores bytes as they are, because compressing costs many times what hashing does.
 *
 * The value of a chunk is replaced by another spelling of the same bytes, so nothing that names it changes. One that
 * then fits a page moves to where such lie (chunk.c): there first, and when that is on the disk it goes here. Who
 * looks for a chunk looks here and then there, each time at what is committed, and finds it at every moment.
 * Only a collector replaces or removes chunks, and there is one (gc.lock).
 */
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "store/codec.h"
#include "store/gc.h"
#include "store/guard.h"

#define BATCH_N 128        /* in one write transaction, */
#define BATCH   (2u << 20) /* and bytes before */
#define LEAST   512        /* bytes that are worth it */
#define PROBE   4000       /* of a chunk: what begins with noise is taken for noise, and not read */
#define PAGE    4096

struct packed {
	struct digest d;
	uint32_t was;
	uint8_t *value; /* owned; NULL: it stays as it is */
	size_t len;
};

struct pack {
	struct gc *g;
	struct gc_walk walk;
	struct gc_file file;
	struct packed v[BATCH_N];
	size_t n, bytes;
	uint8_t raw[STORE_BLOCK], probe[PROBE];
};

/* ---- what is worth it ---- */

static size_t pages(const struct pack *x, size_t value)
{
	return (GC_PAGE_HEAD - 1 + value) / x->file.psize + 1;
}

/* Of what has pages of its own fewer of them count; in a page that is shared bytes do. */
static bool saves(const struct pack *x, size_t was, size_t is)
{
	if (is > was - was / 8)
		return false;
	return x->walk.small || pages(x, is) < pages(x, was);
}

static bool probe(struct pack *x, const MDB_val *v)
{
	uint8_t out[ZSTD_COMPRESSBOUND(PROBE)], head[STORE_CHUNK_HEAD];
	size_t n = v->mv_size - STORE_CHUNK_HEAD, k;
	int r = 0;

	n = n < PROBE ? n : PROBE;
	GUARD_BEGIN(g)
	memcpy(head, v->mv_data, STORE_CHUNK_HEAD);
	memcpy(x->probe, (const uint8_t *)v->mv_data + STORE_CHUNK_HEAD, n);
	GUARD_END(g, r);
	if (r < 0 || !store_chunk_is_raw(head))
		return false;
	k = ZSTD_compress(out, sizeof(out), x->probe, n, 1);
	return !ZSTD_isError(k) && k <= n - n / 8;
}

/* ---- looking ---- */

static enum gc_walk_say see(void *arg, const uint8_t *digest, const MDB_val *v)
{
	struct pack *x = arg;

	if (v->mv_size < LEAST || v->mv_size > STORE_CHUNK_HEAD + STORE_BLOCK || !probe(x, v) ||
	    !gc_sound(&x->file, v))
		return GC_WALK_ON;
	x->v[x->n] = (struct packed){.was = (uint32_t)v->mv_size};
	memcpy(x->v[x->n++].d.b, digest, DIGEST_LEN);
	x->bytes += v->mv_size;
	return x->n == BATCH_N || x->bytes >= BATCH ? GC_WALK_FULL : GC_WALK_ON;
}

/* The next ones that seem worth it; 1 when there are more. */
static int look(struct pack *x)
{
	x->n = x->bytes = 0;
	return gc_walk(x->g, &x->walk, see, x);
}

/* The bytes are read with their digest looked at: damage is never spelled anew. */
static int encode(struct pack *x, struct packed *p)
{
	ssize_t n = store_chunk_get(x->g->s, &p->d, x->raw, sizeof(x->raw));
	int r;

	if (n < 0)
		return n == -EBADMSG || n == -ENOENT || n == -EIO ? 0 : (int)n;
	r = store_chunk_pack(x->raw, (size_t)n, &p->value, &p->len);
	if (r == 0 && p->value && !saves(x, p->was, p->len)) {
		free(p->value);
		p->value = NULL;
	}
	return r;
}

/* ---- replacing ---- */

static bool moves(const struct pack *x, const struct packed *p)
{
	return !x->walk.small && p->len <= STORE_SMALL + STORE_CHUNK_HEAD;
}

static int put_there(struct pack *x)
{
	cleanup_tx MDB_txn *t = NULL;
	struct store *s = x->g->s;
	int r = 0;

	for (size_t i = 0; r == 0 && i < x->n; i++) {
		struct packed *p = &x->v[i];
		MDB_val k = {DIGEST_LEN, p->d.b}, v = {p->len, p->value};

		if (!p->value || !moves(x, p))
			continue;
		if (!t)
			r = store_tx_begin(s, &t);
		if (r == 0)
			r = store_lm_err(mdb_put(t, s->db[DB_SMALL], &k, &v, MDB_NOOVERWRITE));
		if (r == -EEXIST)
			r = 0;
	}
	return r == 0 && t ? store_tx_commit(s, &t) : r;
}

static int put_here(struct pack *x, MDB_txn *t)
{
	MDB_dbi db = x->walk.small ? x->g->s->db[DB_SMALL] : x->g->s->chunk_db;
	int r = 0;

	for (size_t i = 0; r == 0 && i < x->n; i++) {
		struct packed *p = &x->v[i];
		MDB_val k = {DIGEST_LEN, p->d.b}, v = {p->len, p->value}, now;

		if (!p->value)
			continue;
		r = store_lm_err(mdb_get(t, db, &k, &now));
		if (r == 0 && moves(x, p))
			r = store_lm_err(mdb_del(t, db, &k, NULL));
		else if (r == 0)
			r = store_lm_err(mdb_put(t, db, &k, &v, 0));
		if (r == -ENOENT)
			r = 0;
	}
	return r;
}

static int replace(struct pack *x)
{
	cleanup_tx MDB_txn *t = NULL;
	struct store *s = x->g->s;
	int r = put_there(x);

	if (r == 0)
		r = x->walk.small ? store_tx_begin(s, &t)
				  : store_lm_err(mdb_txn_begin(s->chunks.env, NULL, 0, &t));
	if (r == 0)
		r = put_here(x, t);
	if (r == 0)
		r = store_tx_commit(s, &t);
	for (size_t i = 0; r == 0 && i < x->n; i++) {
		if (!x->v[i].value)
			continue;
		x->g->res->packed++;
		x->g->res->packed_from += x->v[i].was;
		x->g->res->packed_to += x->v[i].len;
	}
	return r;
}

static int batch(struct pack *x)
{
	size_t worth = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < x->n; i++) {
		r = encode(x, &x->v[i]);
		worth += x->v[i].value != NULL;
	}
	if (r == 0 && worth) {
		r = replace(x);
		gc_pause();
	}
	for (size_t i = 0; i < x->n; i++)
		free(x->v[i].value);
	return r;
}

static int pack_db(struct gc *g, bool small)
{
	struct pack *x = calloc(1, sizeof(*x));
	MDB_stat st;
	int r, more = 1;

	if (!x)
		return -ENOMEM;
	x->g = g;
	x->walk.small = small;
	r = gc_file_of(g->s, small, &x->file);
	if (r == 0)
		r = store_lm_err(mdb_env_stat(g->s->chunks.env, &st));
	while (r == 0 && more > 0) {
		r = gc_tell(g, STORE_GC_PACK, x->walk.done, small ? 0 : st.ms_entries);
		if (r == 0)
			more = look(x);
		if (r == 0)
			r = more < 0 ? more : batch(x);
	}
	free(x);
	return r;
}

int gc_pack(struct gc *g)
{
	int r = pack_db(g, false);

	if (r == 0)
		r = pack_db(g, true);
	/* It needs room before it makes some; a full disk has other worries. */
	if (err_no_room(r))
		r = 0;
	return r < 0 && r != -ECANCELED
		       ? diag_set(g->diag, r, "cannot compress chunks: %s", err_text(r))
		       : r;
}
