/*
 * mcp/files/call.h - what all file tools do first and last: the environment's root, paths, errors.
 */
#pragma once

#include <sys/stat.h>

#include "mcp/files/fsio.h"
#include "mcp/tool.h"

enum {
	FILES_VERSION_MAX = 8 << 20
}; /* up to here a version token is of the content */

struct files_call {
	struct tool_call *call;
	const cJSON *args;
	struct tool_result *out;
	struct client *client;
	struct ctl_attach at;
	const char *base;      /* where relative paths begin */
	struct fs_watch watch; /* for what is written */
	char before
		[11]; /* the version that the client has seen of a file that is another by now; "" */
};

/* Attach and run @body; once more on a fresh mount when the first was gone (-ESTALE, -ENOTCONN).
 * A body returns 0 when it has answered. */
int files_run(struct tool_call *call, const cJSON *args, struct tool_result *out,
	      int (*body)(struct files_call *fc)) MUST_USE;

#define FILES_WORKSPACE "/workspace"

/* The absolute path in the tree for what the model wrote (NULL: the workspace), with "//" and "/./"
 * gone; ".." stays, since the kernel must resolve it. 1 and *ret, owned; 0 after an error text. */
int files_path(struct files_call *fc, const char *raw, char **ret) MUST_USE;
/* A regular file for reading, as fsio_open_read: of the tree, or the output of a job (JOB_OUTPUT_DIR), which is in no tree. */
int files_open_read(struct files_call *fc, const char *path, int *ret_fd,
		    struct stat *ret_st) MUST_USE;
/* As files_path, for what is to be changed. */
int files_path_to_change(struct files_call *fc, const char *raw, char **ret) MUST_USE;
/* As shown: relative to the workspace when below it, with bytes that are not UTF-8 escaped. */
int files_put_path(struct buf *b, const char *path) MUST_USE;

/* Answer with what @r (negative errno) means for @path and what to do; passes on what is no answer:
 * -ENOMEM, -ESTALE, -ENOTCONN. */
int files_fail(struct files_call *fc, const char *path, int r, bool writing) MUST_USE;

/* "v:" and 8 digits. @content of a file up to FILES_VERSION_MAX bytes, NULL of a bigger one. */
void files_version(const struct stat *st, const struct buf *content, char ret[static 11]);
/* The same, reading it from @fd when small. */
int files_version_of(int fd, const struct stat *st, char ret[static 11]) MUST_USE;
/* Whether @expect (with or without "v:") is @version; answers when not. 1 fine, 0 answered. */
int files_expect(struct files_call *fc, const char *path, const char *expect,
		 const char *version) MUST_USE;

/* The client is shown @path in this version; or it is to be changed: has the client seen another one, for files_put_before? */
void files_seen(struct files_call *fc, const char *path, const char *version);
void files_look_before(struct files_call *fc, const char *path, const char *version);
/* A note, if it has. */
int files_put_before(struct files_call *fc, const char *was) MUST_USE;

/* The object that goes to _meta; made at the first call, NULL without memory. */
cJSON *files_meta(struct files_call *fc);
void files_meta_str(struct files_call *fc, const char *key, const char *s);
void files_meta_num(struct files_call *fc, const char *key, uint64_t v);
void files_meta_path(struct files_call *fc, const char *path);
