/*
 * apply/below.h - the host, below a directory that is pinned: every path is walked from its descriptor, and no symbolic
 * link, no mount and no ".." is ever followed (F1).
 *
 * Paths are relative, without a leading slash; "" is the directory itself. Errors: -ELOOP a symbolic link stands on the
 * way, -EXDEV another file system does, -ENAMETOOLONG; else as openat2(2).
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"

/* O_PATH of a directory. */
int below_dir(int root, const char *path) MUST_USE;
/* O_PATH of whatever is there; a symbolic link itself. */
int below_open(int root, const char *path) MUST_USE;
/* O_PATH of the directory that @path lies in; *ret_name points into @path. -EINVAL: "" lies in none. */
int below_parent(int root, const char *path, const char **ret_name) MUST_USE;
int below_stat(int root, const char *path, struct stat *ret) MUST_USE;
/* For reading: O_RDONLY of a regular file or directory at @name of @dir, made readable for a moment when it is our own. */
int below_read(int dir, const char *name, const struct stat *st) MUST_USE;
/* Everything at @name of @dir, modes in the way changed. Gone already is well. */
int below_remove(int dir, const char *name) MUST_USE;
