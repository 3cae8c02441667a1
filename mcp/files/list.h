/*
 * mcp/files/list.h - what is in a directory, as list_dir and a read of a directory answer it.
 */
#pragma once

#include "mcp/files/call.h"

struct files_list_opts {
	const char *note;    /* after the path in the header; NULL */
	const char *exclude; /* patterns to leave out (pattern_filter); NULL */
	unsigned depth;
	uint64_t max_entries;
	bool hidden, sizes;
};
/* Answers in fc->out. Negative errno before anything was answered, or of memory. */
int files_list(struct files_call *fc, const char *path, const struct files_list_opts *o) MUST_USE;
