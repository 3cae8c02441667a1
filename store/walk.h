/*
 * store/walk.h - everything that a store holds, record by record, within one transaction.
 *
 * For whoever must see all: the collector marks with it. Constant memory; about a million records a
 * second. Damage does not end a walk: a record that does not decode, or whose check value is wrong, is
 * handed on with an error.
 */
#pragma once

#include "store/entry.h"

/* @e is lent, its bytes point into the map. @err 0, or -EBADMSG: the record is damaged, @e->db and what
 * could be read of @e->key is all there is. Nonzero ends the walk, which returns it. */
typedef int (*store_walk_fn)(void *arg, const struct store_entry *e, int err);

/* Bits of the databases to walk, in their order. */
#define WALK(db)  (1u << (db))
#define WALK_META (WALK(DB_COUNT) - 1) /* all of the meta environment */

/* @t: a read or write transaction of the meta environment, which @fn may read with, too. */
int store_walk(struct store *s, MDB_txn *t, unsigned dbs, store_walk_fn fn, void *arg) MUST_USE;
/* The chunk environment, in a read transaction of its own, from @from on when it is not NULL. The bytes of
 * a chunk should not be touched: each would be a read of the disk. */
int store_walk_chunks(struct store *s, const struct digest *from, store_walk_fn fn,
		      void *arg) MUST_USE;
/* One record as LMDB holds it, handed to @fn as the walk does. */
int store_walk_one(enum store_db db, const MDB_val *k, const MDB_val *v, store_walk_fn fn,
		   void *arg) MUST_USE;
