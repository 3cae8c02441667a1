/* Mark what records name, remove what none does. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "store/codec.h"
#include "store/gc.h"
#include "store/guard.h"

#define MEMORY   ((size_t)64 << 20)
#define SCAN_N   4096 /* records or chunks in one read transaction */
#define SWEEP_N  128  /* chunks in one write transaction */
#define SWEEP_US 4000 /* of work in one */

#define PAGE_LARGE 0x04 /* its flag */
#define PAGE_PROOF 64

/* ---- the table of digests that are named: their first eight bytes, open addressing ---- */

/* Two digests that begin alike are taken for one, which keeps garbage and removes nothing. */
struct marks {
	uint64_t *slot; /* 0: empty */
	size_t n, used, most;
	unsigned lo, hi; /* this pass: digests whose first byte is in [lo, hi) */
};

static uint64_t tag_of(const uint8_t *d)
{
	uint64_t v = key_get_be64(d);

	return v ? v : 1;
}

static size_t home_of(const struct marks *m, uint64_t tag)
{
	return (tag * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & (m->n - 1);
}

static void slot_put(struct marks *m, uint64_t tag)
{
	size_t i = home_of(m, tag);

	while (m->slot[i] && m->slot[i] != tag)
		i = (i + 1) & (m->n - 1);
	m->used += m->slot[i] == 0;
	m->slot[i] = tag;
}

static int marks_grow(struct marks *m)
{
	struct marks more = {.n = m->n ? m->n * 2 : 4096};

	more.slot = calloc(more.n, sizeof(*more.slot));
	if (!more.slot)
		return -ENOMEM;
	for (size_t i = 0; i < m->n; i++)
		if (m->slot[i])
			slot_put(&more, m->slot[i]);
	free(m->slot);
	m->slot = more.slot;
	m->n = more.n;
	return 0;
}

static int mark(struct marks *m, const uint8_t *d)
{
	if (d[0] < m->lo || d[0] >= m->hi)
		return 0;
	if (m->used >= m->n / 4 * 3) {
		int r = marks_grow(m);

		if (r < 0)
			return r;
	}
	slot_put(m, tag_of(d));
	return 0;
}

static bool marked(const struct marks *m, const uint8_t *d)
{
	uint64_t tag = tag_of(d);

	for (size_t i = m->n ? home_of(m, tag) : 0; m->n && m->slot[i]; i = (i + 1) & (m->n - 1))
		if (m->slot[i] == tag)
			return true;
	return false;
}

/* ---- marking ---- */

static int mark_inode(struct marks *m, const MDB_val *v)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	int r = v->mv_size ? rec_inode_decode(v->mv_data, v->mv_size, &rec) : 0;

	return r == 0 && rec.content == REC_CHUNK ? mark(m, rec.chunk.b) : r;
}

static int mark_extent(struct marks *m, const MDB_val *v)
{
	struct store_extent x = {0};
	int r = v->mv_size ? store_extent_decode(v, &x) : 0;

	return r == 0 && x.len ? mark(m, x.chunk.b) : r;
}

/* Where a scan goes on. */
struct place {
	struct key at;
	uint64_t done;
};

/* Some records from @p on; 1 when there are more. Each portion has a read transaction of its own, so that
 * freed pages are not kept from being used for long: a record that was there when the seen file was cleared
 * is there now, or what replaced it was noted. */
static int mark_some(struct gc *g, struct marks *m, enum store_db db, struct place *p)
{
	cleanup_rd struct store_rd rd = {0};
	MDB_cursor *c;
	MDB_val k = key_val(&p->at), v;
	int r = store_rd_begin(g->s, &rd), n = 0;

	if (r == 0)
		r = store_rd_cursor(&rd, db, &c);
	if (r < 0)
		return r;
	r = store_cur_raw(c, &k, &v, p->at.len ? MDB_SET_RANGE : MDB_FIRST);
	for (; r == 0 && n < SCAN_N; n++, r = store_cur_raw(c, &k, &v, MDB_NEXT)) {
		if (k.mv_size < 16 || k.mv_size > KEY_MAX)
			return -EBADMSG;
		if (g->o->dry_run &&
		    gc_layer_dead(g, ~key_get_be64((uint8_t *)k.mv_data + k.mv_size - 8)))
			continue;
		r = store_sum_strip(db, &k, &v);
		if (r == 0)
			r = db == DB_INODES ? mark_inode(m, &v) : mark_extent(m, &v);
		if (r < 0)
			return r;
	}
	p->done += (uint64_t)n;
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	p->at.len = k.mv_size;
	memcpy(p->at.b, k.mv_data, k.mv_size);
	return 1;
}

static int mark_all(struct gc *g, struct marks *m, uint64_t total)
{
	static const enum store_db dbs[] = {DB_EXTENTS, DB_INODES};
	uint64_t done = 0;

	for (size_t i = 0; i < ARRAY_SIZE(dbs); i++) {
		struct place p = {0};
		int r;

		do {
			r = gc_tell(g, STORE_GC_MARK, done + p.done, total);
			if (r == 0)
				r = mark_some(g, m, dbs[i], &p);
		} while (r > 0);
		if (r == -EBADMSG)
			return diag_set(
				g->diag, r,
				"a record of the store is damaged, and what it names cannot be "
				"told: no chunk was removed");
		if (r < 0)
			return r;
		done += p.done;
	}
	return 0;
}

/* ---- chunks, one after the other ---- */

static int walk_some(struct gc_walk *w, MDB_cursor *c,
		     enum gc_walk_say (*see)(void *arg, const uint8_t *digest, const MDB_val *v),
		     void *arg)
{
	MDB_val k = {DIGEST_LEN, w->next.b}, v;
	int r = store_cur_raw(c, &k, &v, MDB_SET_RANGE), n = 0;

	if (r == 0 && w->any && k.mv_size == DIGEST_LEN &&
	    !memcmp(k.mv_data, w->next.b, DIGEST_LEN))
		r = store_cur_raw(c, &k, &v, MDB_NEXT);
	for (; r == 0 && n < SCAN_N; n++, r = store_cur_raw(c, &k, &v, MDB_NEXT)) {
		enum gc_walk_say say;

		if (k.mv_size != DIGEST_LEN)
			return -EBADMSG;
		say = see(arg, k.mv_data, &v);
		if (say == GC_WALK_END)
			return 0;
		memcpy(w->next.b, k.mv_data, DIGEST_LEN);
		w->any = true;
		w->done++;
		if (say == GC_WALK_FULL)
			return 1;
	}
	return r < 0 ? (r == -ENOENT ? 0 : r) : 1;
}

int gc_walk(struct gc *g, struct gc_walk *w,
	    enum gc_walk_say (*see)(void *arg, const uint8_t *digest, const MDB_val *v), void *arg)
{
	struct store *s = g->s;
	struct store_pool *p = w->small ? &s->meta : &s->chunks;
	struct store_reader *rd;
	MDB_cursor *c;
	int r = store_reader_get(p, &rd);

	if (r < 0)
		return r;
	r = gc_cursor(rd->txn, w->small ? s->db[DB_SMALL] : s->chunk_db, &c);
	if (r == 0) {
		r = walk_some(w, c, see, arg);
		mdb_cursor_close(c);
	}
	store_reader_put(p, rd);
	return r;
}

/* ---- sweeping ---- */

struct sweep {
	struct gc *g;
	struct marks *m;
	struct gc_walk walk;
	struct gc_file file;

	struct digest dead[SWEEP_N]; /* to be removed, if they still are */
	uint32_t size[SWEEP_N];
	size_t ndead;
};

/*
 * LMDB frees the pages of a large value as the first one's header says. A damaged one would free the pages of
 * others: it must be the page that the file has there, and as many as the value takes. This also reads it from the
 * disk before the writer locks are held.
 */
bool gc_sound(const struct gc_file *f, const MDB_val *v)
{
	struct {
		uint64_t page;
		uint16_t pad, flags;
		uint32_t pages;
	} head;
	uint8_t there[GC_PAGE_HEAD + PAGE_PROOF];
	const uint8_t *page = (const uint8_t *)v->mv_data - GC_PAGE_HEAD;
	int r = 0;

	_Static_assert(sizeof(head) == GC_PAGE_HEAD, "LMDB's page header");
	if ((uintptr_t)page % f->psize) /* in its leaf */
		return true;
	GUARD_BEGIN(g)
	memcpy(&head, page, sizeof(head));
	if (head.flags != PAGE_LARGE ||
	    head.pages != (GC_PAGE_HEAD - 1 + v->mv_size) / f->psize + 1 ||
	    pread(f->fd, there, sizeof(there), (off_t)(head.page * f->psize)) !=
		    (ssize_t)sizeof(there) ||
	    memcmp(there, page, sizeof(there)) != 0)
		r = -EBADMSG;
	GUARD_END(g, r);
	return r == 0;
}

static void sweep_take(struct sweep *x, const uint8_t *digest, const MDB_val *v)
{
	if (!gc_sound(&x->file, v)) {
		x->g->res->damaged++;
		return;
	}
	memcpy(x->dead[x->ndead].b, digest, DIGEST_LEN);
	x->size[x->ndead++] = (uint32_t)v->mv_size;
}

/* Those without a mark go into the list. */
static enum gc_walk_say sweep_see(void *arg, const uint8_t *digest, const MDB_val *v)
{
	struct sweep *x = arg;

	if (digest[0] >= x->m->hi)
		return GC_WALK_END;
	if (marked(x->m, digest))
		x->g->res->live_chunks++;
	else
		sweep_take(x, digest, v);
	return x->ndead == SWEEP_N ? GC_WALK_FULL : GC_WALK_ON;
}

static int sweep_look(struct sweep *x)
{
	x->ndead = 0;
	return gc_walk(x->g, &x->walk, sweep_see, x);
}

/* With both writer locks held: nobody is between looking for a chunk and committing its name. */
static int sweep_delete(struct sweep *x, MDB_txn *t, MDB_dbi db, size_t *i, size_t *ret_n,
			uint64_t *ret_bytes)
{
	struct store *s = x->g->s;
	int64_t until = gc_clock_us() + SWEEP_US;
	struct store_holders h;
	int r = store_holders_load(s, &h);

	if (r < 0)
		return r;
	for (; r == 0 && *i < x->ndead; ++*i) {
		MDB_val k = {DIGEST_LEN, x->dead[*i].b};

		if (store_seen_has(s, &x->dead[*i]) || store_holders_have(&h, &x->dead[*i]))
			continue;
		/* On a full disk little at a time: each transaction needs the pages that those before it freed. */
		if (*ret_n && (gc_clock_us() > until || (x->g->enospc && *ret_n >= 4)))
			break;
		r = store_lm_err(mdb_del(t, db, &k, NULL));
		if (r == 0) {
			++*ret_n;
			*ret_bytes += x->size[*i];
		}
		if (r == -ENOENT)
			r = 0;
	}
	store_holders_release(&h);
	return r;
}

/* The chunk writer lock first: who puts chunks holds it while the disk works, and nobody else needs to wait
 * for that. */
static int sweep_batch(struct sweep *x, size_t *i)
{
	struct store *s = x->g->s;
	cleanup_tx MDB_txn *chunks = NULL, *meta = NULL;
	uint64_t bytes = 0;
	size_t n = 0;
	int r = 0;

	if (!x->walk.small)
		r = store_lm_err(mdb_txn_begin(s->chunks.env, NULL, 0, &chunks));
	if (r == 0)
		r = store_tx_begin(s, &meta);
	if (r == 0)
		r = sweep_delete(x, x->walk.small ? meta : chunks,
				 x->walk.small ? s->db[DB_SMALL] : s->chunk_db, i, &n, &bytes);
	if (r == 0 && n)
		r = store_tx_commit(s, x->walk.small ? &meta : &chunks);
	if (r == 0) {
		x->g->res->chunks += n;
		x->g->res->chunk_bytes += bytes;
	}
	return r;
}

static int sweep_dead(struct sweep *x)
{
	int r = 0;

	if (x->g->o->dry_run) {
		for (size_t i = 0; i < x->ndead; i++)
			x->g->res->chunk_bytes += x->size[i];
		x->g->res->chunks += x->ndead;
		return 0;
	}
	for (size_t i = 0; r == 0 && i < x->ndead;) {
		r = sweep_batch(x, &i);
		gc_pause();
	}
	return r;
}

int gc_file_of(struct store *s, bool small, struct gc_file *ret)
{
	MDB_env *env = small ? s->meta.env : s->chunks.env;
	MDB_stat st;
	int r = store_lm_err(mdb_env_get_fd(env, &ret->fd));

	if (r == 0)
		r = store_lm_err(mdb_env_stat(env, &st));
	if (r == 0)
		ret->psize = st.ms_psize;
	return r;
}

static int sweep_db(struct gc *g, struct marks *m, bool small, uint64_t before, uint64_t total,
		    uint64_t *ret_done)
{
	struct sweep *x = calloc(1, sizeof(*x));
	int r, more;

	if (!x)
		return -ENOMEM;
	*x = (struct sweep){.g = g, .m = m, .walk.small = small};
	x->walk.next.b[0] = (uint8_t)m->lo;
	r = gc_file_of(g->s, small, &x->file);
	while (r == 0) {
		r = gc_tell(g, STORE_GC_SWEEP, before + x->walk.done, total);
		more = r == 0 ? sweep_look(x) : r;
		r = more < 0 ? more : sweep_dead(x);
		if (more <= 0)
			break;
	}
	*ret_done = x->walk.done;
	free(x);
	return r;
}

/* ---- all ---- */

static int count(struct store *s, enum store_db db, uint64_t *ret)
{
	cleanup_rd struct store_rd rd = {0};
	MDB_stat st;
	int r = store_rd_begin(s, &rd);

	if (r == 0)
		r = store_lm_err(mdb_stat(rd.r->txn, s->db[db], &st));
	if (r == 0)
		*ret += st.ms_entries;
	return r;
}

static int count_all(struct gc *g, uint64_t *ret_records, uint64_t *ret_chunks)
{
	MDB_stat st;
	int r = count(g->s, DB_INODES, ret_records);

	if (r == 0)
		r = count(g->s, DB_EXTENTS, ret_records);
	if (r == 0)
		r = count(g->s, DB_SMALL, ret_chunks);
	if (r == 0)
		r = store_lm_err(mdb_env_stat(g->s->chunks.env, &st));
	if (r == 0)
		*ret_chunks += st.ms_entries;
	return r;
}

/* A table of more than the bound is made in passes over the records, each for a part of the digests. */
static unsigned passes(const struct gc *g, uint64_t chunks)
{
	size_t memory = g->o->memory ? g->o->memory : MEMORY;
	uint64_t slots = 4096, n;

	while (slots / 4 * 3 < chunks)
		slots *= 2;
	n = (slots * sizeof(uint64_t) + memory - 1) / memory;
	return n > 256 ? 256 : n ? (unsigned)n : 1;
}

int gc_chunks(struct gc *g)
{
	uint64_t records = 0, chunks = 0, done = 0, more;
	int r = count_all(g, &records, &chunks);
	unsigned n = passes(g, chunks);

	if (r == 0 && !g->o->dry_run)
		r = store_seen_begin(g->s);
	for (unsigned i = 0; r == 0 && i < n; i++) {
		struct marks m = {.lo = i * 256 / n, .hi = (i + 1) * 256 / n};

		r = mark_all(g, &m, records);
		for (int small = 0; r == 0 && small < 2; small++, done += more)
			r = sweep_db(g, &m, small, done, chunks, &more);
		free(m.slot);
	}
	return r < 0 ? diag_set(g->diag, r, "cannot remove chunks: %s", err_text(r)) : 0;
}
