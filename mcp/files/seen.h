/*
 * mcp/files/seen.h - which version of a file the client has seen last, so that an edit can tell that it has changed meanwhile.
 *
 * A table of fixed size: of many files some are forgotten, and nothing is said of those. Threads: any; own lock.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct seen;

int seen_new(struct seen **ret) MUST_USE;
void seen_free(struct seen *s); /* accepts NULL */
/* The version ("v:" and 8 digits) of @path in @env that the client is shown now. */
void seen_put(struct seen *s, const char *env, const char *path, const char *version);
/* True: it has seen another one than @version, and @ret says which. */
bool seen_other(struct seen *s, const char *env, const char *path, const char *version,
		char ret[static 11]);
