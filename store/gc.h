/*
 * store/gc.h - the collector between its own files: gc.c runs it, gc_layers.c finds what no root
 * reaches, gc_erase.c erases it, gc_merge.c merges what is not kept but stood on, gc_chunks.c marks and sweeps chunks, gc_pack.c compresses those that stay, gc_shrink.c gives pages back to the disk.
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
	bool named;        /* something other than a layer above it names it */
	bool stays;        /* garbage, but damaged */
	uint32_t children; /* gc_merge's: layers that stand on it, */
	store_layer child; /* and one of them */
};

/* A commit record that goes when its layer does. */
struct gc_commit {
	store_layer layer;
	uint64_t seq;
	struct digest id;
	bool automatic;
	char env[65];
};

/* Why a layer is live, without regard to what stands on it. */
enum gc_root {
	GC_ROOT_ENV,  /* an environment's base, head or open layer */
	GC_ROOT_UNDO, /* what undo can go back to: a move or an automatic state, of an environment */
	GC_ROOT_COMMIT, /* of an environment, which may be gone */
	GC_ROOT_REF,    /* by its name */
	GC_ROOT_PIN,    /* somebody shows it */
	GC_ROOT_YOUNG,  /* nothing names it, but somebody may be making it */
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

	/* Of gc_layers_find: told of each root, @name the environment's or the ref's or "". May be NULL. */
	int (*root)(struct gc *g, enum gc_root why, const char *name, store_layer n);
	void *root_arg;
};

/* -ECANCELED when the caller wants no more. */
int gc_tell(struct gc *g, enum store_gc_phase phase, uint64_t done, uint64_t total) MUST_USE;
/* Let others have the writer lock. */
void gc_pause(void);
int64_t gc_clock_us(void);
/* mdb_cursor_open, damaged pages contained (guard.h). */
int gc_cursor(MDB_txn *t, MDB_dbi db, MDB_cursor **ret) MUST_USE;

/* NULL: there was none of that number. */
struct gc_layer *gc_layer_find(const struct gc *g, store_layer n);
/* Find what nothing reaches; with @g->o->dry_run only that. */
int gc_layers_find(struct gc *g) MUST_USE;
/* It and all that it sees are live. */
int gc_reach(struct gc *g, store_layer n) MUST_USE;
/* What environments, refs and pins name now. */
int gc_reach_moving(struct gc *g, MDB_txn *t) MUST_USE;
int gc_by_layer(const void *a, const void *b); /* of struct gc_commit */
int gc_layers_erase(struct gc *g) MUST_USE;
/* What came after we looked, and what it stands on. */
int gc_root_new(struct gc *g, MDB_txn *t) MUST_USE;
/* From here on no call takes the layer for the parent of another; its commit is gone. */
int gc_condemn(struct gc *g, MDB_txn *t, store_layer layer) MUST_USE;
/* States that are not kept, into the layer that stands on them. After gc_layers_erase. */
int gc_merge(struct gc *g) MUST_USE;
/* Is it one that gc_layers_find found to be garbage? */
bool gc_layer_dead(const struct gc *g, store_layer layer);

int gc_chunks(struct gc *g) MUST_USE;

#define GC_PAGE_HEAD 16 /* LMDB's, before the bytes of a value of its own pages */

/* A file of LMDB's, in whose values we trust no page. */
struct gc_file {
	int fd; /* lent */
	size_t psize;
};
/* Of the chunks of one page (in meta), or of the others. */
int gc_file_of(struct store *s, bool small, struct gc_file *ret) MUST_USE;
/* May LMDB free the pages of the value? */
bool gc_sound(const struct gc_file *f, const MDB_val *v);

/* A walk over the chunks of one of the two, in the order of their digests. */
struct gc_walk {
	bool small;         /* those of one page, in meta */
	struct digest next; /* where to begin, */
	bool any;           /* or what to go on behind */
	uint64_t done;      /* chunks that were looked at */
};
enum gc_walk_say {
	GC_WALK_ON,   /* this one is looked at */
	GC_WALK_FULL, /* the same, and for now it is enough */
	GC_WALK_END,  /* it is not, nor any behind it */
};
/* Some chunks, in one read transaction: @see gets a digest and a value, whose pages may be damaged (guard.h). 1 when there are more. */
int gc_walk(struct gc *g, struct gc_walk *w,
	    enum gc_walk_say (*see)(void *arg, const uint8_t *digest, const MDB_val *v),
	    void *arg) MUST_USE;

/* Chunks that stay, where that saves room. After gc_chunks. */
int gc_pack(struct gc *g) MUST_USE;

int gc_shrink(struct gc *g) MUST_USE;
/* Bytes in pages that the next writers may use. */
int gc_free_inside(struct gc *g, uint64_t *ret) MUST_USE;
