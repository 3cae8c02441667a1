/*
 * store/codec.h - the spelling of every key and of every value but the inode's (record.h) and the
 * msgpack ones (commit.c, envs.c, open.c): pure functions, bytes to structs and back.
 *
 * Decoders take exactly one spelling of each value; anything else is -EBADMSG. docs/store-format.md
 * has the table, tests/unit/store/test_golden.c the bytes.
 */
#pragma once

#include "store/key.h"
#include "store/store_internal.h"

/* What a key says; members that its database does not have are 0. Names are lent, not terminated. */
struct store_key {
	store_ino ino;     /* names: of the parent */
	uint64_t block;    /* extents; links: the parent */
	const char *name;  /* commit_index, moves: of the environment */
	size_t len;        /* of the name */
	store_layer layer; /* that wrote it; layers and journal: the layer itself */
	uint64_t number;   /* journal, commit_index, moves */
	struct digest id;  /* commits, small, chunks */
};
int store_key_decode(enum store_db db, const void *p, size_t n, struct store_key *ret) MUST_USE;
void store_key_encode(enum store_db db, const struct store_key *k, struct key *ret);
/* Do the keys of @db end with a layer? */
bool store_db_versioned(enum store_db db);

#define STORE_NAME_LEN   12
#define STORE_EXTENT_LEN (4 + DIGEST_LEN)
/* parent, state, created, records, bytes, journal, commit */
#define STORE_LAYER_LEN  (8 + 4 + 8 + 4 + 8 + 8 + 8 + DIGEST_LEN)
#define STORE_LAYER_MAX  (STORE_LAYER_LEN + 8) /* batches: of an open layer that has any */

void store_name_encode(const struct rec_name *n, uint8_t p[static STORE_NAME_LEN]);
int store_name_decode(const MDB_val *v, struct rec_name *ret) MUST_USE;
/* Returns the length: of a hole 4. */
size_t store_extent_encode(const struct store_extent *e, uint8_t p[static STORE_EXTENT_LEN]);
/* All but the block, which is in the key. */
int store_extent_decode(const MDB_val *v, struct store_extent *ret) MUST_USE;
/* Returns the length. */
size_t store_layer_encode(const struct store_layer_rec *rec, uint8_t p[static STORE_LAYER_MAX]);
int store_layer_decode(const MDB_val *v, struct store_layer_rec *ret) MUST_USE;
/* Xattrs and links: 1 and what is there, or a tombstone. @ret_p and @ret_n NULL: nothing may follow. */
int store_there_decode(const MDB_val *v, bool *ret_there, const void **ret_p,
		       size_t *ret_n) MUST_USE;
int store_num_decode(const MDB_val *v, uint64_t *ret) MUST_USE;

/* The entries of a journal record; @k is the key without its layer. */
typedef int (*store_journal_fn)(void *arg, enum store_db db, const uint8_t *k, size_t n);
int store_journal_each(const MDB_val *v, store_journal_fn fn, void *arg) MUST_USE;
/* A journal record stays below half a page, so that it lies in its leaf and takes no page alone. */
#define STORE_JOURNAL_MAX 1990
/* The head of an entry for a key of @n bytes. */
void store_journal_head(enum store_db db, size_t n, uint8_t p[static 3]);
