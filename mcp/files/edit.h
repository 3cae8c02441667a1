/*
 * mcp/files/edit.h - exact replacement in bytes, and why there was nothing to replace.
 *
 * Pure. The only adaptation is the line ending: text whose newlines do not match is tried with the
 * file's own. Nothing is ever applied by likeness: a wrong guess costs more than a second call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct edit_op {
	const char *old_text, *new_text;
	size_t old_len, new_len;
	bool all;
	uint64_t occurrence; /* 0: it must be the only one */
};

enum {
	EDIT_SHOWN = 10
};

struct edit_report {
	uint64_t found; /* matches; overlapping ones count, unless .all */
	uint64_t replaced;
	size_t at[EDIT_SHOWN]; /* offsets of the first matches */
	uint64_t first_line;   /* of the first replacement */
	bool adapted;          /* line endings were */
};

/* @out gets the new content. -ENOENT no match; -EEXIST several and none chosen; -ERANGE fewer
 * than .occurrence. @rep is written in all these cases; @out only on success. */
int edit_apply(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out,
	       struct edit_report *rep) MUST_USE;

/* One paragraph on why @op has no match in @p, the first cause that applies. @budget_ms bounds the
 * search for the closest text. */
int edit_diagnose(const uint8_t *p, size_t n, const struct edit_op *op, unsigned budget_ms,
		  struct buf *out) MUST_USE;
