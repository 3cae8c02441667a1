/*
 * mcp/files/search.h - lines of a text that a regular expression matches (PCRE2).
 *
 * Pure but for the clock of its deadline. A struct search belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum search_flags {
	SEARCH_CASELESS = 1 << 0,
	SEARCH_LITERAL = 1 << 1,
	SEARCH_WORD = 1 << 2,
	SEARCH_MULTILINE = 1 << 3, /* matches may span lines */
};

struct search;
/* -EINVAL with the reason and position in @diag. */
int search_new(const char *pattern, unsigned flags, struct diag *diag,
	       struct search **ret) MUST_USE;
void search_free(struct search *s);
/* Whether smart case makes @pattern insensitive: it has no capital, escapes like \S aside. */
bool search_smart_caseless(const char *pattern, bool literal);

struct search_hit {
	uint64_t line;     /* number of the first line */
	size_t start, end; /* the whole lines, without the last "\n" */
	size_t match, match_end;
};
/* Every line that matches (every match, with SEARCH_MULTILINE); @fn returns nonzero to end. 0, what
 * fn returned, -ETIMEDOUT past @until (io_now_ms), -ERANGE when the pattern took too many steps on
 * some line, which was left out. */
int search_run(struct search *s, const uint8_t *p, size_t n, uint64_t first_line, long long until,
	       int (*fn)(void *arg, const struct search_hit *hit), void *arg) MUST_USE;
