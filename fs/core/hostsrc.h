/*
 * fs/core/hostsrc.h - a host directory read in place.
 *
 * A source is opened once as an O_PATH descriptor; everything below it is reached relative to that
 * descriptor with openat2 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS, so that
 * neither the host's symlinks nor a race can lead out of it (openat2(2)). Mount points below are
 * crossed (a project may hold one), but only device and inode pairs name files.
 *
 * Inode numbers: a host inode on the source's own device with a number below 2^40 gets
 * STORE_HOST_INO | index << 40 | host inode, the same in every run; others are numbered by the core.
 *
 * Threads: all calls at once. Files that were looked up or read are held by descriptors (bounded, least
 * recently used), so that one that the host replaces or removes can be read on; what its name leads to then is
 * seen within 20 ms.
 * Errors: of openat2(2), fstatat(2), pread(2); -ESTALE the file is not the one asked for any more.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"
#include "store/record.h"

struct hostsrc;

/* Descriptors that the sources of one tree keep open together: files that are read, and files that were looked up. Who comes
 * when there are @max of a kind gives up one of its own. */
struct hostsrc_all {
	atomic_uint files, held;
	unsigned max; /* of each */
};
void hostsrc_all_init(struct hostsrc_all *a);

/* @flags: enum rec_origin_flags; @index: which source of the ovl this is (< 1024). @all is lent; NULL: it is the only
 * one. */
int hostsrc_open(const char *root, unsigned flags, unsigned index, struct hostsrc_all *all,
		 struct hostsrc **ret) MUST_USE;
void hostsrc_close(struct hostsrc *h);
const char *hostsrc_root(const struct hostsrc *h);
unsigned hostsrc_flags(const struct hostsrc *h);

/* lstat of @rel ("" is the root). With REC_ORIGIN_PUBLIC: -ENOENT for what not everyone may read
 * (files and directories without o+r, directories without o+x, and device nodes). */
int hostsrc_stat(struct hostsrc *h, const char *rel, struct stat *ret) MUST_USE;
/* The same, and a regular file is held from now on: until hostsrc_forget(), or until it is the least recently used
 * of too many. */
int hostsrc_look(struct hostsrc *h, const char *rel, struct stat *ret) MUST_USE;
/* A descriptor of the directory @rel, whose names are to be looked at in turn. */
int hostsrc_dir(struct hostsrc *h, const char *rel, int *ret_fd) MUST_USE;
/* hostsrc_look of @name in it, with fewer calls; but no file that is held gives way to this one. */
int hostsrc_look_in(struct hostsrc *h, int dir_fd, const char *name, struct stat *ret) MUST_USE;
/* Nobody needs the file any more that @rel named; NULL: only its descriptor from hostsrc_look() is known. */
void hostsrc_forget(struct hostsrc *h, const char *rel, uint64_t dev, uint64_t ino);
/* The held ones that have no name left on the host, of those not looked at for @age_ms; asks the host, so hold
 * no lock. Is any file held? */
bool hostsrc_nameless(struct hostsrc *h, long long age_ms,
		      void (*fn)(void *arg, uint64_t dev, uint64_t ino), void *arg);
/* 0: must be numbered by the core. */
store_ino hostsrc_ino(const struct hostsrc *h, const struct stat *st);
int hostsrc_readlink(struct hostsrc *h, const char *rel, char ret_target[static 4096]) MUST_USE;
/* Every name but "." and ".."; DT_* in @type, DT_UNKNOWN resolved. */
int hostsrc_list(struct hostsrc *h, const char *rel,
		 int (*fn)(void *arg, const char *name, uint64_t ino, unsigned type),
		 void *arg) MUST_USE;
/* Identity of a file's content at some moment. */
struct hostsrc_id {
	uint64_t dev, ino, size;
	struct timespec mtime;
};
void hostsrc_id_of(const struct stat *st, struct hostsrc_id *ret);
/* Was it changed so lately that another change could leave the same time? Times move in ticks of up to
 * 10 ms (finer where the kernel sees that somebody looked: 6.13). */
bool hostsrc_racy(const struct stat *st);
/* What the file @rel must be. */
enum hostsrc_be {
	HOSTSRC_ANY, /* whatever is there now */
	HOSTSRC_FILE, /* the file of @id's device and number, with the bytes that it has now. When another has
		       * taken its place it is still read while it is held */
	HOSTSRC_SAME, /* that, unchanged */
};
/* Attributes of the file @id that was at @rel, also when its name is gone; -ESTALE: it is not held. */
int hostsrc_stat_held(struct hostsrc *h, const char *rel, const struct hostsrc_id *id,
		      struct stat *ret) MUST_USE;
/* pread of a regular file, through the descriptor cache; short only at its end. -ESTALE: it is not, or after
 * the read was not any more, what it must be. */
ssize_t hostsrc_pread(struct hostsrc *h, const char *rel, enum hostsrc_be be,
		      const struct hostsrc_id *id, uint64_t off, void *buf, size_t n) MUST_USE;
/* The same. *@ret_waited becomes true when not even its first page was in memory. */
ssize_t hostsrc_pread_told(struct hostsrc *h, const char *rel, enum hostsrc_be be,
			   const struct hostsrc_id *id, uint64_t off, void *buf, size_t n,
			   bool *ret_waited) MUST_USE;
/* The beginning of a file of that directory is read from the disk, and nobody waits for it; of what is not shown nothing is. */
void hostsrc_ahead(const struct hostsrc *h, int dir_fd, const char *name);
int64_t hostsrc_seek(struct hostsrc *h, const char *rel, enum hostsrc_be be,
		     const struct hostsrc_id *id, int64_t off, int whence) MUST_USE;
ssize_t hostsrc_getxattr(struct hostsrc *h, const char *rel, const char *name, void *value,
			 size_t size) MUST_USE;
ssize_t hostsrc_listxattr(struct hostsrc *h, const char *rel, char *list, size_t size) MUST_USE;
