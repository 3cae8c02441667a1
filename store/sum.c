/* Short inputs: the calls would cost as much as the hash. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "store/guard.h"
#include "store/key.h"
#include "store/store_internal.h"

/* Longer than any that is written. */
#define VALUE_MAX (16u << 20)

/*
 * The check value covers the database, the key and the bytes, so that a record which damage moved or
 * renamed is as wrong as one whose bytes changed. XXH3 because metadata is read in the middle of every
 * system call: 10 ns for a name or an inode, where zlib's crc32 takes 170. It finds accidents; a forger
 * could compute it as well.
 */
uint32_t store_sum(enum store_db db, const MDB_val *k, const void *p, size_t n)
{
	XXH64_hash_t seed = XXH3_64bits_withSeed(k->mv_data, k->mv_size, (XXH64_hash_t)db + 1);

	return (uint32_t)XXH3_64bits_withSeed(p, n, seed);
}

/* A chunk's key is its digest, which is looked at whenever it is read. */
bool store_sum_has(enum store_db db)
{
	return db != DB_SMALL;
}

int store_sum_strip(enum store_db db, const MDB_val *k, MDB_val *v)
{
	size_t n = v->mv_size - STORE_SUM_LEN;
	int r = 0;

	if (!store_sum_has(db))
		return 0;
	if (v->mv_size < STORE_SUM_LEN || n > VALUE_MAX)
		return -EBADMSG;
	/* A damaged page may say that a value is where there is nothing to read. */
	GUARD_BEGIN(g)
	if (key_get_be32((const uint8_t *)v->mv_data + n) != store_sum(db, k, v->mv_data, n))
		r = -EBADMSG;
	GUARD_END(g, r);
	if (r == 0)
		v->mv_size = n;
	return r;
}

/* The length of the key is what is damaged: in a page its value follows it. */
static bool other_length(enum store_db db, const MDB_val *k, const MDB_val *v, const void *prefix,
			 size_t plen)
{
	MDB_val wk = {plen + 8, k->mv_data};
	MDB_val bare = {v->mv_size, (uint8_t *)k->mv_data + plen + 8};
	size_t at = (uintptr_t)k->mv_data % 4096;

	return at + plen + 8 + v->mv_size <= 4096 && !memcmp(k->mv_data, prefix, plen) &&
	       store_sum_strip(db, &wk, &bare) == 0;
}

bool store_sum_was(enum store_db db, const MDB_val *k, const MDB_val *v, const void *prefix,
		   size_t plen)
{
	struct key was = {.len = plen + 8};
	MDB_val wk = key_val(&was), bare = *v;

	if (k->mv_size != plen + 8)
		return other_length(db, k, v, prefix, plen);
	memcpy(was.b, prefix, plen);
	memcpy(was.b + plen, (const uint8_t *)k->mv_data + plen, 8);
	/* The same prefix: it is the layer, or the value, that is damaged. */
	return !memcmp(was.b, k->mv_data, plen) || store_sum_strip(db, &wk, &bare) == 0;
}
