/* What the contents of one ovl share: the store, the view, and a cache of verified chunks, so that small
 * reads of one chunk read and hash it once. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "fs/core/content_internal.h"
#include "fs/core/journal.h"

static int locks_init(struct content_env *e)
{
	int r = -pthread_rwlock_init(&e->view_lock, NULL);

	if (r < 0)
		return r;
	r = -pthread_mutex_init(&e->cache_lock, NULL);
	if (r == 0) {
		r = -pthread_mutex_init(&e->spare_lock, NULL);
		if (r < 0)
			pthread_mutex_destroy(&e->cache_lock);
	}
	if (r < 0)
		pthread_rwlock_destroy(&e->view_lock);
	return r;
}

int content_env_new(struct store *s, struct store_view *view, struct journal *journal,
		    struct content_env **ret)
{
	struct content_env *e = calloc(1, sizeof *e);
	int r;

	if (!e)
		return -ENOMEM;
	e->store = s;
	e->journal = journal;
	e->view = view;
	e->lru.prev = e->lru.next = &e->lru;
	r = locks_init(e);
	if (r < 0) {
		free(e);
		return r;
	}
	*ret = e;
	return 0;
}

/* ---- spare buffers ---- */

#define HEAP_IDLE (1u << 20) /* free at its end */

uint8_t *cenv_buf_get(struct content_env *e)
{
	void *p;

	if (e->journal) /* which keeps spares of its own */
		return journal_unit_get(e->journal);
	pthread_mutex_lock(&e->spare_lock);
	p = e->spare;
	if (p) {
		memcpy(&e->spare, p, sizeof e->spare);
		e->spares--;
	}
	pthread_mutex_unlock(&e->spare_lock);
	return p ? p : malloc(STORE_BLOCK);
}

void cenv_buf_put(struct content_env *e, uint8_t *p)
{
	if (!p)
		return;
	if (e->journal) {
		journal_unit_put(e->journal, p);
		return;
	}
	pthread_mutex_lock(&e->spare_lock);
	if (e->spares < SPARE_MAX) {
		memcpy(p, &e->spare, sizeof e->spare);
		e->spare = p;
		e->spares++;
		p = NULL;
	}
	pthread_mutex_unlock(&e->spare_lock);
	free(p);
}

/* All but @keep; the number that went. */
static unsigned spare_drop(struct content_env *e, unsigned keep)
{
	unsigned n = 0;

	for (;; n++) {
		void *p = NULL;

		pthread_mutex_lock(&e->spare_lock);
		if (e->spares > keep) {
			p = e->spare;
			memcpy(&e->spare, p, sizeof e->spare);
			e->spares--;
		}
		pthread_mutex_unlock(&e->spare_lock);
		if (!p)
			return n;
		free(p);
	}
}

void content_env_idle(struct content_env *e)
{
	bool dropped;

	cenv_parts_idle(e);
	dropped = e->journal ? journal_idle(e->journal, SPARE_IDLE) : spare_drop(e, SPARE_IDLE) > 0;

	/* What the heap got back lies between what is in use, or is kept for the next transaction: only asking returns it to the
	 * system. */
	if (dropped || mallinfo2().keepcost > HEAP_IDLE)
		(void)malloc_trim(0);
}

/* ---- life ---- */

static void ent_free(struct content_env *e, struct cache_ent *x)
{
	e->cached -= x->cost;
	blk_unref(x->blk);
	free(x);
}

void content_env_free(struct content_env *e)
{
	if (!e)
		return;
	cenv_parts_idle(e);
	while (e->lru.next != &e->lru) {
		struct cache_ent *x = e->lru.next;

		e->lru.next = x->next;
		ent_free(e, x);
	}
	(void)spare_drop(e, 0);
	pthread_mutex_destroy(&e->spare_lock);
	pthread_mutex_destroy(&e->cache_lock);
	pthread_rwlock_destroy(&e->view_lock);
	free(e);
}

void content_env_set_view(struct content_env *e, struct store_view *view)
{
	pthread_rwlock_wrlock(&e->view_lock);
	e->view = view;
	pthread_rwlock_unlock(&e->view_lock);
}

size_t content_env_whole(const struct content_env *e)
{
	size_t dirty = atomic_load_explicit(&e->dirty, memory_order_relaxed);
	size_t parts = atomic_load_explicit(&e->in_parts, memory_order_relaxed);

	return dirty > parts ? dirty - parts : 0;
}

size_t content_env_owed(const struct content_env *e)
{
	return atomic_load_explicit(&e->owed, memory_order_relaxed);
}

size_t content_env_dirty(const struct content_env *e)
{
	return atomic_load_explicit(&e->dirty, memory_order_relaxed);
}

int cenv_extent(struct content_env *e, store_ino ino, uint64_t block, struct store_extent *ret)
{
	int r;

	pthread_rwlock_rdlock(&e->view_lock);
	r = store_view_extent(e->view, ino, block, ret);
	pthread_rwlock_unlock(&e->view_lock);
	return r;
}

int cenv_extents(struct content_env *e, store_ino ino, uint64_t first,
		 int (*fn)(void *arg, const struct store_extent *x), void *arg)
{
	int r;

	pthread_rwlock_rdlock(&e->view_lock);
	r = store_view_extents(e->view, ino, first, fn, arg);
	pthread_rwlock_unlock(&e->view_lock);
	return r;
}

/* ---- chunk cache ---- */

static struct cache_ent **slot_of(struct content_env *e, const struct digest *d)
{
	uint32_t h;

	memcpy(&h, d->b, sizeof h); /* a digest is as random as a hash gets */
	return &e->hash[h % CACHE_HASH];
}

static struct cache_ent *find_locked(struct content_env *e, const struct digest *d)
{
	struct cache_ent *x;

	for (x = *slot_of(e, d); x; x = x->chain)
		if (!memcmp(&x->digest, d, sizeof *d))
			break;
	return x;
}

static void to_front_locked(struct content_env *e, struct cache_ent *x)
{
	x->prev = &e->lru;
	x->next = e->lru.next;
	x->next->prev = x;
	e->lru.next = x;
}

static void unlink_locked(struct cache_ent *x)
{
	x->prev->next = x->next;
	x->next->prev = x->prev;
}

static void evict_locked(struct content_env *e)
{
	while (e->cached > CACHE_BYTES && e->lru.prev != &e->lru) {
		struct cache_ent *x = e->lru.prev, **p = slot_of(e, &x->digest);

		while (*p != x)
			p = &(*p)->chain;
		*p = x->chain;
		unlink_locked(x);
		ent_free(e, x);
	}
}

void cenv_cache_add(struct content_env *e, const struct digest *d, struct blk *b)
{
	struct cache_ent *x = calloc(1, sizeof *x);

	if (!x)
		return;
	x->digest = *d;
	pthread_mutex_lock(&e->cache_lock);
	if (!find_locked(e, d)) {
		struct cache_ent **p = slot_of(e, d);

		x->blk = blk_ref(b);
		x->cost = sizeof *x + sizeof *b + b->cap;
		e->cached += x->cost;
		x->chain = *p;
		*p = x;
		to_front_locked(e, x);
		x = NULL;
		evict_locked(e);
	}
	pthread_mutex_unlock(&e->cache_lock);
	free(x);
}

static struct blk *cache_get(struct content_env *e, const struct digest *d)
{
	struct cache_ent *x;
	struct blk *b = NULL;

	pthread_mutex_lock(&e->cache_lock);
	x = find_locked(e, d);
	if (x) {
		b = blk_ref(x->blk);
		unlink_locked(x);
		to_front_locked(e, x);
	}
	pthread_mutex_unlock(&e->cache_lock);
	return b;
}

static void copy_padded(void *dst, const uint8_t *src, size_t len, size_t off, size_t n)
{
	size_t have = off < len ? len - off : 0;

	if (have > n)
		have = n;
	if (have)
		memcpy(dst, src + off, have);
	memset((uint8_t *)dst + have, 0, n - have);
}

/* A chunk that a record names and that is damaged or gone is damage to the file (S4). */
static ssize_t get_chunk(struct content_env *e, const struct digest *d, void *buf)
{
	ssize_t len = store_chunk_get(e->store, d, buf, STORE_BLOCK);

	return len == -EBADMSG || len == -ENOENT ? -EIO : len;
}

static int read_and_keep(struct content_env *e, const struct digest *d, size_t off, void *buf,
			 size_t n)
{
	uint8_t *tmp = cenv_buf_get(e);
	cleanup_blk struct blk *b = NULL;
	ssize_t len;

	if (!tmp)
		return -ENOMEM;
	len = get_chunk(e, d, tmp);
	if (len >= 0) {
		copy_padded(buf, tmp, (size_t)len, off, n);
		if (blk_new_data(e, (size_t)len, &b) == 0) {
			blk_settle(b);
			blk_put(b, 0, tmp, (size_t)len);
			cenv_cache_add(e, d, b);
		}
	}
	cenv_buf_put(e, tmp);
	return len < 0 ? (int)len : 0;
}

int cenv_chunk_read(struct content_env *e, const struct digest *d, size_t off, void *buf, size_t n)
{
	cleanup_blk struct blk *b = cache_get(e, d);
	size_t got;

	if (b) {
		copy_padded(buf, b->data, b->len, off, n);
		return 0;
	}
	if (n < STORE_BLOCK && store_chunk_get_part(e->store, d, off, buf, n, &got) == 0) {
		memset((uint8_t *)buf + got, 0, n - got);
		return 0;
	}
	/* A whole block goes straight to the reader: the kernel keeps it, a copy here would only push
	 * out what small reads need. */
	if (off == 0 && n == STORE_BLOCK) {
		ssize_t len = get_chunk(e, d, buf);

		if (len < 0)
			return (int)len;
		memset((uint8_t *)buf + len, 0, n - (size_t)len);
		return 0;
	}
	return read_and_keep(e, d, off, buf, n);
}
