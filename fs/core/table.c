#include "fs/core/table.h"

#include <stdlib.h>
#include <string.h>

#define TABLE_MIN 16

static int table_grow(struct table *t)
{
	size_t want = t->nslots ? t->nslots * 2 : TABLE_MIN;
	struct table_link **s = calloc(want, sizeof(struct table_link *));

	if (!s)
		return -ENOMEM;
	for (size_t i = 0; i < t->nslots; i++) {
		for (struct table_link *l = t->slots[i], *next; l; l = next) {
			next = l->next;
			l->next = s[l->hash & (want - 1)];
			s[l->hash & (want - 1)] = l;
		}
	}
	free(t->slots);
	t->slots = s;
	t->nslots = want;
	return 0;
}

int table_add(struct table *t, struct table_link *l, uint64_t hash)
{
	if (t->n >= t->nslots && table_grow(t) < 0 && t->nslots == 0)
		return -ENOMEM;
	l->hash = hash;
	l->next = t->slots[hash & (t->nslots - 1)];
	t->slots[hash & (t->nslots - 1)] = l;
	t->n++;
	return 0;
}

void table_del(struct table *t, struct table_link *l)
{
	if (t->nslots == 0)
		return;
	for (struct table_link **p = &t->slots[l->hash & (t->nslots - 1)]; *p; p = &(*p)->next) {
		if (*p == l) {
			*p = l->next;
			l->next = NULL;
			t->n--;
			return;
		}
	}
}

struct table_link *table_find(const struct table *t, uint64_t hash)
{
	struct table_link *l = t->nslots ? t->slots[hash & (t->nslots - 1)] : NULL;

	while (l && l->hash != hash)
		l = l->next;
	return l;
}

struct table_link *table_next(const struct table_link *l)
{
	uint64_t hash = l->hash;
	struct table_link *k = l->next;

	while (k && k->hash != hash)
		k = k->next;
	return k;
}

void table_release(struct table *t)
{
	free(t->slots);
	*t = (struct table){0};
}

struct table_link *table_slot(const struct table *t, size_t *slot)
{
	while (*slot < t->nslots) {
		struct table_link *l = t->slots[(*slot)++];

		if (l)
			return l;
	}
	return NULL;
}

uint64_t table_hash_u64(uint64_t v)
{
	v ^= v >> 32;
	v *= UINT64_C(0x9e3779b97f4a7c15);
	v ^= v >> 29;
	v *= UINT64_C(0xbf58476d1ce4e5b9);
	return v ^ (v >> 32);
}

uint64_t table_hash(uint64_t seed, const void *p, size_t n)
{
	const uint8_t *b = p;
	uint64_t h = seed ^ (n * UINT64_C(0x9e3779b97f4a7c15));

	for (; n >= 8; n -= 8, b += 8) {
		uint64_t w;

		memcpy(&w, b, 8);
		h = table_hash_u64(h ^ w);
	}
	if (n > 0) {
		uint64_t w = 0;

		memcpy(&w, b, n);
		h = table_hash_u64(h ^ w);
	}
	return h;
}
