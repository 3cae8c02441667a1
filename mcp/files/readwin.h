/*
 * mcp/files/readwin.h - a window of numbered lines over bytes that come in chunks.
 *
 * Pure. Feed chunks in order, the last one with @eof; a chunk should end at a line end where it can,
 * since a character split between chunks is shown as bytes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum {
	READWIN_LINE_MAX = 2000
}; /* bytes of a line that are shown */

struct readwin {
	/* set by the caller */
	uint64_t first;   /* line, from 1 */
	uint64_t limit;   /* lines */
	size_t max_bytes; /* of text */
	uint64_t column;  /* > 0: show one line from this byte, up to max_bytes */
	bool numbers;     /* "N→" before each line, and no "\r" of the ending */

	/* results */
	uint64_t line;   /* lines seen so far */
	uint64_t last;   /* last line shown; 0: none */
	bool full;       /* the window is closed: the rest is only counted */
	bool cut;        /* closed by max_bytes */
	bool no_newline; /* the last line seen had no "\n" */

	/* inside */
	bool mid;
	size_t shown;  /* bytes of the current line */
	uint64_t seen; /* bytes of the current line that passed */
	size_t start;  /* out->len at the beginning */
};

int readwin_feed(struct readwin *w, const uint8_t *p, size_t n, bool eof, struct buf *out) MUST_USE;
