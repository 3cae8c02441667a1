/*
 * store/store.h - versioned trees and content-addressed chunks in one data directory.
 *
 * A tree is seen at a layer. Every record carries the layer that wrote it; a reader at layer L takes
 * the newest version whose layer is L or an ancestor of L. Sealing and moving are constant-time
 * record writes: nothing is copied, walked or merged.
 *
 * Threads: a struct store and a struct store_view may be used by any number of threads at once. A
 * struct store_batch belongs to one thread. No call leaves an LMDB transaction open, so nothing
 * returned lives in the map: all results are the caller's copies.
 * Processes: any number of processes of one PID namespace may open one data directory; a second PID
 * namespace is refused at open (lmdb.h, Caveats: reader slots and robust mutexes go by pid). Open
 * after the last fork; a child that only execs is fine. One process opens a directory once at a time:
 * closing the second would drop the first one's place in LMDB's reader table (lmdb.h, Caveats).
 * Durability: what store_batch_commit, store_env_seal and store_env_move returned 0 for is on disk,
 * in that order, chunks before the records that name them (S2).
 * Errors (beyond base/err.h): -ENOSPC disk or map full and -EDQUOT quota, nothing was written; -EBADMSG bytes do not
 * match their digest or format; -EAGAIN see store_batch_commit.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "store/digest.h"
#include "store/record.h"

struct store;
struct store_view;
struct store_batch;

enum store_open_flags {
	STORE_CREATE = 1 << 0, /* make the directory and an empty store if there is none */
	STORE_RDONLY = 1 << 1, /* no writes; still needs a writable lock file */
};

/* -ENOENT no store there; -EPROTONOSUPPORT made by another version; -ENOTEMPTY the directory holds
 * something else (a foreign directory is never written to); -EXDEV in use from another PID
 * namespace; each with a sentence in @diag. */
int store_open(const char *dir, unsigned flags, struct diag *diag, struct store **ret) MUST_USE;
void store_close(struct store *s);
static inline void cleanup_storep(struct store **s)
{
	store_close(*s);
}
#define cleanup_store __attribute__((cleanup(cleanup_storep)))

/* Readable from the moment on at which LMDB refuses everything to this process (-EIO each): a write of the page
 * that makes a transaction valid failed. What had been committed is on the disk, and opening the store anew
 * finds it. The store's own. */
int store_broken_fd(const struct store *s);
/* The same, asked. */
bool store_broken(const struct store *s);
/* Its files were removed: nothing can be written any more. */
bool store_vanished(const struct store *s);

/* Once, by a main program: a read that trips over a damaged page of the store (SIGSEGV, SIGBUS) is -EBADMSG for
 * whoever asked; anything else that trips ends the process, with a sentence that names fsck. */
void store_contain_damage(void);

/* Numbers [*ret_first, *ret_first + n) that no one else gets, now or after any crash. */
int store_reserve_inos(struct store *s, uint64_t n, store_ino *ret_first) MUST_USE;

/* ---- reading a tree ---- */

/* @layer may be open: the view then sees what has been committed to it so far, call by call. */
int store_view_open(struct store *s, store_layer layer, struct store_view **ret) MUST_USE;
void store_view_close(struct store_view *v);
store_layer store_view_layer(const struct store_view *v);
/* Is @layer the view's own layer or one of its ancestors? */
bool store_view_sees(const struct store_view *v, store_layer layer);

int store_view_inode(struct store_view *v, store_ino ino, struct rec_inode *ret) MUST_USE;
/* -ENOENT: no version in sight. A tombstone is 0 with ret->ino == 0: the core must tell "removed"
 * from "never named here", because a host directory may stand behind. */
int store_view_name(struct store_view *v, store_ino parent, const char *name, size_t len,
		    struct rec_name *ret) MUST_USE;
/* Every name of @parent in sight, tombstones included, in byte order. @fn may return nonzero to
 * stop, which is then the result. @fn must not call the store. A damaged one has inode STORE_DAMAGED_INO. */
int store_view_names(struct store_view *v, store_ino parent,
		     int (*fn)(void *arg, const char *name, size_t len, const struct rec_name *n),
		     void *arg) MUST_USE;

/* One block of a REC_EXTENTS file. */
struct store_extent {
	uint64_t block;
	uint32_t len; /* bytes kept (<= STORE_BLOCK); the rest of the block is zero; 0: a hole */
	struct digest chunk;
};
/* -ENOENT: no extent recorded for @block. */
int store_view_extent(struct store_view *v, store_ino ino, uint64_t block,
		      struct store_extent *ret) MUST_USE;
/* The recorded extents with block >= @first, in order; @fn as above. */
int store_view_extents(struct store_view *v, store_ino ino, uint64_t first,
		       int (*fn)(void *arg, const struct store_extent *e), void *arg) MUST_USE;

/* Big xattr values. -ENOENT also for a tombstone. */
int store_view_xattr(struct store_view *v, store_ino ino, const char *name,
		     struct buf *out) MUST_USE;
int store_view_xattrs(struct store_view *v, store_ino ino,
		      int (*fn)(void *arg, const char *name, size_t value_len), void *arg) MUST_USE;
/* The places of an inode with several links (see rec_inode.parent). */
int store_view_links(struct store_view *v, store_ino ino,
		     int (*fn)(void *arg, store_ino parent, const char *name, size_t len),
		     void *arg) MUST_USE;

/* ---- chunks ---- */

struct store_chunk {
	const void *data;
	size_t len;           /* 1..STORE_BLOCK */
	struct digest digest; /* set by store_chunks_put */
};
/* Hash, and keep what is not there yet; durable when it returns. Equal content is kept once (S3). */
int store_chunks_put(struct store *s, struct store_chunk *chunks, size_t n) MUST_USE;
/*
 * The same of chunks whose bytes are not there yet. @make sets .data and .len of the chunk @i; a .len of 0: there is nothing to put. It is
 * called once for each, by several threads at once, while others are written. @drop: the bytes are not needed any more; once for each that
 * was made, whatever happens, by the caller's thread. An error from @make ends it; chunks of which nothing was heard may be there.
 */
struct store_making {
	int (*make)(void *arg, size_t i, struct store_chunk *c);
	void (*drop)(void *arg, size_t i);
	void *arg;
};
int store_chunks_put_making(struct store *s, struct store_chunk *chunks, size_t n,
			    const struct store_making *m) MUST_USE;
/* The same, compressed where that saves an eighth: for imports and whatever else is not waited for. */
int store_chunks_put_packed(struct store *s, struct store_chunk *chunks, size_t n) MUST_USE;
/* The bytes of a chunk into @buf (cap >= STORE_BLOCK); verified against the digest (S4). Returns the
 * length; -ENOENT; -EBADMSG damaged. */
ssize_t store_chunk_get(struct store *s, const struct digest *d, void *buf, size_t cap) MUST_USE;
/* Bytes [off, off + n) of it, as far as it goes: *@ret_n of them. -EAGAIN: it has to be read whole, because this process has
 * not hashed it yet (proof.h), it is compressed or damaged, or @off is past its end. */
int store_chunk_get_part(struct store *s, const struct digest *d, size_t off, void *buf, size_t n,
			 size_t *ret_n) MUST_USE;

/* ---- writing to an open layer ---- */

int store_batch_begin(struct store *s, store_layer layer, struct store_batch **ret) MUST_USE;
/* The puts copy what they are given. -ENOMEM aborts nothing; the caller frees the batch. */
int store_batch_inode(struct store_batch *b, store_ino ino, const struct rec_inode *r) MUST_USE;
/* A chunk that records of this batch name: hashed now, and kept by its commit unless it is there. What is small lies where
 * the records do, so that one transaction does for both. @data (1..STORE_SMALL bytes) is lent until the commit. */
#define STORE_SMALL 4076
int store_batch_chunk(struct store_batch *b, const void *data, size_t len,
		      struct digest *ret) MUST_USE;
/* @n->ino 0 writes a tombstone. */
int store_batch_name(struct store_batch *b, store_ino parent, const char *name, size_t len,
		     const struct rec_name *n) MUST_USE;
int store_batch_extent(struct store_batch *b, store_ino ino, const struct store_extent *e) MUST_USE;
/* Forget this layer's and hide older layers' extents with block >= @first (a truncation): writes
 * hole records only where an older extent is in sight. */
int store_batch_extents_cut(struct store_batch *b, store_ino ino, uint64_t first) MUST_USE;
/* @value NULL writes a tombstone. */
int store_batch_xattr(struct store_batch *b, store_ino ino, const char *name, const void *value,
		      size_t len) MUST_USE;
int store_batch_link(struct store_batch *b, store_ino ino, store_ino parent, const char *name,
		     size_t len, bool present) MUST_USE;
/* An inode of this layer that lost its last link before it was ever sealed: its records in this
 * layer are dropped (older layers' versions stay for their readers). */
int store_batch_inode_gone(struct store_batch *b, store_ino ino) MUST_USE;
/* The batch counts (store_layer_info.batches) even if it is empty; without this an empty one does nothing. */
void store_batch_count(struct store_batch *b);
/* The batch is not counted: what stands on the last one's number is to be applied over this one as well. */
void store_batch_uncounted(struct store_batch *b);
/* Chunks that are not there may be named: whoever could put them again has done so, more than once, and what is still missing the store
 * has lost. What names it is damaged already, and must not keep all else from being stored. */
void store_batch_damaged(struct store_batch *b);
/* Everything or nothing, durable, with the journal of what the layer wrote. -ESTALE: the layer is
 * sealed (S1). -EAGAIN: a chunk that a record names is not there (collected meanwhile): put the
 * chunks again and retry with a new batch. The batch is consumed in every case. */
int store_batch_commit(struct store_batch *b) MUST_USE;
void store_batch_abort(struct store_batch *b);

/* ---- layers and their journal ---- */

enum store_layer_state {
	STORE_LAYER_OPEN = 1,
	STORE_LAYER_SEALED = 2,
	STORE_LAYER_DROPPED = 3, /* its environment was removed before it was sealed: garbage */
};

struct store_layer_info {
	store_layer layer, parent;
	enum store_layer_state state;
	struct timespec created;
	uint64_t records; /* records written by this layer; 0: nothing changed in it */
	uint64_t bytes;   /* chunk bytes that were new to the store with it */
	uint64_t batches; /* counted while it is open: what a log stands on (store/synclog.h) */
};
int store_layer_get(struct store *s, store_layer layer, struct store_layer_info *ret) MUST_USE;
/* A fresh open layer that belongs to no environment (import, bases); @parent 0: an empty tree. */
int store_layer_new(struct store *s, store_layer parent, store_layer *ret) MUST_USE;
int store_layer_seal(struct store *s, store_layer layer) MUST_USE;
/* Layers that only the caller knows of, children after their parents: garbage from now on. One that a commit sealed
 * meanwhile stays. */
int store_layers_discard(struct store *s, const store_layer *layers, size_t n) MUST_USE;
/* The nearest common ancestor; 0 when there is none. */
int store_layer_common(struct store *s, store_layer a, store_layer b, store_layer *ret) MUST_USE;

enum store_key_kind {
	STORE_KEY_INODE = 1,
	STORE_KEY_NAME,
	STORE_KEY_EXTENT,
	STORE_KEY_XATTR,
	STORE_KEY_LINK
};
/* What a layer wrote, each key once, in no particular order. @name only for NAME, XATTR, LINK;
 * @ino is the parent for NAME; @block is the block for EXTENT, the parent for LINK, else 0. */
int store_layer_journal(struct store *s, store_layer layer,
			int (*fn)(void *arg, enum store_key_kind kind, store_ino ino,
				  const char *name, size_t len, uint64_t block),
			void *arg) MUST_USE;

/* ---- commits ---- */

enum store_commit_kind {
	STORE_COMMIT = 1, /* asked for by somebody */
	STORE_AUTO = 2,   /* taken by itself: a checkpoint, or what a rollback left behind (M4) */
	STORE_BASE =
		3, /* an imported tree: kept as long as a name or a tree over it needs its layer */
};

struct store_commit {
	struct digest id;
	struct digest parent; /* all zero: none */
	store_layer layer;
	enum store_commit_kind kind;
	struct timespec time;
	uint64_t added, modified, deleted; /* paths */
	char env[65];
	char label[128];
	char *message; /* owned by the struct; NULL or NUL-terminated */
	bool damaged;  /* of store_commits alone: of the rest there is at most the id */
};
void store_commit_release(struct store_commit *c);
int store_commit_get(struct store *s, const struct digest *id, struct store_commit *ret) MUST_USE;
int store_commit_of_layer(struct store *s, store_layer layer, struct store_commit *ret) MUST_USE;
/* The newest layer at or above the sealed @layer that somebody asked to be kept: automatic states are
 * passed over, so that what they hold still counts as uncommitted. A base is itself. */
int store_head_commit(struct store *s, store_layer layer, store_layer *ret) MUST_USE;
/* Newest first; @env NULL: of all. The commit is lent to @fn; one whose records are damaged is marked. */
int store_commits(struct store *s, const char *env,
		  int (*fn)(void *arg, const struct store_commit *c), void *arg) MUST_USE;

/* ---- environments ---- */

struct store_env {
	char name[65];
	store_layer base; /* where it began */
	store_layer head; /* sealed parent of the open layer */
	store_layer open; /* the only layer that may be written to for this environment */
	struct timespec created;
	char base_name[65];
	bool damaged; /* of store_env_list alone: only the name is known, if that is */
};
/* 1..64 of [A-Za-z0-9._-], not starting with a dot or dash. */
bool store_env_name_valid(const char *name);
int store_env_create(struct store *s, const char *name, store_layer base, const char *base_name,
		     struct store_env *ret) MUST_USE;
/* An environment @name at the sealed layer @at, with the base of @from and its tags up to there: one transaction, constant time. -ENOENT no
 * @from, or no such layer; -EEXIST there is one of that name. */
int store_env_fork(struct store *s, const char *from, const char *name, store_layer at,
		   struct store_env *ret) MUST_USE;
int store_env_get(struct store *s, const char *name, struct store_env *ret) MUST_USE;
int store_env_list(struct store *s, int (*fn)(void *arg, const struct store_env *e),
		   void *arg) MUST_USE;
/* The record and its refs; commits stay reachable by id until collected. */
int store_env_remove(struct store *s, const char *name) MUST_USE;

/* Seal the open layer as @c (id, kind, time, label, message, counts are the caller's; parent, layer
 * and env are filled in) and open a child of it: one transaction, constant time. -ESTALE: @env is
 * not what is stored. On success @env is the new state. */
int store_env_seal(struct store *s, struct store_env *env, struct store_commit *c) MUST_USE;
/* The same, and the sealed state is tagged @tag: both or nothing. -EEXIST: another state has that name. NULL: no tag. */
int store_env_seal_tagged(struct store *s, struct store_env *env, struct store_commit *c,
			  const char *tag) MUST_USE;
/* Point the environment at the sealed layer @target and open a child of it. The old open layer must
 * have been sealed by the caller if it holds anything; empty, it is dropped. @op ("rollback",
 * "reset", "undo") is logged with where it came from, for store_env_last_move(). */
int store_env_move(struct store *s, struct store_env *env, store_layer target,
		   const char *op) MUST_USE;
/* The newest logged move that is not undone: where the environment stood before it. Moving with op
 * "undo" marks it undone. -ENOENT: nothing to undo. */
int store_env_last_move(struct store *s, const char *env, char ret_op[static 32],
			store_layer *ret_from) MUST_USE;

/* ---- refs ("base/host", "tag/NAME") ---- */

int store_ref_set(struct store *s, const char *name, store_layer layer) MUST_USE;
int store_ref_get(struct store *s, const char *name, store_layer *ret) MUST_USE;
int store_ref_del(struct store *s, const char *name) MUST_USE;
int store_refs(struct store *s, int (*fn)(void *arg, const char *name, store_layer layer),
	       void *arg) MUST_USE;

/* A tag is an environment's own name for a sealed state, the ref "env/ENV/tag/NAME": gone with the environment, and a fork
 * begins with those that name a state of its history. 1 to 64 of A-Z a-z 0-9 . _ -, the first no dot or dash; not "head" or "base",
 * nor four hex digits and more, which are the beginning of an id. */
#define STORE_TAG_MAX 64
bool store_tag_valid(const char *name);
/* *ret_was: what it named before; 0: nothing. -EEXIST it names another state, and @move is not given; -ENOENT no such layer;
 * -EINVAL not sealed, or no name. */
int store_tag_set(struct store *s, const char *env, const char *name, store_layer layer, bool move,
		  store_layer *ret_was) MUST_USE;
int store_tag_get(struct store *s, const char *env, const char *name, store_layer *ret) MUST_USE;
int store_tag_del(struct store *s, const char *env, const char *name) MUST_USE;

/* ---- bases: imported trees, "base/NAME" among the refs ---- */

struct store_ref {
	const char *name;
	store_layer layer;
};
struct store_base {
	const char *name;  /* as store_env_name_valid() has it */
	store_layer layer; /* sealed */
	/* Of sealed layers that had none, parents first: kind STORE_BASE; the caller fills in id, parent, layer and counts. */
	const struct store_commit *commits;
	size_t ncommits;
	const struct store_ref *refs; /* that are set with it */
	size_t nrefs;
	bool replace; /* one of that name is given up, and each ref "oci/..." whose layer no base stands on then */
};
/* All of it or nothing, in one transaction. -EEXIST: there is a base of that name; -EAGAIN: a layer was collected, or
 * such a commit came to be, meanwhile: look again. */
int store_base_set(struct store *s, const struct store_base *b) MUST_USE;
/* The name, "image/NAME", and each ref "oci/..." whose layer no other base stands on. What environments began on stays.
 * -ENOENT. */
int store_base_remove(struct store *s, const char *name) MUST_USE;

/* A revision as a person writes it: "head", "base", a tag of @env, another ref (of "tag/NAME" also NAME), a commit id or a
 * prefix of it (>= 4 digits), each with "~N" for the N-th commit before it. "head" passes over automatic states. @env may be NULL (then head and base are -EINVAL).
 * -ENOENT unknown; -EEXIST ambiguous prefix; a sentence in @diag either way. */
int store_resolve(struct store *s, const char *env, const char *rev, struct diag *diag,
		  store_layer *ret) MUST_USE;

struct store_stats {
	uint64_t commits, layers, chunks, chunk_bytes, chunk_file_bytes, meta_file_bytes;
	uint64_t inodes; /* records of inodes, of all layers */
	uint64_t disk_size, disk_free;
	uint64_t
		room; /* what can be written: disk_free, or less by a limit of ours or of the process */
};
int store_stats(struct store *s, struct store_stats *ret) MUST_USE;
/* Bytes by which this process has made the store larger: chunks and records that it put and that were not there, less
 * the records that they replaced and what its collections removed; only what was committed. Any thread, no lock. */
uint64_t store_written(const struct store *s);
/* Counted at @at from now on, what is counted already included, so that one process can go on with the sum of another; NULL: here
 * again. While nobody writes. */
void store_written_share(struct store *s, uint64_t *at);

/* ---- garbage (docs/decisions/0007-gc.md) ---- */

/* A sealed layer that this process shows: never collected while *ret_fd is open (S5). -ENOENT and -EINVAL:
 * no such layer, or one that is not sealed. */
int store_layer_pin(struct store *s, store_layer layer, int *ret_fd) MUST_USE;
/* The same of an open layer that is the caller's own (store_layer_new) and stays nameless. When he dies it is garbage, a day after it was made. */
int store_layer_pin_open(struct store *s, store_layer layer, int *ret_fd) MUST_USE;

/* A chunk that only this process's memory names, until store_chunk_unhold; counted. Of itself it keeps
 * a chunk that some record names now. Without room for the table: -ENOSPC, and nothing is held. */
int store_chunk_hold(struct store *s, const struct digest *d) MUST_USE;
void store_chunk_unhold(struct store *s, const struct digest *d);
/* store_chunks_put, and hold each: for who does not keep the bytes. Nothing is held on failure. */
int store_chunks_put_held(struct store *s, struct store_chunk *chunks, size_t n) MUST_USE;

enum store_gc_phase {
	STORE_GC_LOOK = 1, /* which layers are garbage */
	STORE_GC_ERASE,    /* records of layers */
	STORE_GC_MARK,     /* which chunks are named */
	STORE_GC_SWEEP,    /* chunks */
	STORE_GC_PACK,     /* chunks looked at for what can be compressed */
	STORE_GC_SHRINK,   /* pages given back to the disk */
};

#define STORE_GC_KEEP_MOVES 100
#define STORE_GC_KEEP_DAYS  30

struct store_gc_opts {
	bool dry_run; /* say what would go; no write */
	bool shrink;  /* give free pages back to the disk */
	bool pack;    /* compress what stays, where that saves an eighth */
	bool removed; /* also the commits of environments that were removed */
	/* What undo can reach: the newest of an environment's moves and automatic states. 0: the defaults. */
	unsigned keep_moves, keep_days;
	size_t memory; /* bound of the table of named chunks; 0: 64 MiB */
	/* Called often, with no lock held; false: stop, -ECANCELED. May be NULL. */
	bool (*go_on)(void *arg, enum store_gc_phase phase, uint64_t done, uint64_t total);
	void *arg;
};
struct store_gc_result {
	uint64_t layers, records; /* removed, or to be removed */
	uint64_t
		merged; /* of the states: others stood on them; their trees go with the next collection */
	uint64_t states, moves; /* automatic states (and commits with .removed), log entries */
	uint64_t chunks, chunk_bytes; /* as stored */
	uint64_t live_chunks;
	uint64_t packed, packed_from,
		packed_to; /* chunks compressed, their bytes before and after */
	uint64_t damaged;  /* layers and chunks that stay because they are */
	uint64_t
		free_bytes; /* in the files, for what comes; after shrinking little of it is on the disk */
	uint64_t given_back; /* to the disk */
};
/* Remove what no environment, ref, commit, pin or open layer can reach. Reading and writing go on in all
 * processes. -EBUSY another one is at it; -EBADMSG the store is damaged: nothing that could be named by what
 * is damaged was removed; -ENOSPC see store_batch_commit. A sentence in @diag each. Killed at any moment,
 * it leaves nothing behind that the next one does not finish. */
int store_gc(struct store *s, const struct store_gc_opts *o, struct diag *diag,
	     struct store_gc_result *ret) MUST_USE;
/* A cheap guess: has enough happened since the last one, or is the disk so full, that it is worth while? */
bool store_gc_wanted(struct store *s);
