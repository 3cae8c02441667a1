/*
 * mcp/files/walk.h - visit a directory tree in path order, with ignore files, by descriptors.
 *
 * Symlinks are reported, never followed. Every directory is opened relative to its parent, so a
 * tree that changes meanwhile cannot lead outside of it.
 * Errors: negative errno of memory and of the start; a directory that cannot be read is counted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct walk_entry {
	int dir_fd;
	const char *name;
	const char *path;   /* relative to the start */
	const char *full;   /* absolute in the tree */
	unsigned char type; /* DT_REG, DT_DIR, DT_LNK, ... */
	unsigned depth;     /* 1: in the start itself */
	bool ignored;       /* by a rule; never entered */
};

enum walk_verdict {
	WALK_ON,
	WALK_SKIP /* do not enter this directory */,
	WALK_STOP
};

struct walk_opts {
	bool ignore; /* .gitignore, .ignore, .git/info/exclude and directories of no interest */
	bool hidden; /* also names with a dot */
	unsigned max_depth; /* 0: as deep as can be */
	bool dirs_first;    /* within a directory */
	/* an enum walk_verdict or negative errno */
	int (*fn)(void *arg, const struct walk_entry *e);
	/* A name that no rule ignores and that fn will get soon, or not at all; may be NULL. */
	void (*ahead)(void *arg, int dir_fd, const char *name, unsigned char type);
	/* No more of this directory, whose descriptor is about to be closed; may be NULL. */
	void (*leave)(void *arg, int dir_fd);
	void *arg;
};

struct walk_counts {
	uint64_t ignored_dirs, ignored_files, unreadable;
	uint64_t too_deep; /* left out: below 200 levels, or with a path of 4 KiB */
};

/* @path: absolute in the tree, a directory. 0 whole; 1 stopped by fn. */
int walk_tree(int root_fd, const char *path, const struct walk_opts *o,
	      struct walk_counts *ret) MUST_USE;
