#include <stdlib.h>
#include <string.h>

#include "store/store_internal.h"

void store_anc_unref(struct store_anc *a)
{
	if (a && __atomic_sub_fetch(&a->refs, 1, __ATOMIC_ACQ_REL) == 0)
		free(a);
}

static struct store_anc *anc_ref(struct store_anc *a)
{
	(void)__atomic_add_fetch(&a->refs, 1, __ATOMIC_RELAXED);
	return a;
}

void store_anc_flush(struct store *s)
{
	for (int i = 0; i < STORE_ANC_CACHE; i++) {
		store_anc_unref(s->anc[i]);
		s->anc[i] = NULL;
	}
}

void store_anc_forget(struct store *s)
{
	(void)pthread_mutex_lock(&s->lock);
	store_anc_flush(s);
	(void)pthread_mutex_unlock(&s->lock);
}

/* A set stays good once made: layer numbers are not used twice, and an ancestor that was merged into another (gc_merge.c) has
 * nothing of its own any more. */
static struct store_anc *cache_find(struct store *s, store_layer l)
{
	struct store_anc *a = NULL;

	(void)pthread_mutex_lock(&s->lock);
	for (int i = 0; i < STORE_ANC_CACHE && !a; i++)
		if (s->anc[i] && s->anc[i]->layer == l)
			a = anc_ref(s->anc[i]);
	(void)pthread_mutex_unlock(&s->lock);
	return a;
}

static void cache_add(struct store *s, struct store_anc *a)
{
	struct store_anc *old;

	(void)pthread_mutex_lock(&s->lock);
	old = s->anc[s->anc_next];
	s->anc[s->anc_next] = anc_ref(a);
	s->anc_next = (s->anc_next + 1) % STORE_ANC_CACHE;
	(void)pthread_mutex_unlock(&s->lock);
	store_anc_unref(old);
}

/* Set the bits from @layer up to the first ancestor whose set is known, and take over that set: a
 * commit's new layer costs one step, however long its history. */
static int anc_fill(struct store *s, MDB_txn *txn, struct store_anc *a)
{
	store_layer l = a->layer;

	while (l) {
		struct store_layer_rec rec;
		struct store_anc *known = l == a->layer ? NULL : cache_find(s, l);
		int r;

		if (known) {
			for (size_t i = 0; i < known->words; i++)
				a->bits[i] |= known->bits[i];
			store_anc_unref(known);
			return 0;
		}
		r = store_layer_read(s, txn, l, &rec);
		if (r < 0)
			return r == -ENOENT && l != a->layer ? -EBADMSG : r;
		if (rec.parent >= l)
			return -EBADMSG;
		a->bits[l / 64] |= UINT64_C(1) << (l % 64);
		l = rec.parent;
	}
	return 0;
}

int store_anc_get(struct store *s, MDB_txn *txn, store_layer layer, struct store_anc **ret)
{
	struct store_anc *a = cache_find(s, layer);
	size_t words = layer / 64 + 1;
	struct store_layer_rec rec;
	int r = layer ? store_layer_read(s, txn, layer, &rec) : 0;

	if (r == 0 && !a) {
		/* The record exists, so the number is one that the store gave out. */
		a = calloc(1, sizeof(*a) + words * sizeof(a->bits[0]));
		if (!a)
			return -ENOMEM;
		*a = (struct store_anc){.refs = 1, .layer = layer, .words = words};
		r = anc_fill(s, txn, a);
		if (r == 0 && layer)
			cache_add(s, a);
	}
	if (r < 0) {
		store_anc_unref(a);
		return r;
	}
	*ret = a;
	return 0;
}

store_layer store_anc_below(const struct store_anc *a, store_layer l)
{
	size_t w = l / 64;
	uint64_t m;

	if (w >= a->words) {
		w = a->words;
		m = 0;
	} else {
		m = a->bits[w] & ((UINT64_C(1) << (l % 64)) - 1);
	}
	while (!m) {
		if (w == 0)
			return 0;
		m = a->bits[--w];
	}
	return w * 64 + 63 - (unsigned)__builtin_clzll(m);
}
