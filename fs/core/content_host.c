/* Host files: pinning their identity at the first change, and bringing them in whole. */
#include <time.h>
#include <unistd.h>

#include "fs/core/content_internal.h"

#define WINDOW       64u /* blocks per step: 8 MiB */
/* Host files up to this size become dirty blocks, which the next flush puts into the store together
 * with all else; larger ones are put there at once, so that memory stays bounded. */
#define IN_MEMORY    (UINT64_C(1) << 20)
/* How often a host file that is just being written to is looked at again. */
#define FREEZE_TRIES 5

/* Changed here: it must be what it was. Untouched: the file that it is, live. Recorded with the host's bytes:
 * whatever has its name now. */
static enum hostsrc_be must_be(const struct content *c)
{
	if (!c->pristine)
		return HOSTSRC_SAME;
	return atomic_load(&c->follow) ? HOSTSRC_ANY : HOSTSRC_FILE;
}

ssize_t content_host_pread(struct content *c, uint64_t off, void *buf, size_t n)
{
	ssize_t got = -EIO;
	bool waited = false;

	if (c->host)
		got = hostsrc_pread_told(c->host, c->rel, must_be(c), &c->host_id, off, buf, n,
					 &waited);
	if (waited)
		atomic_store_explicit(&c->waited, true, memory_order_relaxed);
	return got < 0 && got != -ENOMEM ? -EIO : got;
}

bool content_waited(struct content *c)
{
	return atomic_load_explicit(&c->waited, memory_order_relaxed) &&
	       atomic_exchange(&c->waited, false);
}

int64_t content_host_seek(struct content *c, int64_t off, int whence)
{
	int64_t at = c->host ? hostsrc_seek(c->host, c->rel, must_be(c), &c->host_id, off, whence)
			     : -EIO;

	return at < 0 && at != -ENXIO ? -EIO : at;
}

int content_freeze(struct content *c)
{
	struct hostsrc_id id;
	struct stat st;
	int r;

	if (!c->pristine)
		return 0;
	/* What is there now counts, not what was there when it was looked up. A change that left no trace in
	 * the file's time would not be seen later: wait until the time tells. */
	for (int tries = 0;; tries++) {
		const struct timespec tick = {.tv_nsec = 10000000};

		r = c->host ? hostsrc_stat(c->host, c->rel, &st) : -EIO;
		if (r < 0 || tries == FREEZE_TRIES || !hostsrc_racy(&st))
			break;
		(void)nanosleep(&tick, NULL);
	}
	if (r < 0 || !S_ISREG(st.st_mode))
		return r == -ENOMEM ? r : -EIO;
	hostsrc_id_of(&st, &id);
	/* Another file has its name: what is written must not be mixed with that one's bytes. */
	if (!atomic_load(&c->follow) && (id.dev != c->host_id.dev || id.ino != c->host_id.ino))
		return -EIO;
	if (id.size > CONTENT_MAX_SIZE)
		return -EFBIG;
	pthread_rwlock_wrlock(&c->lock);
	c->host_id = id;
	c->valid = id.size;
	c->pristine = false;
	c->data_units = (int64_t)st.st_blocks;
	atomic_store(&c->size, id.size);
	content_account_locked(c);
	pthread_rwlock_unlock(&c->lock);
	return 0;
}

/* Some blocks of the host file on their way into the map. */
struct window {
	uint64_t first, n;
	struct blk *blk[WINDOW]; /* NULL: a hole, or not the host's */
	uint32_t was[WINDOW];    /* host bytes that it stands for */
};

static void window_release(struct window *w)
{
	for (unsigned i = 0; i < WINDOW; i++)
		blk_unref(w->blk[i]);
}

/* Bytes of one host block, trimmed; none at all when they are zeros. */
static int take_block(struct content *c, uint64_t idx, uint32_t len, struct blk **ret)
{
	cleanup_blk struct blk *b = NULL;
	int r = blk_new_data(c->env, len, &b);
	ssize_t got;

	if (r < 0)
		return r;
	got = content_host_pread(c, idx * BLOCK, b->data, len);
	if (got != (ssize_t)len)
		return got == -ENOMEM ? -ENOMEM : -EIO;
	b->len = (uint32_t)blk_trim(b->data, len);
	if (b->len == 0)
		return 0;
	*ret = b;
	b = NULL;
	return 0;
}

static int window_read(struct content *c, struct window *w)
{
	for (unsigned i = 0; i < w->n; i++) {
		struct place p;
		int r = content_find(c, w->first + i, &p);

		if (r == 0 && p.at == PLACE_HOST) {
			w->was[i] = p.len;
			r = take_block(c, w->first + i, p.len, &w->blk[i]);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

/* Put the bytes into the store and keep only their digests. */
static int window_store(struct content *c, struct window *w)
{
	struct store *s = c->env->store;
	struct store_chunk chunks[WINDOW];
	unsigned at[WINDOW], n = 0;
	int r;

	for (unsigned i = 0; i < w->n; i++)
		if (w->blk[i]) {
			chunks[n] = (struct store_chunk){.data = w->blk[i]->data,
							 .len = w->blk[i]->len};
			at[n++] = i;
		}
	r = n ? store_chunks_put_held(s, chunks, n) : 0;
	if (r < 0)
		return r;
	for (unsigned i = 0; r == 0 && i < n; i++) {
		struct blk *ref;

		r = blk_new_held(c->env, &chunks[i].digest, (uint32_t)chunks[i].len, &ref);
		if (r == 0) {
			blk_unref(w->blk[at[i]]);
			w->blk[at[i]] = ref;
		}
	}
	for (unsigned i = 0; i < n; i++)
		store_chunk_unhold(s, &chunks[i].digest);
	return r;
}

static int window_publish(struct content *c, struct window *w)
{
	int r = 0;

	pthread_rwlock_wrlock(&c->lock);
	for (unsigned i = 0; r == 0 && i < w->n; i++) {
		struct blk *b = w->blk[i];

		if (!w->was[i])
			continue;
		c->data_units += (b ? (int64_t)units_of(b->len) : 0) - (int64_t)units_of(w->was[i]);
		if (b)
			r = blkmap_set(&c->map, w->first + i, b);
		if (r == 0 && b)
			content_log_block(c, w->first + i, b);
		if (r == 0)
			w->blk[i] = NULL;
	}
	if (r == 0)
		c->valid = w->first * BLOCK;
	content_account_locked(c);
	content_touch_locked(c);
	pthread_rwlock_unlock(&c->lock);
	return r;
}

/* The last blocks that are still the host's: from the end, so that content.valid tells how far it is. */
static int complete_window(struct content *c, uint64_t *ret_bytes)
{
	uint64_t valid = c->valid, last = (valid - 1) / BLOCK;
	struct window w = {.first = last < WINDOW ? 0 : last + 1 - WINDOW};
	int64_t data;
	int r = 0;

	w.n = last + 1 - w.first;
	*ret_bytes = valid - w.first * BLOCK;
	data = content_host_seek(c, (int64_t)(w.first * BLOCK), SEEK_DATA);
	if (data == -ENXIO || (data >= 0 && (uint64_t)data >= valid)) {
		uint8_t probe; /* all hole: still the file that it was? */

		if (content_host_pread(c, 0, &probe, 1) < 0)
			return -EIO;
		w.n = 0;
	}
	r = window_read(c, &w);
	if (r == 0 && valid > IN_MEMORY)
		r = window_store(c, &w);
	if (r == 0)
		r = window_publish(c, &w);
	window_release(&w);
	return r;
}

int content_complete_some(struct content *c, uint64_t max)
{
	struct content_log log;
	uint64_t done = 0, n;
	int r;

	pthread_mutex_lock(&c->change);
	content_log_begin(c, &log, true);
	r = content_freeze(c);
	while (r == 0 && c->valid > 0 && (done == 0 || done < max)) {
		r = complete_window(c, &n);
		done += n;
	}
	if (r == 0 && c->valid > 0)
		r = 1;
	content_log_end(c);
	pthread_mutex_unlock(&c->change);
	return r;
}

int content_complete(struct content *c)
{
	int r;

	/* in steps, so that writers get in between */
	do {
		r = content_complete_some(c, WINDOW * BLOCK);
	} while (r > 0);
	return r;
}
