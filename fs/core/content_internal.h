/*
 * fs/core/content_internal.h - shared by the content_*.c files only.
 *
 * A content is a map of changed blocks over a base (what the last flush recorded) over a host file:
 *
 *	map entry  >  base (inline, one chunk, or extents in the store)  >  host file  >  hole
 *
 * Base bytes at and above block content.cut are hidden (truncation); host bytes end at content.valid.
 *
 * Locks: content.change is held by every call that changes bytes, for its whole length, so that only
 * one changer runs and may read the store or the host between looking and publishing. content.lock
 * guards the fields; it is held exclusively only for moments. A flush (content_snap_done) takes
 * content.lock alone: it replaces map entries by equal bytes in the base, which no changer can tell.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "fs/core/content.h"
#include "fs/core/hostsrc.h"

#define BLOCK            ((uint64_t)STORE_BLOCK)
#define CONTENT_MAX_SIZE ((uint64_t)INT64_MAX - BLOCK) /* off_t, less a block */
#define NO_CUT           UINT64_MAX

/* ---- blocks ---- */

enum blk_kind {
	BLK_DATA, /* bytes in memory */
	BLK_REF,  /* a chunk that is in the store */
	BLK_HOLE, /* nothing, and hides what lies below */
	BLK_PART, /* some bytes in memory, over a chunk that is in the store */
};

/* Whole content of one block: @len bytes, then zeros. Shared by count between the map, snapshots,
 * the chunk cache and other contents; written to only by who holds the one reference. */
struct blk {
	atomic_uint refs;
	enum blk_kind kind;
	uint32_t len;
	uint32_t cap;         /* BLK_DATA: of data; BLK_PART: of all parts */
	atomic_bool counted;  /* cap is part of env->dirty */
	uint8_t *data;        /* BLK_DATA */
	struct digest digest; /* BLK_REF, BLK_PART */
	bool held;            /* the same: no record may name it yet (store_chunk_hold) */
	uint32_t low_len;     /* BLK_PART: of the chunk; 0: there is none */
	unsigned nparts;      /* BLK_PART: in order, none over another */
	struct part *parts;
	const struct blk *
		from; /* BLK_PART: copied from this one, which a snapshot held; only to be compared */
	struct content_env *env;
};

int blk_new_data(struct content_env *e, size_t cap, struct blk **ret) MUST_USE;
/* Over a unit of the journal that holds the bytes already; the unit is the blk's. */
int blk_new_unit(struct content_env *e, uint8_t *unit, struct blk **ret) MUST_USE;
int blk_new_ref(struct content_env *e, const struct digest *d, uint32_t len,
		struct blk **ret) MUST_USE;
/* The same for a map, which may be the only one that names it until a flush. */
int blk_new_held(struct content_env *e, const struct digest *d, uint32_t len,
		 struct blk **ret) MUST_USE;
int blk_new_hole(struct content_env *e, struct blk **ret) MUST_USE;
int blk_dup(const struct blk *b, size_t cap, struct blk **ret) MUST_USE;
/*
 * content_part.c. Over the chunk @d of @len bytes; @hold: no record names it.
 * Memory is taken for what is put, so that a page written to a block costs a page. blk_part_room: may these bytes be put, or is
 * the block better whole? Only then may they. -ENOMEM changes nothing.
 */
int blk_new_part(struct content_env *e, const struct digest *d, uint32_t len, bool hold,
		 struct blk **ret) MUST_USE;
bool blk_part_room(const struct blk *b, size_t off, size_t n);
int blk_part_put(struct blk *b, size_t off, const void *p, size_t n) MUST_USE;
/* For a change while a snapshot holds @b. */
int blk_part_dup(const struct blk *b, struct blk **ret) MUST_USE;
/* Of a copy: what it was copied from is the chunk @d now, or nothing (@len 0). */
void blk_part_rebase(struct blk *b, const struct digest *d, uint32_t len);
/* What was put reaches to the end, and so may end with zeros. */
bool blk_part_reaches_end(const struct blk *b);
/* As cenv_chunk_read; what the parts have all of needs no chunk. */
int blk_part_read(struct blk *b, size_t off, void *buf, size_t n) MUST_USE;
/* All of it, *@ret_len without trailing zeros, into BLOCK bytes. -EBADMSG, -ENOENT: the chunk is damaged or gone. */
int blk_part_whole(struct blk *b, void *buf, uint32_t *ret_len) MUST_USE;
void blk_parts_free(struct blk *b);

struct blk *blk_ref(struct blk *b);
void blk_unref(struct blk *b); /* accepts NULL */
static inline bool blk_shared(struct blk *b)
{
	return atomic_load_explicit(&b->refs, memory_order_acquire) > 1;
}
/* Room for @n bytes. */
int blk_grow(struct blk *b, size_t n) MUST_USE;
/* Bytes [off, off + n), within cap; what lies between the old length and @off becomes zero. */
void blk_put(struct blk *b, size_t off, const void *p, size_t n);
/* It is not dirty any more: out of the account. */
void blk_settle(struct blk *b);

static inline void cleanup_blkp(struct blk **b)
{
	blk_unref(*b);
}
#define cleanup_blk __attribute__((cleanup(cleanup_blkp)))

/* Length without trailing zeros. */
size_t blk_trim(const uint8_t *p, size_t n);

/* ---- ordered map: block index -> blk; the radix grows with the largest index ---- */

struct blkmap {
	void *root;      /* height 0: the blk of index 0; else a node */
	unsigned height; /* levels of nodes */
	size_t count;
};
struct blk *blkmap_get(const struct blkmap *m, uint64_t idx);
/* Takes over the reference; the old blk's is dropped. -ENOMEM changes nothing. */
int blkmap_set(struct blkmap *m, uint64_t idx, struct blk *b) MUST_USE;
void blkmap_del(struct blkmap *m, uint64_t idx);
/* The first entry with index >= @idx. */
struct blk *blkmap_next(const struct blkmap *m, uint64_t idx, uint64_t *ret_idx);
void blkmap_release(struct blkmap *m);

/* ---- environment: store, view, cache ---- */

struct cache_ent {
	struct cache_ent *chain;
	struct cache_ent *prev, *next;
	struct digest digest;
	struct blk *blk;
	size_t cost;
};

#define CACHE_BYTES (64u << 20)
#define CACHE_HASH  4096u
#define SPARE_MAX   1024u /* buffers kept while there is work */
#define SPARE_IDLE  8u

struct content_env {
	struct store *store;
	struct journal *journal;    /* lent; NULL: none. Whole blocks lie in it */
	pthread_rwlock_t view_lock; /* leaf: view */
	struct store_view *view;
	atomic_size_t dirty;
	atomic_size_t in_parts; /* of dirty */
	atomic_size_t owed;     /* bytes of all blocks that are there in part */

	pthread_mutex_t cache_lock; /* leaf: the cache */
	struct cache_ent *hash[CACHE_HASH];
	struct cache_ent lru; /* ring */
	size_t cached;

	pthread_mutex_t spare_lock; /* leaf, also below cache_lock: all below */
	struct part_mem *part_mem;  /* where the next part finds memory; NULL: nowhere */
	void *spare; /* buffers of STORE_BLOCK bytes; the first word is the next one */
	unsigned spares;
};

/* Bytes [off, off + n) of a chunk, zeros beyond its end. Verified (S4); -EIO when damaged or gone. */
int cenv_chunk_read(struct content_env *e, const struct digest *d, size_t off, void *buf,
		    size_t n) MUST_USE;
/* Keep a settled blk for readers. Failure to do so is silent: it is a cache. */
void cenv_cache_add(struct content_env *e, const struct digest *d, struct blk *b);
int cenv_extent(struct content_env *e, store_ino ino, uint64_t block,
		struct store_extent *ret) MUST_USE;
/* Every recorded extent from @first on; @fn as in store.h. */
int cenv_extents(struct content_env *e, store_ino ino, uint64_t first,
		 int (*fn)(void *arg, const struct store_extent *x), void *arg) MUST_USE;
/* A buffer of STORE_BLOCK bytes with anything in it, one that was used before if possible: memory that
 * is new to the process costs more to touch than to fill. NULL: no memory. */
uint8_t *cenv_buf_get(struct content_env *e);
void cenv_buf_put(struct content_env *e, uint8_t *p); /* accepts NULL */
/* Nobody writes: no memory is kept for the next part. */
void cenv_parts_idle(struct content_env *e);

/* ---- one file ---- */

struct content {
	struct content_env *env;
	store_ino ino;
	struct hostsrc *host; /* NULL: no origin, or its source cannot be opened */
	char *rel;            /* origin.rel; NULL: no origin */
	atomic_uint refs;     /* the owner and a snapshot */

	pthread_mutex_t change;
	struct content_log *log; /* change: of the operation under way; NULL: no journal */
	pthread_rwlock_t lock;   /* all below */

	struct blkmap map;
	enum rec_content base;
	struct blk *base_blk; /* REC_INLINE, REC_CHUNK: block 0 */
	uint64_t cut;         /* base blocks from here on are hidden */
	uint64_t cut_new;     /* the same, counting only what came after the last snapshot */
	uint64_t valid;       /* host bytes still in use */
	bool pristine;        /* nobody changed the host's bytes: they are read live */
	bool snapping;
	struct hostsrc_id host_id;
	int64_t data_units;   /* st_blocks of what holds bytes */
	uint64_t reserved;    /* st_blocks promised by fallocate, bytes included */
	uint64_t reserve_end; /* end of what was promised beyond the size */

	atomic_uint_fast64_t size;
	atomic_uint_fast64_t units;     /* what content_blocks() shows */
	atomic_uint_fast64_t gen;       /* of the last change */
	atomic_uint_fast64_t clean_gen; /* of what is flushed */
	atomic_bool incomplete;
	atomic_bool
		lost; /* what was written to a part of a damaged block, and nobody was told yet */
	atomic_bool waited; /* see content_waited() */
	atomic_bool follow; /* pristine: the name counts, not the file that had it */
};

void content_put(struct content *c);

/* ---- the journal (content_log.c, content_redo.c) ---- */

struct content_log {
	struct buf heads;
	struct log_piece *pieces;
	size_t npieces, pieces_cap;
	struct blk *
		*held; /* replaced: not to be used for anything else before the batch is there */
	size_t nheld, held_cap;
	bool steady; /* no block is changed twice: bytes are taken from it at the end */
	bool failed;
};
/* Under content.change, around an operation. All below do nothing without a journal. */
void content_log_begin(struct content *c, struct content_log *l, bool steady);
void content_log_end(struct content *c);
/* What was put into the map, or changed in place. */
void content_log_block(struct content *c, uint64_t idx, const struct blk *b);
/* Of a block that is there in part this is all that is told. @p are the bytes. */
void content_log_patch(struct content *c, uint64_t idx, const struct blk *b, size_t off,
		       const void *p, size_t n);
void content_log_hole(struct content *c, uint64_t idx);
void content_log_cut(struct content *c, uint64_t first);
/* Before it leaves the map; accepts NULL. */
void content_log_hold(struct content *c, struct blk *b);

/* Where the bytes of one block are. */
struct place {
	enum {
		PLACE_HOLE,
		PLACE_BLK,
		PLACE_PART,
		PLACE_CHUNK,
		PLACE_HOST
	} at;
	uint32_t len;         /* bytes, then zeros */
	struct blk *blk;      /* PLACE_BLK, PLACE_PART: lent while content.lock is held */
	struct digest digest; /* PLACE_CHUNK */
	bool in_map;          /* a change that no flush has recorded */
};
/* Under content.lock, shared or exclusive. May read the store. */
int content_find_locked(struct content *c, uint64_t idx, struct place *ret) MUST_USE;
/* Bytes [off, off + n) of the block; under content.lock. */
int content_fetch_locked(struct content *c, uint64_t idx, const struct place *p, size_t off,
			 void *buf, size_t n) MUST_USE;
/* The first index >= @idx whose block may hold bytes; UINT64_MAX none. Under content.lock. */
int content_next_locked(struct content *c, uint64_t idx, uint64_t *ret) MUST_USE;

static inline uint64_t units_of(uint64_t len)
{
	return (len + 4095) / 4096 * 8;
}
/* Under content.lock exclusive: after a change of data_units, reserved or the size. */
void content_account_locked(struct content *c);
/* Under content.lock exclusive: something changed. */
void content_touch_locked(struct content *c);

/* hostsrc_pread and hostsrc_seek of the origin. -EIO when it is not there, or not what it was once the
 * file has been changed here. */
ssize_t content_host_pread(struct content *c, uint64_t off, void *buf, size_t n) MUST_USE;
int64_t content_host_seek(struct content *c, int64_t off, int whence) MUST_USE;
/* Before the first change of a host file's bytes: pin the identity that later reads must meet. Under
 * content.change alone. */
int content_freeze(struct content *c) MUST_USE;
/* Under content.lock exclusive: stop needing host blocks at the end that the map covers. */
void content_trim_host_locked(struct content *c);
/* Under content.lock: may a write of @n bytes be kept in part, over what is there at @p? */
bool content_keeps_part(const struct content *c, const struct place *p, size_t n);
/* Under content.change alone: replace a block (takes over the reference also on failure). */
int content_publish(struct content *c, uint64_t idx, const struct place *old,
		    struct blk *b) MUST_USE;
/* content_find_locked with the lock taken for it; place.blk is not to be used. */
int content_find(struct content *c, uint64_t idx, struct place *ret) MUST_USE;
/* Under content.change alone, frozen: the count is short only after an error. */
ssize_t content_write_range(struct content *c, uint64_t off, const uint8_t *p, size_t n) MUST_USE;
/* Under content.change alone, frozen: bytes [off, off + n) of one block. The size stays. */
int content_write_block(struct content *c, uint64_t idx, size_t off, const void *p,
			size_t n) MUST_USE;
/* Under content.change alone: a block that is there in part becomes whole (see content_keeps_part). */
int content_make_whole(struct content *c, uint64_t idx) MUST_USE;
/* Under content.change alone: make [off, off + len) read as zeros, size unchanged. */
int content_zero(struct content *c, uint64_t off, uint64_t len) MUST_USE;
/* The same for [off, end), leaving out what lies behind the size and is zero anyway. */
int content_zero_to_size(struct content *c, uint64_t off, uint64_t end) MUST_USE;
/* Under content.change alone: let the size be at least @size. */
void content_extend(struct content *c, uint64_t size);
