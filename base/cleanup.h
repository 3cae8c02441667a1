/*
 * base/cleanup.h - ownership by scope: attributes that free or close, and the two ways to hand over.
 *
 * Cleanups preserve errno, accept NULL and -1, and never retry close(): on Linux the descriptor is
 * gone even after EINTR (close(2)), so a retry could close another thread's file.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_freep(void *p)
{
	int saved = errno;

	free(*(void **)p);
	errno = saved;
}

static inline void cleanup_fdp(const int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		(void)close(*fd);
	errno = saved;
}

static inline void cleanup_filep(FILE **f)
{
	int saved = errno;

	if (*f)
		(void)fclose(*f);
	errno = saved;
}

static inline void cleanup_dirp(DIR **d)
{
	int saved = errno;

	if (*d)
		(void)closedir(*d);
	errno = saved;
}

#define cleanup_free __attribute__((cleanup(cleanup_freep)))
#define cleanup_fd   __attribute__((cleanup(cleanup_fdp)))
#define cleanup_file __attribute__((cleanup(cleanup_filep)))
#define cleanup_dir  __attribute__((cleanup(cleanup_dirp)))

/* Take the descriptor out of @fd, which then owns nothing. */
static inline int steal_fd(int *fd)
{
	int r = *fd;

	*fd = -1;
	return r;
}

static inline void *steal_ptr_impl(void *p)
{
	void **pp = p;
	void *r = *pp;

	*pp = NULL;
	return r;
}

/* Take the pointer out of the variable at @pp, keeping its type; the variable is NULL afterwards. */
#define steal_ptr(pp) ((__typeof__(*(pp)))steal_ptr_impl(pp))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
