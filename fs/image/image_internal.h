/* fs/image/image_internal.h - shared by the files of fs/image; nobody else includes it. */
#pragma once

#include "base/buf.h"
#include "fs/image/before.h"
#include "fs/image/image.h"
#include "fs/image/sink.h"

/* How far an import or export is, and whether to go on. */
struct progress {
	const struct image_watch *watch;
	uint64_t done, total;
	unsigned calls;
	bool stopped;
};
/* sink_opts.stop, with a struct progress: asks every few calls. */
bool progress_stop(void *p);

/* The tree of a directory of the host, in the order of the bytes of names. Other file systems below it are not
 * entered: a mount point is an empty directory. */
struct importing;
int from_dir(struct importing *x, struct sink *k) MUST_USE;

/* Where the bytes of an archive come from. */
struct byte_source {
	/* *ret_p is lent until the next call; 0 at the end. */
	ssize_t (*read)(void *arg, const void **ret_p);
	/* May be NULL: forward by @n; how far it went. */
	int64_t (*skip)(void *arg, int64_t n);
	void *arg;
};
/* The entries of a tar archive, packed or not. @layer: of an OCI layer, whose ".wh." names are whiteouts. @strip: of each path so many
 * components are dropped, and entries that have no more. */
int from_tar(const struct byte_source *src, bool layer, unsigned strip, struct sink *k,
	     struct diag *diag) MUST_USE;

/* A file, or standard input ("-"). */
struct file_source {
	int fd;
	bool seekable, owned;
	struct progress *p;
	uint8_t *buf;
	int failed;
};
int file_source_open(struct file_source *f, const char *path, struct progress *p,
		     struct diag *diag) MUST_USE;
void file_source_close(struct file_source *f);
struct byte_source file_source_bytes(struct file_source *f);

/* ACLs: as the kernel has them in attributes, and as tar archives have them (libarchive's entries). */
struct archive_entry;
#define ACL_ACCESS_NAME  "system.posix_acl_access"
#define ACL_DEFAULT_NAME "system.posix_acl_default"
/* *skipped grows by the entries that name somebody without a number: they are left out. */
int acl_from_entry(struct archive_entry *e, int type, struct buf *out, unsigned *skipped) MUST_USE;
int acl_to_entry(struct archive_entry *e, int type, const void *p, size_t n) MUST_USE;

/* ---- what is known of a base beside its tree: a small tree of its own, at the ref "image/NAME" ---- */

struct image_info {
	uint64_t entries, bytes;
	char source[8];
	char manager[8];     /* as struct image_base */
	char *config;        /* an OCI image's configuration, as JSON; or NULL */
	struct listed files; /* of a directory; written, and not read back */
};
void image_info_release(struct image_info *i);
/* A sealed layer that holds @i; nobody names it yet. */
int image_info_write(struct store *s, const struct image_info *i, store_layer *ret) MUST_USE;
/* -ENOENT: nothing is known. */
int image_info_read(struct store *s, const char *name, struct image_info *ret) MUST_USE;

#define IMAGE_REF   "image/"
#define IMAGE_FILES "files" /* before.h */
/* The beginning of a file of such a tree. -ENOENT. */
int image_file_read(struct store *s, store_layer layer, const char *file, size_t max,
		    struct buf *out) MUST_USE;

/* ---- an import under way: layers that only it knows ---- */

struct made {
	store_layer layer;
	bool ours;                  /* discarded when it fails */
	struct store_commit commit; /* of ours */
	char chain[80];             /* a ref to be set, or "" */
	int pin;                    /* keeps it until it has a name; -1: none */
};
struct importing {
	const struct image_import *o;
	struct diag *diag;
	struct progress p;
	uint64_t begin; /* store_written() then */
	struct made *v; /* parents first */
	size_t n;
	int pin; /* of the layer that importing_finish is about to add; -1: none */
	struct image_done *done;
	struct image_info info;
};
/* The layer on top, or 0. */
store_layer importing_top(const struct importing *x);
/* A layer of the same content may be there: then it is that one, and @layer is given up. Takes x->pin. */
int importing_add(struct importing *x, store_layer layer, const char *chain) MUST_USE;
int importing_reuse(struct importing *x, store_layer layer) MUST_USE;
int importing_sink(struct importing *x, struct sink **ret) MUST_USE;
/* Takes the sink. */
int importing_finish(struct importing *x, struct sink *k, const char *chain) MUST_USE;

/* oci_in.c */
int from_oci(struct importing *x) MUST_USE;

/* ---- tree.c: a sealed tree, read through the core ---- */

struct ovl;
struct tree_entry {
	const char *path; /* relative; "": the root */
	const char *name; /* its last component */
	store_ino ino;
	const struct stat *st;
	const char *target; /* of a symlink */
	const char *link;   /* the path under which this inode came first; NULL: this one */
};
/* What of a tree differs from the one it stands on. */
struct touched;
struct tree_part {
	store_layer from;
	const struct touched *touched; /* what may differ: the rest is not looked at */
};
struct tree_visit {
	/* Directories before what is in them, names in the order of their bytes. */
	int (*enter)(void *arg, struct ovl *o, const struct tree_entry *e);
	int (*leave)(void *arg, struct ovl *o, const struct tree_entry *dir); /* may be NULL */
	/* With @part: of what is touched (a directory that the tree below has not, or another one of its name: with all that
	 * is in it), and the directories above. */
	const struct tree_part *part;
	/* May be NULL. @path was there below, and is not; @inside: a directory of that name was, and this one is another. */
	int (*hides)(void *arg, const char *path, bool inside);
	void *arg;
	struct progress *p;
};
int tree_walk(struct store *s, store_layer layer, const struct tree_visit *v,
	      struct diag *diag) MUST_USE;
struct tree_counts {
	uint64_t entries, bytes;
};
/* Without @host a tree that shows anything of a host directory is -EINVAL, at the first that it shows. @p may be NULL. */
int tree_count(struct store *s, store_layer layer, bool host, struct progress *p, struct diag *diag,
	       struct tree_counts *ret) MUST_USE;
/* Each attribute; the value is lent. */
int tree_xattrs(struct ovl *o, store_ino ino,
		int (*fn)(void *arg, const char *name, const void *value, size_t len),
		void *arg) MUST_USE;
/* The bytes of a file, in pieces, holes left out. */
int tree_data(struct ovl *o, const struct tree_entry *e, struct progress *p,
	      int (*fn)(void *arg, uint64_t off, const void *p, size_t n), void *arg) MUST_USE;

/* ---- to_tar.c ---- */

struct byte_sink {
	int (*write)(void *arg, const void *p, size_t n);
	void *arg;
};
/* The tree as an archive, the same bytes for the same tree: pax, sorted, without names of owners and times of access. Holes are
 * told as GNU tar does. */
int to_tar(const struct image_export *o, const struct byte_sink *out, struct progress *p,
	   struct diag *diag, struct image_out *ret) MUST_USE;
/* A layer of an image: what of the tree @to differs from @part->from, hidden names as whiteouts; with @part NULL all of it. Holes
 * are zeros: not every reader of images knows them. A name that would be a whiteout is -EOPNOTSUPP. */
#define WHITEOUT        ".wh."
#define WHITEOUT_INSIDE ".wh..wh..opq"
int to_layer_tar(struct store *s, store_layer to, const struct tree_part *part,
		 const struct byte_sink *out, struct progress *p, struct diag *diag,
		 struct image_out *ret) MUST_USE;

/* Packs what is written to it. */
struct packer;
int packer_open(enum image_pack pack, const struct byte_sink *out, struct packer **ret) MUST_USE;
int packer_write(struct packer *p, const void *data, size_t n) MUST_USE;
/* The rest; it is gone in every case. */
int packer_close(struct packer *p) MUST_USE;

int to_dir(const struct image_export *o, struct progress *p, struct diag *diag,
	   struct image_out *ret) MUST_USE;
int to_oci(const struct image_export *o, struct progress *p, struct diag *diag,
	   struct image_out *ret) MUST_USE;
