/*
 * tests/unit/store/sample.h - a small store in which everything is as rattan writes it: every kind of record, two
 * commits, a rollback, a removed file, a file with two links.
 */
#pragma once

#include "tests/unit/store/store_test.h"

enum {
	SAMPLE_DIR = 64,
	SAMPLE_INLINE,
	SAMPLE_SMALL,
	SAMPLE_LINKED,
	SAMPLE_BIG,
	SAMPLE_SYMLINK,
	SAMPLE_LATER,
};

/* All but the last are packed, to a few thousand bytes: each byte of the store is to be changed in turn. */
#define SAMPLE_BIG_BLOCKS 3
#define SAMPLE_BIG_LAST   20000

/* Bytes that do not compress, the same ones each time. */
static inline void sample_bytes(uint8_t *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint8_t)(seed >> 33);
	}
}

static inline void sample_put(struct store_batch *b, store_ino ino, store_ino parent,
			      const char *name, struct rec_inode *r)
{
	char copy[STORE_NAME_MAX + 1];
	struct rec_name n = {ino, r->mode & S_IFMT};

	(void)snprintf(copy, sizeof(copy), "%s", name);
	r->mtime = r->ctime = (struct timespec){1700000000, 123456789};
	if (r->nlink == 1 || S_ISDIR(r->mode)) {
		r->parent = parent;
		r->name = copy;
		r->name_len = strlen(copy);
	} else if (store_batch_link(b, ino, parent, name, strlen(name), true) < 0) {
		tap_fatal("link");
	}
	if (store_batch_inode(b, ino, r) < 0 ||
	    store_batch_name(b, parent, name, strlen(name), &n) < 0)
		tap_fatal("inode");
	r->name = NULL;
}

static inline void sample_first(struct store *s, store_layer layer)
{
	static uint8_t bytes[SAMPLE_BIG_BLOCKS * STORE_BLOCK], zeros[STORE_BLOCK];
	struct rec_inode root = {.mode = S_IFDIR | 0755, .nlink = 3},
			 dir = {.mode = S_IFDIR | 0700, .nlink = 2}, in = file_rec(10),
			 small = file_rec(3000), two = file_rec(100000),
			 big = file_rec((SAMPLE_BIG_BLOCKS - 1) * STORE_BLOCK + SAMPLE_BIG_LAST),
			 link = {.mode = S_IFLNK | 0777,
				 .nlink = 1,
				 .size = 5,
				 .target = (char[]){"../in"}};
	struct store_chunk c[2 + SAMPLE_BIG_BLOCKS] = {{.data = zeros, .len = 100000}};
	size_t packed = SAMPLE_BIG_BLOCKS; /* the last two are stored as they are */
	struct rec_xattr x = {(char[]){"user.small"}, (char[]){"v"}, 1};
	struct rec_name second = {SAMPLE_LINKED, S_IFREG};
	struct store_batch *b;

	for (size_t i = 0; i < SAMPLE_BIG_BLOCKS; i++)
		sample_bytes(bytes + i * STORE_BLOCK,
			     i + 1 < SAMPLE_BIG_BLOCKS ? 5000 : SAMPLE_BIG_LAST, 5 + i);
	zeros[99999] = 1;
	for (size_t i = 0; i < SAMPLE_BIG_BLOCKS; i++)
		c[1 + i] =
			(struct store_chunk){.data = bytes + i * STORE_BLOCK, .len = STORE_BLOCK};
	c[SAMPLE_BIG_BLOCKS].len = SAMPLE_BIG_LAST;
	c[1 + SAMPLE_BIG_BLOCKS] = (struct store_chunk){.data = bytes, .len = 3000};
	if (store_chunks_put_packed(s, c, packed) < 0 || store_chunks_put(s, c + packed, 2) < 0 ||
	    store_batch_begin(s, layer, &b) < 0 || store_batch_inode(b, STORE_ROOT_INO, &root) < 0)
		tap_fatal("sample");
	in.content = REC_INLINE;
	in.data = bytes;
	in.data_len = 10;
	in.xattrs = &x;
	in.nxattrs = 1;
	in.big_xattrs = true;
	small.content = two.content = REC_CHUNK;
	small.chunk = c[1 + SAMPLE_BIG_BLOCKS].digest;
	small.chunk_len = 3000;
	two.nlink = 2;
	two.chunk = c[0].digest;
	two.chunk_len = 100000;
	big.content = REC_EXTENTS;
	sample_put(b, SAMPLE_DIR, STORE_ROOT_INO, "dir", &dir);
	sample_put(b, SAMPLE_INLINE, STORE_ROOT_INO, "inline", &in);
	sample_put(b, SAMPLE_SMALL, SAMPLE_DIR, "small", &small);
	sample_put(b, SAMPLE_LINKED, SAMPLE_DIR, "linked", &two);
	sample_put(b, SAMPLE_BIG, SAMPLE_DIR, "big", &big);
	sample_put(b, SAMPLE_SYMLINK, SAMPLE_DIR, "symlink", &link);
	if (store_batch_link(b, SAMPLE_LINKED, STORE_ROOT_INO, "linked too", 10, true) < 0 ||
	    store_batch_name(b, STORE_ROOT_INO, "linked too", 10, &second) < 0 ||
	    store_batch_xattr(b, SAMPLE_INLINE, "user.big", bytes, 300) < 0)
		tap_fatal("sample");
	for (uint64_t i = 0; i < SAMPLE_BIG_BLOCKS; i++) {
		struct store_extent e = {i, (uint32_t)c[1 + i].len, c[1 + i].digest};

		if (store_batch_extent(b, SAMPLE_BIG, &e) < 0)
			tap_fatal("extent");
	}
	if (store_batch_commit(b) < 0)
		tap_fatal("sample");
}

/* The inline file goes, another comes, the big one is cut. */
static inline void sample_second(struct store *s, store_layer layer)
{
	struct rec_inode gone = file_rec(10), later = file_rec(0), big = file_rec(STORE_BLOCK);
	struct rec_name none = {0};
	struct store_batch *b;

	gone.nlink = 0;
	big.content = REC_EXTENTS;
	if (store_batch_begin(s, layer, &b) < 0 || store_batch_inode(b, SAMPLE_INLINE, &gone) < 0 ||
	    store_batch_name(b, STORE_ROOT_INO, "inline", 6, &none) < 0 ||
	    store_batch_xattr(b, SAMPLE_INLINE, "user.big", NULL, 0) < 0 ||
	    store_batch_extents_cut(b, SAMPLE_BIG, 1) < 0)
		tap_fatal("second");
	sample_put(b, SAMPLE_BIG, SAMPLE_DIR, "big", &big);
	sample_put(b, SAMPLE_LATER, STORE_ROOT_INO, "later", &later);
	if (store_batch_commit(b) < 0)
		tap_fatal("second");
}

/* The open layer of "env" stands on the first of two commits. */
static inline struct store_env sample_fill(struct store *s)
{
	struct store_commit one = commit_of("one"), two = commit_of("two");
	struct store_env env;
	store_ino first;

	if (store_reserve_inos(s, 64, &first) < 0 ||
	    store_env_create(s, "env", 0, "empty", &env) < 0)
		tap_fatal("env");
	sample_first(s, env.open);
	if (store_env_seal(s, &env, &one) < 0)
		tap_fatal("seal");
	sample_second(s, env.open);
	if (store_env_seal(s, &env, &two) < 0 ||
	    store_env_move(s, &env, one.layer, "rollback") < 0 ||
	    store_ref_set(s, "tag/first", one.layer) < 0)
		tap_fatal("move");
	return env;
}
