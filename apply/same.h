/*
 * apply/same.h - what of the host and what the tree has for it, compared.
 */
#pragma once

#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

struct same_end {
	int dir; /* a directory's descriptor, lent; O_PATH will do */
	const char *name;
	struct stat st; /* of @name */
};
/* Two of one type: *ret is how they differ, as enum apply_what; 0: in nothing. Owners count for who may give files away. Files are read whole. */
int same(const struct same_end *host, const struct same_end *tree, uint32_t *ret) MUST_USE;
