/*
 * store/entry.h - any record of any database, decoded: what whoever looks at all of a store sees
 * (walk.h, fsck).
 *
 * A struct store_entry owns what its inode and commit own (store_entry_release) and lends the rest: names
 * and bytes point into the key and the value that were decoded.
 */
#pragma once

#include "store/codec.h"

/* The chunk environment's one database, beside those of enum store_db. */
#define DB_CHUNKS DB_COUNT
#define DB_ALL    (DB_COUNT + 1)

const char *store_db_name(enum store_db db); /* "inodes"; "chunks" */

struct store_entry {
	enum store_db db; /* or DB_CHUNKS */
	struct store_key key;
	bool gone; /* its layer took it back: what follows is empty */
	union {
		struct rec_inode inode;
		struct rec_name name;
		struct store_extent extent;
		struct {
			bool there; /* else a tombstone */
			const void *p;
			size_t n;
		} xattr;
		bool linked;
		struct store_layer_rec layer;
		MDB_val journal; /* for store_journal_each */
		struct store_commit commit;
		struct digest indexed; /* commit_index: the commit */
		store_layer ref;
		struct store_env env;
		struct store_move move;
		struct store_super super; /* meta, "superblock" */
		uint64_t counter;         /* meta, all else */
		struct {
			const void *stored; /* head and bytes */
			size_t n;
		} chunk;
	};
};

/* @v without its check value. -EBADMSG: key or value is none that is ever written. @ret is overwritten
 * and, on failure, holds the key as far as it could be read. */
int store_entry_decode(enum store_db db, const MDB_val *k, const MDB_val *v,
		       struct store_entry *ret) MUST_USE;
void store_entry_release(struct store_entry *e);
/* The bytes that decode to @e, @v without a check value. */
int store_entry_encode(const struct store_entry *e, struct key *k, struct buf *v) MUST_USE;
static inline bool store_entry_is_super(const struct store_entry *e)
{
	return e->db == DB_META && e->key.len == 10 && !memcmp(e->key.name, "superblock", 10);
}
