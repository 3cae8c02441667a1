/*
 * fs/core/diff.h - what differs between two layers, by path; and the canonical commit record.
 *
 * Cost follows what the layers between the two and their common ancestor wrote, never the tree.
 * Works on the store alone: flush an open layer first.
 * A removed (or reappeared) directory lists what the store knows below it; of a host directory that nobody
 * had changed that is nothing: one entry stands for all of it.
 * What was put in place of something else is compared by content: the same bytes and attributes again
 * are no difference.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "fs/core/hidden.h"
#include "store/store.h"

enum diff_kind {
	DIFF_ADDED = 'A',
	DIFF_MODIFIED = 'M', /* content, or mode, owner, xattrs, symlink target: see @what */
	DIFF_DELETED = 'D',
	DIFF_RENAMED = 'R', /* same inode at another path (a directory: its subtree went along) */
	DIFF_TYPE = 'T',    /* another file type at the same path */
};

enum diff_what {
	DIFF_CONTENT = 1 << 0,
	DIFF_MODE = 1 << 1,
	DIFF_OWNER = 1 << 2,
	DIFF_XATTRS = 1 << 3,
	DIFF_TIMES = 1 << 4, /* mtime only, of files and symlinks: reported only with DIFF_ALL */
	/* It shows what a host directory has, or had, at another place than this one. With DIFF_HIDDEN, of A, M and T; of M also alone,
	 * where nothing differs. */
	DIFF_ELSEWHERE = 1 << 5,
};

struct diff_entry {
	enum diff_kind kind;
	unsigned what;    /* of DIFF_ADDED, DIFF_ELSEWHERE or nothing */
	const char *path; /* absolute in the tree, lent; of the newer side (older for deleted) */
	/* Of a rename, where it was; of DIFF_MODIFIED and DIFF_TYPE too, where a directory above was renamed. NULL otherwise. */
	const char *old_path;
	uint32_t mode; /* of the newer side (older for deleted) */
	uint64_t size;
	store_ino ino;
	bool host_before; /* the older side is a host file: it has no record in the store */
	/* What the name took over from a host directory (of a rename, the old one), lent; NULL: nothing. With DIFF_HIDDEN. */
	const struct hidden *hidden;
};

enum diff_flags {
	DIFF_ALL = 1 << 0, /* report changes of times too, of directories as well */
	/* For who brings changes to the host, renames of directories first: say what was taken over from host directories, and what is shown
	 * from other places of them. What goes with a directory that was moved away is no change of what has its old name: that is
	 * something removed and something new, or, when it is the same, a rename to its own path. */
	DIFF_HIDDEN = 1 << 2,
	/* Host directories are not looked at: -ENODATA where one would have to be. */
	DIFF_STORED = 1 << 1,
	/* For people, who see one owner: of what a host directory has and of what took its place, this process's user and HOSTBASE_AGENT are
	 * the same. Without it ids count as they are stored. And a directory that was made where the host has one is compared with it name by
	 * name (not with DIFF_HIDDEN), which costs what the host has in it; without it that is one removed and one added. */
	DIFF_PEOPLE = 1 << 3,
};

struct diff_counts {
	uint64_t added, modified, deleted, renamed;
};

/* -E2BIG: the paths of what differs are too long together (a file at a depth of 100,000 directories is one of a megabyte), so
 * that memory is not taken for them without end.
 * Entries sorted by path bytes; where something was moved onto a removed place, DIFF_DELETED first. @fn may stop with nonzero, which is returned. Host directories behind
 * the tree are consulted only for names that the layers touched. */
int diff_layers(struct store *s, store_layer from, store_layer to, unsigned flags,
		int (*fn)(void *arg, const struct diff_entry *e), void *arg) MUST_USE;

/* The canonical record of a commit (docs/store-format.md): digest over parent id, message, label,
 * time and the sorted changes from @from to @to with their metadata and content digests; and the
 * counts for its commit record. */
int diff_commit_id(struct store *s, const struct digest *parent, store_layer from, store_layer to,
		   const char *message, const char *label, const struct timespec *time,
		   struct digest *ret_id, struct diff_counts *ret_counts) MUST_USE;

/* The id of a checkpoint that seals @layer: of what it is called, not of what changed, which nobody waits for. */
int diff_state_id(const struct store_commit *c, store_layer layer, struct digest *ret_id) MUST_USE;

/* Computes the id of @c again from what the store holds: is it the one that @c has? -ENODATA nobody can tell, because
 * what a host directory held at the time counts, or there is more of it than this machine compares. */
int diff_commit_check(struct store *s, const struct store_commit *c, bool *ret_same) MUST_USE;
