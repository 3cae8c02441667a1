/*
 * store/record.h - what is kept about one inode, as a C struct and as canonical msgpack bytes.
 *
 * Canonical: one spelling for each value (fixed field order, shortest integers, xattrs sorted by
 * name), so that equal records are equal bytes. Decoding is bounded, rejects trailing bytes, unknown
 * versions and out-of-range values with -EBADMSG, and is fuzzed. docs/store-format.md has the layout.
 *
 * Ownership: a struct rec_inode owns what its pointers name; rec_inode_release() frees it and leaves
 * it empty. A zeroed struct is empty and valid.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "store/digest.h"

typedef uint64_t
	store_ino; /* unique in the whole store, never reused; 1 is the root of every tree */
typedef uint64_t store_layer; /* grows; a child's number is larger than its parent's; 0 is none */

#define STORE_ROOT_INO    1
#define STORE_FIRST_INO   64 /* numbers below are reserved */
/* In a listing: the name is there, and what it means is damaged. No inode has this number. */
#define STORE_DAMAGED_INO 2
/* Inode numbers at and above this one are not handed out by store_reserve_inos(): the core derives
 * them from host inodes (fs/core/hostsrc.h). Still below 2^63, as off_t-like users expect. */
#define STORE_HOST_INO    (UINT64_C(1) << 62)
#define STORE_NAME_MAX    255
#define STORE_BLOCK       (128 * 1024) /* bytes of file content per block; in the superblock */
#define REC_INLINE_MAX    1536         /* content up to this size lies in the record */
#define REC_XATTR_MAX     256          /* values up to this size lie in the record */
#define REC_MAX_XATTRS    4096         /* and this many; others lie in the xattrs database */
#define REC_ORIGIN_MAX    4096

/* Where a regular file's bytes are. */
enum rec_content {
	REC_EMPTY = 0,  /* no bytes kept: every byte is a hole (or, with an origin, the host's) */
	REC_INLINE = 1, /* data/data_len, zero-padded to size */
	REC_CHUNK = 2,  /* one chunk holds block 0; size <= STORE_BLOCK; zero-padded to size */
	REC_EXTENTS =
		3, /* see the extents of this inode; what none covers is a hole, or the host's */
};

/* A host file or directory that stands behind an inode. Paths are bytes without NUL. */
struct rec_origin {
	char *root; /* absolute path of the host source ("/usr", "/home/u/project"); NULL: no origin */
	char *rel;      /* path below it without leading slash; "" is the root itself */
	unsigned flags; /* enum rec_origin_flags */
	/* Regular files: bytes [0, valid) not covered by an extent are read from the host file, which
	 * had this identity when it was first changed here. 0 when the copy is complete. */
	uint64_t valid;
	uint64_t dev, ino;
	struct timespec mtime;
	uint64_t size;
};

enum rec_origin_flags {
	REC_ORIGIN_PUBLIC = 1 << 0, /* show only what everyone may read (base "host") */
	REC_ORIGIN_STABLE = 1 << 1, /* a system directory: expected to change rarely */
};

struct rec_xattr {
	char *name;
	void *value;
	size_t len;
};

struct rec_inode {
	uint32_t mode; /* type and permissions, st_mode */
	uint32_t uid, gid;
	uint32_t nlink;
	uint64_t rdev;
	uint64_t size;
	uint64_t blocks; /* st_blocks, 512-byte units of what is allocated */
	struct timespec atime, mtime, ctime, btime;

	/* The place of a directory, or of a file with one link: docs/store-format.md "back reference".
	 * Files with several links are in the links database instead (parent 0). */
	store_ino parent;
	char *name;
	size_t name_len;

	char *target; /* symlinks: the text, NUL-terminated */

	struct rec_xattr *xattrs; /* small ones, sorted by name */
	size_t nxattrs;
	bool big_xattrs; /* some values lie in the xattrs database */

	enum rec_content content;
	uint8_t *data; /* REC_INLINE */
	size_t data_len;
	struct digest chunk; /* REC_CHUNK */
	uint32_t chunk_len;

	struct rec_origin origin;
};

void rec_inode_release(struct rec_inode *r);
static inline void cleanup_rec_inodep(struct rec_inode *r)
{
	rec_inode_release(r);
}
#define cleanup_rec_inode __attribute__((cleanup(cleanup_rec_inodep)))

/* A deep copy. @dst is overwritten, not released. */
int rec_inode_copy(struct rec_inode *dst, const struct rec_inode *src) MUST_USE;

int rec_inode_encode(const struct rec_inode *r, struct buf *out) MUST_USE;
int rec_inode_decode(const void *p, size_t n, struct rec_inode *ret) MUST_USE;

/* The value of a names record. */
struct rec_name {
	store_ino ino; /* 0: a tombstone, the name is gone in this layer */
	uint32_t type; /* S_IFMT bits of the inode */
};
