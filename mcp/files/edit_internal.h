/*
 * mcp/files/edit_internal.h - the parts of the diagnosis of an edit (edit.h); only edit_*.c include it.
 */
#pragma once

#include <string.h>

#include "mcp/files/edit.h"

/* ---- changes after which both sides may meet (edit_fold.c) ---- */

/* Bytes after a change that keeps, for each byte, where it came from. */
struct folded {
	uint8_t *p;
	uint32_t *from;
	size_t n;
};
typedef int (*edit_fold)(const uint8_t *p, size_t n, unsigned width, struct folded *f);

int edit_fold_eol(const uint8_t *p, size_t n, unsigned width, struct folded *f) MUST_USE;
/* Tabs in indentation become @width blanks, so that the two spellings are one. */
int edit_fold_indent(const uint8_t *p, size_t n, unsigned width, struct folded *f) MUST_USE;
int edit_fold_trailing(const uint8_t *p, size_t n, unsigned width, struct folded *f) MUST_USE;
/* Characters that look alike, and letters with and without accents. */
int edit_fold_look(const uint8_t *p, size_t n, unsigned width, struct folded *f) MUST_USE;
/* Whether the sides meet after @fold: 1 and the range in the file, 0, or negative errno. */
int edit_meets(edit_fold fold, unsigned width, const uint8_t *p, size_t n, const char *old,
	       size_t len, size_t *ret_at, size_t *ret_end) MUST_USE;
/* "U+2019 (...)" for the first few characters of @p that a look-alike may stand for. */
int edit_put_code_points(struct buf *out, const uint8_t *p, size_t n, const char *where) MUST_USE;

/* ---- lines (edit_lines.c) ---- */

struct span {
	const uint8_t *p;
	size_t n;
};
struct span edit_line_from(const uint8_t *p, size_t n, size_t off);
size_t edit_line_start(const uint8_t *p, size_t off);
static inline bool edit_blank(uint8_t c)
{
	return c == ' ' || c == '\t';
}
size_t edit_indent_of(struct span l);
bool edit_same_trimmed(struct span a, struct span b);
unsigned long long edit_line_no(const uint8_t *p, size_t n, size_t off);
/* The first pair of lines that differs between old text and the file from @at on. */
int edit_put_first_difference(struct buf *b, const uint8_t *p, size_t n, size_t at, const char *old,
			      size_t len) MUST_USE;

/* ---- the closest text (edit_close.c) ---- */

int edit_closest(const uint8_t *p, size_t n, const struct edit_op *op, unsigned budget_ms,
		 struct buf *out) MUST_USE;
