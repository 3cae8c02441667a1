/* store/pages_internal.h - shared by the files of pages.h; nobody else includes it. */
#pragma once

#include <string.h>

#include "store/pages.h"

/* ---- the format ---- */

#define DEPTH_MAX 32
#define KEY_LIMIT 511
#define VALUE_MAX (64u << 20)

#define P_BRANCH   0x01
#define P_LEAF     0x02
#define P_OVERFLOW 0x04
#define P_META     0x08
#define P_KIND     0x7f

#define F_BIG 0x01
#define F_SUB 0x02

struct page_head {
	uint64_t pgno;
	uint16_t pad, flags;
	uint16_t lower, upper; /* of an overflow page together: the number of pages */
};
#define HEAD sizeof(struct page_head)
_Static_assert(sizeof(struct page_head) == 16, "LMDB's page header");

struct node_head {
	uint16_t lo, hi, flags, ksize;
};
#define NODE sizeof(struct node_head)

struct disk_db {
	uint32_t pad;
	uint16_t flags, depth;
	uint64_t branch, leaf, overflow, entries, root;
};
_Static_assert(sizeof(struct disk_db) == 48, "LMDB's database record");

/* ---- a file ---- */

#define CACHE_PAGES 2048 /* by number; 8 MiB of the usual size */

struct pages {
	int fd;
	size_t size;
	uint8_t *cache;
	uint64_t *cached; /* which page each slot holds, plus one */
	uint8_t *value;
	size_t value_cap;
	uint64_t txn, last;
	uint64_t
		there; /* the last page that is in the file; those behind it, up to @last, are free */
	struct pages_db free;
	uint64_t *used; /* bits */
	size_t words;
};

int pages_read(struct pages *p, void *buf, size_t n, uint64_t at) MUST_USE;
void pages_take_db(const struct disk_db *d, struct pages_db *ret);
/* Are all of the pages behind @there on the free list? Nonzero @used bits are none afterwards. */
int pages_rest_free(struct pages *p, bool *ret) MUST_USE;
/* A checked page, lent until the next call; *@ret_bad says what is wrong with it, or is NULL. */
const uint8_t *pages_load(struct pages *p, uint64_t pgno, const char **ret_bad);

/* ---- one page ---- */

static inline const struct page_head *head_of(const uint8_t *pg)
{
	return (const struct page_head *)(const void *)pg;
}

static inline unsigned count_of(const uint8_t *pg)
{
	return (head_of(pg)->lower - (unsigned)HEAD) / 2;
}

static inline size_t offset_of(const uint8_t *pg, unsigned i)
{
	uint16_t at;

	memcpy(&at, pg + HEAD + 2 * i, 2);
	return at;
}

static inline struct node_head node_of(const uint8_t *pg, unsigned i)
{
	struct node_head n;

	memcpy(&n, pg + offset_of(pg, i), sizeof(n));
	return n;
}

static inline MDB_val key_of(const uint8_t *pg, unsigned i)
{
	struct node_head n = node_of(pg, i);

	return (MDB_val){n.ksize, (void *)(uintptr_t)(pg + offset_of(pg, i) + NODE)};
}

static inline uint64_t child_of(struct node_head n)
{
	return n.lo | (uint64_t)n.hi << 16 | (uint64_t)n.flags << 32;
}

static inline size_t data_len(struct node_head n)
{
	return n.lo | (size_t)n.hi << 16;
}
