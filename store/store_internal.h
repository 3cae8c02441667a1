/*
 * store/store_internal.h - what the files of store/ share; nobody else includes it.
 *
 * lm.c knows LMDB's environments, transactions and errors; key.h the spelling of keys; ancestry.c
 * which layers a layer sees; version.c how the newest visible version of a key is found; seen.c and hold.c
 * what a collector must leave alone, gc.h the collector. The others are the calls of store.h by subject.
 */
#pragma once

#include <lmdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "store/store.h"

#define STORE_FORMAT       4
#define STORE_FORMAT_READ  2 /* and everything since */
#define STORE_FORMAT_WORDS "rattan store, format "
#define STORE_DIGEST_NAME  "sha256"
#define STORE_MAP_SIZE     ((size_t)1 << 40)
/* Beside enum store_open_flags, for fsck: LMDB only, whatever is in it. */
#define STORE_BARE         (1u << 8)
/* For its repair: nobody else may have it open; format file and superblock are not looked at. */
#define STORE_ALONE        (1u << 9)

/* The named databases of the meta environment; the chunk environment has only its unnamed one. The
 * order is part of the format: check values are seeded with it. */
enum store_db {
	DB_INODES,
	DB_NAMES,
	DB_EXTENTS,
	DB_XATTRS,
	DB_LINKS,
	DB_LAYERS,
	DB_JOURNAL,
	DB_COMMITS,
	DB_COMMIT_INDEX,
	DB_REFS,
	DB_ENVS,
	DB_MOVES,
	DB_META,
	DB_SMALL,
	DB_COUNT,
};

/* ---- check values (sum.c): the last four bytes of every value but chunks ---- */

#define STORE_SUM_LEN 4

uint32_t store_sum(enum store_db db, const MDB_val *k, const void *p, size_t n);
bool store_sum_has(enum store_db db);
/* Take the check value off @v, or -EBADMSG. */
int store_sum_strip(enum store_db db, const MDB_val *k, MDB_val *v) MUST_USE;
/* Is @v, found damaged under @k, what was written as the record of @prefix and the layer that @k ends with? Damage
 * to a key hides its record; the check value remembers. */
bool store_sum_was(enum store_db db, const MDB_val *k, const MDB_val *v, const void *prefix,
		   size_t plen);
static inline bool store_same_bytes(const struct buf *b, const MDB_val *v)
{
	return b->len == v->mv_size && (b->len == 0 || !memcmp(b->data, v->mv_data, b->len));
}

/* ---- LMDB (lm.c) ---- */

/* The one place where LMDB's errors become ours. */
int store_lm_err(int rc);

/* A read transaction with its cursors, kept between calls in a pool: renewing one costs nothing
 * against making one. */
struct store_reader {
	struct store_reader *next;
	MDB_txn *txn;
	MDB_cursor *cur[DB_COUNT];
	bool cur_fresh[DB_COUNT]; /* opened or renewed since the transaction was */
	void *dctx;               /* ZSTD_DCtx of the chunk pool's readers */
};

/* Every reader of every process takes a slot in LMDB's table of 64 bytes each. */
#define STORE_READERS  2046
#define STORE_LOCK_MAX ((size_t)STORE_READERS * 64 + 4096)

struct store_pool {
	MDB_env *env;
	pthread_mutex_t lock; /* leaf; guards what follows */
	struct store_reader *idle;
	unsigned n_idle;
	unsigned calls; /* write transactions since the last look for dead readers */
};

/* @flags: of LMDB, beside ours. */
int store_pool_open(struct store_pool *p, const char *path, size_t map, unsigned flags) MUST_USE;
void store_pool_close(struct store_pool *p);

int store_reader_get(struct store_pool *p, struct store_reader **ret) MUST_USE;
void store_reader_put(struct store_pool *p, struct store_reader *rd);

/* ---- the store (open.c) ---- */

struct store_anc;
#define STORE_ANC_CACHE 8

struct store {
	char *dir;
	int dir_fd;    /* flocked for the moments of opening and closing */
	int lock_fd;   /* flocked shared as long as the store is open */
	int broken_fd; /* an eventfd: store_broken_fd */
	bool rdonly;
	struct store_pool meta, chunks;
	MDB_dbi db[DB_COUNT];
	MDB_dbi chunk_db;
	uint64_t chunk_base;   /* address of the chunk map, once known; atomic */
	struct proofs *proofs; /* of chunks that were hashed; has its own lock */

	pthread_mutex_t lock; /* leaf; guards what follows */
	struct store_anc *anc[STORE_ANC_CACHE];
	unsigned anc_next;
	void *fresh; /* a tsearch tree of fresh.c */
	size_t n_fresh;

	/* seen.c, hold.c: set once under the lock, then read without it */
	uint8_t *seen;
	size_t seen_len;
	uint32_t *holds;
	int hold_fd;
	char hold_name[24];

	int64_t meta_new; /* bytes of records: of the transaction that writes; whose it is, LMDB's lock says */
	uint64_t written;     /* store_written(); atomic */
	uint64_t *written_at; /* instead of it; NULL: none */
};

/* Never below 0. */
void store_written_add(struct store *s, int64_t n);

/* -EBUSY, with a sentence. */
int store_in_use(const char *dir, struct diag *diag) MUST_USE;
/* What the format file says: -EPROTONOSUPPORT a format that we do not read, -EBADMSG none. */
int store_format_check(int dirfd, const char *dir, struct diag *diag) MUST_USE;
/* Of a store that is to be written to, with the directory locked: no older rattan opens it from now on. */
int store_format_raise(int dirfd) MUST_USE;

/* The environment is gone, and what its log says with it (synclog.h). */
void store_log_forget(struct store *s, const char *env);

struct store_limits {
	size_t meta_map, chunk_map;
};
/* store_open with other map sizes, for tests of a full map. */
int store_open_limits(const char *dir, unsigned flags, const struct store_limits *lim,
		      struct diag *diag, struct store **ret) MUST_USE;

/* ---- making one (create.c), with the directory locked ---- */

int store_create_superblock(struct store *s) MUST_USE;
/* All of it to the disk, and then the file that names it. */
int store_create_end(struct store *s) MUST_USE;
/* Take away what a creation left that cannot be gone on with; -EBADMSG: it may be somebody's store. Closes
 * the environments. */
int store_create_clear(struct store *s) MUST_USE;

/* A meta reader that goes back by itself at the end of the scope. */
struct store_rd {
	struct store *s;
	struct store_reader *r;
};
int store_rd_begin(struct store *s, struct store_rd *rd) MUST_USE;
void store_rd_end(struct store_rd *rd);
#define cleanup_rd __attribute__((cleanup(store_rd_end)))
int store_rd_cursor(struct store_rd *rd, enum store_db db, MDB_cursor **ret) MUST_USE;
int store_rd_get(struct store_rd *rd, enum store_db db, MDB_val *k, MDB_val *v) MUST_USE;
/* mdb_cursor_get on a cursor of @db. The value comes checked and without its check value: -EBADMSG when
 * it is damaged, @k then says where. The raw one leaves that to the caller. */
int store_cur_get(MDB_cursor *c, enum store_db db, MDB_val *k, MDB_val *v,
		  MDB_cursor_op op) MUST_USE;
int store_cur_raw(MDB_cursor *c, MDB_val *k, MDB_val *v, MDB_cursor_op op) MUST_USE;
/* mdb_get, damaged pages contained (guard.h). */
int store_lm_get(MDB_txn *t, MDB_dbi db, MDB_val *k, MDB_val *v) MUST_USE;

/* Why LMDB wrote less than it wanted: -ENOSPC, -EDQUOT, or 0: there is room (room.c). */
int store_room_err(struct store *s);

/* Room on the disk for all of a file that is empty and will be written to through a map: a write that finds none there
 * is SIGBUS. */
int store_map_room(int fd, size_t n) MUST_USE;
/* The same for LMDB's table of readers, as far as that can be had; before LMDB opens it (its locks go with any of the
 * process's descriptors). */
void store_map_room_lmdb(struct store *s, const char *file, size_t n);

/* A meta write transaction, aborted at the end of the scope unless it was committed. */
int store_tx_begin(struct store *s, MDB_txn **ret) MUST_USE;
int store_tx_commit(struct store *s, MDB_txn **t) MUST_USE;
void store_tx_abortp(MDB_txn **t);
#define cleanup_tx __attribute__((cleanup(store_tx_abortp)))
int store_tx_get(struct store *s, MDB_txn *t, enum store_db db, MDB_val *k, MDB_val *v) MUST_USE;
int store_tx_put(struct store *s, MDB_txn *t, enum store_db db, MDB_val *k, const MDB_val *v,
		 unsigned flags) MUST_USE;
int store_tx_del(struct store *s, MDB_txn *t, enum store_db db, MDB_val *k) MUST_USE;

/* A counter in the meta database: *@ret_first is its old value, it grows by @n. */
int store_tx_count(struct store *s, MDB_txn *t, const char *name, uint64_t n,
		   uint64_t *ret_first) MUST_USE;

/* ---- what a layer sees (ancestry.c) ---- */

/* Immutable and counted: bit L is set when layer L is the layer itself or an ancestor. */
struct store_anc {
	unsigned refs; /* atomic */
	store_layer layer;
	size_t words;
	uint64_t bits[];
};
/* @txn may be a read or a write transaction. -ENOENT: no such layer. */
int store_anc_get(struct store *s, MDB_txn *txn, store_layer layer,
		  struct store_anc **ret) MUST_USE;
void store_anc_unref(struct store_anc *a);
void store_anc_flush(struct store *s);
/* The same, while others look. */
void store_anc_forget(struct store *s);
static inline bool store_anc_has(const struct store_anc *a, store_layer l)
{
	return l / 64 < a->words && (a->bits[l / 64] >> (l % 64) & 1);
}
/* The greatest member below @l; 0: none. */
store_layer store_anc_below(const struct store_anc *a, store_layer l);

/* ---- versions (version.c) ---- */

/* The value of the newest visible version of the key that begins with @prefix and ends with a layer;
 * -ENOENT. An empty value is a version that its layer took back: the next older one counts. */
int store_ver_find(MDB_cursor *c, enum store_db db, const struct store_anc *a, const void *prefix,
		   size_t plen, MDB_val *ret) MUST_USE;
/* As store_ver_find, for every key that begins with @prefix, from @from (which begins with it, too)
 * on; @fn gets what stands between @prefix and the layer. @val NULL: that one is damaged. */
typedef int (*store_ver_fn)(void *arg, const uint8_t *mid, size_t n, const MDB_val *val);
int store_ver_scan(MDB_cursor *c, enum store_db db, const struct store_anc *a, const void *from,
		   size_t flen, size_t plen, store_ver_fn fn, void *arg) MUST_USE;

/* 1..STORE_NAME_MAX bytes without NUL and slash. */
bool store_name_ok(const char *name, size_t n);

/* ---- layers (layer.c) ---- */

struct store_layer_rec {
	store_layer parent;
	uint32_t state;
	struct timespec created;
	uint64_t records, bytes;
	uint64_t journal;     /* the next sequence number */
	struct digest commit; /* that sealed it; all zero: none */
	uint64_t batches;     /* that were committed; kept while it is open */
};
int store_layer_read(struct store *s, MDB_txn *txn, store_layer layer,
		     struct store_layer_rec *ret) MUST_USE;
int store_layer_write(struct store *s, MDB_txn *txn, store_layer layer,
		      const struct store_layer_rec *r) MUST_USE;
/* What is written down of the keys that a layer gets: entries are put together into records of its journal. @rec is the
 * layer's, lent; the caller writes it after the flush. */
struct store_pen {
	struct store *s;
	MDB_txn *txn;
	store_layer layer;
	struct store_layer_rec *rec;
	struct buf entries; /* not yet in a record */
};
/* @k is the key without its layer. */
int store_pen_add(struct store_pen *p, enum store_db db, const uint8_t *k, size_t n) MUST_USE;
int store_pen_flush(struct store_pen *p) MUST_USE;
/* A new open layer. */
int store_layer_add(struct store *s, MDB_txn *txn, store_layer parent, store_layer *ret) MUST_USE;
int store_layer_drop(struct store *s, MDB_txn *txn, store_layer layer) MUST_USE;

/* ---- chunks (chunk.c, fresh.c) ---- */

#define STORE_CHUNK_HEAD 4
/* The length that the head of a stored chunk gives. */
size_t store_chunk_raw(const void *stored);
/* digest_of, and what is read back later is checked by (proof.h). */
int store_chunk_digest(struct store *s, const void *data, size_t len, struct digest *ret) MUST_USE;
/* Is it stored as it is, by its header of STORE_CHUNK_HEAD bytes? */
bool store_chunk_is_raw(const void *stored);
/* What would be stored of it compressed, owned by the caller; NULL where that does not save an eighth. */
int store_chunk_pack(const void *raw, size_t len, uint8_t **ret, size_t *ret_len) MUST_USE;
/* -EBADMSG: the stored bytes, head included, are not those of @d. *@dctx is kept between calls. */
int store_chunk_check(const struct digest *d, const void *stored, size_t n, void **dctx) MUST_USE;
void store_chunk_check_end(void *dctx);

/* 0 or -ENOENT; to be asked with the meta writer lock held, so that no collector is at work. */
int store_chunk_has(struct store *s, MDB_txn *meta, const struct digest *d, uint32_t len) MUST_USE;

/* Keep one that fits one page, as it is, in @meta: 1 when it was not there. For who holds the meta writer lock. */
int store_chunk_put_small(struct store *s, MDB_txn *meta, const struct digest *d, const void *data,
			  size_t len) MUST_USE;
/* What a chunk of @len stored bytes takes, for store_written_add. */
int64_t store_chunk_room(size_t len);

/* Which chunks this process brought in and no layer was charged for yet. */
void store_fresh_add(struct store *s, const struct digest *d, uint32_t len);
/* Its length, once; @by says then whether the charge was committed. */
uint32_t store_fresh_take(struct store *s, const struct digest *d, const void *by);
void store_fresh_charged(struct store *s, const struct digest *d, const void *by, bool done);
void store_fresh_free(struct store *s);

/* ---- beside a collector (seen.c, hold.c) ---- */

/*
 * Which chunks were put or named lately: a file of bits by digest that all processes map, cleared by a
 * collector before it looks at the records. A chunk whose bit is set is not collected. Noting before the
 * commit, with the meta writer lock held, is what makes naming safe; noting a put saves a second one.
 */
/* Map the file if there is one: none means that no collector has begun yet, as long as the meta writer
 * lock is held. */
int store_seen_open(struct store *s) MUST_USE;
void store_seen_note(struct store *s, const struct digest *d);
bool store_seen_has(struct store *s, const struct digest *d);
/* The collector's: make it if there is none, and clear it. */
int store_seen_begin(struct store *s) MUST_USE;
void store_seen_close(struct store *s);

/* All processes' holds, to be asked with the meta writer lock held. */
struct store_holders {
	uint32_t **maps;
	size_t n;
};
int store_holders_load(struct store *s, struct store_holders *ret) MUST_USE;
bool store_holders_have(const struct store_holders *h, const struct digest *d);
void store_holders_release(struct store_holders *h);
void store_holds_close(struct store *s);
/* The layers that are pinned now. */
int store_pins(struct store *s, int (*fn)(void *arg, store_layer layer), void *arg) MUST_USE;

/* ---- commits (commit.c) ---- */

/* The msgpack records; a decoder takes only what the encoder writes. */
int store_commit_encode(const struct store_commit *c, struct buf *b) MUST_USE;
int store_commit_decode(const MDB_val *v, const struct digest *id,
			struct store_commit *ret) MUST_USE;
/* Key of the index: environment ("" for all), NUL, sequence. Returns its length. */
size_t store_commit_index_key(uint8_t k[static 80], const char *env, uint64_t seq);
bool store_digest_is_zero(const struct digest *d);
int store_commit_add(struct store *s, MDB_txn *txn, const struct store_commit *c) MUST_USE;
/* store_head_commit within a transaction. */
int store_head_read(struct store *s, MDB_txn *t, store_layer layer, store_layer *ret) MUST_USE;

/* ---- environments and their moves (envs.c), the superblock (open.c) ---- */

int store_env_encode(const struct store_env *e, struct buf *b) MUST_USE;
int store_env_decode(const MDB_val *k, const MDB_val *v, struct store_env *ret) MUST_USE;
/* store_env_list within a transaction. */
int store_envs_read(struct store *s, MDB_txn *t, int (*fn)(void *arg, const struct store_env *e),
		    void *arg) MUST_USE;

struct store_move {
	char op[32];
	store_layer from, to;
	struct timespec time;
};
int store_move_encode(const struct store_move *m, struct buf *b) MUST_USE;
int store_move_decode(const MDB_val *v, struct store_move *ret) MUST_USE;

struct store_super {
	uint64_t format, block;
	int64_t created;
	char digest[32];
};
int store_super_encode(const struct store_super *sb, struct buf *b) MUST_USE;
int store_super_decode(const MDB_val *v, struct store_super *ret) MUST_USE;

/* ---- refs (ref.c) ---- */

/* store_refs within a transaction. */
int store_refs_read(struct store *s, MDB_txn *t,
		    int (*fn)(void *arg, const char *name, store_layer layer), void *arg) MUST_USE;

/* store_tag_set within a transaction; both names are valid. */
int store_tag_put(struct store *s, MDB_txn *t, const char *env, const char *name, store_layer layer,
		  bool move, store_layer *ret_was) MUST_USE;
/* The tags of @from that name @at or what is below it, for @to, which has none. */
int store_tags_copy(struct store *s, MDB_txn *t, const char *from, const char *to,
		    store_layer at) MUST_USE;
/* Refs below "env/NAME/". */
int store_env_refs_drop(struct store *s, MDB_txn *t, const char *env) MUST_USE;
