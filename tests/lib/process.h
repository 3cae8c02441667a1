/* tests/lib/process.h - who began a process. */
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "tests/lib/tap.h"

/* proc_pid_stat(5): the field after the state, which follows a name in brackets. */
static inline pid_t parent_of(pid_t pid)
{
	cleanup_buf struct buf b = {0};
	const char *at;
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (io_read_file(AT_FDCWD, path, 4096, &b) < 0 || !(at = strrchr((char *)b.data, ')')))
		tap_fatal("no %s", path);
	return (pid_t)strtol(at + strcspn(at, "0123456789"), NULL, 10);
}
