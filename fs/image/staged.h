/*
 * fs/image/staged.h - a file or a directory that has its name only when it is whole.
 *
 * It is made beside its destination, as NAME.rattan-partial-PID, and locked while it is being filled. What a process that was
 * killed has left is nobody's lock: the next one for the same destination takes it away. A directory that is there, empty, and
 * cannot be replaced (it is mounted, or what it is in is not ours to write) is filled where it is, and emptied again when that
 * fails.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct staged {
	const char *dest; /* the caller's */
	const char *name; /* its last component, in @dest */
	char tmp[256];    /* the name beside it; "": it is filled where it is */
	int parent;
	int fd; /* what is being filled; a directory is open for reading */
	bool is_dir;
	mode_t mode; /* that a directory had that is filled where it is */
};

/* @dest must be an absolute path; -EEXIST with what to do where that is there already, but for an empty directory of ours. */
int staged_dir(struct staged *s, const char *dest, struct diag *diag) MUST_USE;
int staged_file(struct staged *s, const char *dest, struct diag *diag) MUST_USE;
/* @r 0: its bytes are made durable, then it gets its name, durably; else, or when that fails, nothing is left of it. Returns @r or how that
 * went. To be called once after a begin that worked. */
int staged_end(struct staged *s, int r, struct diag *diag) MUST_USE;
