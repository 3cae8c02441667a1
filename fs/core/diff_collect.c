/* What the layers between two sides wrote. */
#include <stdlib.h>
#include <string.h>

#include "fs/core/diff_internal.h"

#define ARENA_BLOCK (64u << 10)

struct arena_block {
	struct arena_block *next;
	size_t used, size;
	char data[];
};

void *arena_get(struct arena *a, size_t n)
{
	struct arena_block *b = a->first;
	size_t size = n > ARENA_BLOCK ? n : ARENA_BLOCK;
	void *p;

	n = (n + 7) / 8 * 8;
	if (a->max && n > a->max - a->used) {
		a->full = true;
		return NULL;
	}
	if (!b || b->size - b->used < n) {
		b = malloc(sizeof *b + size + 8);
		if (!b)
			return NULL;
		*b = (struct arena_block){.next = a->first, .size = size + 8};
		a->first = b;
	}
	p = b->data + b->used;
	b->used += n;
	a->used += n;
	return p;
}

char *arena_join(struct arena *a, const char *dir, const char *name, size_t len)
{
	size_t n = strlen(dir);
	char *p = arena_get(a, n + len + 2);

	if (!p)
		return NULL;
	memcpy(p, dir, n);
	p[n] = '/';
	memcpy(p + n + 1, name, len);
	p[n + 1 + len] = '\0';
	return p;
}

void arena_release(struct arena *a)
{
	while (a->first) {
		struct arena_block *b = a->first;

		a->first = b->next;
		free(b);
	}
}

void *grow_one(void *array, size_t *n, size_t *max, size_t size)
{
	void **p = array;

	if (*n == *max) {
		size_t more = *max ? *max * 2 : 64;
		void *q = reallocarray(*p, more, size);

		if (!q)
			return NULL;
		*p = q;
		*max = more;
	}
	return memset((char *)*p + size * (*n)++, 0, size);
}

/* ---- journals ---- */

static int add_name(struct diff *d, store_ino parent, const char *name, size_t len)
{
	struct touched_name *t = grow_one(&d->names, &d->nnames, &d->names_max, sizeof *t);
	char *copy = t ? arena_get(&d->arena, len + 1) : NULL;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, name, len);
	copy[len] = '\0';
	*t = (struct touched_name){parent, len, copy};
	return 0;
}

static int add_ino(struct diff *d, store_ino ino)
{
	store_ino *p;

	if (d->ninos > 0 && d->inos[d->ninos - 1] == ino)
		return 0;
	p = grow_one(&d->inos, &d->ninos, &d->inos_max, sizeof *p);
	if (!p)
		return -ENOMEM;
	*p = ino;
	return 0;
}

static int see_key(void *arg, enum store_key_kind kind, store_ino ino, const char *name, size_t len,
		   uint64_t block)
{
	struct diff *d = arg;
	struct touched_extent *x;

	switch (kind) {
	case STORE_KEY_NAME:
		return add_name(d, ino, name, len);
	case STORE_KEY_EXTENT:
		x = grow_one(&d->extents, &d->nextents, &d->extents_max, sizeof *x);
		if (!x)
			return -ENOMEM;
		*x = (struct touched_extent){ino, block};
		return add_ino(d, ino);
	case STORE_KEY_INODE:
	case STORE_KEY_XATTR:
	case STORE_KEY_LINK:
		return add_ino(d, ino);
	}
	return 0;
}

static int collect_path(struct diff *d, store_layer layer, store_layer end)
{
	while (layer != end && layer != 0) {
		struct store_layer_info info;
		int r = store_layer_get(d->s, layer, &info);

		/* The parent first: a collector that takes it out has by then written down here what it held. */
		if (r == 0)
			r = store_layer_journal(d->s, layer, see_key, d);
		if (r < 0)
			return r;
		layer = info.parent;
	}
	return 0;
}

/* ---- sets ---- */

static int cmp_u64(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int name_cmp(const void *pa, const void *pb)
{
	const struct touched_name *a = pa, *b = pb;
	int r = cmp_u64(a->parent, b->parent);

	if (r == 0)
		r = memcmp(a->name, b->name, a->len < b->len ? a->len : b->len);
	return r ? r : cmp_u64(a->len, b->len);
}

static int ino_cmp(const void *pa, const void *pb)
{
	const store_ino *a = pa, *b = pb;

	return cmp_u64(*a, *b);
}

static int extent_cmp(const void *pa, const void *pb)
{
	const struct touched_extent *a = pa, *b = pb;
	int r = cmp_u64(a->ino, b->ino);

	return r ? r : cmp_u64(a->block, b->block);
}

static void make_set(void *array, size_t *n, size_t size, int (*cmp)(const void *, const void *))
{
	char *p = array;
	size_t kept = 0;

	if (*n < 2)
		return;
	qsort(p, *n, size, cmp);
	for (size_t i = 1; i < *n; i++)
		if (cmp(p + kept * size, p + i * size) != 0 && ++kept != i)
			memcpy(p + kept * size, p + i * size, size);
	*n = kept + 1;
}

int diff_collect(struct diff *d, store_layer from, store_layer to)
{
	store_layer common = 0;
	int r = 0;

	if (from && to)
		r = store_layer_common(d->s, from, to, &common);
	if (r == 0)
		r = collect_path(d, from, common);
	if (r == 0)
		r = collect_path(d, to, common);
	make_set(d->names, &d->nnames, sizeof *d->names, name_cmp);
	make_set(d->inos, &d->ninos, sizeof *d->inos, ino_cmp);
	make_set(d->extents, &d->nextents, sizeof *d->extents, extent_cmp);
	return r;
}

bool diff_ino_touched(const struct diff *d, store_ino ino)
{
	return d->ninos && bsearch(&ino, d->inos, d->ninos, sizeof ino, ino_cmp);
}

bool diff_name_touched(const struct diff *d, store_ino parent, const char *name, size_t len)
{
	struct touched_name key = {parent, len, name};

	return d->nnames && bsearch(&key, d->names, d->nnames, sizeof key, name_cmp);
}

const struct touched_extent *diff_extents_of(const struct diff *d, store_ino ino, size_t *ret_n)
{
	size_t lo = 0, hi = d->nextents, n = 0;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (d->extents[mid].ino < ino)
			lo = mid + 1;
		else
			hi = mid;
	}
	while (lo + n < d->nextents && d->extents[lo + n].ino == ino)
		n++;
	*ret_n = n;
	return n ? d->extents + lo : NULL;
}
