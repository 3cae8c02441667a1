/*
 * store/pages.h - LMDB's file as bytes: every page, pointer and count checked before it is believed.
 *
 * LMDB trusts its pages: a damaged one is a wild pointer, an assertion or another record than was asked for,
 * and it offers no check. Whoever must read a store that may be damaged (fsck) reads it through this: pread,
 * no map, no LMDB call. Only reads; format of LMDB 0.9 on a machine of 64 bits, little-endian.
 *
 * Snapshots: a page of a snapshot may be used again by writers unless an LMDB reader of that snapshot is open
 * in some process for as long as it is looked at.
 * Threads: a struct pages belongs to one thread. Errors: beyond base/err.h, -EBADMSG damage.
 */
#pragma once

#include <lmdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pages;

struct pages_db {
	uint16_t flags, depth;
	uint64_t branch, leaf, overflow, entries, root;
};
#define PAGES_NONE UINT64_MAX /* the root of an empty database */

struct pages_snap {
	uint64_t txn;
	uint64_t pages; /* in the file */
	/* There should be more. A page at the end that a transaction has allocated and freed again is never written, and LMDB
	 * counts it as the last one all the same: what is on the free list may be missing. */
	bool cut;
	struct pages_db free, main;
};

int pages_open(int dirfd, const char *path, struct pages **ret) MUST_USE;
void pages_close(struct pages *p);
static inline void cleanup_pagesp(struct pages **p)
{
	pages_close(*p);
}
#define cleanup_pages __attribute__((cleanup(cleanup_pagesp)))

/* Look at the snapshot of transaction @txn from now on; PAGES_NEWEST: of the newest. -EAGAIN: it is no
 * longer named by a meta page. */
#define PAGES_NEWEST UINT64_MAX
int pages_begin(struct pages *p, uint64_t txn, struct pages_snap *ret) MUST_USE;
/* What is wrong with the two meta pages themselves, or NULL. */
const char *pages_meta_bad(struct pages *p);
size_t pages_size(const struct pages *p); /* of one */

struct pages_cb {
	/* Nonzero ends the walk, which returns it. */
	int (*record)(void *arg, const MDB_val *k, const MDB_val *v, unsigned flags);
	/* Page @pgno, and what is below it, cannot be read; keys from @lo on and below @hi are lost with
	 * it (without bytes: no bound). May be NULL. */
	int (*bad)(void *arg, uint64_t pgno, const char *what, const MDB_val *lo,
		   const MDB_val *hi);
	void *arg;
};
enum pages_flags {
	PAGES_MARK = 1 << 0, /* note pages as used: used twice is bad */
	PAGES_SHALLOW =
		1 << 1, /* values with pages of their own are not read: NULL and their length */
	PAGES_COUNT =
		1 << 2, /* compare with the counts of @db; only for walks from the beginning */
	PAGES_INTKEY = 1 << 3, /* keys are numbers as the machine has them (the free list) */
};
/* The records of @db in order, from @from on when it is not NULL. */
int pages_walk(struct pages *p, const struct pages_db *db, const MDB_val *from, unsigned flags,
	       const struct pages_cb *cb) MUST_USE;
/* The database that @v, the value of a record of the main database with flags @flags, describes. */
int pages_sub(const MDB_val *v, unsigned flags, struct pages_db *ret) MUST_USE;

/* A place in a database, and the record there; its bytes are lent until the next call. */
struct pages_pos {
	uint64_t pgno;
	unsigned i;
};
/* The first record whose key is not below @key. -ENOENT none; -EBADMSG damage on the way to it. */
int pages_find(struct pages *p, const struct pages_db *db, const MDB_val *key, unsigned flags,
	       struct pages_pos *pos, MDB_val *k, MDB_val *v) MUST_USE;
int pages_next(struct pages *p, const struct pages_db *db, unsigned flags, struct pages_pos *pos,
	       MDB_val *k, MDB_val *v) MUST_USE;

/* After walks with PAGES_MARK over all databases: the free list against what is used. @ret_lost: pages that
 * are neither. */
int pages_free_check(struct pages *p, const struct pages_cb *cb, uint64_t *ret_free,
		     uint64_t *ret_lost) MUST_USE;
