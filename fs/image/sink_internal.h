/* fs/image/sink_internal.h - shared by sink.c, sink_path.c and sink_remove.c; nobody else includes it. */
#pragma once

#include "fs/core/ovl.h"
#include "fs/image/sink.h"

/* A directory that was touched: what comes into it later must not change its time. */
struct sink_dir {
	store_ino ino; /* 0: a free slot */
	struct timespec mtime;
	bool declared; /* by an entry of this layer */
};

struct sink_link;
struct sink_links {
	struct sink_link *v; /* a table by directory and name */
	size_t n, cap;
};

struct sink {
	struct sink_opts o;
	struct ovl *ovl;
	store_layer layer;
	store_ino mark;        /* inodes from here on are this layer's */
	struct sink_dir *dirs; /* a table by inode */
	size_t ndirs, dirs_cap;
	struct {
		store_ino ino; /* of the last entry's directory; one reference; 0: none */
		char *path;
		size_t len;
	} at;
	store_ino last; /* what sink_put gave; one reference */
	struct sink_links links;
	int pin; /* keeps the layer from the collector; -1: the caller's */
	struct sink_counts counts;
};

/* ---- sink_path.c ---- */

/* A path in two: its directory and its last component. */
struct sink_place {
	const char *path;
	size_t dir_len;
	char name[STORE_NAME_MAX + 1]; /* "": the root */
};
int sink_split(struct sink *k, const char *path, struct sink_place *ret) MUST_USE;
/* The directory; *ret has one reference. -ENOENT: it is missing and not to be made. */
int sink_walk(struct sink *k, const char *path, size_t len, bool make, store_ino *ret) MUST_USE;
/* The next lookup of a directory begins at the root. */
void sink_forget_place(struct sink *k);
int sink_dir_note(struct sink *k, store_ino ino, const struct timespec *mtime,
		  bool declared) MUST_USE;
/* Before its first change: its time as it is. */
int sink_dir_touch(struct sink *k, store_ino ino) MUST_USE;
bool sink_dir_declared(const struct sink *k, store_ino ino);
int sink_dirs_restore(struct sink *k) MUST_USE;
/* Lists and attributes that it took over from its directory, or has from a layer below. */
int sink_bare(struct sink *k, store_ino ino) MUST_USE;

int sink_fail(struct sink *k, int r, const char *what, const char *path) MUST_USE;

/* ---- sink_links.c ---- */

/* A name that this layer gave to an inode of a layer below. */
int sink_link_note(struct sink *k, store_ino dir, const char *name) MUST_USE;
bool sink_link_noted(const struct sink *k, store_ino dir, const char *name);
void sink_links_free(struct sink *k);

/* ---- sink_remove.c ---- */

/* All of it. */
int sink_remove(struct sink *k, store_ino dir, const char *name,
		const struct ovl_entry *e) MUST_USE;
