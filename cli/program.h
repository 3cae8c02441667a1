/*
 * cli/program.h - another program of the host, run to its end.
 *
 * Its standard input is empty. It ends when this process dies. One thread.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

/* @argv[0] is looked for in PATH. @out: what it writes, at most 4 MiB (-EFBIG above); NULL: what it writes is shown where standard
 * error is a terminal, else nowhere. @said: the end of what it says of errors. *ret_status as of waitpid. A signal that
 * transfer_stopped() tells of ends it. */
int program_run(const char *const *argv, struct buf *out, struct buf *said,
		int *ret_status) MUST_USE;
/* It could not be found. */
bool program_missing(int status);
/* Of @said, which ends with NUL: the last line that is not empty; lent. */
const char *program_last_line(struct buf *said);
