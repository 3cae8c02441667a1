/* store/fsck_internal.h - shared by the files of fsck.h; nobody else includes it. */
#pragma once

#include "store/entry.h"
#include "store/fsck.h"
#include "store/pages.h"
#include "store/walk.h"

/* ---- the snapshot (fsck_pin.c) ---- */

/* A child that has the store open in LMDB and holds a snapshot of both environments. */
struct fsck_pin {
	int pid;
	int sock;
	bool dead; /* LMDB could not open it, or died of it */
	int sig;   /* of what */
};
int fsck_pin_start(struct fsck_pin *p, const char *dir, struct diag *diag) MUST_USE;
void fsck_pin_end(struct fsck_pin *p);
/* A newer snapshot; the transactions that it is of. */
int fsck_pin_renew(struct fsck_pin *p, uint64_t ret_txn[static 2]) MUST_USE;

/* ---- what is known of layers (fsck_layers.c) ---- */

/* One of a set, by count and sum of hashes: two sets that agree in both are the same. */
struct fsck_set {
	uint64_t n, sum;
};

struct fsck_layer {
	store_layer layer;
	struct store_layer_rec rec;
	uint64_t in, out; /* an ancestor's interval holds its descendants' */
	struct fsck_set journal, keys;
	uint64_t journal_records;
	bool unknown;     /* its own record is damaged */
	bool bad;         /* or one below it: what can be seen from it cannot be told */
	bool journal_bad; /* gaps, or what is no entry */
	bool rebuild;     /* journal and count, by a repair */
};

/* Where somebody looks from: an environment's open layer, or a commit. */
struct fsck_view {
	store_layer layer;
	char env[65]; /* or "" */
	struct digest commit;
};

struct fsck {
	const struct store_fsck_opts *o;
	const char *dir;
	int dir_fd;
	struct fsck_pin pin;
	struct pages *meta, *chunks;
	struct pages_db db[DB_ALL];
	bool have[DB_ALL];
	bool structure_bad; /* a page of meta: records may be missing because of it */
	bool commits_bad;   /* a commit's record */
	bool quiet;         /* looked at before: nothing is told again */
	int format_bad;     /* what is wrong with the format file */
	struct diag format_why;
	void *dctx;
	enum store_db whose_db; /* fsck_chunks.c */
	bool have_super;
	struct fsck_set commit_set, index_all, index_env, pair_all, pair_env;
	uint64_t txn[2];
	struct fsck_layer *layers; /* by number */
	size_t nlayers, cap_layers;
	struct fsck_view *views;
	size_t nviews, cap_views;
	uint64_t budget; /* lookups left for naming who sees damage */
	store_ino max_ino;
	uint64_t max_seq, max_move;
	uint64_t counters[4], least[4]; /* by enum fsck_counter; 0: none */
	struct buf bad_chunks;          /* digests */
	struct buf nlinks;              /* struct fsck_nlink */
	struct buf unused_chunks;       /* digests of damaged ones that no file has */
	bool index_bad, stray_journal;
	bool pages_bad;  /* of either file: LMDB must not write */
	bool names_bad;  /* a name or a link may be lost */
	bool only_count; /* nothing is told yet */
	int lock_fd;     /* of a repair */
	struct store_fsck_sum sum;
	long long told; /* when progress was */
	int err;        /* of a callback: the end */
};

/* A wrong link count, told of when it is known whether all names and links could be read. */
struct fsck_nlink {
	store_ino ino;
	store_layer layer;
	uint32_t has, should;
};

enum fsck_counter {
	FSCK_NEXT_INO,
	FSCK_NEXT_LAYER,
	FSCK_NEXT_COMMIT,
	FSCK_NEXT_MOVE,
	FSCK_COUNTERS
};

/* NULL when there is none of that number. */
struct fsck_layer *fsck_layer(struct fsck *f, store_layer layer);
/* Is @a layer @l itself or an ancestor of it? */
bool fsck_sees(struct fsck *f, store_layer l, store_layer a);
int fsck_layer_bad(struct fsck *f, store_layer layer) MUST_USE;
/* Records of layers, commits, environments: fills the tables, then looks at how they hang together. */
int fsck_history(struct fsck *f) MUST_USE;
int fsck_journal(struct fsck *f) MUST_USE;  /* after fsck_tree */
int fsck_counters(struct fsck *f) MUST_USE; /* after all */
void fsck_set_add(struct fsck_set *s, enum store_db db, const void *k, size_t n);

/* ---- finding and telling (fsck_tell.c) ---- */

/* What a finding is about: a record of a versioned database, by its key. */
struct fsck_at {
	enum store_db db;
	struct store_key key;
	store_ino ino; /* whose path to tell; 0: none */
};

int fsck_tell(struct fsck *f, enum store_finding_state state, const char *kind, const char *where,
	      const struct fsck_at *at, const char *fmt, ...) PRINTF(6, 7) MUST_USE;
/* The same with everything but the counting done. */
int fsck_emit(struct fsck *f, const struct store_finding *out) MUST_USE;
int fsck_progress(struct fsck *f, const char *stage, uint64_t done, uint64_t total) MUST_USE;

/* The newest version at @layer of the record that @k names (its layer does not matter). 0 and @ret, which
 * is released by the caller; -ENOENT; -EBADMSG it is damaged. *@ret_layer (may be NULL): whose version. */
int fsck_find(struct fsck *f, enum store_db db, const struct store_key *k, store_layer layer,
	      struct store_entry *ret, store_layer *ret_layer) MUST_USE;
/* A record of another database. As above. */
int fsck_get(struct fsck *f, enum store_db db, const struct store_key *k,
	     struct store_entry *ret) MUST_USE;

/* ---- the parts ---- */

/* Every record of @db to @fn, pages checked; damaged records are told of here. */
typedef int (*fsck_record_fn)(struct fsck *f, const struct store_entry *e);
int fsck_records(struct fsck *f, enum store_db db, fsck_record_fn fn) MUST_USE;
/* Pages (fsck_pages.c): which databases there are; at the end the free list. */
int fsck_structure(struct fsck *f) MUST_USE;
int fsck_free(struct fsck *f) MUST_USE;
/* Inodes, names, extents, xattrs, links (fsck_tree.c). */
int fsck_tree(struct fsck *f) MUST_USE;
int fsck_nlinks(struct fsck *f) MUST_USE; /* what that found of link counts */
/* Bytes of chunks (fsck_chunks.c): keys, and the bytes of small ones; then those of the others, portion by portion
 * under snapshots of their own; at last whose the damaged ones are. */
int fsck_chunk_keys(struct fsck *f) MUST_USE;
int fsck_chunks(struct fsck *f) MUST_USE;
int fsck_chunk_owners(struct fsck *f) MUST_USE;
/* -ENOENT none; -EBADMSG there, but not of @len bytes. */
int fsck_chunk_there(struct fsck *f, const struct digest *d, uint32_t len) MUST_USE;
/* Write anew what can be (fsck_repair.c). */
int fsck_repair(struct fsck *f, struct diag *diag) MUST_USE;
