/*
 * fs/core/hidden.h - what a name of a host directory stood for when the tree took it over.
 *
 * The first time that a name of a host directory is recorded (its file is changed, moved, replaced or removed) the host's
 * file is noted beside the name, as an attribute of the directory that no file system call can see or make. It
 * belongs to the layer that recorded the name, moves with a rollback, and is what a change is based on: whoever brings the
 * change back to the host compares it with what is there by then.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"

struct hidden {
	uint32_t mode; /* with its type */
	uint64_t dev, ino, size;
	struct timespec mtime, ctime;
	struct timespec at; /* when it was taken over, as file systems stamp their times */
};

#define HIDDEN_LEN     64
#define HIDDEN_KEY_LEN 256

void hidden_of(const struct stat *st, struct hidden *ret);
void hidden_encode(const struct hidden *h, uint8_t p[static HIDDEN_LEN]);
int hidden_decode(const void *p, size_t n, struct hidden *ret) MUST_USE;
/* The attribute's name, of the directory's @name. The last byte of the longest names has no room: two such names share one, which can only
 * make a change look like a conflict. */
void hidden_key(const char *name, size_t len, char ret[static HIDDEN_KEY_LEN]);
static inline bool hidden_is_key(const char *xattr)
{
	return xattr[0] == '\1';
}
