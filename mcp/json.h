/*
 * mcp/json.h - JSON out: text that any strict reader accepts, whatever bytes went in.
 *
 * cJSON's own printer passes invalid UTF-8 and rounds nothing; one bad byte ends a strict client's
 * reader. Here invalid bytes become U+FFFD, and control characters, DEL, NEL, U+2028 and U+2029 are
 * escaped, so that no reader sees a line end inside a message. Errors: those of struct buf.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "base/utf8.h"

bool utf8_valid(const void *p, size_t n);

/* A string literal with its quotes. */
int json_put_str(struct buf *b, const void *p, size_t n) MUST_USE;
int json_put_cstr(struct buf *b, const char *s) MUST_USE;
/* As json_put_str, but at most @max bytes of output; *ret_used: bytes of @p that went in. */
int json_put_str_max(struct buf *b, const void *p, size_t n, size_t max, size_t *ret_used) MUST_USE;
/* Any value, without blanks. */
int json_put(struct buf *b, const cJSON *v) MUST_USE;
