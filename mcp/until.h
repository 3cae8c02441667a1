/*
 * mcp/until.h - watch a job's growing output for a pattern (PCRE2, bounded).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mcp/jobs.h"

struct until;

/* -EINVAL with a sentence in @diag. */
int until_new(const char *pattern, struct diag *diag, struct until **ret) MUST_USE;
void until_free(struct until *u);
static inline void cleanup_untilp(struct until **u)
{
	until_free(*u);
}
#define cleanup_until __attribute__((cleanup(cleanup_untilp)))

/* One line, of whatever text, without its newline. 1, 0, or -EFBIG as below. */
int until_match(struct until *u, const void *line, size_t n) MUST_USE;

/* Looks at whole new lines of both streams, and at an unfinished last one. 1: it has matched, and
 * until_line() is the line; 0: not yet; -EFBIG: the pattern needs too much work on this output. */
int until_look(struct until *u, struct job *j) MUST_USE;
const char *until_line(const struct until *u);
