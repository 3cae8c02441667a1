/*
 * mcp/files/udiff.h - what changed between two texts, by line: counts, and a unified diff.
 *
 * Pure. Minimal for ordinary edits; of texts that differ in more than UDIFF_MAX lines the changed
 * middle is taken as one replacement, so time and memory stay bounded.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"

enum {
	UDIFF_MAX = 1000
};

struct udiff_stat {
	uint64_t added, removed;
};
/* Hunks with @context lines around go to @out (may be NULL), at most @max_lines lines, then a note.
 * Bytes that are not UTF-8 are escaped. */
int udiff(const uint8_t *a, size_t an, const uint8_t *b, size_t bn, unsigned context,
	  unsigned max_lines, struct buf *out, struct udiff_stat *ret) MUST_USE;
