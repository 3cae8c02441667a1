/*
 * apply/ident.h - what something on the host is, by its attributes: enough to tell that nobody has touched it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

struct ident {
	bool there; /* false: nothing is; the rest is 0 */
	uint32_t mode, uid, gid;
	uint64_t dev, ino, size;
	struct timespec mtime, ctime;
};

void ident_of(const struct stat *st, struct ident *ret);
static inline bool ident_time_same(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}
static inline bool ident_before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}
/* Nobody has touched it since. */
bool ident_same(const struct ident *a, const struct ident *b);
/* The same file or directory; of a file with the same bytes, as far as its size and time tell. A rename changes neither. */
bool ident_is(const struct ident *a, const struct ident *b);
