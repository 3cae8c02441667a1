/*
 * base/buf.h - growable bytes, and a bounded reader over bytes that somebody else owns.
 *
 * Errors: -ENOMEM; -E2BIG when a buffer would pass its limit; -EBADMSG when a reader runs off the
 * end. A failed append leaves the buffer as it was.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A zeroed struct buf is empty and valid, without a limit. */
struct buf {
	uint8_t *data; /* NUL-terminated when built by buf_put*: data[len] == 0 */
	size_t len;
	size_t cap;
	size_t max; /* 0: no limit */
};

void buf_release(struct buf *b);
static inline void cleanup_bufp(struct buf *b)
{
	buf_release(b);
}
#define cleanup_buf __attribute__((cleanup(cleanup_bufp)))

int buf_reserve(struct buf *b, size_t more) MUST_USE;
int buf_put(struct buf *b, const void *p, size_t n) MUST_USE;
int buf_puts(struct buf *b, const char *s) MUST_USE;
int buf_printf(struct buf *b, const char *fmt, ...) PRINTF(2, 3) MUST_USE;
/* Empty it, keeping the memory. */
void buf_clear(struct buf *b);
/* Hand over the bytes (NUL-terminated, to be freed by the caller; never NULL on success). */
int buf_steal(struct buf *b, char **ret_data, size_t *ret_len) MUST_USE;
