/* Snapshots of what is dirty, and how it goes into the store. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fs/core/content_internal.h"

#define PUT_MAX   4096u /* chunks for one call of the store */
/* Of small chunks that go with the records: that saves a transaction, and two waits for the disk. More of them are put before, in
 * transactions whose memory is used again. */
#define SMALL_MAX (1u << 20)

struct snap_ent {
	uint64_t idx;
	struct blk *blk;
	uint32_t len; /* BLK_DATA: without trailing zeros; BLK_PART: the same once it was put */
	bool base;    /* block 0 of the old base, which has had no extent yet */
	bool same;    /* what is recorded stays */
	bool lost;    /* BLK_PART: given up, and @same or the damaged chunk as it was */
	bool put;     /* @digest is set and its chunk was in the store */
	bool kept;    /* BLK_PART: what it lies over is held, see snap_hold */
	struct digest digest;
};

struct content_snap {
	struct content *c;
	struct snap_ent *ent; /* in order of idx */
	size_t n;
	/* the content's fields at the time */
	uint64_t gen, size, valid, cut, units;
	enum rec_content base;
	struct blk *base_blk;
	bool pristine;
	struct hostsrc_id host_id;

	enum rec_content kind; /* what will be recorded */
	struct blk *new_base;  /* for it: REC_INLINE, REC_CHUNK */
	bool stored;           /* content_snap_store has run: this is a retry */
	bool with_records;     /* what is small is put by the batch */
};

/* ---- 1: taking ---- */

/* What the part lies over has no record any more once the flush is in the store, and is read from until content_snap_done says so.
 * Without room for the table of holds a collector of just that moment costs a reader an EIO. */
static void snap_hold(struct content_snap *sn)
{
	for (size_t i = 0; i < sn->n; i++) {
		struct snap_ent *e = &sn->ent[i];

		if (e->blk->kind == BLK_PART && !e->base)
			e->kept = store_chunk_hold(sn->c->env->store, &e->blk->digest) == 0;
	}
}

static void snap_free(struct content_snap *sn)
{
	for (size_t i = 0; i < sn->n; i++) {
		struct snap_ent *e = &sn->ent[i];

		if (e->kept)
			store_chunk_unhold(sn->c->env->store, &e->blk->digest);
		blk_unref(e->blk);
	}
	blk_unref(sn->base_blk);
	blk_unref(sn->new_base);
	free(sn->ent);
	free(sn);
}

/* Does all that is left of the file lie in block 0, and do we hold it? */
static bool snap_small(const struct content_snap *sn)
{
	bool have = sn->n > 0 && sn->ent[0].idx == 0;

	/* An extent of block 0 that stays in place keeps the file in extents: giving it up while
	 * readers still look for it in the view would show them a hole. */
	return sn->size <= BLOCK && sn->valid == 0 &&
	       (have || sn->base != REC_EXTENTS || sn->cut == 0);
}

static enum rec_content snap_kind(const struct content_snap *sn)
{
	const struct snap_ent *e = sn->n > 0 && sn->ent[0].idx == 0 ? sn->ent : NULL;

	if (sn->pristine)
		return REC_EMPTY;
	if (!snap_small(sn))
		return REC_EXTENTS;
	if (!e)
		return sn->cut == 0 || sn->base == REC_EXTENTS ? REC_EMPTY : sn->base;
	if (e->len == 0)
		return REC_EMPTY;
	return e->blk->kind == BLK_DATA && e->len <= REC_INLINE_MAX ? REC_INLINE : REC_CHUNK;
}

static void add_ent(struct content_snap *sn, uint64_t idx, struct blk *b, bool base)
{
	struct snap_ent *e = &sn->ent[sn->n++];

	*e = (struct snap_ent){.idx = idx, .blk = blk_ref(b), .len = b->len, .base = base};
	if (b->kind == BLK_DATA) {
		e->len = (uint32_t)blk_trim(b->data, b->len);
	} else if (b->kind == BLK_REF) {
		e->digest = b->digest;
		e->put = true;
	}
}

/* A base of one block turns into extents: block 0 needs one, unless it is changed or gone. */
static bool base_needs_extent(const struct content_snap *sn, const struct content *c)
{
	return sn->base_blk && sn->cut > 0 && sn->size > BLOCK && !blkmap_get(&c->map, 0);
}

static int snap_fill_locked(struct content_snap *sn, struct content *c)
{
	struct blk *b;

	sn->ent = calloc(c->map.count + 1, sizeof *sn->ent);
	if (!sn->ent)
		return -ENOMEM;
	sn->gen = atomic_load(&c->gen);
	sn->size = atomic_load(&c->size);
	sn->units = atomic_load(&c->units);
	sn->valid = c->valid;
	sn->cut = c->cut;
	sn->base = c->base;
	sn->base_blk = c->base_blk ? blk_ref(c->base_blk) : NULL;
	sn->pristine = c->pristine;
	sn->host_id = c->host_id;
	if (base_needs_extent(sn, c))
		add_ent(sn, 0, c->base_blk, true);
	for (uint64_t idx = 0; (b = blkmap_next(&c->map, idx, &idx)); idx++)
		add_ent(sn, idx, b, false);
	sn->kind = snap_kind(sn);
	c->cut_new = NO_CUT;
	c->snapping = true;
	return 0;
}

int content_snap_take(struct content *c, struct content_snap **ret)
{
	struct content_snap *sn = calloc(1, sizeof *sn);
	int r = -EBUSY;

	if (!sn)
		return -ENOMEM;
	sn->c = c;
	pthread_rwlock_wrlock(&c->lock);
	if (!c->snapping)
		r = snap_fill_locked(sn, c);
	pthread_rwlock_unlock(&c->lock);
	if (r < 0) {
		snap_free(sn);
		return r;
	}
	snap_hold(sn);
	atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
	*ret = sn;
	return 0;
}

/* ---- 2: storing ---- */

static bool is_new(const struct content_snap *sn, const struct snap_ent *e)
{
	return (e->blk->kind == BLK_DATA || e->blk->kind == BLK_PART) && e->len > 0 && !e->put &&
	       sn->kind != REC_INLINE && sn->kind != REC_EMPTY;
}

static bool goes_with_records(const struct content_snap *sn, const struct snap_ent *e)
{
	return sn->with_records && e->blk->kind == BLK_DATA && e->len <= STORE_SMALL &&
	       is_new(sn, e);
}

static bool needs_put(const struct content_snap *sn, const struct snap_ent *e)
{
	return is_new(sn, e) && !goes_with_records(sn, e);
}

/* What one call of the store puts. */
struct putting {
	struct content_env *env;
	struct store_chunk *chunks;
	struct put_ent *ents;
	size_t n;
};
struct put_ent {
	struct content_snap *sn;
	struct snap_ent *e;
	uint8_t *made; /* a block put together */
};

/* What was written is over bytes that nobody has any more: the block stays what it was, which is damaged, and who waits for the
 * file is told once the flush is through. Everything else is flushed. */
static void give_up(struct content_snap *sn, struct snap_ent *e)
{
	e->lost = true;
	e->digest = e->blk->digest;
	e->len = e->blk->low_len;
	e->put = true;
	/* A record is not made anew for what may not be there. */
	e->same = sn->base == REC_EXTENTS && !e->blk->held;
}

static void tell_lost(struct content_snap *sn)
{
	for (size_t i = 0; i < sn->n; i++) {
		if (!sn->ent[i].lost)
			continue;
		log_error("what was written to inode %" PRIu64 " at %" PRIu64
			  " is lost: the block that it is a "
			  "part of is damaged; run rattan fsck",
			  sn->c->ino, sn->ent[i].idx * BLOCK);
		atomic_store(&sn->c->lost, true);
	}
}

static int make_part(struct put_ent *p, struct store_chunk *c)
{
	struct content_env *env = p->sn->c->env;
	uint8_t *buf = cenv_buf_get(env);
	int r;

	if (!buf)
		return -ENOMEM;
	r = blk_part_whole(p->e->blk, buf, &p->e->len);
	if (r == -EIO) /* what is given up for it is lost, so a disk is asked twice */
		r = blk_part_whole(p->e->blk, buf, &p->e->len);
	if (r < 0 || p->e->len == 0) {
		cenv_buf_put(env, buf);
		/* Of a store that LMDB has given up nothing is known: opened anew it may have all of them. */
		if ((r != -EBADMSG && r != -ENOENT && r != -EIO) || store_broken(env->store))
			return r;
		give_up(p->sn, p->e);
		return 0;
	}
	p->made = buf;
	*c = (struct store_chunk){.data = buf, .len = p->e->len};
	return 0;
}

static int put_make(void *arg, size_t i, struct store_chunk *c)
{
	struct put_ent *p = &((struct putting *)arg)->ents[i];

	if (p->e->blk->kind == BLK_PART)
		return make_part(p, c);
	*c = (struct store_chunk){.data = p->e->blk->data, .len = p->e->len};
	return 0;
}

static void put_drop(void *arg, size_t i)
{
	struct putting *p = arg;

	cenv_buf_put(p->env, p->ents[i].made);
	p->ents[i].made = NULL;
}

static int put_flush(struct putting *p)
{
	const struct store_making m = {put_make, put_drop, p};
	int r = p->n ? store_chunks_put_making(p->env->store, p->chunks, p->n, &m) : 0;

	for (size_t i = 0; r == 0 && i < p->n; i++) {
		if (p->chunks[i].len == 0)
			continue;
		p->ents[i].e->digest = p->chunks[i].digest;
		p->ents[i].e->put = true;
	}
	p->n = 0;
	return r;
}

static int put_all(struct putting *p, struct content_snap **sn, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; r == 0 && k < sn[i]->n; k++) {
			if (!needs_put(sn[i], &sn[i]->ent[k]))
				continue;
			p->chunks[p->n] = (struct store_chunk){0};
			p->ents[p->n++] = (struct put_ent){.sn = sn[i], .e = &sn[i]->ent[k]};
			if (p->n == PUT_MAX)
				r = put_flush(p);
		}
	return r < 0 ? r : put_flush(p);
}

static int put_before(struct content_snap **sn, size_t n)
{
	struct putting p = {0};
	size_t want = 0;
	int r = -ENOMEM;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < sn[i]->n; k++)
			want += needs_put(sn[i], &sn[i]->ent[k]);
	if (want == 0)
		return 0;
	if (want > PUT_MAX)
		want = PUT_MAX;
	p.env = sn[0]->c->env;
	p.chunks = calloc(want, sizeof *p.chunks);
	p.ents = calloc(want, sizeof *p.ents);
	if (p.chunks && p.ents)
		r = put_all(&p, sn, n);
	free(p.chunks);
	free(p.ents);
	return r;
}

int content_snaps_put(struct content_snap **sn, size_t n)
{
	size_t small = 0;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < sn[i]->n; k++) {
			const struct snap_ent *e = &sn[i]->ent[k];

			small += e->blk->kind == BLK_DATA && e->len <= STORE_SMALL &&
						 is_new(sn[i], e)
					 ? e->len
					 : 0;
		}
	for (size_t i = 0; i < n; i++)
		sn[i]->with_records = small <= SMALL_MAX;
	return put_before(sn, n);
}

static int put_with_records(struct content_snap *sn, struct store_batch *b)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < sn->n; i++) {
		struct snap_ent *e = &sn->ent[i];

		if (!goes_with_records(sn, e))
			continue;
		r = store_batch_chunk(b, e->blk->data, e->len, &e->digest);
		e->put = r == 0;
	}
	return r;
}

/* A chunk that is only referred to: if it was collected, put it again from the cache. One that is nowhere is lost, which is nothing
 * that a flush could mend. */
static int renew_ref(struct content_snap *sn, const struct snap_ent *e)
{
	struct content_env *env = sn->c->env;
	uint8_t *tmp = cenv_buf_get(env);
	struct store_chunk chunk = {.data = tmp, .len = e->len};
	int r;

	if (!tmp)
		return -ENOMEM;
	r = cenv_chunk_read(env, &e->digest, 0, tmp, e->len);
	if (r == 0)
		r = store_chunks_put(env->store, &chunk, 1);
	else if (r == -EIO && !store_broken(env->store))
		r = 0;
	cenv_buf_put(env, tmp);
	return r;
}

static int put_chunks(struct content_snap *sn)
{
	for (size_t i = 0; sn->stored && i < sn->n; i++) {
		struct snap_ent *e = &sn->ent[i];
		int r = 0;

		if (e->blk->kind == BLK_DATA || e->blk->kind == BLK_PART)
			e->put = e->same = e->lost = false; /* what was given up may go well now */
		else if (e->blk->kind == BLK_REF)
			r = renew_ref(sn, e);
		if (r < 0)
			return r;
	}
	sn->stored = true;
	return put_before(&sn, 1);
}

/* Must a hole be recorded here, or is there nothing that it would hide? */
static int hides(const struct content_snap *sn, uint64_t idx, bool *ret)
{
	struct store_extent x;
	int r = -ENOENT;

	*ret = idx * BLOCK < sn->valid;
	if (*ret)
		return 0;
	if (sn->base == REC_EXTENTS && idx < sn->cut)
		r = cenv_extent(sn->c->env, sn->c->ino, idx, &x);
	if (r == -ENOENT)
		return 0;
	*ret = r == 0 && x.len > 0;
	return r;
}

static int write_extents(struct content_snap *sn, struct store_batch *b)
{
	int r = 0;

	if (sn->base == REC_EXTENTS && sn->cut != NO_CUT)
		r = store_batch_extents_cut(b, sn->c->ino, sn->cut);
	for (size_t i = 0; r == 0 && i < sn->n; i++) {
		const struct snap_ent *e = &sn->ent[i];
		struct store_extent x = {.block = e->idx, .len = e->len, .chunk = e->digest};
		bool needed = !e->same;

		if (e->len == 0) {
			x.chunk = (struct digest){0};
			r = hides(sn, e->idx, &needed);
		}
		if (r == 0 && needed)
			r = store_batch_extent(b, sn->c->ino, &x);
	}
	return r;
}

/* The new base, made here because content_snap_done cannot fail. */
static int make_base(struct content_snap *sn)
{
	struct snap_ent *e = sn->n > 0 && sn->ent[0].idx == 0 ? sn->ent : NULL;

	blk_unref(sn->new_base);
	sn->new_base = NULL;
	if (sn->kind != REC_INLINE && sn->kind != REC_CHUNK)
		return 0;
	if (!e) {
		sn->new_base = blk_ref(sn->base_blk);
		return 0;
	}
	if (sn->kind == REC_INLINE) {
		sn->new_base = blk_ref(e->blk);
		return 0;
	}
	return blk_new_ref(sn->c->env, &e->digest, e->len, &sn->new_base);
}

static int fill_inline(struct rec_inode *rec, const struct blk *b)
{
	size_t n = blk_trim(b->data, b->len);

	rec->data = malloc(n ? n : 1);
	if (!rec->data)
		return -ENOMEM;
	if (n)
		memcpy(rec->data, b->data, n);
	rec->data_len = n;
	return 0;
}

static uint64_t trimmed_off(const struct snap_ent *e)
{
	if ((e->blk->kind != BLK_DATA && e->blk->kind != BLK_PART) || e->base ||
	    e->len > e->blk->len)
		return 0;
	return units_of(e->blk->len) - units_of(e->len);
}

static int fill_record(const struct content_snap *sn, struct rec_inode *rec)
{
	uint64_t trimmed = 0;

	free(rec->data);
	rec->data = NULL;
	rec->data_len = 0;
	rec->chunk_len = 0;
	memset(&rec->chunk, 0, sizeof rec->chunk);
	rec->content = sn->kind;
	rec->size = sn->size;
	for (size_t i = 0; i < sn->n; i++)
		trimmed += trimmed_off(&sn->ent[i]);
	rec->blocks = sn->units > trimmed ? sn->units - trimmed : 0;
	if (sn->c->rel && rec->origin.root) {
		rec->origin.valid = sn->valid;
		rec->origin.dev = sn->host_id.dev;
		rec->origin.ino = sn->host_id.ino;
		rec->origin.size = sn->host_id.size;
		rec->origin.mtime = sn->host_id.mtime;
	}
	if (sn->kind == REC_INLINE)
		return fill_inline(rec, sn->new_base);
	if (sn->kind == REC_CHUNK) {
		rec->chunk = sn->new_base->digest;
		rec->chunk_len = sn->new_base->len;
	}
	return 0;
}

int content_snap_store(struct content_snap *sn, struct store_batch *b, struct rec_inode *rec)
{
	int r = put_chunks(sn);

	if (r == 0)
		r = put_with_records(sn, b);
	if (r == 0)
		r = make_base(sn);
	if (r == 0)
		r = fill_record(sn, rec);
	if (r < 0)
		return r;
	if (sn->kind == REC_EXTENTS)
		return write_extents(sn, b);
	/* out of extents: the old ones would come back with the next growth */
	return sn->base == REC_EXTENTS ? store_batch_extents_cut(b, sn->c->ino, 0) : 0;
}

/* ---- 3: done ---- */

static void adopt_locked(struct content_snap *sn, struct content *c)
{
	for (size_t i = 0; i < sn->n; i++) {
		struct snap_ent *e = &sn->ent[i];

		struct blk *now = blkmap_get(&c->map, e->idx);

		/* What it was copied from is recorded now, and what that lay over may go. */
		if (now && now->kind == BLK_PART && now->from == e->blk)
			blk_part_rebase(now, &e->digest, e->len);
		/* the snapshot's reference kept everyone from changing it in place */
		if (e->base || now != e->blk)
			continue;
		c->data_units -= (int64_t)trimmed_off(e);
		blkmap_del(&c->map, e->idx);
	}
	blk_unref(c->base_blk);
	c->base = sn->kind;
	c->base_blk = sn->new_base;
	sn->new_base = NULL;
	c->cut = c->cut_new;
	content_account_locked(c);
	if (atomic_load(&c->gen) == sn->gen)
		atomic_store(&c->clean_gen, sn->gen);
}

void content_snap_done(struct content_snap *sn, bool ok)
{
	struct content *c = sn->c;

	if (ok)
		tell_lost(sn);
	pthread_rwlock_wrlock(&c->lock);
	if (ok && sn->stored)
		adopt_locked(sn, c);
	c->snapping = false;
	pthread_rwlock_unlock(&c->lock);
	for (size_t i = 0; ok && i < sn->n; i++) {
		struct snap_ent *e = &sn->ent[i];

		if (e->blk->kind != BLK_DATA && e->blk->kind != BLK_PART)
			continue;
		blk_settle(e->blk);
		/* What is whole the kernel has, or a stream of it would only push out what small reads need. */
		if (e->put && e->blk->kind == BLK_DATA && e->blk->len < BLOCK)
			cenv_cache_add(c->env, &e->digest, e->blk);
	}
	snap_free(sn);
	content_put(c);
}
