/*
 * base/mounts.h - what is mounted, from the kernel's table alone: no file system is asked, so nothing here waits for one
 * whose server is stuck. Mounts of rattan's are those of type fuse with the source "rattan" or "rattan:NAME".
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Is what is on top at @path, a real path, a mount of rattan's? */
int mounts_at(const char *path, bool *ret_ours) MUST_USE;
/* Is a mount of rattan's with this device number anywhere in this process's namespace? */
int mounts_has(unsigned major, unsigned minor, bool *ret) MUST_USE;
/* The same over another text of that form (proc_pid_mountinfo(5)). */
int mounts_at_in(const char *table, const char *path, bool *ret_ours) MUST_USE;
int mounts_has_in(const char *table, unsigned major, unsigned minor, bool *ret) MUST_USE;
