/*
 * store/gc.h - the collector between its own files: gc.c runs it, gc_layers.c finds what no root
 * reaches, gc_erase.c erases it, gc_chunks.c marks and sweeps chunks, gc_shrink.c gives pages back to the disk.
 *
 * docs/decisions/0007-gc.md says why it is safe beside writers. Locks: gc.lock (flocked) for the whole
 * of it; LMDB's writer locks for milliseconds at a time, the chunk environment's before meta's.
 */
#pragma once

#include "store/store_internal.h"

/* A layer as it was when the collector began to look. */
struct gc_layer {
	store_layer n, parent;
	int64_t created;
	uint32_t state;
	bool has_commit;
	bool live;
};

/* A commit record that goes when its layer does. */
struct gc_commit {
	store_layer layer;
	uint64_t seq;
	struct digest id;
	char env[65];
};

struct gc {
	struct store *s;
	const struct store_gc_opts *o;
	struct store_gc_result *res;
	struct diag *diag;
	int lock_fd;
	int64_t now;
	bool enospc; /* something could not be done for want of room */

	struct gc_layer *layers; /* by number */
	size_t nlayers;
	store_layer next_layer; /* the first one that is not in it */
	struct buf commits;     /* struct gc_commit */
	struct buf moves;       /* keys to delete: length (1 byte), bytes */
	struct buf envs;        /* char[65] each */
};

/* -ECANCELED when the caller wants no more. */
int gc_tell(struct gc *g, enum store_gc_phase phase, uint64_t done, uint64_t total) MUST_USE;
/* Let others have the writer lock. */
void gc_pause(void);
int64_t gc_clock_us(void);
/* mdb_cursor_open, damaged pages contained (guard.h). */
int gc_cursor(MDB_txn *t, MDB_dbi db, MDB_cursor **ret) MUST_USE;

/* Find what nothing reaches; with @g->o->dry_run only that. */
int gc_layers_find(struct gc *g) MUST_USE;
/* It and all that it sees are live. */
int gc_reach(struct gc *g, store_layer n) MUST_USE;
/* What environments, refs and pins name now. */
int gc_reach_moving(struct gc *g, MDB_txn *t) MUST_USE;
int gc_by_layer(const void *a, const void *b); /* of struct gc_commit */
int gc_layers_erase(struct gc *g) MUST_USE;
/* Is it one that gc_layers_find found to be garbage? */
bool gc_layer_dead(const struct gc *g, store_layer layer);

int gc_chunks(struct gc *g) MUST_USE;

int gc_shrink(struct gc *g) MUST_USE;
/* Bytes in pages that the next writers may use. */
int gc_free_inside(struct gc *g, uint64_t *ret) MUST_USE;
