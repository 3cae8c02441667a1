#include "fs/core/content.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/core/content_internal.h"

/* ---- life ---- */

static int locks_init(struct content *c)
{
	pthread_rwlockattr_t a;
	int r;

	r = -pthread_rwlockattr_init(&a);
	if (r < 0)
		return r;
	/* else a file that is read without pause could never be written to */
	(void)pthread_rwlockattr_setkind_np(&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	r = -pthread_rwlock_init(&c->lock, &a);
	(void)pthread_rwlockattr_destroy(&a);
	if (r < 0)
		return r;
	r = -pthread_mutex_init(&c->change, NULL);
	if (r < 0)
		pthread_rwlock_destroy(&c->lock);
	return r;
}

static int load_base(struct content *c, const struct rec_inode *rec)
{
	struct blk *b = NULL;
	int r = 0;

	c->base = rec->content;
	if (rec->content == REC_INLINE) {
		if (rec->data_len > STORE_BLOCK)
			return -EIO;
		r = blk_new_data(c->env, rec->data_len, &b);
		if (r == 0) {
			blk_settle(b);
			blk_put(b, 0, rec->data, rec->data_len);
		}
	} else if (rec->content == REC_CHUNK) {
		if (rec->chunk_len > STORE_BLOCK)
			return -EIO;
		r = blk_new_ref(c->env, &rec->chunk, rec->chunk_len, &b);
	}
	c->base_blk = b;
	return r;
}

static int load_origin(struct content *c, const struct rec_inode *rec, struct hostsrc *host)
{
	const struct rec_origin *o = &rec->origin;

	if (!o->root)
		return 0;
	c->rel = strdup(o->rel ? o->rel : "");
	if (!c->rel)
		return -ENOMEM;
	c->host = host;
	c->valid = o->valid < rec->size ? o->valid : rec->size;
	c->host_id = (struct hostsrc_id){o->dev, o->ino, o->size, o->mtime};
	c->pristine = rec->content == REC_EMPTY && o->valid > 0 && o->valid == o->size &&
		      o->size == rec->size;
	return 0;
}

int content_open(struct content_env *e, store_ino ino, const struct rec_inode *rec,
		 struct hostsrc *host, struct content **ret)
{
	struct content *c;
	int r;

	if (rec->size > CONTENT_MAX_SIZE)
		return -EFBIG;
	c = calloc(1, sizeof *c);
	if (!c)
		return -ENOMEM;
	r = locks_init(c);
	if (r < 0) {
		free(c);
		return r;
	}
	atomic_init(&c->refs, 1);
	c->env = e;
	c->ino = ino;
	c->cut = c->cut_new = NO_CUT;
	c->data_units = (int64_t)(rec->blocks & INT64_MAX);
	atomic_init(&c->size, rec->size);
	atomic_init(&c->units, rec->blocks);
	r = load_origin(c, rec, host);
	if (r == 0)
		r = load_base(c, rec);
	if (r < 0) {
		content_put(c);
		return r;
	}
	atomic_init(&c->incomplete, c->valid > 0 && !c->pristine);
	*ret = c;
	return 0;
}

void content_put(struct content *c)
{
	if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) > 1)
		return;
	blkmap_release(&c->map);
	blk_unref(c->base_blk);
	free(c->rel);
	pthread_mutex_destroy(&c->change);
	pthread_rwlock_destroy(&c->lock);
	free(c);
}

void content_follow(struct content *c)
{
	atomic_store(&c->follow, true);
}

void content_close(struct content *c)
{
	if (c)
		content_put(c);
}

/* ---- what can be told without a lock ---- */

uint64_t content_size(const struct content *c)
{
	return atomic_load(&c->size);
}

uint64_t content_blocks(const struct content *c)
{
	return atomic_load(&c->units);
}

bool content_is_dirty(const struct content *c)
{
	return atomic_load(&c->gen) != atomic_load(&c->clean_gen);
}

bool content_lost(struct content *c)
{
	return atomic_load(&c->lost) && atomic_exchange(&c->lost, false);
}

bool content_spare(struct content *c)
{
	bool spare;

	pthread_rwlock_rdlock(&c->lock);
	spare = !content_is_dirty(c) && !c->snapping && c->map.count == 0 && !c->reserved &&
		!c->reserve_end && c->cut == NO_CUT && !atomic_load(&c->lost);
	pthread_rwlock_unlock(&c->lock);
	return spare;
}

bool content_incomplete(const struct content *c)
{
	return atomic_load(&c->incomplete);
}

void content_account_locked(struct content *c)
{
	uint64_t data, end = atomic_load(&c->size);

	/* What was promised before the file was opened is not told from bytes in its record, and the
	 * host's holes are not looked for: the sum may run away, but only so far. (A write publishes
	 * its block before it moves the size.) */
	if (end < c->reserve_end)
		end = c->reserve_end;
	if (c->data_units > (int64_t)units_of(end + BLOCK))
		c->data_units = (int64_t)units_of(end + BLOCK);
	if (c->data_units < 0)
		c->data_units = 0;
	data = (uint64_t)c->data_units;
	if (c->reserved <= data)
		c->reserved = 0; /* the promise has been used up */
	atomic_store(&c->units, c->reserved > data ? c->reserved : data);
}

void content_touch_locked(struct content *c)
{
	atomic_fetch_add(&c->gen, 1);
	atomic_store(&c->incomplete, c->valid > 0 && !c->pristine);
}

/* ---- where bytes are ---- */

static int find_in_base(struct content *c, uint64_t idx, struct place *ret)
{
	struct store_extent x;
	int r;

	if (idx >= c->cut || c->base == REC_EMPTY)
		return -ENOENT;
	if (c->base != REC_EXTENTS) {
		if (idx > 0)
			return -ENOENT;
		ret->len = c->base_blk->len;
		ret->digest = c->base_blk->digest;
		ret->blk = c->base_blk;
		ret->at = c->base == REC_INLINE ? PLACE_BLK : PLACE_CHUNK;
		return 0;
	}
	r = cenv_extent(c->env, c->ino, idx, &x);
	if (r < 0)
		return r == -EBADMSG ? -EIO : r;
	ret->at = x.len ? PLACE_CHUNK : PLACE_HOLE;
	ret->len = x.len;
	ret->digest = x.chunk;
	return 0;
}

int content_find_locked(struct content *c, uint64_t idx, struct place *ret)
{
	struct blk *b = blkmap_get(&c->map, idx);
	int r;

	*ret = (struct place){.at = PLACE_HOLE};
	if (b) {
		ret->in_map = true;
		ret->len = b->len;
		ret->blk = b;
		ret->digest = b->digest;
		ret->at = b->kind == BLK_DATA   ? PLACE_BLK
			  : b->kind == BLK_PART ? PLACE_PART
			  : b->kind == BLK_REF  ? PLACE_CHUNK
						: PLACE_HOLE;
		return 0;
	}
	r = find_in_base(c, idx, ret);
	if (r != -ENOENT)
		return r;
	if (idx * BLOCK < c->valid) {
		uint64_t n = c->valid - idx * BLOCK;

		ret->at = PLACE_HOST;
		ret->len = (uint32_t)(n < BLOCK ? n : BLOCK);
	}
	return 0;
}

static int fetch_host(struct content *c, uint64_t idx, const struct place *p, size_t off, void *buf,
		      size_t n)
{
	size_t want = off < p->len ? p->len - off : 0;
	ssize_t got = 0;

	if (want > n)
		want = n;
	if (want)
		got = content_host_pread(c, idx * BLOCK + off, buf, want);
	if (got < 0)
		return (int)got;
	memset((uint8_t *)buf + got, 0, n - (size_t)got);
	return 0;
}

int content_fetch_locked(struct content *c, uint64_t idx, const struct place *p, size_t off,
			 void *buf, size_t n)
{
	size_t have;

	switch (p->at) {
	case PLACE_PART:
		return blk_part_read(p->blk, off, buf, n);
	case PLACE_CHUNK:
		return cenv_chunk_read(c->env, &p->digest, off, buf, n);
	case PLACE_HOST:
		return fetch_host(c, idx, p, off, buf, n);
	case PLACE_BLK:
		have = off < p->len ? p->len - off : 0;
		if (have > n)
			have = n;
		if (have)
			memcpy(buf, p->blk->data + off, have);
		memset((uint8_t *)buf + have, 0, n - have);
		return 0;
	case PLACE_HOLE:
		break;
	}
	memset(buf, 0, n);
	return 0;
}

/* ---- reading ---- */

/* As many host blocks in a row as can be read with one call; 0 when block @idx is not the host's. */
static uint64_t host_run_locked(struct content *c, uint64_t off, uint64_t n)
{
	uint64_t end = off + n, next;

	if (c->base != REC_EMPTY || end > c->valid)
		return 0;
	if (blkmap_next(&c->map, off / BLOCK, &next) && next * BLOCK < end)
		return 0;
	return n;
}

static int read_blocks_locked(struct content *c, uint64_t off, uint8_t *buf, size_t n)
{
	while (n > 0) {
		uint64_t idx = off / BLOCK;
		size_t o = (size_t)(off % BLOCK);
		size_t k = BLOCK - o < n ? BLOCK - o : n;
		struct place p;
		int r = content_find_locked(c, idx, &p);

		if (r == 0)
			r = content_fetch_locked(c, idx, &p, o, buf, k);
		if (r < 0)
			return r;
		off += k;
		buf += k;
		n -= k;
	}
	return 0;
}

static ssize_t read_locked(struct content *c, uint64_t off, void *buf, size_t n)
{
	uint64_t size = atomic_load(&c->size);
	int r;

	/* The host's file as it is now: it may have grown or shrunk since it was looked up. */
	if (c->pristine)
		return content_host_pread(c, off, buf, n);
	if (off >= size)
		return 0;
	if (n > size - off)
		n = (size_t)(size - off);
	if (host_run_locked(c, off, n)) {
		ssize_t got = content_host_pread(c, off, buf, n);

		return got >= 0 && got != (ssize_t)n ? -EIO : got;
	}
	r = read_blocks_locked(c, off, buf, n);
	return r < 0 ? r : (ssize_t)n;
}

ssize_t content_read(struct content *c, uint64_t off, void *buf, size_t n)
{
	ssize_t r;

	if (n > SSIZE_MAX)
		n = SSIZE_MAX;
	pthread_rwlock_rdlock(&c->lock);
	r = read_locked(c, off, buf, n);
	pthread_rwlock_unlock(&c->lock);
	return r;
}

/* ---- data and holes ---- */

struct next_extent {
	const struct content *c;
	uint64_t cut;
	uint64_t found;
};

static int see_extent(void *arg, const struct store_extent *x)
{
	struct next_extent *n = arg;

	if (x->block >= n->cut)
		return 1;
	if (x->len == 0 || blkmap_get(&n->c->map, x->block)) /* hidden: the map speaks for it */
		return 0;
	n->found = x->block;
	return 1;
}

static int next_in_base(struct content *c, uint64_t idx, uint64_t *ret)
{
	struct next_extent n = {.c = c, .cut = c->cut, .found = UINT64_MAX};
	int r;

	*ret = UINT64_MAX;
	if (c->base == REC_EMPTY || idx >= c->cut)
		return 0;
	if (c->base != REC_EXTENTS) {
		if (idx == 0)
			*ret = 0;
		return 0;
	}
	r = cenv_extents(c->env, c->ino, idx, see_extent, &n);
	*ret = n.found;
	return r < 0 ? (r == -EBADMSG ? -EIO : r) : 0;
}

static uint64_t next_in_host(struct content *c, uint64_t idx)
{
	uint64_t off = idx * BLOCK;
	int64_t at;

	if (off >= c->valid)
		return UINT64_MAX;
	/* Holes of the host file are worth to be skipped; if it cannot tell, all of it is data. */
	at = content_host_seek(c, (int64_t)off, SEEK_DATA);
	if (at == -ENXIO || (at >= 0 && (uint64_t)at >= c->valid))
		return UINT64_MAX;
	return at < 0 ? idx : (uint64_t)at / BLOCK;
}

int content_next_locked(struct content *c, uint64_t idx, uint64_t *ret)
{
	uint64_t in_map, in_base, in_host;
	const struct blk *b;
	int r;

	in_map = idx;
	while ((b = blkmap_next(&c->map, in_map, &in_map)) && b->kind == BLK_HOLE)
		in_map++;
	if (!b)
		in_map = UINT64_MAX;
	r = next_in_base(c, idx, &in_base);
	if (r < 0)
		return r;
	in_host = next_in_host(c, idx);
	if (in_base < in_map)
		in_map = in_base;
	*ret = in_host < in_map ? in_host : in_map;
	return 0;
}

static int part_len(struct content *c, struct blk *b, uint32_t *ret)
{
	uint8_t *tmp;
	int r;

	if (!blk_part_reaches_end(b)) {
		*ret = b->len;
		return 0;
	}
	tmp = cenv_buf_get(c->env);
	if (!tmp)
		return -ENOMEM;
	r = blk_part_read(b, 0, tmp, b->len);
	*ret = (uint32_t)blk_trim(tmp, b->len);
	cenv_buf_put(c->env, tmp);
	return r;
}

/* How far data reaches from the start of block @idx, in bytes: whole pages, as a hole must not begin
 * inside what one write put there. Zeros at the end do not count, as they will not once they are flushed:
 * what is a hole must not change between two questions. */
static int data_len_locked(struct content *c, uint64_t idx, uint64_t *ret)
{
	struct place p;
	int r = content_find_locked(c, idx, &p);

	if (r < 0)
		return r;
	if (p.at == PLACE_BLK)
		p.len = (uint32_t)blk_trim(p.blk->data, p.len);
	else if (p.at == PLACE_PART)
		r = part_len(c, p.blk, &p.len);
	if (r < 0)
		return r;
	*ret = ((uint64_t)p.len + 4095) / 4096 * 4096;
	return 0;
}

static int64_t seek_data_locked(struct content *c, uint64_t off, uint64_t size)
{
	uint64_t idx = off / BLOCK;

	for (;;) {
		uint64_t len, start;
		int r = content_next_locked(c, idx, &idx);

		if (r < 0)
			return r;
		if (idx == UINT64_MAX || idx * BLOCK >= size)
			return -ENXIO;
		r = data_len_locked(c, idx, &len);
		if (r < 0)
			return r;
		start = idx * BLOCK > off ? idx * BLOCK : off;
		if (start < idx * BLOCK + len)
			return (int64_t)start;
		idx++;
	}
}

static int64_t seek_hole_locked(struct content *c, uint64_t off, uint64_t size)
{
	for (uint64_t idx = off / BLOCK; idx * BLOCK < size; idx++) {
		uint64_t len, end;
		int r = data_len_locked(c, idx, &len);

		if (r < 0)
			return r;
		if (len == BLOCK)
			continue;
		end = idx * BLOCK + len;
		if (end < off)
			end = off;
		return (int64_t)(end < size ? end : size);
	}
	return (int64_t)size;
}

int64_t content_seek(struct content *c, int64_t off, int whence)
{
	uint64_t size;
	int64_t r;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	pthread_rwlock_rdlock(&c->lock);
	size = atomic_load(&c->size);
	if (c->pristine)
		r = off < 0 ? -ENXIO : content_host_seek(c, off, whence);
	else if (off < 0 || (uint64_t)off >= size)
		r = -ENXIO;
	else if (whence == SEEK_DATA)
		r = seek_data_locked(c, (uint64_t)off, size);
	else
		r = seek_hole_locked(c, (uint64_t)off, size);
	pthread_rwlock_unlock(&c->lock);
	return r;
}
