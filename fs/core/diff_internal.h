/*
 * fs/core/diff_internal.h - shared by the diff*.c files only.
 *
 * A run collects what the layers between the two sides wrote (names, inodes, extents), looks each
 * touched name up at both sides, and pairs what vanished at one place with what appeared at another.
 * Nothing that was not written between the sides is looked at, but the directories above it.
 */
#pragma once

#include <sys/stat.h>

#include "base/buf.h"
#include "fs/core/diff.h"
#include "fs/core/hostsrc.h"

enum side {
	FROM,
	TO
};

/* Strings and small things that live as long as the run. */
struct arena_block;
struct arena {
	struct arena_block *first;
	size_t used, max; /* bytes; 0: as many as there are */
	bool full;        /* more was asked for */
};
void *arena_get(struct arena *a, size_t n) MUST_USE;
char *arena_join(struct arena *a, const char *dir, const char *name, size_t len) MUST_USE;
void arena_release(struct arena *a);

struct touched_name {
	store_ino parent;
	size_t len;
	const char *name;
};
struct touched_extent {
	store_ino ino;
	uint64_t block;
};

/* A host file: a path below the root of a source. */
struct host_key {
	const char *root, *rel; /* root NULL: none */
	unsigned flags;
};

/* A directory in which names were touched, or one above it. */
struct dir {
	store_ino ino;
	struct dir *chain;
	bool there[2];       /* recorded at that side, with links */
	store_ino parent[2]; /* where there */
	const char *name[2];
	size_t len[2];
	struct host_key key; /* what it shows, as either side's record says */
	bool shows[2];       /* recorded at that side with @key */
	bool known[2];       /* @path is final */
	const char *path[2]; /* "" for the root; NULL: not in the tree at that side */
	/* on the way to its path: the directory that this one lies below, and by what; NULL: below none */
	bool climbed[2];
	struct dir *up[2];
	const char *rest[2];
	size_t rest_len[2];
};

struct diff_source {
	struct diff_source *next;
	struct hostsrc *h; /* NULL: could not be opened */
	struct host_key key;
};

struct diff {
	struct store *s;
	struct store_view *view[2]; /* NULL: the empty tree */
	unsigned flags;
	struct arena arena;

	struct touched_name *names; /* sorted, each once, like the two below */
	size_t nnames, names_max;
	store_ino *inos;
	size_t ninos, inos_max;
	struct touched_extent *extents;
	size_t nextents, extents_max;

	struct dir **dirs; /* hash by number */
	size_t ndirs, dirs_cap;
	struct dir **shown[2]; /* that show a host directory at that side, by key */
	size_t nshown[2];
	bool shown_ready;
	struct diff_source *sources;
	size_t paths_max; /* bytes of @arena, most of which are paths; 0: a share of the machine's */
	bool host_counts; /* a host directory had to be looked at, and was not (DIFF_STORED) */

	struct cand *cands[2]; /* vanished, appeared */
	size_t ncands[2], cands_max[2];
	struct diff_change *out;
	size_t nout, out_max;
};

/* Of enum diff_what, with DIFF_OWNER and in here only: people see that it differs (DIFF_PEOPLE). */
#define DIFF_OWNER_SEEN (1u << 31)

/* Something at a place at one side. */
struct obj {
	enum {
		OBJ_NONE,
		OBJ_STORE,
		OBJ_HOST
	} at;
	store_ino ino; /* OBJ_STORE */
	uint32_t mode;
	uint64_t size;
	struct host_key key; /* OBJ_HOST: where; OBJ_STORE: its origin, if any */
	bool elsewhere;      /* OBJ_STORE: and that is not where it is shown */
	/* OBJ_HOST: the rest of what one look at it said */
	uint32_t uid, gid;
	uint64_t rdev;
	struct timespec mtime;
	/* What its name took over from the host directory; NULL: nothing, or it is not known (DIFF_HIDDEN) */
	const struct hidden *hidden;
};

struct cand {
	struct obj o;
	struct dir *dir; /* that it lies in; NULL: a directory of the host that is not recorded */
	const char *path;
	bool used; /* paired */
};

/* What becomes an entry. */
struct diff_change {
	enum diff_kind kind;
	unsigned what;
	const char *path, *old_path;
	struct obj from, to; /* OBJ_NONE where it is not */
};

int diff_add_cand(struct diff *d, enum side side, const struct obj *o, struct dir *dir,
		  const char *path) MUST_USE;
/* The same place at both sides; @old_path: which was called so, NULL: as it is. */
int diff_compared(struct diff *d, const struct obj *from, const struct obj *to, const char *path,
		  const char *old_path) MUST_USE;

/* ---- diff_anew.c ---- */

/* A host directory at one side, which has no record, and at the same place at the other one of the layer's own, made anew or before the
 * host had any: they are compared, and so are their names, as candidates. What the host's has and the layer's has not is hidden by it. */
int diff_made_anew(struct diff *d) MUST_USE;
/* A directory of a host that has no record. */
bool diff_is_host_dir(const struct cand *c);

/* Grow an array by one and return its new last element, zeroed; NULL without memory. */
void *grow_one(void *array, size_t *n, size_t *max, size_t size) MUST_USE;

/* ---- diff_collect.c ---- */

int diff_collect(struct diff *d, store_layer from, store_layer to) MUST_USE;
bool diff_ino_touched(const struct diff *d, store_ino ino);
bool diff_name_touched(const struct diff *d, store_ino parent, const char *name, size_t len);
/* The touched extents of @ino. */
const struct touched_extent *diff_extents_of(const struct diff *d, store_ino ino, size_t *ret_n);

/* ---- diff_look.c: records and paths at a side ---- */

/* -ENOENT also for an inode without links. */
int diff_record(struct diff *d, enum side side, store_ino ino, struct rec_inode *ret) MUST_USE;
int diff_dir(struct diff *d, store_ino ino, struct dir **ret) MUST_USE;
/* *ret NULL: it is not in the tree at that side. */
int diff_path(struct diff *d, enum side side, struct dir *dir, const char **ret) MUST_USE;
/* What is at a name of @dir at that side. */
int diff_object(struct diff *d, enum side side, struct dir *dir, const char *name, size_t len,
		struct obj *ret) MUST_USE;
int diff_object_of(struct diff *d, enum side side, store_ino ino, struct obj *ret) MUST_USE;
/* What the host directory @dir has by a name. */
int diff_host_object(struct diff *d, const struct host_key *dir, const char *name, size_t len,
		     struct obj *ret) MUST_USE;
int diff_source(struct diff *d, const struct host_key *key, struct hostsrc **ret) MUST_USE;
int host_key_cmp(const struct host_key *a, const struct host_key *b);
void diff_look_release(struct diff *d);

/* ---- diff_compare.c ---- */

/* Are both the same inode, or the same host file? */
bool diff_same(const struct obj *a, const struct obj *b);
/* enum diff_what and DIFF_OWNER_SEEN of all that differs, whatever the flags ask for. */
int diff_compare(struct diff *d, const struct obj *from, const struct obj *to,
		 unsigned *ret_what) MUST_USE;

/* One block of content as it is recorded. */
struct block_sig {
	uint64_t block;
	uint32_t len;
	struct digest chunk;
};
struct block_list {
	struct block_sig *v;
	size_t n, max;
};
/* All blocks that hold bytes, of a regular file's record. */
int diff_blocks(struct diff *d, enum side side, store_ino ino, const struct rec_inode *rec,
		struct block_list *ret) MUST_USE;

/* ---- diff.c ---- */

/* Everything between two layers, sorted by path. */
int diff_run(struct diff *d, struct store *s, store_layer from, store_layer to,
	     unsigned flags) MUST_USE;
void diff_release(struct diff *d);
