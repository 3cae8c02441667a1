/*
 * store/key.h - the spelling of keys: big-endian numbers, names with a closing NUL, and the
 * complement of the layer last, so that byte order puts a key's newest version first.
 *
 * docs/store-format.md has the table. Names hold no NUL, so no key is the beginning of another.
 */
#pragma once

#include <lmdb.h>
#include <stdint.h>
#include <string.h>

#include "store/record.h"

/* links: inode, parent, name, NUL, layer */
#define KEY_MAX (8 + 8 + STORE_NAME_MAX + 1 + 8)

struct key {
	size_t len;
	uint8_t b[KEY_MAX];
};

static inline void key_be64(uint8_t *p, uint64_t v)
{
	v = __builtin_bswap64(v);
	memcpy(p, &v, 8);
}

static inline uint64_t key_get_be64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return __builtin_bswap64(v);
}

static inline void key_be32(uint8_t *p, uint32_t v)
{
	v = __builtin_bswap32(v);
	memcpy(p, &v, 4);
}

static inline uint32_t key_get_be32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return __builtin_bswap32(v);
}

static inline void key_num(struct key *k, uint64_t v)
{
	key_be64(k->b + k->len, v);
	k->len += 8;
}

static inline void key_layer(struct key *k, store_layer l)
{
	key_num(k, ~l);
}

/* @n <= STORE_NAME_MAX, no NUL inside: the caller has checked. */
static inline void key_name(struct key *k, const char *name, size_t n)
{
	memcpy(k->b + k->len, name, n);
	k->b[k->len + n] = 0;
	k->len += n + 1;
}

static inline MDB_val key_val(struct key *k)
{
	return (MDB_val){k->len, k->b};
}
