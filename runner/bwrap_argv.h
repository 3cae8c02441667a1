/*
 * runner/bwrap_argv.h - find bwrap, and its arguments for one command.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "runner/runner.h"

/* The absolute path of a bwrap that only root or we can replace, looked for in @path ("A:B:..."; NULL:
 * $PATH and the usual places). -ENOENT; -EPERM when only untrusted ones are there. */
int bwrap_find(const char *path, struct diag *diag, char **ret) MUST_USE;

/* NUL-terminated words for bwrap --args. @tty: stay in the session that has the command's terminal. */
int bwrap_args(const struct run_spec *s, bool tty, struct buf *ret) MUST_USE;
