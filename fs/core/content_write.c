#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "fs/core/content_internal.h"

/* fallocate(2) of more than this asks the store whether the disk could hold it. */
#define ASK_DISK   (UINT64_C(64) << 20)
/* Chunks that are shorter are copied at once. */
#define PART_LEAST (8u << 10)

/* ---- one block ---- */

void content_trim_host_locked(struct content *c)
{
	while (c->valid > 0) {
		uint64_t last = (c->valid - 1) / BLOCK;

		if (!blkmap_get(&c->map, last))
			break;
		c->valid = last * BLOCK;
	}
}

/* Takes over the reference when it succeeds. */
static int publish_locked(struct content *c, uint64_t idx, const struct place *old, struct blk *b)
{
	int r;

	content_log_hold(c, blkmap_get(&c->map, idx));
	r = blkmap_set(&c->map, idx, b);
	if (r == 0) {
		content_log_block(c, idx, b);
		c->data_units += (int64_t)units_of(b->len) - (int64_t)units_of(old->len);
		content_trim_host_locked(c);
		content_account_locked(c);
		content_touch_locked(c);
	}
	return r;
}

int content_publish(struct content *c, uint64_t idx, const struct place *old, struct blk *b)
{
	int r;

	pthread_rwlock_wrlock(&c->lock);
	r = publish_locked(c, idx, old, b);
	pthread_rwlock_unlock(&c->lock);
	if (r < 0)
		blk_unref(b);
	return r;
}

void content_extend(struct content *c, uint64_t size)
{
	if (size <= atomic_load(&c->size)) /* only a changer moves it, and that is us */
		return;
	pthread_rwlock_wrlock(&c->lock);
	atomic_store(&c->size, size);
	content_touch_locked(c);
	pthread_rwlock_unlock(&c->lock);
}

int content_find(struct content *c, uint64_t idx, struct place *ret)
{
	int r;

	pthread_rwlock_rdlock(&c->lock);
	r = content_find_locked(c, idx, ret);
	pthread_rwlock_unlock(&c->lock);
	return r;
}

/* A private copy of the block's bytes [0, keep), with room for @cap. */
static int copy_block(struct content *c, uint64_t idx, size_t keep, size_t cap,
		      struct place *ret_old, struct blk **ret)
{
	cleanup_blk struct blk *b = NULL;
	size_t n = 0;
	int r;

	pthread_rwlock_rdlock(&c->lock);
	r = content_find_locked(c, idx, ret_old);
	if (r == 0) {
		n = ret_old->len < keep ? ret_old->len : keep;
		r = blk_new_data(c->env, n > cap ? n : cap, &b);
	}
	if (r == 0 && n) {
		r = content_fetch_locked(c, idx, ret_old, 0, b->data, n);
		b->len = (uint32_t)n;
	}
	pthread_rwlock_unlock(&c->lock);
	if (r < 0)
		return r;
	*ret = b;
	b = NULL;
	return 0;
}

/* Is there room for these bytes in the block as it is? Nobody else may hold it. */
static int grow_in_place(struct blk *b, size_t o, const void *p, size_t k)
{
	int r;

	if (b->kind == BLK_PART)
		return blk_part_room(b, o, k) ? blk_part_put(b, o, p, k) : -EAGAIN;
	if (b->kind != BLK_DATA)
		return -EAGAIN;
	r = blk_grow(b, o + k);
	if (r == 0)
		blk_put(b, o, p, k);
	return r;
}

/* Into the dirty block that is there and nobody else holds; -EAGAIN when there is none. */
static int write_in_place(struct content *c, uint64_t idx, size_t o, const void *p, size_t k)
{
	struct blk *b;
	int r = -EAGAIN;

	pthread_rwlock_wrlock(&c->lock);
	b = blkmap_get(&c->map, idx);
	if (b && !blk_shared(b)) {
		uint32_t before = b->len;

		r = grow_in_place(b, o, p, k);
		if (r == 0) {
			content_log_patch(c, idx, b, o, p, k);
			c->data_units += (int64_t)units_of(b->len) - (int64_t)units_of(before);
			content_account_locked(c);
			content_touch_locked(c);
		}
	}
	pthread_rwlock_unlock(&c->lock);
	return r;
}

bool content_keeps_part(const struct content *c, const struct place *p, size_t n)
{
	/* A file of one block is recorded by what is in it, which only the whole block tells. */
	return p->at == PLACE_CHUNK && p->len >= PART_LEAST && n <= BLOCK / 2 &&
	       atomic_load(&c->size) > BLOCK;
}

/* A copy of the part that is there, or one over the chunk that is; -EAGAIN when that cannot be, or is not worth it. */
static int new_part(struct content *c, uint64_t idx, size_t o, size_t k, struct place *ret_old,
		    struct blk **ret)
{
	int r;

	pthread_rwlock_rdlock(&c->lock);
	r = content_find_locked(c, idx, ret_old);
	if (r < 0)
		;
	else if (ret_old->at == PLACE_PART)
		r = blk_part_room(ret_old->blk, o, k) ? blk_part_dup(ret_old->blk, ret) : -EAGAIN;
	else if (content_keeps_part(c, ret_old, k))
		r = blk_new_part(c->env, &ret_old->digest, ret_old->len, ret_old->in_map, ret);
	else
		r = -EAGAIN;
	pthread_rwlock_unlock(&c->lock);
	return err_no_room(r) ? -EAGAIN : r; /* of the table of holds */
}

/* Nothing, with *@ret_late, when a flush has been through since: what it was copied from is another chunk now, and nobody would tell
 * the copy, whose own may be collected. */
static int publish_part(struct content *c, uint64_t idx, const struct place *old, struct blk *b,
			bool *ret_late)
{
	int r = 0;

	pthread_rwlock_wrlock(&c->lock);
	/* Only changers put anything there, so it is not another one at the same address. */
	*ret_late = old->at == PLACE_PART && blkmap_get(&c->map, idx) != old->blk;
	if (!*ret_late)
		r = publish_locked(c, idx, old, b);
	pthread_rwlock_unlock(&c->lock);
	if (r < 0 || *ret_late)
		blk_unref(b);
	return r;
}

/* The bytes alone, over the chunk that has the rest; -EAGAIN as above. */
static int write_part(struct content *c, uint64_t idx, size_t o, const void *p, size_t k)
{
	struct place old;
	struct blk *b;
	bool late;
	int r;

	do {
		r = new_part(c, idx, o, k, &old, &b);
		if (r < 0)
			return r;
		r = blk_part_put(b, o, p, k);
		if (r < 0) {
			blk_unref(b);
			return r;
		}
		r = publish_part(c, idx, &old, b, &late);
	} while (r == 0 && late);
	if (r == 0)
		content_log_patch(c, idx, b, o, p, k);
	return r;
}

int content_write_block(struct content *c, uint64_t idx, size_t o, const void *p, size_t k)
{
	uint64_t start = idx * BLOCK;
	struct place old;
	struct blk *b;
	int r = write_in_place(c, idx, o, p, k);

	if (r != -EAGAIN)
		return r;
	if (o == 0 && (k == BLOCK || start + k >= atomic_load(&c->size))) {
		r = content_find(c, idx, &old);
		if (r == 0)
			r = blk_new_data(c->env, k, &b);
	} else {
		r = write_part(c, idx, o, p, k);
		if (r != -EAGAIN)
			return r;
		r = copy_block(c, idx, BLOCK, o + k, &old, &b);
	}
	if (r < 0)
		return r;
	blk_put(b, o, p, k);
	return content_publish(c, idx, &old, b);
}

/* ---- writing ---- */

ssize_t content_write_range(struct content *c, uint64_t off, const uint8_t *p, size_t n)
{
	size_t done = 0;

	while (done < n) {
		uint64_t at = off + done;
		size_t o = (size_t)(at % BLOCK);
		size_t k = BLOCK - o < n - done ? BLOCK - o : n - done;
		int r = content_write_block(c, at / BLOCK, o, p + done, k);

		if (r < 0)
			return done ? (ssize_t)done : r;
		done += k;
		content_extend(c, off + done);
	}
	return (ssize_t)done;
}

ssize_t content_write(struct content *c, uint64_t off, const void *buf, size_t n)
{
	struct content_log log;
	ssize_t r;

	if (n == 0)
		return 0;
	if (off >= CONTENT_MAX_SIZE)
		return -EFBIG;
	if (n > SSIZE_MAX)
		n = SSIZE_MAX;
	if (n > CONTENT_MAX_SIZE - off)
		n = (size_t)(CONTENT_MAX_SIZE - off);
	pthread_mutex_lock(&c->change);
	content_log_begin(c, &log, true);
	r = content_freeze(c);
	if (r == 0)
		r = content_write_range(c, off, buf, n);
	content_log_end(c);
	pthread_mutex_unlock(&c->change);
	return r;
}

/* ---- truncation ---- */

struct sum_units {
	const struct content *c;
	int64_t units;
};

static int add_units(void *arg, const struct store_extent *x)
{
	struct sum_units *s = arg;

	if (x->block >= s->c->cut)
		return 1;
	if (!blkmap_get(&s->c->map, x->block))
		s->units += (int64_t)units_of(x->len);
	return 0;
}

/* Units of recorded extents from block @first on that show. */
static int base_units(struct content *c, uint64_t first, int64_t *ret)
{
	struct sum_units s = {.c = c};
	int r = 0;

	pthread_rwlock_rdlock(&c->lock);
	if (c->base == REC_EXTENTS)
		r = cenv_extents(c->env, c->ino, first, add_units, &s);
	pthread_rwlock_unlock(&c->lock);
	*ret = s.units;
	return r < 0 ? (r == -EBADMSG ? -EIO : r) : 0;
}

int content_make_whole(struct content *c, uint64_t idx)
{
	struct place old;
	struct blk *b;
	int r = content_find(c, idx, &old);

	if (r < 0 || old.at != PLACE_PART)
		return r;
	r = copy_block(c, idx, BLOCK, 0, &old, &b);
	return r < 0 ? r : content_publish(c, idx, &old, b);
}

/* The block that the new end lies in loses what is behind the end. */
static int cut_block(struct content *c, uint64_t idx, size_t part)
{
	struct place old;
	struct blk *b;
	int r = content_find(c, idx, &old);

	if (r < 0 || old.len <= part || old.at == PLACE_HOST)
		return r; /* the host's bytes end with content.valid */
	r = copy_block(c, idx, part, part, &old, &b);
	return r < 0 ? r : content_publish(c, idx, &old, b);
}

static void drop_from_locked(struct content *c, uint64_t first)
{
	struct blk *b;
	uint64_t idx;

	content_log_cut(c, first);
	while ((b = blkmap_next(&c->map, first, &idx))) {
		content_log_hold(c, b);
		c->data_units -= (int64_t)units_of(b->len);
		blkmap_del(&c->map, idx);
	}
	if (c->cut > first)
		c->cut = first;
	if (c->cut_new > first)
		c->cut_new = first;
}

static int shrink(struct content *c, uint64_t size)
{
	uint64_t first = (size + BLOCK - 1) / BLOCK;
	int64_t gone = 0;
	int r = 0;

	if (size > 0) {
		r = base_units(c, first, &gone);
		if (r == 0 && size % BLOCK)
			r = cut_block(c, size / BLOCK, (size_t)(size % BLOCK));
		if (r == 0 && size <= BLOCK)
			r = content_make_whole(c, 0);
	}
	if (r < 0)
		return r;
	pthread_rwlock_wrlock(&c->lock);
	drop_from_locked(c, first);
	if (c->valid > size) {
		gone += (int64_t)(units_of(c->valid) - units_of(size));
		c->valid = size;
	}
	c->data_units -= gone;
	if (c->data_units > (int64_t)units_of(size))
		c->data_units = (int64_t)units_of(size);
	pthread_rwlock_unlock(&c->lock);
	return 0;
}

static void set_size(struct content *c, uint64_t size)
{
	pthread_rwlock_wrlock(&c->lock);
	if (size != atomic_load(&c->size) || c->reserved) {
		if (size <= atomic_load(&c->size)) /* promises behind the end are taken back */
			c->reserved = c->reserve_end = 0;
		atomic_store(&c->size, size);
		content_account_locked(c);
		content_touch_locked(c);
	}
	pthread_rwlock_unlock(&c->lock);
}

static int truncate_changing(struct content *c, uint64_t size)
{
	int r = 0;

	if (c->pristine && size == 0) {
		pthread_rwlock_wrlock(&c->lock); /* nothing of the host file is needed any more */
		c->pristine = false;
		pthread_rwlock_unlock(&c->lock);
	} else {
		r = content_freeze(c);
	}
	if (r == 0 && size < atomic_load(&c->size))
		r = shrink(c, size);
	if (r == 0)
		set_size(c, size);
	return r;
}

int content_truncate(struct content *c, uint64_t size)
{
	struct content_log log;
	int r;

	if (size > CONTENT_MAX_SIZE)
		return -EFBIG;
	pthread_mutex_lock(&c->change);
	content_log_begin(c, &log, false);
	r = truncate_changing(c, size);
	content_log_end(c);
	pthread_mutex_unlock(&c->change);
	return r;
}

/* ---- holes ---- */

/* A hole is recorded only where it hides something, now or once a flush under way is through. */
static int put_hole(struct content *c, uint64_t idx, const struct place *old)
{
	struct blk *hole;
	int r = blk_new_hole(c->env, &hole);

	if (r < 0)
		return r;
	pthread_rwlock_wrlock(&c->lock);
	content_log_hold(c, blkmap_get(&c->map, idx));
	content_log_hole(c, idx);
	if (c->base != REC_EMPTY || c->snapping || idx * BLOCK < c->valid)
		r = blkmap_set(&c->map, idx, blk_ref(hole));
	else
		blkmap_del(&c->map, idx);
	if (r == 0) {
		c->data_units -= (int64_t)units_of(old->len);
		content_trim_host_locked(c);
		content_account_locked(c);
		content_touch_locked(c);
	} else {
		blk_unref(hole);
	}
	pthread_rwlock_unlock(&c->lock);
	blk_unref(hole);
	return r;
}

/* Bytes [s, e) of one block. */
static int zero_block(struct content *c, uint64_t idx, size_t s, size_t e)
{
	struct place old;
	struct blk *b;
	int r = content_find(c, idx, &old);

	if (r < 0 || old.len <= s)
		return r;
	if (s == 0 && e >= old.len)
		return put_hole(c, idx, &old);
	r = copy_block(c, idx, e >= old.len ? s : BLOCK, 0, &old, &b);
	if (r < 0)
		return r;
	if (b->len > s)
		memset(b->data + s, 0, (b->len < e ? b->len : e) - s);
	return content_publish(c, idx, &old, b);
}

int content_zero(struct content *c, uint64_t off, uint64_t len)
{
	uint64_t end = off + len;

	pthread_rwlock_wrlock(&c->lock);
	if (end >= c->valid && off < c->valid) {
		c->data_units -= (int64_t)(units_of(c->valid) - units_of(off));
		c->valid = off;
		content_account_locked(c);
		content_touch_locked(c);
	}
	pthread_rwlock_unlock(&c->lock);
	for (uint64_t idx = off / BLOCK;; idx++) {
		uint64_t start;
		int r;

		pthread_rwlock_rdlock(&c->lock);
		r = content_next_locked(c, idx, &idx);
		pthread_rwlock_unlock(&c->lock);
		if (r < 0)
			return r;
		if (idx == UINT64_MAX || idx * BLOCK >= end)
			return 0;
		start = idx * BLOCK;
		r = zero_block(c, idx, off > start ? (size_t)(off - start) : 0,
			       end - start < BLOCK ? (size_t)(end - start) : BLOCK);
		if (r < 0)
			return r;
	}
}

/* ---- allocation ---- */

/* Units of [off, end) that hold bytes already. */
static int used_units(struct content *c, uint64_t off, uint64_t end, uint64_t *ret)
{
	int r = 0;

	*ret = 0;
	pthread_rwlock_rdlock(&c->lock);
	for (uint64_t idx = off / BLOCK; r == 0; idx++) {
		struct place p;

		r = content_next_locked(c, idx, &idx);
		if (r < 0 || idx == UINT64_MAX || idx * BLOCK >= end)
			break;
		r = content_find_locked(c, idx, &p);
		*ret += units_of(p.len);
	}
	pthread_rwlock_unlock(&c->lock);
	return r;
}

static int reserve(struct content *c, uint64_t off, uint64_t len)
{
	uint64_t used, want, most;
	int r = used_units(c, off, off + len, &used);

	if (r < 0)
		return r;
	want = units_of(len) > used ? units_of(len) - used : 0;
	if (want * 512 > ASK_DISK) {
		struct store_stats st;

		r = store_stats(c->env->store, &st);
		if (r < 0)
			return r;
		if (want * 512 > st.room)
			return -ENOSPC;
	}
	pthread_rwlock_wrlock(&c->lock);
	if (c->reserve_end < off + len)
		c->reserve_end = off + len;
	most = atomic_load(&c->size) > c->reserve_end ? atomic_load(&c->size) : c->reserve_end;
	c->reserved = atomic_load(&c->units) + want;
	if (c->reserved > units_of(most)) /* asking twice promises nothing new */
		c->reserved = units_of(most);
	content_account_locked(c);
	content_touch_locked(c);
	pthread_rwlock_unlock(&c->lock);
	return 0;
}

int content_zero_to_size(struct content *c, uint64_t off, uint64_t end)
{
	uint64_t size = atomic_load(&c->size);

	if (end > size)
		end = size;
	return off < end ? content_zero(c, off, end - off) : 0;
}

static int punch(struct content *c, uint64_t off, uint64_t end)
{
	uint64_t gone = units_of(end - off);
	int r = content_zero_to_size(c, off, end);

	if (r < 0)
		return r;
	pthread_rwlock_wrlock(&c->lock);
	c->reserved -= c->reserved < gone ? c->reserved : gone;
	content_account_locked(c);
	content_touch_locked(c);
	pthread_rwlock_unlock(&c->lock);
	return 0;
}

static int allocate(struct content *c, int mode, uint64_t off, uint64_t end)
{
	int r = 0;

	if (mode & FALLOC_FL_PUNCH_HOLE)
		return punch(c, off, end);
	/* first what may fail: a grow that cannot be done must lose nothing */
	r = reserve(c, off, end - off);
	if (r == 0 && (mode & FALLOC_FL_ZERO_RANGE))
		r = content_zero_to_size(c, off, end);
	if (r == 0 && !(mode & FALLOC_FL_KEEP_SIZE))
		content_extend(c, end);
	return r;
}

int content_fallocate(struct content *c, int mode, uint64_t off, uint64_t len)
{
	struct content_log log;
	int r;

	switch (mode) {
	case 0:
	case FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_ZERO_RANGE:
	case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (len == 0)
		return -EINVAL;
	if (off > CONTENT_MAX_SIZE || len > CONTENT_MAX_SIZE - off)
		return -EFBIG;
	pthread_mutex_lock(&c->change);
	content_log_begin(c, &log, false);
	r = content_freeze(c);
	if (r == 0)
		r = allocate(c, mode, off, off + len);
	content_log_end(c);
	pthread_mutex_unlock(&c->change);
	return r;
}
