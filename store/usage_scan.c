/* What the records take and name, and what the chunks take. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "store/codec.h"
#include "store/usage_internal.h"

#define MEMORY ((size_t)64 << 20)
#define SCAN_N 4096 /* records or chunks in one read transaction */

/* ---- chunks that are named, by their digests' first eight bytes, open addressing ---- */

struct named {
	uint64_t tag; /* 0: empty */
	uint32_t set, len;
};

struct table {
	struct named *slot;
	size_t n, used;
	unsigned lo, hi; /* this pass: digests whose first byte is in [lo, hi) */
};

static struct named *slot_of(const struct table *t, uint64_t tag)
{
	size_t i = (tag * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & (t->n - 1);

	while (t->slot[i].tag && t->slot[i].tag != tag)
		i = (i + 1) & (t->n - 1);
	return &t->slot[i];
}

static uint64_t tag_of(const uint8_t *d)
{
	uint64_t v = key_get_be64(d);

	return v ? v : 1;
}

static int table_grow(struct table *t)
{
	struct table more = {.n = t->n ? t->n * 2 : 4096};

	more.slot = calloc(more.n, sizeof(*more.slot));
	if (!more.slot)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++)
		if (t->slot[i].tag)
			*slot_of(&more, t->slot[i].tag) = t->slot[i];
	free(t->slot);
	t->slot = more.slot;
	t->n = more.n;
	return 0;
}

static int name_chunk(struct usage *u, struct table *t, const struct digest *d, uint32_t len,
		      uint32_t set)
{
	struct named *s;

	if (d->b[0] < t->lo || d->b[0] >= t->hi)
		return 0;
	if (t->used >= t->n / 4 * 3) {
		int r = table_grow(t);

		if (r < 0)
			return r;
	}
	s = slot_of(t, tag_of(d->b));
	if (!s->tag) {
		*s = (struct named){.tag = tag_of(d->b), .set = set, .len = len};
		t->used++;
		return 0;
	}
	return usage_union(u, s->set, set, &s->set);
}

/* ---- a database in portions, each in a read transaction of its own ---- */

struct portions {
	struct usage *u;
	struct table *t;
	enum store_db db;
	bool count;    /* the sizes of records: in the first pass alone */
	size_t last;   /* place of the layer that was looked for last */
	struct key at; /* where it goes on */
	bool any;
	uint64_t done;
	int (*see)(struct portions *p, const MDB_val *k, const MDB_val *v);
};

/* 1 when there are more. */
static int see_some(struct portions *p, MDB_cursor *c)
{
	MDB_val k = key_val(&p->at), v;
	int r = store_cur_raw(c, &k, &v, p->at.len ? MDB_SET_RANGE : MDB_FIRST), n = 0, more;

	if (r == 0 && p->any && k.mv_size == p->at.len && !memcmp(k.mv_data, p->at.b, k.mv_size))
		r = store_cur_raw(c, &k, &v, MDB_NEXT);
	for (; r == 0 && n < SCAN_N; n++, r = store_cur_raw(c, &k, &v, MDB_NEXT)) {
		if (k.mv_size < 8 || k.mv_size > KEY_MAX)
			return -EBADMSG;
		p->any = true;
		p->at.len = k.mv_size;
		memcpy(p->at.b, k.mv_data, k.mv_size);
		more = p->see(p, &k, &v);
		if (more <= 0)
			return more;
		p->done++;
	}
	return r < 0 ? (r == -ENOENT ? 0 : r) : 1;
}

static int see_portion(struct portions *p, bool chunks)
{
	struct store *s = p->u->g.s;
	struct store_pool *pool = chunks ? &s->chunks : &s->meta;
	struct store_reader *rd;
	MDB_cursor *c;
	int r = store_reader_get(pool, &rd);

	if (r < 0)
		return r;
	r = gc_cursor(rd->txn, chunks ? s->chunk_db : s->db[p->db], &c);
	if (r == 0) {
		r = see_some(p, c);
		mdb_cursor_close(c);
	}
	store_reader_put(pool, rd);
	return r;
}

static int see_all(struct portions *p, bool chunks, const char *stage)
{
	int r;

	do {
		r = p->u->o->progress ? p->u->o->progress(p->u->o->arg, stage, p->done, 0) : 0;
		if (r == 0)
			r = see_portion(p, chunks);
	} while (r > 0);
	return r;
}

/* ---- records ---- */

/* Neighbours in a database are often of one layer. */
static uint32_t set_of_layer(struct portions *p, store_layer n)
{
	const struct gc *g = &p->u->g;
	const struct gc_layer *l;

	if (p->last < g->nlayers && g->layers[p->last].n == n)
		return p->u->of_layer[p->last];
	l = gc_layer_find(g, n);
	if (!l) /* made since; or erased since, and its records with it */
		return n >= g->next_layer ? p->u->other : 0;
	p->last = (size_t)(l - g->layers);
	return p->u->of_layer[p->last];
}

static int see_chunk_name(struct portions *p, uint32_t set, const MDB_val *k, const MDB_val *v)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	struct store_extent x = {0};
	MDB_val bare = *v;
	int r = store_sum_strip(p->db, k, &bare);

	if (r == 0 && bare.mv_size && p->db == DB_INODES) {
		r = rec_inode_decode(bare.mv_data, bare.mv_size, &rec);
		if (r == 0 && rec.content == REC_CHUNK) {
			x.chunk = rec.chunk;
			x.len = rec.chunk_len;
		}
	} else if (r == 0 && bare.mv_size) {
		r = store_extent_decode(&bare, &x);
	}
	if (r == -EBADMSG) {
		p->u->res->damaged += p->count;
		return 0;
	}
	return r == 0 && x.len ? name_chunk(p->u, p->t, &x.chunk, x.len, set) : r;
}

static int see_record(struct portions *p, const MDB_val *k, const MDB_val *v)
{
	bool journal = p->db == DB_JOURNAL;
	uint64_t end = key_get_be64(journal ? k->mv_data : (uint8_t *)k->mv_data + k->mv_size - 8);
	uint32_t set = set_of_layer(p, journal ? end : ~end);
	struct store_usage_size *n = usage_size(p->u, set);
	int r = 0;

	if (p->count) {
		n->records += !journal;
		n->record_bytes += k->mv_size + v->mv_size;
	}
	if (p->db == DB_INODES || p->db == DB_EXTENTS)
		r = see_chunk_name(p, set, k, v);
	return r < 0 ? r : 1;
}

static int see_records(struct usage *u, struct table *t, bool first)
{
	static const enum store_db dbs[] = {DB_INODES, DB_EXTENTS, DB_NAMES,
					    DB_XATTRS, DB_LINKS,   DB_JOURNAL};
	uint64_t done = 0;
	int r = 0;

	/* The first two name chunks; the others are only counted. */
	for (size_t i = 0; r == 0 && i < (first ? ARRAY_SIZE(dbs) : 2); i++) {
		struct portions p = {.u = u,
				     .t = t,
				     .db = dbs[i],
				     .count = first,
				     .done = done,
				     .see = see_record};

		r = see_all(&p, false, "records");
		done = p.done;
	}
	return r;
}

/* ---- chunks ---- */

static int see_chunk(struct portions *p, const MDB_val *k, const MDB_val *v)
{
	const struct named *s = NULL;
	struct store_usage_size *n;
	const uint8_t *d = k->mv_data;

	if (k->mv_size != DIGEST_LEN)
		return -EBADMSG;
	if (d[0] >= p->t->hi)
		return 0;
	if (p->t->n)
		s = slot_of(p->t, tag_of(d));
	n = usage_size(p->u, s && s->tag ? s->set : 0);
	n->chunks++;
	n->chunk_bytes += v->mv_size;
	/* The records tell what it holds: its own head would be a read of the disk for each. */
	if (s && s->tag && (size_t)s->len + STORE_CHUNK_HEAD > v->mv_size) {
		p->u->res->packed++;
		p->u->res->packed_bytes += v->mv_size;
		p->u->res->packed_raw += s->len;
	}
	return 1;
}

static int see_chunks(struct usage *u, struct table *t)
{
	int r = 0;

	for (int small = 0; r == 0 && small < 2; small++) {
		struct portions p = {.u = u, .t = t, .db = DB_SMALL, .see = see_chunk};

		p.at.len = DIGEST_LEN;
		p.at.b[0] = (uint8_t)t->lo;
		r = see_all(&p, !small, "chunks");
	}
	return r;
}

/* A table of more than the bound is made in passes, each for a part of the digests. */
static int passes(const struct usage *u, unsigned *ret)
{
	size_t memory = u->o->memory ? u->o->memory : MEMORY;
	struct store_stats st;
	uint64_t slots = 4096, n;
	int r = store_stats(u->g.s, &st);

	if (r < 0)
		return r;
	while (slots / 4 * 3 < st.chunks)
		slots *= 2;
	n = (slots * sizeof(struct named) + memory - 1) / memory;
	*ret = n > 256 ? 256 : (unsigned)n;
	return 0;
}

int usage_scan(struct usage *u)
{
	unsigned n;
	int r = passes(u, &n);

	for (unsigned i = 0; r == 0 && i < n; i++) {
		struct table t = {.lo = i * 256 / n, .hi = (i + 1) * 256 / n};

		r = see_records(u, &t, i == 0);
		if (r == 0)
			r = see_chunks(u, &t);
		free(t.slot);
	}
	return r;
}
