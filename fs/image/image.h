/*
 * fs/image/image.h - root file systems into and out of the store: directories, tar archives, OCI images.
 *
 * A front end of the core (fs/core/ovl.h), as the mount is: an import fills the open layer of a tree of its own through
 * ovl_ calls, so names, links, holes, whiteouts, the limit of the disk and the flush in the background (which hashes
 * and writes while the source is read) are those of every other tree. Nothing is mounted, and no path of the source is
 * ever walked on the host: in the new tree it is walked without following links.
 *
 * Threads: a call belongs to one thread; the trees that it opens have theirs.
 * Errors: negative errno with a sentence in @diag. -EBADMSG the source is damaged, or hostile; -EEXIST the name is
 * taken; -ENOSPC, -EDQUOT no room; -ECANCELED @go_on said so. What failed leaves nothing that is visible.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "store/store.h"

enum image_kind {
	IMAGE_DIR = 1,
	IMAGE_TAR,
	IMAGE_OCI,
};
/* "dir", "tar", "oci"; -EINVAL. */
int image_kind_parse(const char *s, enum image_kind *ret) MUST_USE;

/* Asked often, with no lock held: bytes of the source so far, and of how many (0: not known). false: stop. */
struct image_watch {
	bool (*go_on)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

/* ---- import ---- */

struct image_import {
	struct store *store;
	enum image_kind kind;
	const char *src; /* an absolute path; "-": a tar archive on standard input */
	const char *tag; /* of an OCI layout; NULL: the only one */
	const char *name;
	unsigned strip; /* of a tar archive: components of each path that are dropped */
	bool replace;
	bool reread; /* of a directory: also the files that an earlier import of it has read */
	uint64_t disk_max; /* bytes by which the store may grow; 0: what is free */
	struct image_watch watch;
};
struct image_done {
	struct digest id; /* of the content */
	store_layer layer;
	uint64_t entries, bytes; /* of the tree's files */
	uint64_t written;        /* by which the store grew */
	uint64_t layers, reused; /* of an OCI image; of these, were there */
	uint64_t skipped;        /* sockets, and attributes that are not kept */
	uint64_t unread; /* files of a directory that an earlier import has read, unchanged */
};
int image_import(const struct image_import *o, struct diag *diag, struct image_done *ret) MUST_USE;

/* The directory @layout has an image's manifest in the file IMAGE_WANTED. Of those of its layers that the store has, the first
 * ones, it gets stand-ins: files of their size without their bytes, which image_import() will not read. @s NULL: the store has
 * nothing. */
#define IMAGE_WANTED "wanted"
struct image_had {
	uint64_t layers, bytes;
	bool choose; /* it is of several platforms, and this machine's is @manifest: ask again with that one */
	struct digest manifest;
};
int image_have(struct store *s, const char *layout, struct diag *diag,
	       struct image_had *ret) MUST_USE;

/* ---- bases ---- */

struct image_base {
	char name[65];
	bool has_id; /* "host" has none */
	struct digest id;
	struct timespec created;
	uint64_t entries, bytes;
	char source[8]; /* "dir", "tar", "oci"; "host" */
	/* What installs packages in it: "apt", "pacman"; "" neither, or imported before this was looked at. */
	char manager[8];
};
int image_bases(struct store *s, int (*fn)(void *arg, const struct image_base *b),
		void *arg) MUST_USE;
/* How the image that a base was made of came to be, as it says itself: newest first. Texts are a stranger's, "" where there is none. */
struct image_step {
	bool has_id; /* of the commit that it was in the store that it comes from */
	struct digest id;
	const char *message, *by, *author;
	struct timespec time; /* zero: not told */
	bool empty;           /* it changed nothing */
};
/* A base that is of no image has none. */
int image_history(struct store *s, const char *name,
		  int (*fn)(void *arg, const struct image_step *step), void *arg) MUST_USE;
/* Names that are not for imports: "host", "through". */
bool image_name_reserved(const char *name);

/* ---- export ---- */

enum image_pack {
	IMAGE_GZIP = 0,
	IMAGE_ZSTD,
	IMAGE_PLAIN,
};
int image_pack_parse(const char *s, enum image_pack *ret) MUST_USE;

struct image_export {
	struct store *store;
	enum image_kind kind;
	store_layer layer; /* sealed */
	const char *base;  /* whose settings an OCI image takes over; or NULL */
	const char *dest;  /* an absolute path; "-": standard output, of a tar archive */
	const char *tag;   /* of an OCI image; NULL: "latest" */
	bool squash;       /* of an OCI image: one layer, not one for each commit */
	bool host; /* what the tree shows of host directories, too; else such a tree is -EINVAL */
	enum image_pack pack;
	bool pack_given; /* a tar archive is packed only where that is said */
	struct image_watch watch;
};
struct image_out {
	uint64_t entries, bytes;
	uint64_t skipped;     /* what the destination could not take: owners, devices, attributes */
	struct digest digest; /* of an OCI image's manifest */
	uint64_t layers;      /* of an OCI image */
};
int image_export(const struct image_export *o, struct diag *diag, struct image_out *ret) MUST_USE;
