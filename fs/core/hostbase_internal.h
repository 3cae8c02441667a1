/*
 * fs/core/hostbase_internal.h - what hostbase.c and hostbase_overlay.c share: filling records.
 */
#pragma once

#include <time.h>

#include "fs/core/hostbase.h"

struct timespec hostbase_now(void);
void hostbase_set_times(struct rec_inode *rec, const struct timespec *t);
int hostbase_set_place(struct rec_inode *rec, store_ino parent, const char *name,
		       size_t len) MUST_USE;
int hostbase_set_origin(struct rec_inode *rec, const char *root, const char *rel,
			unsigned flags) MUST_USE;
