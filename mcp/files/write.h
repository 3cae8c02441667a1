/*
 * mcp/files/write.h - what write_file and edit share: results, notes, limits.
 */
#pragma once

#include "mcp/files/call.h"
#include "mcp/files/udiff.h"

enum {
	FILES_CONTENT_MAX = 1 << 20,
	FILES_EDIT_MAX = 32 << 20,
	FILES_LOCK_MS = 3000
};

/* "(was v:...)" and the notes about how the file was written, each on a line of its own; the client has seen @content then. */
int files_put_written(struct files_call *fc, const char *path, const struct fs_where *w,
		      const struct fs_written *done, const struct buf *content,
		      const char *was) MUST_USE;
