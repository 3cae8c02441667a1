/* The bytes of every chunk, and whose they are when they are wrong. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "store/fsck_internal.h"

#define PORTION \
	(256u   \
	 << 20) /* bytes read under one snapshot: what is freed meanwhile can be used again after */

/* ---- is it there? ---- */

static int look(struct pages *p, const struct pages_db *db, const struct digest *d, unsigned flags,
		MDB_val *v)
{
	MDB_val key = {DIGEST_LEN, (void *)(uintptr_t)d->b}, k;
	struct pages_pos pos;
	int r = pages_find(p, db, &key, flags, &pos, &k, v);

	if (r == 0 && (k.mv_size != DIGEST_LEN || memcmp(k.mv_data, d->b, DIGEST_LEN) != 0))
		return -ENOENT;
	return r;
}

int fsck_chunk_there(struct fsck *f, const struct digest *d, uint32_t len)
{
	struct pages *p = f->chunks;
	enum store_db db = (enum store_db)DB_CHUNKS;
	MDB_val v;
	int r = f->have[DB_CHUNKS] ? look(p, &f->db[db], d, PAGES_SHALLOW, &v) : -EBADMSG;
	int first = r;

	if (r < 0 && f->have[DB_SMALL]) {
		p = f->meta;
		db = DB_SMALL;
		r = look(p, &f->db[db], d, PAGES_SHALLOW, &v);
	}
	/* A damaged page may hold it: what is wrong is told of when that is read. */
	if (r < 0)
		return r == -EBADMSG || first == -EBADMSG ? 0 : r;
	if (v.mv_size == len + STORE_CHUNK_HEAD)
		return 0;
	r = look(p, &f->db[db], d, 0, &v);
	if (r == 0 && v.mv_size > STORE_CHUNK_HEAD)
		return store_chunk_raw(v.mv_data) == len ? 0 : -EBADMSG;
	return r == -EBADMSG ? 0 : r;
}

/* ---- are its bytes what its name says? ---- */

static int check_one(struct fsck *f, const struct store_entry *e, void **dctx)
{
	struct digest d = e->key.id;
	int r = store_chunk_check(&d, e->chunk.stored, e->chunk.n, dctx);

	f->sum.chunks++;
	f->sum.bytes += e->chunk.n;
	return r == -EBADMSG ? buf_put(&f->bad_chunks, &d, sizeof(d)) : r;
}

struct portion {
	struct fsck *f;
	struct digest next;
	uint64_t bytes, done, total;
	bool more;
	void *dctx;
};

static int on_chunk(void *arg, const MDB_val *k, const MDB_val *v, unsigned flags)
{
	struct portion *p = arg;
	struct store_entry e;
	int r;

	(void)flags;
	if (store_entry_decode((enum store_db)DB_CHUNKS, k, v, &e) < 0)
		return 0; /* told of when the keys were looked at */
	if (p->bytes >= PORTION) {
		p->next = e.key.id;
		p->more = true;
		return 1;
	}
	p->bytes += v->mv_size;
	r = check_one(p->f, &e, &p->dctx);
	p->done++;
	return r ? r : fsck_progress(p->f, "chunk bytes", p->done, p->total);
}

/* Pages were told of by the walk that looked at all keys; the pages of a value are read here only. */
static int on_bad(void *arg, uint64_t pgno, const char *what, const MDB_val *lo, const MDB_val *hi)
{
	struct portion *p = arg;
	struct digest d;

	(void)pgno;
	(void)what;
	if (!lo->mv_size || lo->mv_data != hi->mv_data || lo->mv_size != DIGEST_LEN)
		return 0;
	memcpy(d.b, lo->mv_data, DIGEST_LEN);
	return buf_put(&p->f->bad_chunks, &d, sizeof(d));
}

/* One portion under a snapshot of its own. */
static int one_portion(struct portion *p)
{
	MDB_val from = {DIGEST_LEN, p->next.b};
	struct pages_cb cb = {on_chunk, on_bad, p};
	struct pages_snap s = {0};
	struct digest at = p->next;
	uint64_t txn[2];
	int r = -EAGAIN;

	for (int tries = 0; tries < 100 && r == -EAGAIN; tries++) {
		r = fsck_pin_renew(&p->f->pin, txn);
		if (r == 0)
			r = pages_begin(p->f->chunks, txn[1], &s);
	}
	if (r < 0)
		return r;
	from.mv_data = at.b;
	p->bytes = 0;
	p->more = false;
	p->total = s.main.entries;
	r = pages_walk(p->f->chunks, &s.main, &from, 0, &cb);
	return r == 1 && p->more ? 0 : r;
}

static int on_small(struct fsck *f, const struct store_entry *e)
{
	return f->o->flags & STORE_FSCK_QUICK ? 0 : check_one(f, e, &f->dctx);
}

static int no_fn(struct fsck *f, const struct store_entry *e)
{
	(void)e;
	f->sum.chunks += (f->o->flags & STORE_FSCK_QUICK) != 0;
	return 0;
}

int fsck_chunk_keys(struct fsck *f)
{
	int r = fsck_records(f, DB_SMALL, on_small);

	return r == 0 ? fsck_records(f, (enum store_db)DB_CHUNKS, no_fn) : r;
}

/* ---- whose? ---- */

struct whose {
	struct fsck *f;
	uint8_t *told; /* by place in bad_chunks */
};

static int by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, DIGEST_LEN);
}

static int tell_one(struct whose *w, const struct store_entry *e, const struct digest *d)
{
	const struct buf *bad = &w->f->bad_chunks;
	const uint8_t *hit = bsearch(d->b, bad->data, bad->len / DIGEST_LEN, DIGEST_LEN, by_bytes);
	struct fsck_at at = {e->db, e->key, e->key.ino};
	char hex[DIGEST_LEN * 2 + 1];

	if (!hit)
		return 0;
	w->told[(size_t)(hit - bad->data) / DIGEST_LEN] = 1;
	digest_hex(d, hex);
	return fsck_tell(
		w->f, STORE_FINDING_DAMAGE, "chunk", "chunks", &at,
		"bytes of the file are damaged: chunk %.16s does not match its digest (inode "
		"%llu, layer %llu)",
		hex, (unsigned long long)e->key.ino, (unsigned long long)e->key.layer);
}

static int whose_record(void *arg, const MDB_val *k, const MDB_val *v, unsigned flags)
{
	struct whose *w = arg;
	enum store_db db = w->f->whose_db;
	MDB_val bare = *v;
	struct store_entry e;
	int r = 0;

	(void)flags;
	if (store_sum_strip(db, k, &bare) < 0 || store_entry_decode(db, k, &bare, &e) < 0)
		return 0;
	if (!e.gone && db == DB_INODES && e.inode.content == REC_CHUNK)
		r = tell_one(w, &e, &e.inode.chunk);
	if (!e.gone && db == DB_EXTENTS && e.extent.len)
		r = tell_one(w, &e, &e.extent.chunk);
	store_entry_release(&e);
	return r;
}

static int tell_unused(struct fsck *f, const uint8_t *told)
{
	int r = 0;

	for (size_t i = 0; i < f->bad_chunks.len / DIGEST_LEN && r == 0; i++) {
		char hex[DIGEST_LEN * 2 + 1];
		struct digest d;

		if (told[i])
			continue;
		memcpy(d.b, f->bad_chunks.data + i * DIGEST_LEN, DIGEST_LEN);
		digest_hex(&d, hex);
		r = buf_put(&f->unused_chunks, &d, sizeof(d));
		if (r == 0)
			r = fsck_tell(f, STORE_FINDING_REPAIRABLE, "unused-chunk", "chunks", NULL,
				      "chunk %.16s does not match its digest; no file has it", hex);
	}
	return r;
}

static int tell_bad(struct fsck *f)
{
	cleanup_free uint8_t *told = calloc(f->bad_chunks.len / DIGEST_LEN + 1, 1);
	static const enum store_db dbs[] = {DB_INODES, DB_EXTENTS};
	struct whose w = {f, told};
	struct pages_cb cb = {whose_record, NULL, &w};
	int r = told ? 0 : -ENOMEM;

	if (r == 0)
		qsort(f->bad_chunks.data, f->bad_chunks.len / DIGEST_LEN, DIGEST_LEN, by_bytes);
	for (size_t i = 0; i < ARRAY_SIZE(dbs) && r == 0; i++) {
		f->whose_db = dbs[i];
		if (f->have[dbs[i]])
			r = pages_walk(f->meta, &f->db[dbs[i]], NULL, 0, &cb);
	}
	return r == 0 ? tell_unused(f, told) : r;
}

int fsck_chunks(struct fsck *f)
{
	struct portion p = {.f = f, .more = true};
	int r = 0;

	if (!(f->o->flags & STORE_FSCK_QUICK) && f->have[DB_CHUNKS])
		while (r == 0 && p.more)
			r = one_portion(&p);
	store_chunk_check_end(p.dctx);
	return r;
}

int fsck_chunk_owners(struct fsck *f)
{
	return f->bad_chunks.len ? tell_bad(f) : 0;
}
