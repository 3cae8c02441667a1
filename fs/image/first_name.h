/*
 * fs/image/first_name.h - inodes with several names: by which of them each was met first.
 *
 * Not locked. A zeroed struct is empty and valid. Memory grows with the number of such inodes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct first_name {
	uint64_t ino;
	char *path; /* NULL: a free place */
};
struct first_names {
	struct first_name *v;
	size_t n, cap;
};

/* *ret: the path that inode @ino was met by before, lent until the release; NULL: @path is the first, and is copied. */
int first_name(struct first_names *f, uint64_t ino, const char *path, const char **ret) MUST_USE;
void first_names_release(struct first_names *f);
