/*
 * mcp/files/fsio.h - files below a root descriptor: resolve, read bounded, replace whole.
 *
 * Paths are absolute in the tree. The kernel resolves them with openat2(RESOLVE_IN_ROOT), so "..",
 * absolute symlinks and races stay inside, and binds (mounts in the tree) are followed. Nothing but
 * regular files is ever opened for I/O: a FIFO, socket or device costs one O_PATH look.
 * Threads: no state; concurrent use is fine. Writers of one directory take its flock.
 * Errors: negative errno. -ESTALE and -ENOTCONN: the mount is gone, attach again. -EISDIR;
 * -EOPNOTSUPP: neither file nor directory; -EFBIG.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"

/* An O_PATH descriptor, symlinks followed. */
int fsio_lookup(int root_fd, const char *path, int *ret_fd, struct stat *ret_st) MUST_USE;
/* A regular file for reading. *ret_st is also written with -EISDIR and -EOPNOTSUPP. */
int fsio_open_read(int root_fd, const char *path, int *ret_fd, struct stat *ret_st) MUST_USE;
/* A regular file below a directory of the tree, for reading: -EXDEV where a link on the way leads out of that directory,
 * which in this process's eyes is the host's. */
int fsio_open_below(int dir_fd, const char *path, int *ret_fd, struct stat *ret_st) MUST_USE;
/* A directory for listing. -ENOTDIR. */
int fsio_open_dir(int root_fd, const char *path, int *ret_fd) MUST_USE;
/* To the end of file, also when st_size lies; -EFBIG past @max. */
int fsio_read_all(int fd, size_t hint, size_t max, struct buf *out) MUST_USE;

/* Who is told of temporary files: @begin before one is made, whose path is absolute in the tree, and @end with what that
 * returned when it is gone. */
struct fs_watch {
	int (*begin)(void *arg, const char *path);
	void (*end)(void *arg, int slot);
	void *arg;
};

/* Where a name really is, after the symlinks that stand at its end. */
struct fs_where {
	int dir_fd;                   /* O_RDONLY directory */
	char *dir;                    /* the path that it was opened by */
	const struct fs_watch *watch; /* lent, the caller's; NULL: nobody */
	char name[NAME_MAX + 1];      /* no symlink; may not exist */
	bool through_link;
};
/* @mkdirs: make missing parents (0755). -EISDIR for a path that can only be a directory. */
int fsio_locate(int root_fd, const char *path, bool mkdirs, struct fs_where *ret) MUST_USE;
void fsio_where_release(struct fs_where *w);
static inline void cleanup_wherep(struct fs_where *w)
{
	fsio_where_release(w);
}
#define cleanup_where __attribute__((cleanup(cleanup_wherep)))

/* Serialise read-modify-write between the file tools of all sessions; waits at most @wait_ms, then
 * -EBUSY. Released with the descriptor. */
int fsio_lock_dir(const struct fs_where *w, unsigned wait_ms) MUST_USE;
/* The file at @w as an O_PATH descriptor; -ENOENT. */
int fsio_at(const struct fs_where *w, int *ret_fd, struct stat *ret_st) MUST_USE;
/* The same, for reading. */
int fsio_at_read(const struct fs_where *w, int *ret_fd, struct stat *ret_st) MUST_USE;

struct fs_written {
	const char *in_place; /* why the file was not replaced but written in place; NULL */
	struct stat st;
};
/* Make @w a new file. -EEXIST when it exists by now. */
int fsio_create(const struct fs_where *w, const void *p, size_t n, mode_t mode,
		struct fs_written *ret) MUST_USE;
/* Give the existing file new content, all or nothing, keeping mode (unless @mode is not -1), owner
 * and extended attributes; in place where a new inode could not be the same file. */
int fsio_replace(const struct fs_where *w, const void *p, size_t n, int mode,
		 struct fs_written *ret) MUST_USE;
/* Remove what a caller that was killed has left at @path. 0 also when there is nothing like it. */
int fsio_drop_temp(int root_fd, const char *path) MUST_USE;
int fsio_append(const struct fs_where *w, const void *p, size_t n, int mode,
		struct fs_written *ret) MUST_USE;
