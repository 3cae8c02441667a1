#include <stdlib.h>
#include <string.h>

#include "fs/core/content_internal.h"

#define CAP_MIN    64
#define RADIX_BITS 6
#define RADIX      (1u << RADIX_BITS)

/* ---- blocks ---- */

static int blk_new(struct content_env *e, enum blk_kind kind, struct blk **ret)
{
	struct blk *b = calloc(1, sizeof *b);

	if (!b)
		return -ENOMEM;
	atomic_init(&b->refs, 1);
	b->kind = kind;
	b->env = e;
	*ret = b;
	return 0;
}

static size_t cap_for(size_t n)
{
	size_t cap = CAP_MIN;

	while (cap < n)
		cap *= 2;
	return cap;
}

int blk_new_data(struct content_env *e, size_t cap, struct blk **ret)
{
	struct blk *b;
	int r = blk_new(e, BLK_DATA, &b);

	if (r < 0)
		return r;
	atomic_init(&b->counted, true);
	r = blk_grow(b, cap);
	if (r < 0) {
		blk_unref(b);
		return r;
	}
	*ret = b;
	return 0;
}

int blk_new_unit(struct content_env *e, uint8_t *unit, struct blk **ret)
{
	int r = blk_new(e, BLK_DATA, ret);

	if (r < 0)
		return r;
	atomic_init(&(*ret)->counted, true);
	(*ret)->data = unit;
	(*ret)->cap = (uint32_t)BLOCK;
	atomic_fetch_add_explicit(&e->dirty, BLOCK, memory_order_relaxed);
	return 0;
}

int blk_new_ref(struct content_env *e, const struct digest *d, uint32_t len, struct blk **ret)
{
	int r = blk_new(e, BLK_REF, ret);

	if (r < 0)
		return r;
	(*ret)->digest = *d;
	(*ret)->len = len;
	return 0;
}

int blk_new_held(struct content_env *e, const struct digest *d, uint32_t len, struct blk **ret)
{
	int r = blk_new_ref(e, d, len, ret);

	if (r < 0)
		return r;
	r = store_chunk_hold(e->store, d);
	if (r < 0) {
		blk_unref(*ret);
		return r;
	}
	(*ret)->held = true;
	return 0;
}

int blk_new_hole(struct content_env *e, struct blk **ret)
{
	return blk_new(e, BLK_HOLE, ret);
}

int blk_dup(const struct blk *b, size_t cap, struct blk **ret)
{
	int r = blk_new_data(b->env, cap > b->len ? cap : b->len, ret);

	if (r == 0)
		blk_put(*ret, 0, b->data, b->len);
	return r;
}

struct blk *blk_ref(struct blk *b)
{
	atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
	return b;
}

void blk_settle(struct blk *b)
{
	if (!atomic_exchange(&b->counted, false))
		return;
	atomic_fetch_sub_explicit(&b->env->dirty, b->cap, memory_order_relaxed);
	if (b->kind != BLK_PART)
		return;
	atomic_fetch_sub_explicit(&b->env->in_parts, b->cap, memory_order_relaxed);
	atomic_fetch_sub_explicit(&b->env->owed, BLOCK, memory_order_relaxed);
}

/* Whole blocks come from the environment's spare buffers, smaller ones from the heap. */
static void data_free(struct blk *b)
{
	if (b->kind == BLK_PART)
		blk_parts_free(b);
	else if (b->cap == BLOCK)
		cenv_buf_put(b->env, b->data);
	else
		free(b->data);
}

static uint8_t *data_grow(struct blk *b, size_t cap)
{
	uint8_t *p;

	if (cap != BLOCK)
		return realloc(b->data, cap);
	p = cenv_buf_get(b->env);
	if (p && b->data) {
		memcpy(p, b->data, b->len);
		free(b->data);
	}
	return p;
}

void blk_unref(struct blk *b)
{
	if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) > 1)
		return;
	blk_settle(b);
	data_free(b);
	if (b->held)
		store_chunk_unhold(b->env->store, &b->digest);
	free(b);
}

int blk_grow(struct blk *b, size_t n)
{
	size_t cap;
	uint8_t *p;

	if (n <= b->cap)
		return 0;
	cap = cap_for(n);
	p = data_grow(b, cap);
	if (!p)
		return -ENOMEM;
	if (atomic_load(&b->counted))
		atomic_fetch_add_explicit(&b->env->dirty, cap - b->cap, memory_order_relaxed);
	b->data = p;
	b->cap = (uint32_t)cap;
	return 0;
}

void blk_put(struct blk *b, size_t off, const void *p, size_t n)
{
	if (off > b->len)
		memset(b->data + b->len, 0, off - b->len);
	if (n)
		memcpy(b->data + off, p, n);
	if (off + n > b->len)
		b->len = (uint32_t)(off + n);
}

size_t blk_trim(const uint8_t *p, size_t n)
{
	while (n >= sizeof(uint64_t)) {
		uint64_t v;

		memcpy(&v, p + n - sizeof v, sizeof v);
		if (v)
			break;
		n -= sizeof v;
	}
	while (n && !p[n - 1])
		n--;
	return n;
}

/* ---- the map ---- */

struct radix_node {
	unsigned used;
	void *slot[RADIX]; /* nodes, or blks on the last level */
};

/* Indices that a tree of this height can hold. */
static bool fits(unsigned height, uint64_t idx)
{
	return height * RADIX_BITS >= 64 || idx >> (height * RADIX_BITS) == 0;
}

static unsigned digit(uint64_t idx, unsigned level)
{
	return (unsigned)(idx >> (level * RADIX_BITS)) & (RADIX - 1);
}

struct blk *blkmap_get(const struct blkmap *m, uint64_t idx)
{
	void *p = m->root;

	if (!fits(m->height, idx))
		return NULL;
	for (unsigned level = m->height; p && level-- > 0;)
		p = ((struct radix_node *)p)->slot[digit(idx, level)];
	return p;
}

/* One more level on top. */
static int deepen(struct blkmap *m)
{
	if (m->root) {
		struct radix_node *n = calloc(1, sizeof *n);

		if (!n)
			return -ENOMEM;
		n->slot[0] = m->root;
		n->used = 1;
		m->root = n;
	}
	m->height++;
	return 0;
}

/* Frees nodes without entries on the way to @idx; true when the node at @p went. */
static bool prune(void **p, unsigned height, uint64_t idx)
{
	struct radix_node *n = *p;

	if (height == 0 || !n)
		return false;
	if (prune(&n->slot[digit(idx, height - 1)], height - 1, idx))
		n->used--;
	if (n->used)
		return false;
	free(n);
	*p = NULL;
	return true;
}

int blkmap_set(struct blkmap *m, uint64_t idx, struct blk *b)
{
	struct radix_node *parent = NULL;
	void **p;

	while (!fits(m->height, idx)) {
		int r = deepen(m);

		if (r < 0)
			return r;
	}
	p = &m->root;
	for (unsigned level = m->height; level-- > 0;) {
		if (!*p) {
			*p = calloc(1, sizeof(struct radix_node));
			if (!*p) {
				(void)prune(&m->root, m->height, idx);
				return -ENOMEM;
			}
			if (parent)
				parent->used++;
		}
		parent = *p;
		p = &parent->slot[digit(idx, level)];
	}
	if (*p) {
		blk_unref(*p);
	} else {
		m->count++;
		if (parent)
			parent->used++;
	}
	*p = b;
	return 0;
}

void blkmap_del(struct blkmap *m, uint64_t idx)
{
	struct radix_node *parent = NULL;
	void **p = &m->root;

	if (!fits(m->height, idx))
		return;
	for (unsigned level = m->height; level-- > 0;) {
		if (!*p)
			return;
		parent = *p;
		p = &parent->slot[digit(idx, level)];
	}
	if (!*p)
		return;
	blk_unref(*p);
	*p = NULL;
	m->count--;
	if (parent)
		parent->used--;
	(void)prune(&m->root, m->height, idx);
	if (!m->root)
		m->height = 0;
}

static struct blk *next_in(void *p, unsigned height, uint64_t base, uint64_t idx, uint64_t *ret_idx)
{
	struct radix_node *n = p;

	if (!p)
		return NULL;
	if (height == 0) {
		*ret_idx = base;
		return p;
	}
	for (unsigned i = digit(idx, height - 1); i < RADIX; i++) {
		uint64_t at = base | (uint64_t)i << ((height - 1) * RADIX_BITS);
		struct blk *b;

		if (!n->slot[i])
			continue;
		/* to the right of the wanted path everything counts */
		b = next_in(n->slot[i], height - 1, at, at > idx ? 0 : idx, ret_idx);
		if (b)
			return b;
	}
	return NULL;
}

struct blk *blkmap_next(const struct blkmap *m, uint64_t idx, uint64_t *ret_idx)
{
	if (!fits(m->height, idx))
		return NULL;
	return next_in(m->root, m->height, 0, idx, ret_idx);
}

static void release_in(void *p, unsigned height)
{
	struct radix_node *n = p;

	if (!p)
		return;
	if (height == 0) {
		blk_unref(p);
		return;
	}
	for (unsigned i = 0; i < RADIX; i++)
		release_in(n->slot[i], height - 1);
	free(n);
}

void blkmap_release(struct blkmap *m)
{
	release_in(m->root, m->height);
	*m = (struct blkmap){0};
}
