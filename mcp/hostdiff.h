/*
 * mcp/hostdiff.h - a unified diff of two contents, made by the host's diff(1).
 *
 * diff reads two sealed memory files by descriptor and has no other input; its output is bounded.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Append the diff of @a_fd and @b_fd (-1: does not exist) to @out, at most @max bytes. 1: they differ,
 * 0: equal. *ret_cut: it was longer. -ENOENT: no diff program; -ETIMEDOUT; -EFBIG: a side is too big; -E2BIG: diff needed too much memory. */
int hostdiff_unified(int a_fd, int b_fd, const char *a_name, const char *b_name, size_t max,
		     struct buf *out, bool *ret_cut) MUST_USE;
/* A NUL in the first 8 KiB. */
bool hostdiff_binary(int fd);
