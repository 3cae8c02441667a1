/*
 * fs/core/ovl.h - the copy-on-write file system: inode numbers, names and offsets in, results or
 * negative errno out. Knows nothing of FUSE; the FUSE adapter, the tests and import/export are its
 * front ends.
 *
 * A tree is the open layer's in-memory changes over the store's records at a layer, over host
 * directories read in place where an inode has an origin (store/record.h). Changes are flushed in the
 * background; ovl_fsync, ovl_flush and ovl_commit wait for the disk.
 *
 * Threads: every call may be made from any number of threads at once, except ovl_open/ovl_close.
 * Lock order: docs/architecture.md. Callbacks (readdir, changes) run with locks held and must not
 * call the core.
 * Errors: what the same system call gives on a local file system (its man page), and -EACCES where
 * the policy refuses; -ENOSPC when the store is full, -EDQUOT a quota or disk_max; -EBADMSG is mapped to -EIO for damaged
 * content.
 * Lifetimes of inodes: the caller counts lookups as FUSE does: every successful lookup, create,
 * mknod, mkdir, symlink, link, tmpfile and accepted "plus" directory entry takes one reference on the
 * inode; ovl_forget gives them back. An inode without links lives until its last reference goes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/err.h"
#include "store/record.h"
#include "store/store.h"

struct ovl;
struct policy_rules;

enum ovl_open_flags {
	OVL_RDONLY = 1 << 0, /* every change is -EROFS; @layer may be sealed */
	/* The journal is a dead process's: its acknowledged changes are part of the tree, and the caller's
	 * references that it counted are still there, in numbers that nobody knows. */
	OVL_RESUME = 1 << 1,
};

/* How the kernel may have to be told about changes it did not make (a host file changed below).
 * Called from a thread that serves nothing and holds no lock. NULL members are skipped. */
struct ovl_notify {
	void *arg;
	void (*inval_inode)(void *arg, store_ino ino);
	void (*inval_entry)(void *arg, store_ino parent, const char *name, size_t len);
	/* More inodes are held than is good: give back (ovl_forget) those of these that nobody has in use.
	 * Negative: it cannot be done, and is not asked for again. */
	int (*prune)(void *arg, const store_ino *inos, size_t n);
};

struct journal;
struct store_log;

struct ovl_opts {
	struct store *store; /* lent, outlives the ovl */
	/* Lent, outlives the ovl; what is acknowledged is in it until it is flushed (fs/core/journal.h). Emptied
	 * at open unless OVL_RESUME. NULL: none. */
	struct journal *journal;
	/* Lent, outlives the ovl: of the environment whose open layer @layer is. With a journal an fsync writes to it what
	 * otherwise would take a flush; what it says of @layer is part of the tree. NULL: none. */
	struct store_log *log;
	store_layer layer; /* open and this process's own, or any with OVL_RDONLY */
	unsigned flags;
	/* What is allowed (policy/rules.h); NULL: everything. Fixed for the life of the ovl. Copied. */
	const struct policy_rules *policy;
	struct ovl_notify notify;
	unsigned flush_ms;    /* background flush; 0: 1000 */
	unsigned host_ttl_ms; /* how long what a host directory said is believed; 0: 1000 */
	size_t inodes_max;    /* held before the front end is asked to give some back; 0: 262144 */
	size_t dirty_max;     /* bytes dirty before writers wait for a flush; 0: 64 MiB */
	uint64_t disk_max;    /* of store_written(); 0: no limit. ovl_set_disk_max() */
};

/* OVL_RESUME: -EBADMSG when the journal is damaged or has not got everything. */
int ovl_open(const struct ovl_opts *opts, struct ovl **ret) MUST_USE;
/* Flushes first unless read-only; the result is the flush's. The ovl is gone in every case. */
int ovl_close(struct ovl *o);

/* Another limit of store_written(), which counts since the store was opened. Any thread. */
void ovl_set_disk_max(struct ovl *o, uint64_t max);

/* Without a flush, as if the process had died: what is acknowledged stays in the journal. */
void ovl_abandon(struct ovl *o);
/* The references that a dead process counted are void: nobody is there that could give them back. */
void ovl_unheld(struct ovl *o);
/* The store refuses everything to this process (-EIO) until somebody opens it anew: store_broken. */
bool ovl_broken(struct ovl *o);

/* Who asks: the owner of what is created, already translated to stored ids. */
struct ovl_cred {
	uid_t uid;
	gid_t gid;
	mode_t umask; /* applied by the core, so that default ACLs work; 0 when already applied */
};

/* valid_ms: how long the answer may be cached; OVL_FOREVER unless a host directory stands behind. */
#define OVL_FOREVER UINT32_MAX
struct ovl_attr {
	struct stat st; /* stored owner ids; st_ino set; st_dev 0; st_blksize STORE_BLOCK */
	struct timespec btime;
	uint32_t valid_ms;
	/* Not 0: see ovl_unsettled(). */
	uint32_t unsettled;
};
struct ovl_entry {
	store_ino ino; /* 0 only in ovl_lookup's negative answer */
	struct ovl_attr attr;
	uint32_t valid_ms; /* of the name */
};

/* ---- requests that may come again ---- */

/* This thread serves request @tag from here on, 0: none. What it changes is noted in the journal together with
 * what it came to. @slot: the thread's own, below 8. */
void ovl_request(struct ovl *o, uint64_t tag, unsigned slot);
struct ovl_done {
	int64_t result;     /* bytes of a write or copy, else 0 */
	struct ovl_entry e; /* of what was made, with one reference; ino 0: nothing was */
	bool has_attr;      /* of the inode that was asked for */
	struct ovl_attr attr;
};
/* Has a dead process executed request @tag on @ino already, and not answered it? 1: @ret is the answer. 0: no. */
int ovl_request_done(struct ovl *o, uint64_t tag, store_ino ino, struct ovl_done *ret) MUST_USE;

/* ---- names ---- */

/* 0 with ret->ino == 0 and valid_ms set: no such name (no reference taken). "." finds any inode by its
 * number (file handles), ".." the parent of a directory. */
int ovl_lookup(struct ovl *o, store_ino parent, const char *name, struct ovl_entry *ret) MUST_USE;
void ovl_forget(struct ovl *o, store_ino ino, uint64_t n);
int ovl_mknod(struct ovl *o, store_ino parent, const char *name, mode_t mode, dev_t rdev,
	      const struct ovl_cred *cred, struct ovl_entry *ret) MUST_USE;
int ovl_mkdir(struct ovl *o, store_ino parent, const char *name, mode_t mode,
	      const struct ovl_cred *cred, struct ovl_entry *ret) MUST_USE;
int ovl_symlink(struct ovl *o, store_ino parent, const char *name, const char *target,
		const struct ovl_cred *cred, struct ovl_entry *ret) MUST_USE;
int ovl_link(struct ovl *o, store_ino ino, store_ino parent, const char *name,
	     struct ovl_entry *ret) MUST_USE;
int ovl_tmpfile(struct ovl *o, store_ino parent, mode_t mode, const struct ovl_cred *cred,
		struct ovl_entry *ret) MUST_USE;
int ovl_unlink(struct ovl *o, store_ino parent, const char *name) MUST_USE;
int ovl_rmdir(struct ovl *o, store_ino parent, const char *name) MUST_USE;
/* @flags: RENAME_NOREPLACE, RENAME_EXCHANGE (renameat2(2)). */
int ovl_rename(struct ovl *o, store_ino parent, const char *name, store_ino newparent,
	       const char *newname, unsigned flags) MUST_USE;
/* The same, with RENAME_WHITEOUT where @cred, who owns what it leaves, is not NULL; and the inodes that were moved,
 * 0 for none: their change time is another now. */
int ovl_rename_told(struct ovl *o, store_ino parent, const char *name, store_ino newparent,
		    const char *newname, unsigned flags, const struct ovl_cred *cred,
		    store_ino ret_moved[static 2]) MUST_USE;
/* Whoever keeps a count of links of its own and lowers it when a removal returns must not take over
 * attributes that it is shown between the removal and that: it would count twice. Attributes of an
 * inode that lost one name of several say so (ovl_attr.unsettled) until ovl_settled() was called, or another name in that
 * directory was linked, renamed or removed: a directory is changed by one caller after the other.
 * ovl_unsettled: the directory that the last of them was removed from, for waiting until nobody is
 * inside a removal there; 0 when there is none, or another caller was told already. */
store_ino ovl_unsettled(struct ovl *o, store_ino ino, uint32_t *ret_which);
void ovl_settled(struct ovl *o, store_ino ino, uint32_t which);
/* NUL-terminated, at most PATH_MAX with it. */
int ovl_readlink(struct ovl *o, store_ino ino, char ret_target[static 4096]) MUST_USE;

/* Entries of @dir after @cookie (0: from the start, "." and ".." included). @fn gets the cookie of
 * the entry, to be given back to continue after it, and returns nonzero to stop before this entry.
 * With @plus, @e is complete and an accepted entry has taken a reference ("." and ".." never); else
 * only e->ino and the type in e->attr.st.st_mode are set. A host name that cannot be looked at comes
 * with @e->ino 0 and the type alone ("plus"), or with an unknown number; an unsettled inode with
 * @e->ino 0, its number in e->attr. Cookies are stable while the
 * directory is referenced: an entry that stays is given once, whatever comes and goes around it. */
int ovl_readdir(struct ovl *o, store_ino dir, uint64_t cookie, bool plus,
		int (*fn)(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e),
		void *arg) MUST_USE;

/* The caller may come back into the middle of what it was given of @dir, though it took all: the cookies hold for another
 * process that goes on after this one, too. Of who left something ovl_readdir knows it. */
void ovl_keep_order(struct ovl *o, store_ino dir);

/* May names in @dir come and go without a change made here, because a host directory stands behind it? */
bool ovl_names_change(struct ovl *o, store_ino dir);

/* ---- attributes ---- */

int ovl_getattr(struct ovl *o, store_ino ino, struct ovl_attr *ret) MUST_USE;

enum ovl_set {
	OVL_SET_MODE = 1 << 0,
	OVL_SET_UID = 1 << 1,
	OVL_SET_GID = 1 << 2,
	OVL_SET_SIZE = 1 << 3,
	OVL_SET_ATIME = 1 << 4,
	OVL_SET_MTIME = 1 << 5,
	OVL_SET_ATIME_NOW = 1 << 6,
	OVL_SET_MTIME_NOW = 1 << 7,
	OVL_SET_CTIME = 1 << 8,
	OVL_SET_KILLPRIV = 1 << 9, /* drop set-id bits and security.capability (FUSE KILLPRIV_V2) */
};
int ovl_setattr(struct ovl *o, store_ino ino, const struct stat *st, unsigned set,
		struct ovl_attr *ret) MUST_USE;
int ovl_statfs(struct ovl *o, struct statvfs *ret) MUST_USE;

/* A new access ACL drops the set-group-id bit: who sets it is not in the group. */
#define OVL_XATTR_KILL_SGID 0x10000

/* Size query with size == 0, as getxattr(2). @flags XATTR_CREATE, XATTR_REPLACE, OVL_XATTR_KILL_SGID. ACLs arrive as
 * system.posix_acl_*: kept, and mirrored in the mode; a default ACL is inherited by what is created. */
ssize_t ovl_getxattr(struct ovl *o, store_ino ino, const char *name, void *value,
		     size_t size) MUST_USE;
ssize_t ovl_listxattr(struct ovl *o, store_ino ino, char *list, size_t size) MUST_USE;
int ovl_setxattr(struct ovl *o, store_ino ino, const char *name, const void *value, size_t size,
		 int flags) MUST_USE;
int ovl_removexattr(struct ovl *o, store_ino ino, const char *name) MUST_USE;

/* ---- content of regular files ---- */

ssize_t ovl_read(struct ovl *o, store_ino ino, uint64_t off, void *buf, size_t n) MUST_USE;
/* @killpriv: drop set-id bits and security.capability. */
ssize_t ovl_write(struct ovl *o, store_ino ino, uint64_t off, const void *buf, size_t n,
		  bool killpriv) MUST_USE;
/* The same with @killpriv not NULL, and whether there were any. */
ssize_t ovl_write_told(struct ovl *o, store_ino ino, uint64_t off, const void *buf, size_t n,
		       bool *killpriv) MUST_USE;
/* @mode: FALLOC_FL_* (fallocate(2)): 0, KEEP_SIZE, PUNCH_HOLE|KEEP_SIZE, ZERO_RANGE[|KEEP_SIZE]. */
int ovl_fallocate(struct ovl *o, store_ino ino, int mode, uint64_t off, uint64_t len) MUST_USE;
/* SEEK_DATA or SEEK_HOLE. */
int64_t ovl_lseek(struct ovl *o, store_ino ino, int64_t off, int whence) MUST_USE;
/* Shares whole aligned blocks, copies the edges. The count is short only at end of file. */
ssize_t ovl_copy_range(struct ovl *o, store_ino in, uint64_t off_in, store_ino out,
		       uint64_t off_out, uint64_t n) MUST_USE;
/* The same out of a file of @from, a read-only tree of the same store that is this thread's alone. */
ssize_t ovl_copy_from(struct ovl *from, store_ino in, uint64_t off_in, struct ovl *o, store_ino out,
		      uint64_t off_out, uint64_t n) MUST_USE;
int ovl_fsync(struct ovl *o, store_ino ino, bool datasync) MUST_USE;

/* ---- the whole tree ---- */

/* All that is dirty, durably in the store. */
int ovl_flush(struct ovl *o) MUST_USE;
/* All that is dirty, durably: who opens the tree after any crash finds it, but the store may not show it yet. */
int ovl_sync(struct ovl *o) MUST_USE;
/* Not @on: from now on that, and ovl_fsync, is a flush, and once the next flush is done the log of the environment says nothing. */
void ovl_use_log(struct ovl *o, bool on);

/* With all changes held off: complete partly copied host files, flush, call @seal (which seals the
 * layer in the store and gives its new open child), continue on the child. The time changes are held
 * off is that of the flush. @seal's error is returned and the ovl stays on its layer. */
int ovl_commit(struct ovl *o, int (*seal)(void *arg, store_layer *ret_open), void *arg) MUST_USE;
/* The same, but files that cannot be completed, because the host file behind them was changed, do not
 * stand in the way (-EIO there): the bytes that were not copied yet stay unreadable. For states that
 * are kept so that a move loses nothing. */
int ovl_commit_as_is(struct ovl *o, int (*seal)(void *arg, store_layer *ret_open),
		     void *arg) MUST_USE;

/* An inode becomes the tree's own: recorded, and its bytes, if it is a file, copied, as they are now. It does not change, and knows nothing of
 * the host from here on; a directory, which shows its names from there, does. */
int ovl_own(struct ovl *o, store_ino ino) MUST_USE;
/* The same of a directory each of whose names is the tree's own, or removed: it shows no other any more, whatever the host makes where it was. It
 * stays what it is while it has names that are not (a policy may hide some). */
int ovl_own_names(struct ovl *o, store_ino ino) MUST_USE;

/* Inodes that shared mappings may have dirtied in the kernel: looked up, and written at some time.
 * The caller makes the kernel push them (notify_inval_inode) before a commit. */
int ovl_maybe_mapped(struct ovl *o, int (*fn)(void *arg, store_ino ino), void *arg) MUST_USE;

/* No callback of opts.notify runs any more, or will: before what it works with goes away. */
void ovl_notify_end(struct ovl *o);
/* After it, while nobody uses the tree: another front end goes on with it. */
int ovl_notify_begin(struct ovl *o, const struct ovl_notify *n) MUST_USE;

struct ovl_counts {
	uint64_t inodes;       /* in memory */
	uint64_t inodes_dirty; /* not yet flushed */
	uint64_t bytes_dirty;
	uint64_t changes;   /* mutations since open: a token for ovl_changes() */
	bool layer_changed; /* anything in the open layer, flushed or not */
};
void ovl_counts(struct ovl *o, struct ovl_counts *ret);
/* Paths changed after the token, without duplicates, in no order; -ESTALE when the token is too old
 * for what is remembered (bounded). @fn: the path is absolute, @what one of 'c' created or written,
 * 'd' deleted. */
int ovl_changes(struct ovl *o, uint64_t since, int (*fn)(void *arg, const char *path, char what),
		void *arg) MUST_USE;

/* ---- policy ---- */

/* Is there something that cannot be written, and that Landlock does not keep from being opened for it: below a writable
 * place, or beside one that is missing or behind a symbolic link, or anywhere where there is no Landlock? Then an opening
 * is to be asked for, so that it fails and not the first write, and nobody maps what he could change in the kernel's memory alone. */
bool ovl_opens_matter(struct ovl *o);
/* May @ino be opened for reading, or for changes; a directory: for its names? */
int ovl_may_open(struct ovl *o, store_ino ino, bool change) MUST_USE;

struct denial; /* policy/denials.h: what was refused, how often since the tree was opened */
/* Refusals so far: a token for ovl_denials. */
uint64_t ovl_denied(struct ovl *o);
/* The distinct ones since @since that are remembered (bounded), the latest first. *ret_total: as ovl_denied(). @fn
 * is called with a lock held: it only collects. */
int ovl_denials(struct ovl *o, uint64_t since, int (*fn)(void *arg, const struct denial *d),
		void *arg, uint64_t *ret_total) MUST_USE;

/* The absolute path of an inode, for messages and lists. */
int ovl_path(struct ovl *o, store_ino ino, struct buf *out) MUST_USE;
/* Walk a path from the root without following a last symlink; takes a reference on the result.
 * Symlinks on the way are followed inside the tree. For clients that have no mount. */
int ovl_walk(struct ovl *o, const char *path, struct ovl_entry *ret) MUST_USE;
