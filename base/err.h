/*
 * base/err.h - the one error convention: 0 or a count, or negative errno.
 *
 * Vocabulary used everywhere: -ENOENT not there; -EEXIST; -EINVAL the caller's argument is bad;
 * -EBADMSG bytes do not match their digest or format; -ENOSPC disk or map full, -EDQUOT quota; -ENOMEM;
 * -EIO; -ESTALE a handle of an older generation; -EOPNOTSUPP kernel or build lacks it; -EACCES the
 * policy says no; -EBUSY in use; -ECANCELED. A header that returns another code says so.
 */
#pragma once

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>

#define MUST_USE     __attribute__((warn_unused_result))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))

/* -errno of the libc call that just failed; never 0. */
static inline int ret_nerrno(void)
{
	return errno > 0 ? -errno : -EIO;
}

/* Nothing is broken: it goes on when there is room. */
static inline bool err_no_room(int r)
{
	return r == -ENOSPC || r == -EDQUOT;
}

/* One sentence for a person about what went wrong and what to do; the first error wins. */
struct diag {
	char text[512];
};

/* Set @d (which may be NULL) unless it already holds a text; returns @r, so that callers can write
 * `return diag_set(d, -EINVAL, "...")`. Where it is too long, its longest word, which is a path, loses its middle: neither what
 * failed nor what to do is cut off. */
int diag_set(struct diag *d, int r, const char *fmt, ...) PRINTF(3, 4);

/* The kernel's words for @r, which may be negative or positive errno ("No such file or directory");
 * thread-safe, static storage. */
const char *err_text(int r);
