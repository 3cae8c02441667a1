/*
 * fs/image/staged.h - a file or a directory that has its name only when it is whole.
 *
 * It is made beside its destination, as NAME.rattan-partial-PID, and locked while it is being filled. What a process that was
 * killed has left is nobody's lock: the next one for the same destination takes it away. A directory that is there, empty, and
 * cannot be replaced (it is mounted, what it is in is not ours to write, or it is named "."), is filled where it is. When that fails
 * what was put into it is taken away again, and not what came from somebody else meanwhile.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

struct staged {
	const char *dest; /* the caller's */
	const char *name; /* its last component, in @dest */
	char tmp[256];    /* the name beside it; "": it is filled where it is */
	int parent;
	int fd; /* what is being filled; a directory is open for reading */
	bool is_dir;
	mode_t mode;     /* that a directory had that is filled where it is */
	struct buf made; /* what was put into that, names with their NUL */
};

/* @dest must be an absolute path; -EEXIST with what to do where that is there already, but for an empty directory of ours. */
int staged_dir(struct staged *s, const char *dest, struct diag *diag) MUST_USE;
int staged_file(struct staged *s, const char *dest, struct diag *diag) MUST_USE;
/* Before something is made in the directory, under the name @name; and when that was -EEXIST: it is somebody else's. */
int staged_make(struct staged *s, const char *name) MUST_USE;
void staged_not_made(struct staged *s);
/* @r 0: its bytes are made durable, then it gets its name, durably; else, or when that fails, nothing is left of it. Returns @r or how that
 * went. To be called once after a begin that worked. */
int staged_end(struct staged *s, int r, struct diag *diag) MUST_USE;
