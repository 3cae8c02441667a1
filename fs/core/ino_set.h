/*
 * fs/core/ino_set.h - a set of inode numbers. Not locked. A zeroed one is empty.
 */
#pragma once

#include <stdbool.h>

#include "fs/core/table.h"
#include "store/record.h"

struct ino_set {
	struct table t;
};

int ino_set_add(struct ino_set *s, store_ino ino) MUST_USE;
void ino_set_del(struct ino_set *s, store_ino ino);
void ino_set_release(struct ino_set *s);
bool ino_set_has(const struct ino_set *s, store_ino ino);
/* All of @from into @to; cannot fail, and leaves @from empty. */
void ino_set_move(struct ino_set *to, struct ino_set *from);
/* Nonzero from @fn stops and is returned. */
int ino_set_each(const struct ino_set *s, int (*fn)(void *arg, store_ino ino), void *arg);
