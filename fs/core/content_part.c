/* Blocks of which only some bytes are in memory: what was written, over the chunk that has the rest. Nobody reads that
 * chunk before somebody reads the block, or a flush needs the whole. */
#include <stdlib.h>
#include <string.h>

#include "fs/core/content_internal.h"

#define CELL      4096u /* memory is given in pieces of it, so that what is appended finds room */
#define PARTS_MAX 32u

/* A buffer that parts of any blocks were given pieces of, one behind another. It goes when the last of them does. */
struct part_mem {
	atomic_uint refs;
	uint8_t *data; /* BLOCK */
	size_t used;   /* env.spare_lock */
};

struct part {
	uint32_t off, n, cap; /* of the block; cap: of memory */
	uint8_t *p;
	struct part_mem *mem;
};

static void mem_unref(struct content_env *e, struct part_mem *m)
{
	if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) > 1)
		return;
	cenv_buf_put(e, m->data);
	free(m);
}

static struct part_mem *mem_new(struct content_env *e)
{
	struct part_mem *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->data = cenv_buf_get(e);
	if (!m->data) {
		free(m);
		return NULL;
	}
	atomic_init(&m->refs, 1); /* env.part_mem's */
	return m;
}

/* env.spare_lock. */
static bool take_locked(struct content_env *e, size_t cap, struct part *ret)
{
	struct part_mem *m = e->part_mem;

	if (!m || m->used + cap > BLOCK)
		return false;
	ret->p = m->data + m->used;
	ret->mem = m;
	ret->cap = (uint32_t)cap;
	m->used += cap;
	atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
	return true;
}

static int mem_get(struct content_env *e, size_t n, struct part *ret)
{
	size_t cap = (n + CELL - 1) / CELL * CELL;
	struct part_mem *m, *old = NULL;
	bool got;

	pthread_mutex_lock(&e->spare_lock);
	got = take_locked(e, cap, ret);
	pthread_mutex_unlock(&e->spare_lock);
	if (got)
		return 0;
	m = mem_new(e);
	if (!m)
		return -ENOMEM;
	pthread_mutex_lock(&e->spare_lock);
	old = e->part_mem;
	e->part_mem = m;
	(void)take_locked(e, cap, ret);
	pthread_mutex_unlock(&e->spare_lock);
	mem_unref(e, old);
	return 0;
}

void cenv_parts_idle(struct content_env *e)
{
	struct part_mem *m;

	pthread_mutex_lock(&e->spare_lock);
	m = e->part_mem;
	e->part_mem = NULL;
	pthread_mutex_unlock(&e->spare_lock);
	mem_unref(e, m);
}

/* ---- one block ---- */

int blk_new_part(struct content_env *e, const struct digest *d, uint32_t len, bool hold,
		 struct blk **ret)
{
	struct blk *b;
	int r = hold ? blk_new_held(e, d, len, &b) : blk_new_ref(e, d, len, &b);

	if (r < 0)
		return r;
	b->parts = calloc(PARTS_MAX, sizeof(*b->parts));
	if (!b->parts) {
		blk_unref(b);
		return -ENOMEM;
	}
	b->kind = BLK_PART;
	b->low_len = len;
	atomic_store(&b->counted, true);
	atomic_fetch_add_explicit(&e->owed, BLOCK, memory_order_relaxed);
	*ret = b;
	return 0;
}

void blk_parts_free(struct blk *b)
{
	for (unsigned i = 0; i < b->nparts; i++)
		mem_unref(b->env, b->parts[i].mem);
	free(b->parts);
}

/* The last part that begins at @off or before it; nparts when there is none. */
static unsigned part_at(const struct blk *b, size_t off)
{
	unsigned lo = 0, hi = b->nparts;

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;

		if (b->parts[mid].off <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? lo - 1 : b->nparts;
}

/* Bytes of [off, off + n) that the next part does not have. */
static size_t gap_after(const struct blk *b, unsigned next, size_t off, size_t n)
{
	if (next < b->nparts && b->parts[next].off - off < n)
		return b->parts[next].off - off;
	return n;
}

/* How many bytes from @off on the part @i has, or has memory for; 0: it does not reach so far. */
static size_t fits(const struct blk *b, unsigned i, size_t off, size_t n)
{
	const struct part *q = &b->parts[i];
	size_t in = off - q->off;

	if (in > q->n || in >= q->cap)
		return 0;
	n = gap_after(b, i + 1, off, n);
	return n < q->cap - in ? n : q->cap - in;
}

/* How many of the bytes at @off go into one part: *@ret_at, which is there already, or is a new one before it (*@ret_new). */
static size_t step(const struct blk *b, size_t off, size_t n, unsigned *ret_at, bool *ret_new)
{
	unsigned i = part_at(b, off);
	size_t k = i < b->nparts ? fits(b, i, off, n) : 0;

	*ret_new = k == 0;
	if (*ret_new) {
		i = i < b->nparts ? i + 1 : 0;
		k = gap_after(b, i, off, n);
	}
	*ret_at = i;
	return k;
}

bool blk_part_room(const struct blk *b, size_t off, size_t n)
{
	size_t cap = b->cap;
	unsigned parts = b->nparts;

	while (n > 0) {
		unsigned at;
		bool new;
		size_t k = step(b, off, n, &at, &new);

		if (new) {
			cap += (k + CELL - 1) / CELL * CELL;
			parts++;
		}
		off += k;
		n -= k;
	}
	return cap <= BLOCK && parts <= PARTS_MAX;
}

/* Memory for all new parts that the bytes need, or for none: what fails half way must leave nothing behind that is neither in the
 * file's size nor in the journal. */
static int reserve_parts(const struct blk *b, size_t off, size_t n, struct part *ret)
{
	unsigned got = 0;

	while (n > 0) {
		struct part q = {.off = (uint32_t)off};
		unsigned at;
		bool new;
		size_t k = step(b, off, n, &at, &new);
		int r = new ? mem_get(b->env, k, &q) : 0;

		if (r < 0) {
			while (got > 0)
				mem_unref(b->env, ret[--got].mem);
			return r;
		}
		if (new)
			ret[got++] = q;
		off += k;
		n -= k;
	}
	return 0;
}

static void insert(struct blk *b, unsigned at, const struct part *q)
{
	memmove(b->parts + at + 1, b->parts + at, (b->nparts - at) * sizeof(*b->parts));
	b->parts[at] = *q;
	b->nparts++;
	b->cap += q->cap;
	atomic_fetch_add_explicit(&b->env->dirty, q->cap, memory_order_relaxed);
	atomic_fetch_add_explicit(&b->env->in_parts, q->cap, memory_order_relaxed);
}

int blk_part_put(struct blk *b, size_t off, const void *p, size_t n)
{
	struct part fresh[PARTS_MAX], *next = fresh;
	const uint8_t *from = p;
	int r = reserve_parts(b, off, n, fresh);

	if (r < 0)
		return r;
	while (n > 0) {
		unsigned i;
		bool new;
		size_t k = step(b, off, n, &i, &new), end;

		if (new)
			insert(b, i, next++);
		memcpy(b->parts[i].p + (off - b->parts[i].off), from, k);
		end = off - b->parts[i].off + k;
		if (end > b->parts[i].n)
			b->parts[i].n = (uint32_t)end;
		from += k;
		off += k;
		n -= k;
		if (off > b->len)
			b->len = (uint32_t)off;
	}
	return 0;
}

int blk_part_dup(const struct blk *b, struct blk **ret)
{
	struct blk *d;
	int r = blk_new_part(b->env, &b->digest, b->low_len, b->held, &d);

	for (unsigned i = 0; r == 0 && i < b->nparts; i++) {
		r = blk_part_put(d, b->parts[i].off, b->parts[i].p, b->parts[i].n);
		if (r < 0)
			blk_unref(d);
	}
	if (r < 0)
		return r;
	d->from = b;
	*ret = d;
	return 0;
}

void blk_part_rebase(struct blk *b, const struct digest *d, uint32_t len)
{
	if (b->held)
		store_chunk_unhold(b->env->store, &b->digest);
	b->held = false;
	b->from = NULL;
	b->digest = *d;
	b->low_len = len;
}

bool blk_part_reaches_end(const struct blk *b)
{
	const struct part *q = b->nparts ? &b->parts[b->nparts - 1] : NULL;

	return q && q->off + q->n >= b->len;
}

/* Is there a byte of [off, off + n) that only the chunk has? */
static bool needs_chunk(const struct blk *b, size_t off, size_t n)
{
	size_t end = off + n < b->low_len ? off + n : b->low_len;

	while (off < end) {
		unsigned i = part_at(b, off);

		if (i == b->nparts || off >= (size_t)b->parts[i].off + b->parts[i].n)
			return true;
		off = (size_t)b->parts[i].off + b->parts[i].n;
	}
	return false;
}

static void lay_over(const struct blk *b, size_t off, uint8_t *buf, size_t n)
{
	for (unsigned i = 0; i < b->nparts; i++) {
		const struct part *q = &b->parts[i];
		size_t s = q->off > off ? q->off : off;
		size_t e = (size_t)q->off + q->n < off + n ? (size_t)q->off + q->n : off + n;

		if (s < e)
			memcpy(buf + (s - off), q->p + (s - q->off), e - s);
	}
}

int blk_part_read(struct blk *b, size_t off, void *buf, size_t n)
{
	if (needs_chunk(b, off, n)) {
		int r = cenv_chunk_read(b->env, &b->digest, off, buf, n);

		if (r < 0)
			return r;
	} else {
		memset(buf, 0, n);
	}
	lay_over(b, off, buf, n);
	return 0;
}

int blk_part_whole(struct blk *b, void *buf, uint32_t *ret_len)
{
	ssize_t len = 0;

	if (needs_chunk(b, 0, b->low_len)) {
		len = store_chunk_get(b->env->store, &b->digest, buf, BLOCK);
		if (len < 0)
			return (int)len;
	}
	if ((size_t)len < b->len)
		memset((uint8_t *)buf + len, 0, b->len - (size_t)len);
	lay_over(b, 0, buf, b->len);
	*ret_len = (uint32_t)blk_trim(buf, b->len);
	return 0;
}
