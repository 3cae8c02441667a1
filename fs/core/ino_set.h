/*
 * fs/core/ino_set.h - a set of inode numbers. Not locked. A zeroed one is empty.
 */
#pragma once

#include "fs/core/table.h"
#include "store/record.h"

struct ino_set {
	struct table t;
};

int ino_set_add(struct ino_set *s, store_ino ino) MUST_USE;
void ino_set_del(struct ino_set *s, store_ino ino);
void ino_set_release(struct ino_set *s);
/* Nonzero from @fn stops and is returned. */
int ino_set_each(const struct ino_set *s, int (*fn)(void *arg, store_ino ino), void *arg);
