/*
 * base/mp.h - msgpack through msgpack-c: canonical writing, bounded reading.
 *
 * Writing appends to a struct buf (its limit and errors apply) and always uses the shortest form, so
 * equal values are equal bytes; a failed write leaves the buffer as it was. Reading parses one whole
 * object and rejects trailing bytes, extension types, more than MP_MAX_DEPTH levels of containers,
 * more than MP_MAX_ITEMS objects and more than MP_MAX_BYTES with -EBADMSG; strings and bins point
 * into the caller's bytes, which must outlive the document.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <msgpack.h>

#include "base/buf.h"
#include "base/err.h"

#define MP_MAX_DEPTH 16
#define MP_MAX_BYTES (16u << 20)
#define MP_MAX_ITEMS (2u << 20)

int mp_put_nil(struct buf *b) MUST_USE;
int mp_put_bool(struct buf *b, bool v) MUST_USE;
int mp_put_uint(struct buf *b, uint64_t v) MUST_USE;
int mp_put_int(struct buf *b, int64_t v) MUST_USE; /* non-negative values as uint */
int mp_put_str(struct buf *b, const char *s, size_t n) MUST_USE;
int mp_put_cstr(struct buf *b, const char *s) MUST_USE; /* NULL: nil */
int mp_put_bin(struct buf *b, const void *p, size_t n) MUST_USE;
int mp_put_array(struct buf *b, uint32_t n) MUST_USE;
int mp_put_map(struct buf *b, uint32_t n) MUST_USE;

struct mp_doc {
	msgpack_zone zone;
	msgpack_object root;
	bool live;
};
int mp_parse(const void *p, size_t n, struct mp_doc *ret) MUST_USE;
void mp_release(struct mp_doc *d); /* accepts a zeroed one */

/* The value of string key @key in map @o; NULL when @o is no map or has no such key. */
const msgpack_object *mp_get(const msgpack_object *o, const char *key);

/* Typed access; -EBADMSG for another type or range; @o NULL is -ENOENT. Strings are not terminated:
 * mp_dup_str copies one, refusing NUL bytes inside. */
int mp_as_uint(const msgpack_object *o, uint64_t max, uint64_t *ret) MUST_USE;
int mp_as_int(const msgpack_object *o, int64_t *ret) MUST_USE;
int mp_as_bool(const msgpack_object *o, bool *ret) MUST_USE;
int mp_as_str(const msgpack_object *o, const char **ret, size_t *ret_len) MUST_USE;
int mp_as_bin(const msgpack_object *o, const void **ret, size_t *ret_len) MUST_USE;
int mp_dup_str(const msgpack_object *o, char **ret) MUST_USE;
