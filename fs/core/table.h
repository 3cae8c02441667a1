/*
 * fs/core/table.h - a chained hash table of links embedded in their owners.
 *
 * Not locked: the owner's lock protects it. A zeroed struct table is empty and valid. The caller
 * compares keys: walk the links that table_find() and table_next() give for a hash.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct table_link {
	struct table_link *next;
	uint64_t hash;
};
struct table {
	struct table_link **slots;
	size_t nslots; /* a power of two, or 0 */
	size_t n;
};

/* -ENOMEM only for the first link of an empty table; later growth that fails leaves longer chains. */
int table_add(struct table *t, struct table_link *l, uint64_t hash) MUST_USE;
void table_del(struct table *t, struct table_link *l);
struct table_link *table_find(const struct table *t, uint64_t hash);
struct table_link *table_next(const struct table_link *l);
/* Frees the slots, not the owners. */
void table_release(struct table *t);
/* Any link whose slot is >= *slot, which is advanced; NULL at the end. Links of one slot follow by
 * ->next. For walks over a whole table that does not change meanwhile. */
struct table_link *table_slot(const struct table *t, size_t *slot);

uint64_t table_hash(uint64_t seed, const void *p, size_t n);
uint64_t table_hash_u64(uint64_t v);
