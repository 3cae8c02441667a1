/* tests/unit/store/gc_test.h - files with known bytes, and whether they are still there. */
#pragma once

#include "tests/unit/store/store_test.h"

static uint8_t gc_bytes[STORE_BLOCK], gc_got[STORE_BLOCK];

/* Sizes on both sides of a page, and whole blocks. */
static inline size_t gc_size(uint64_t seed)
{
	static const size_t sizes[] = {3000, 9000, 60000, STORE_BLOCK};

	return sizes[seed % 4];
}

static inline size_t gc_fill(uint64_t seed)
{
	uint64_t x = seed * 2654435761u + 12345;
	size_t n = gc_size(seed);

	for (size_t i = 0; i < n; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		gc_bytes[i] = (uint8_t)(x >> 56);
	}
	return n;
}

static inline struct digest gc_digest(uint64_t seed)
{
	struct digest d;

	if (digest_of(gc_bytes, gc_fill(seed), &d) < 0)
		tap_fatal("digest");
	return d;
}

static inline int gc_put(struct store *s, uint64_t seed)
{
	struct store_chunk c = {.data = gc_bytes, .len = gc_fill(seed)};

	return store_chunks_put(s, &c, 1);
}

/* Name the chunk of @seed as the block @block of @ino: by an extent, or (block 0 of an even @ino) in the
 * inode's record. */
static inline int gc_name(struct store *s, store_layer layer, store_ino ino, uint64_t block,
			  uint64_t seed)
{
	struct store_extent x = {.block = block, .len = (uint32_t)gc_size(seed)};
	struct rec_inode rec = file_rec(gc_size(seed));
	struct store_batch *b;
	int r = store_batch_begin(s, layer, &b);

	if (r < 0)
		return r;
	x.chunk = gc_digest(seed);
	if (ino % 2 == 0 && block == 0) {
		rec.content = REC_CHUNK;
		rec.chunk = x.chunk;
		rec.chunk_len = x.len;
	} else {
		rec.content = REC_EXTENTS;
		r = store_batch_extent(b, ino, &x);
	}
	if (r == 0)
		r = store_batch_inode(b, ino, &rec);
	if (r < 0) {
		store_batch_abort(b);
		return r;
	}
	return store_batch_commit(b);
}

/* As the core does it. */
static inline int gc_write(struct store *s, store_layer layer, store_ino ino, uint64_t block,
			   uint64_t seed)
{
	int r = -EAGAIN;

	for (int i = 0; r == -EAGAIN && i < 8; i++) {
		r = gc_put(s, seed);
		if (r == 0)
			r = gc_name(s, layer, ino, block, seed);
	}
	return r;
}

static inline bool gc_there(struct store *s, uint64_t seed)
{
	struct digest d = gc_digest(seed);
	ssize_t n = store_chunk_get(s, &d, gc_got, sizeof(gc_got));

	return n == (ssize_t)gc_size(seed) && !memcmp(gc_got, gc_bytes, (size_t)n);
}

/* The digest of a block of @ino as the layer shows it; false: none. */
static inline bool gc_block(struct store_view *v, store_ino ino, uint64_t block, struct digest *ret)
{
	struct rec_inode rec = {0};
	struct store_extent x;
	bool yes = false;

	if (block == 0 && ino % 2 == 0) {
		yes = store_view_inode(v, ino, &rec) == 0 && rec.content == REC_CHUNK;
		*ret = rec.chunk;
		rec_inode_release(&rec);
	} else if (store_view_extent(v, ino, block, &x) == 0 && x.len) {
		yes = true;
		*ret = x.chunk;
	}
	return yes;
}

/* Does @ino read back as @seed at @layer? */
static inline bool gc_reads(struct store *s, store_layer layer, store_ino ino, uint64_t block,
			    uint64_t seed)
{
	struct digest d, want = gc_digest(seed);
	struct store_view *v;
	bool yes;

	if (store_view_open(s, layer, &v) < 0)
		return false;
	yes = gc_block(v, ino, block, &d) && !memcmp(&d, &want, sizeof(d)) && gc_there(s, seed);
	store_view_close(v);
	return yes;
}

static inline struct store_gc_result gc_run(struct store *s, struct store_gc_opts o)
{
	struct store_gc_result res;
	struct diag d = {0};
	int r = store_gc(s, &o, &d, &res);

	if (r < 0)
		tap_fatal("store_gc: %d %s", r, d.text);
	return res;
}

static inline void gc_seal(struct store *s, struct store_env *e, const char *label, bool automatic)
{
	struct store_commit c = commit_of(label);

	c.kind = automatic ? STORE_AUTO : STORE_COMMIT;
	(void)clock_gettime(CLOCK_REALTIME, &c.time);
	if (store_env_seal(s, e, &c) < 0)
		tap_fatal("seal %s", label);
}
