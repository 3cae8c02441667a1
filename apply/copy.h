/*
 * apply/copy.h - one file, link, special file or directory with all below, copied as it is: bytes, holes, modes, times, attributes.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "apply/attrs.h"

struct copy_from {
	int dir; /* a directory's descriptor, lent */
	const char *name;
};
/* A new one at @name of @dir, which has none of that name. A source that is written to meanwhile is -EAGAIN. Sockets are -EOPNOTSUPP, and devices where
 * they cannot be made. A directory at the top stays writable for its owner: the caller sets its mode when it is where it belongs.
 * *ret: the source's attributes, owned by the caller; NULL: not wanted. */
int copy_all(const struct copy_from *from, int dir, const char *name, struct attrs *ret) MUST_USE;
/* The same of a directory without what is in it. */
int copy_alone(const struct copy_from *from, int dir, const char *name, struct attrs *ret) MUST_USE;
/* The bytes of @fd, a file, instead of those of @from, whose attributes they get. */
int copy_bytes(const struct copy_from *from, int fd, int dir, const char *name,
	       struct attrs *ret) MUST_USE;
