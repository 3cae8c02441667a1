/*
 * mcp/files/fsio_internal.h - inside fsio.c, which finds and reads, and fswrite.c.
 */
#pragma once

#include "mcp/files/fsio.h"

/* Open the very inode behind an O_PATH descriptor: no second walk, nothing can be swapped in. */
int fsio_reopen(int path_fd, int flags, int *ret_fd) MUST_USE;
/* -EISDIR, -EOPNOTSUPP: it is none. */
int fsio_regular_only(const struct stat *st) MUST_USE;
