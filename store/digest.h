/*
 * store/digest.h - content digests: SHA-256 by OpenSSL (docs/decisions/ says why).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define DIGEST_LEN 32

struct digest {
	uint8_t b[DIGEST_LEN];
};

/* Before the first digest: OpenSSL is not to read the host's configuration for it. May be repeated. */
void digest_prepare(void);
int digest_of(const void *p, size_t n, struct digest *ret) MUST_USE;
/* The same in pieces. */
struct digest_run;
int digest_begin(struct digest_run **ret) MUST_USE;
int digest_add(struct digest_run *d, const void *p, size_t n) MUST_USE;
int digest_end(struct digest_run *d, struct digest *ret) MUST_USE;
void digest_free(struct digest_run *d);
/* 64 lower-case hex digits and NUL. */
void digest_hex(const struct digest *d, char out[static DIGEST_LEN * 2 + 1]);
/* -EINVAL unless exactly 64 hex digits. */
int digest_parse(const char *hex, struct digest *ret) MUST_USE;
