/*
 * apply/attrs.h - mode, owner, times and extended attributes of a file, to be kept and set again.
 *
 * Extended attributes are those a user's own: user.* and access lists. Others (security.*, trusted.*) stay what they are on the
 * host. A zeroed struct attrs is empty. Owned by whoever has it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"

struct attr_x {
	char *name;
	void *value;
	size_t len;
};
struct attrs {
	uint32_t mode, uid, gid;
	struct timespec atime, mtime;
	struct attr_x *x;
	size_t nx;
};
void attrs_release(struct attrs *a);
#define cleanup_attrs __attribute__((cleanup(attrs_release)))

enum attrs_what {
	ATTRS_MODE = 1 << 0,
	ATTRS_OWNER = 1 << 1, /* as far as this user may */
	ATTRS_XATTRS = 1 << 2,
	ATTRS_TIMES = 1 << 3,
	ATTRS_ALL = 15
};

/* @fd: O_PATH will do. */
int attrs_get(int fd, struct attrs *ret) MUST_USE;
/* Times last, as all else changes them. */
int attrs_set(int fd, const struct attrs *a, unsigned what) MUST_USE;
