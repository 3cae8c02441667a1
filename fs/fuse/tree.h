/*
 * fs/fuse/tree.h - what a session asks of the tree that it serves: the calls of fs/core/ovl.h, which says what each
 * means, as a table. Two trees have one: the copy-on-write one (tree_ovl.c), and the host's own (fs/through).
 *
 * Handles: a tree that sets @handles is told of each opening, and gets back what it gave out then; 0 is none. To
 * one that does not, 0 is all that comes.
 */
#pragma once

#include "fs/core/ovl.h"

struct tree_open {
	uint64_t fh;
	bool keep; /* what is cached of it is still right */
};

enum tree_write {
	TREE_APPEND = 1 << 0, /* at the end, wherever that is now */
};

struct tree_ops {
	/* What is served changes behind the kernel's back at any time: it compares times, and asks for names one by
	 * one. */
	bool live;
	bool handles;

	/* ---- the session ---- */
	void (*request)(void *t, uint64_t tag, unsigned slot);
	int (*request_done)(void *t, uint64_t tag, store_ino ino, struct ovl_done *ret);
	bool (*broken)(void *t);
	bool (*opens_matter)(void *t);
	int (*maybe_mapped)(void *t, int (*fn)(void *arg, store_ino ino), void *arg);
	store_ino (*unsettled)(void *t, store_ino ino, uint32_t *ret_which);
	void (*settled)(void *t, store_ino ino, uint32_t which);

	/* ---- names ---- */
	int (*lookup)(void *t, store_ino parent, const char *name, struct ovl_entry *ret);
	void (*forget)(void *t, store_ino ino, uint64_t n);
	int (*mknod)(void *t, store_ino parent, const char *name, mode_t mode, dev_t rdev,
		     const struct ovl_cred *cred, struct ovl_entry *ret);
	int (*mkdir)(void *t, store_ino parent, const char *name, mode_t mode,
		     const struct ovl_cred *cred, struct ovl_entry *ret);
	int (*symlink)(void *t, store_ino parent, const char *name, const char *target,
		       const struct ovl_cred *cred, struct ovl_entry *ret);
	int (*link)(void *t, store_ino ino, store_ino parent, const char *name,
		    struct ovl_entry *ret);
	int (*unlink)(void *t, store_ino parent, const char *name);
	int (*rmdir)(void *t, store_ino parent, const char *name);
	int (*rename)(void *t, store_ino parent, const char *name, store_ino newparent,
		      const char *newname, unsigned flags, const struct ovl_cred *cred,
		      store_ino ret_moved[static 2]);
	int (*readlink)(void *t, store_ino ino, char ret_target[static 4096]);
	int (*readdir)(void *t, store_ino dir, uint64_t fh, uint64_t cookie, bool plus,
		       int (*fn)(void *arg, const char *name, uint64_t cookie,
				 const struct ovl_entry *e),
		       void *arg);
	void (*keep_order)(void *t, store_ino dir);
	/* Names of @dir may come and go while nobody tells us: nothing of a listing may be kept. */
	bool (*names_change)(void *t, store_ino dir);

	/* ---- openings ---- */
	/* Of a name that is not there, or of what is there without O_EXCL; -ENOSYS without handles. @flags: open(2). */
	int (*create)(void *t, store_ino parent, const char *name, mode_t mode, int flags,
		      const struct ovl_cred *cred, struct ovl_entry *ret, struct tree_open *ret_o);
	int (*tmpfile)(void *t, store_ino parent, mode_t mode, int flags,
		       const struct ovl_cred *cred, struct ovl_entry *ret, struct tree_open *ret_o);
	int (*open)(void *t, store_ino ino, int flags, struct tree_open *ret);
	int (*opendir)(void *t, store_ino ino, struct tree_open *ret);
	void (*release)(void *t, store_ino ino, uint64_t fh);

	/* ---- attributes ---- */
	int (*getattr)(void *t, store_ino ino, uint64_t fh, struct ovl_attr *ret);
	int (*setattr)(void *t, store_ino ino, uint64_t fh, const struct stat *st, unsigned set,
		       struct ovl_attr *ret);
	int (*statfs)(void *t, store_ino ino, struct statvfs *ret);
	ssize_t (*getxattr)(void *t, store_ino ino, const char *name, void *value, size_t size);
	ssize_t (*listxattr)(void *t, store_ino ino, char *list, size_t size);
	int (*setxattr)(void *t, store_ino ino, const char *name, const void *value, size_t size,
			int flags);
	int (*removexattr)(void *t, store_ino ino, const char *name);

	/* ---- content ---- */
	ssize_t (*read)(void *t, store_ino ino, uint64_t fh, uint64_t off, void *buf, size_t n);
	/* @killpriv: as ovl_write_told(). @how: enum tree_write. */
	ssize_t (*write)(void *t, store_ino ino, uint64_t fh, uint64_t off, const void *buf,
			 size_t n, unsigned how, bool *killpriv);
	int (*fallocate)(void *t, store_ino ino, uint64_t fh, int mode, uint64_t off, uint64_t len);
	int64_t (*lseek)(void *t, store_ino ino, uint64_t fh, int64_t off, int whence);
	ssize_t (*copy_range)(void *t, store_ino in, uint64_t fh_in, uint64_t off_in, store_ino out,
			      uint64_t fh_out, uint64_t off_out, uint64_t n);
	int (*fsync)(void *t, store_ino ino, uint64_t fh, bool datasync);
	int (*fsyncdir)(void *t, store_ino ino, uint64_t fh, bool datasync);
};

struct tree {
	const struct tree_ops *ops;
	void *t;
};

struct tree tree_of_ovl(struct ovl *o);
