/*
 * mcp/files/names.h - the names of a directory, in the order in which they are visited.
 */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum ignore_file {
	IGNORE_EXCLUDE = 1 << 0,
	IGNORE_GIT = 1 << 1,
	IGNORE_PLAIN = 1 << 2,
	IGNORE_ANY = IGNORE_EXCLUDE | IGNORE_GIT | IGNORE_PLAIN
};

struct name {
	unsigned char type;   /* DT_REG, DT_DIR, ... */
	bool judged, ignored; /* the user's; the second once the first */
	char *s;
};

struct names {
	DIR *dir; /* NULL: could not be opened */
	int r;    /* negative errno: why it could not be opened, or why names are missing */
	struct name *v;
	size_t n, cap;
	unsigned ignore; /* enum ignore_file: those that are there, shown or not */
};

struct names_opts {
	bool hidden;     /* also names with a dot */
	bool dirs_first; /* else by name alone */
};

/* The directory @fd, which is taken over. What went wrong is in ret->r. */
void names_of(int fd, const struct names_opts *o, struct names *ret);
/* The same of the directory @name in @dir_fd, which is not followed when it is a symlink. */
void names_below(int dir_fd, const char *name, const struct names_opts *o, struct names *ret);
void names_release(struct names *l);
