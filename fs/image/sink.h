/*
 * fs/image/sink.h - a tree that is being filled by an import.
 *
 * Entries come in the order of the source. Paths are relative to the new root, whatever they begin with; components are
 * looked up in the new tree and no link is followed: a path that leads through one, or has a "..", is -EBADMSG.
 * Directories that are missing on the way are made (root's, 0755, of time 0, so that equal sources give equal trees).
 * What an entry finds at its place it replaces; a directory stays, with what is in it.
 * One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "store/store.h"

struct ovl;
struct sink;

struct sink_opts {
	struct store *store;
	store_layer parent;      /* 0: an empty tree */
	uint64_t disk_max;       /* of store_written(); 0: none */
	struct diag *diag;       /* lent: the sentence of whatever fails */
	bool (*stop)(void *arg); /* may be NULL */
	void *arg;
	/* May be NULL: set by sink_finish. While it is open the collector leaves the layer, which nobody else names, however long
	 * it takes until somebody does. */
	int *ret_pin;
};
int sink_open(const struct sink_opts *o, struct sink **ret) MUST_USE;
/* Everything to the disk, and sealed; the sink is gone in every case, on failure with its layer. */
int sink_finish(struct sink *k, store_layer *ret) MUST_USE;
/* Nothing is left of it. */
void sink_abort(struct sink *k);

struct sink_entry {
	const char *path;
	struct stat st;     /* mode, uid, gid, rdev, mtime; times are kept to the nanosecond */
	const char *target; /* of a symlink */
	const char
		*hardlink; /* path of an inode that is there; the rest is the inode's own already */
};
/* Make it. *ret_ino is the inode, for what follows, until the next sink_put; 0 for a hard link. */
int sink_put(struct sink *k, const struct sink_entry *e, store_ino *ret_ino) MUST_USE;
int sink_write(struct sink *k, store_ino ino, uint64_t off, const void *p, size_t n) MUST_USE;
/* The bytes of a file of @from, a read-only tree of the same store, which are @size, @data of them in no hole: shared, not copied. */
int sink_take(struct sink *k, store_ino ino, struct ovl *from, store_ino src, uint64_t size,
	      uint64_t data) MUST_USE;
/* Its attributes, behind its bytes, which are @size (regular files). */
int sink_attr(struct sink *k, store_ino ino, const struct sink_entry *e, uint64_t size) MUST_USE;
/* Behind sink_attr. One of a kind that no file system here keeps is counted, and left out. */
int sink_xattr(struct sink *k, store_ino ino, const char *name, const void *value,
	       size_t len) MUST_USE;

/* What the layers below have at @path is no longer there; of a directory (@inside): what is in it. What this layer
 * put there stays, whatever came first. */
int sink_whiteout(struct sink *k, const char *path, bool inside) MUST_USE;

struct sink_counts {
	uint64_t entries, bytes, skipped;
};
void sink_counts(const struct sink *k, struct sink_counts *ret);
void sink_skip(struct sink *k);
