/*
 * store/usage.h - what takes the space in a store, and whose it is.
 *
 * A layer belongs to whoever reaches it: an environment (its tree, its commits, what undo can go back to) or a base. A record belongs to
 * those whose layers hold it, a chunk to those of whose records one names it. All of it is counted, nothing is estimated: bytes
 * are those of keys and values as stored; what LMDB loses at the ends of pages is in the sizes of the files alone.
 */
#pragma once

#include <stdint.h>

#include "store/store.h"

struct store_usage_size {
	uint64_t chunks, chunk_bytes;
	uint64_t records, record_bytes; /* with the journals, which are not counted as records */
};

enum store_usage_kind {
	STORE_USAGE_ENV = 1,
	STORE_USAGE_BASE,
	STORE_USAGE_REMOVED, /* the commits of environments that were removed */
	STORE_USAGE_OTHER,   /* what is mounted or being made, and tags of nobody */
};

struct store_usage_row {
	enum store_usage_kind kind;
	char name[65];                   /* "" of the last two kinds */
	struct store_usage_size reaches; /* also what others reach, too */
	/* What a collection gives back when the row's owner is removed with its commits. What a commit of an environment that
	 * was removed before reaches, too, is not in it. */
	struct store_usage_size alone;
	struct store_usage_size commits; /* of alone: what its commits keep */
	/* Of alone: what only undo can go back to. A state that others stand on is not in it. */
	struct store_usage_size undo;
	uint64_t states; /* that undo can go back to: ends of moves, and automatic states */
};

struct store_usage {
	struct store_usage_size total, shared; /* by two rows or more */
	struct store_usage_size
		garbage; /* what a collection would remove now, and what is being written */
	uint64_t packed, packed_bytes,
		packed_raw; /* chunks that are compressed: as stored, and what they hold */
	uint64_t chunk_file_bytes, meta_file_bytes, other_file_bytes; /* on the disk */
	uint64_t free_bytes; /* in the first two, for what comes */
	uint64_t damaged;    /* records that do not decode: what they name counts as garbage */
	struct store_usage_row *rows; /* owned; by kind, then by what is alone, the most first */
	size_t nrows;
};
void store_usage_release(struct store_usage *u);

struct store_usage_opts {
	unsigned keep_moves, keep_days; /* as in struct store_gc_opts */
	size_t memory;                  /* bound of the table of named chunks; 0: 64 MiB */
	/* Called often, with no transaction open; nonzero: stop with it. May be NULL. */
	int (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
	void *arg;
};
/* Beside whatever uses the store, which may be opened read-only; takes no lock and keeps no page from being used again for long. What changes
 * meanwhile may be counted or not. -EBADMSG: damage that hides what is there. A sentence in @diag. @ret is empty after an error. */
int store_usage(struct store *s, const struct store_usage_opts *o, struct diag *diag,
		struct store_usage *ret) MUST_USE;
