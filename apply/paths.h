/*
 * apply/paths.h - a set of relative paths: which are in it, and what lies below one of them.
 *
 * Filled first, then sealed, then asked; the texts are lent. "" is the directory that all are relative to, which everything else is below.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct paths {
	const char **v;
	size_t n, cap;
};
int paths_add(struct paths *s, const char *path) MUST_USE;
void paths_seal(struct paths *s);
bool paths_has(const struct paths *s, const char *path);
/* The nearest one that @path lies below, or with @at is; NULL: none. */
const char *paths_above(const struct paths *s, const char *path, bool at);
void paths_release(struct paths *s);
#define cleanup_paths __attribute__((cleanup(paths_release)))
