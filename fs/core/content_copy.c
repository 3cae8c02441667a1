#include "fs/core/content_internal.h"

#define COPY_MAX (UINT64_C(16) << 20)

struct copy {
	struct content *in, *out;
	uint64_t off_in, off_out;
	uint64_t left;   /* to do */
	uint64_t copied; /* bytes that cost memory */
};

static void advance(struct copy *k, uint64_t n)
{
	k->off_in += n;
	k->off_out += n;
	k->left -= n;
}

/* The bytes up to the next data of @in are zeros. Returns their count. */
static int copy_gap(struct copy *k, uint64_t *ret_gap)
{
	uint64_t next, gap;
	int r;

	*ret_gap = 0;
	pthread_rwlock_rdlock(&k->in->lock);
	r = content_next_locked(k->in, k->off_in / BLOCK, &next);
	pthread_rwlock_unlock(&k->in->lock);
	if (r < 0)
		return r;
	gap = next == UINT64_MAX         ? k->left
	      : next * BLOCK > k->off_in ? next * BLOCK - k->off_in
					 : 0;
	if (gap > k->left)
		gap = k->left;
	if (gap == 0)
		return 0;
	r = content_zero_to_size(k->out, k->off_out, k->off_out + gap);
	if (r < 0)
		return r;
	content_extend(k->out, k->off_out + gap);
	*ret_gap = gap;
	return 0;
}

/* May the whole block stand for what is to be copied of it? */
static bool shareable(const struct copy *k, uint64_t size_in)
{
	if (k->off_in % BLOCK || k->off_out % BLOCK)
		return false;
	return k->left >= BLOCK ||
	       (k->off_in + k->left >= size_in && k->off_out + k->left >= content_size(k->out));
}

/* A second reference to the block at off_in; NULL when its bytes must be copied. */
static int share_block(struct copy *k, struct blk **ret)
{
	struct content *c = k->in;
	struct content_env *e = k->out->env;
	struct place p;
	int r;

	*ret = NULL;
	pthread_rwlock_rdlock(&c->lock);
	r = content_find_locked(c, k->off_in / BLOCK, &p);
	/* @in may grow while we look: a block longer than what was asked for would show too much */
	if (r == 0 && p.len <= k->left) {
		/* what only another tree's memory has is counted there */
		if (p.at == PLACE_BLK && c->env == e)
			*ret = blk_ref(p.blk);
		else if (p.at == PLACE_CHUNK)
			r = blk_new_held(e, &p.digest, p.len, ret);
	}
	pthread_rwlock_unlock(&c->lock);
	if (r < 0)
		*ret = NULL;
	/* no room for the table of what is held: the bytes go through memory */
	return err_no_room(r) ? 0 : r;
}

static ssize_t copy_bytes(struct copy *k)
{
	size_t n = (size_t)(BLOCK - k->off_in % BLOCK);
	uint8_t *tmp = cenv_buf_get(k->in->env);
	ssize_t got;

	if (!tmp)
		return -ENOMEM;
	if (n > k->left)
		n = (size_t)k->left;
	got = content_read(k->in, k->off_in, tmp, n);
	if (got > 0)
		got = content_write_range(k->out, k->off_out, tmp, (size_t)got);
	cenv_buf_put(k->in->env, tmp);
	if (got > 0)
		k->copied += (uint64_t)got;
	return got;
}

/* One step: a gap, a shared block or copied bytes. Returns how far it went; 0 at the end. */
static int64_t copy_step(struct copy *k, uint64_t size_in)
{
	struct place old;
	struct blk *b = NULL;
	uint64_t n;
	int r = copy_gap(k, &n);

	if (r < 0 || n > 0)
		return r < 0 ? r : (int64_t)n;
	if (shareable(k, size_in)) {
		r = share_block(k, &b);
		if (r < 0)
			return r;
	}
	if (!b)
		return copy_bytes(k);
	n = k->left < BLOCK ? k->left : BLOCK;
	r = content_find(k->out, k->off_out / BLOCK, &old);
	if (r < 0) {
		blk_unref(b);
		return r;
	}
	r = content_publish(k->out, k->off_out / BLOCK, &old, b);
	if (r < 0)
		return r;
	content_extend(k->out, k->off_out + n);
	return (int64_t)n;
}

static ssize_t copy_changing(struct copy *k)
{
	uint64_t start = k->off_in, size_in;

	if (k->in == k->out && content_freeze(k->out) < 0)
		return -EIO;
	size_in = content_size(k->in);
	if (k->off_in >= size_in || k->left == 0)
		return 0;
	if (k->left > size_in - k->off_in)
		k->left = size_in - k->off_in;
	if (k->left > CONTENT_MAX_SIZE - k->off_out)
		k->left = CONTENT_MAX_SIZE - k->off_out;
	if (k->in != k->out) {
		int r = content_freeze(k->out);

		if (r < 0)
			return r;
	}
	while (k->left > 0 && k->copied < COPY_MAX) {
		int64_t n = copy_step(k, size_in);

		if (n < 0 && k->off_in == start)
			return n;
		if (n <= 0)
			break;
		advance(k, (uint64_t)n);
	}
	return (ssize_t)(k->off_in - start);
}

ssize_t content_copy(struct content *in, uint64_t off_in, struct content *out, uint64_t off_out,
		     uint64_t n)
{
	struct copy k = {.in = in, .out = out, .off_in = off_in, .off_out = off_out, .left = n};
	struct content_log log;
	ssize_t r;

	if (off_out >= CONTENT_MAX_SIZE)
		return -EFBIG;
	pthread_mutex_lock(&out->change);
	content_log_begin(out, &log, false);
	r = copy_changing(&k);
	content_log_end(out);
	pthread_mutex_unlock(&out->change);
	return r;
}
