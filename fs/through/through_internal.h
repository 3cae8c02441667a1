/*
 * fs/through/through_internal.h - shared by the files of fs/through; nobody else includes it.
 *
 * Locks: t->change (rwlock; operations on names hold it, a rename exclusively, so that no name is another thing between its
 * verdict and its move), then t->lock, for a few instructions: the tables, places, states and references. No system
 * call that can wait is made under t->lock, but for closing what nobody uses. A node's descriptor stays while somebody uses it (tnode_use).
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "fs/core/table.h"
#include "fs/through/through.h"
#include "policy/judge.h"

#define HANDLE_CHUNK 64
#define DEPTH_MAX    65536

/* What a file of the host is. */
struct ident {
	uint64_t dev, ino, mnt;
	mode_t type;
	struct timespec btime; /* 0: the file system has none. Numbers are used again */
};

struct tnode {
	struct table_link by_ino, by_id;
	uint64_t ino;    /* in the mount, never used again */
	struct ident id; /* constant */
	bool made_up;    /* an empty directory that is not the host's: constant */
	bool kept_fd;    /* the root's: constant */
	/* t->lock */
	uint64_t nlookup;
	unsigned refs;  /* nodes below, users, handles */
	unsigned users; /* of @fd right now */
	unsigned handles;
	struct tnode *parent; /* with a reference; NULL: the root */
	char *name;
	size_t len;
	int pol;
	int fd;            /* O_PATH; -1: given back */
	bool in_lru, gone; /* gone: nothing has its name; it is known by number alone */
	bool several;      /* it had other links when it was last found by name */
	bool named;        /* in the table of identities */
	long long checked; /* ms: when its place was last looked at */
	struct tnode *lru_prev, *lru_next;
	atomic_bool written; /* a shared mapping may exist */
};

struct handle {
	struct tnode *n;
	int fd;
	bool writes;
	pthread_mutex_t lock; /* of a directory's place */
};

struct through {
	struct policy *policy;
	struct judge judge;
	struct ovl_notify notify;
	int proc_fd;  /* /proc/self/fd */
	char *prefix; /* path of the root; "" for "/" */
	size_t fds_max;

	pthread_rwlock_t change;
	pthread_mutex_t lock;
	struct table by_ino, by_id;
	struct tnode *root;
	uint64_t next_ino;
	size_t nfds;
	struct tnode *lru_first, *lru_last; /* the least recently used first */
	struct handle **handles;
	size_t nhandles, cap_handles; /* places in the table */
	size_t nopen, handles_max;
	size_t slot;        /* none before it is free */
	uint64_t devs[256]; /* in the order in which they were met: for inode numbers */
	size_t ndevs;
};

static inline void through_lock(struct through *t)
{
	(void)pthread_mutex_lock(&t->lock);
}
static inline void through_unlock(struct through *t)
{
	(void)pthread_mutex_unlock(&t->lock);
}

/* ---- node.c ---- */

/* A node in use: its descriptor is open, and stays. */
struct use {
	struct through *t;
	struct tnode *n; /* NULL: none */
	int fd;          /* O_PATH */
	int pol;
};
void use_end(struct use *u);
#define cleanup_use __attribute__((cleanup(use_end)))

/* How well its place has to be known. */
enum fresh {
	FRESH_ENOUGH, /* as of THROUGH_TTL_MS */
	FRESH_NOW,
};
/* -ESTALE: the host's file is not to be found any more. */
int tnode_use(struct through *t, uint64_t ino, enum fresh fresh, struct use *ret) MUST_USE;
/* The same, and -ENOTDIR. */
int tnode_use_dir(struct through *t, uint64_t ino, enum fresh fresh, struct use *ret) MUST_USE;
/* The directory in which @n, which is in use, was last found, and its name there. */
int tnode_use_parent(struct through *t, struct tnode *n, char ret_name[static STORE_NAME_MAX + 1],
		     struct use *ret) MUST_USE;
int ident_of(int fd, struct ident *ret, struct stat *ret_st) MUST_USE;
bool ident_same(const struct ident *a, const struct ident *b);
/* The node behind @fd (O_PATH; taken in any case), which was found at @name of @dir, in use. @st: its attributes. */
int tnode_found(struct through *t, const struct use *dir, const char *name, size_t len, int fd,
		const struct ident *id, const struct stat *st, struct use *ret) MUST_USE;
/* One that has no name: O_TMPFILE in @dir. */
int tnode_nameless(struct through *t, const struct use *dir, int fd, const struct ident *id,
		   struct use *ret) MUST_USE;
/* It has been renamed here, to @name of @dir. */
void tnode_moved(struct through *t, const struct ident *id, const struct use *dir, const char *name,
		 size_t len, bool several);
/* One more reference of the caller, and what it is told. */
void tnode_entry(const struct use *u, const struct stat *st, const struct timespec *btime,
		 struct ovl_entry *ret);
void tnode_forget(struct through *t, uint64_t ino, uint64_t n);
void tnode_free_all(struct through *t);
int tnode_root(struct through *t, const char *root) MUST_USE;
/* t->lock. */
struct tnode *tnode_find(struct through *t, uint64_t ino);
void tnode_drop(struct through *t, struct tnode *n);
/* t->lock: the path of @n in the tree. */
int tnode_path(struct tnode *n, struct buf *out) MUST_USE;
/* Gives descriptors of nodes back that nobody uses: half of them. */
void tnode_relieve(struct through *t);
/* open(2) and the like, again after that when there were too many. */
#define TNODE_TRY(t, call)                                               \
	({                                                               \
		int try_r = (call);                                      \
		if (try_r < 0 && (errno == EMFILE || errno == ENFILE)) { \
			tnode_relieve(t);                                \
			try_r = (call);                                  \
		}                                                        \
		try_r;                                                   \
	})

/* ---- place.c ---- */

/* Is @n, with the open @fd, where it is thought to be? What was moved gets its new place, and what lies below
 * something that was its verdict there: *ret_pol. -ESTALE. */
int place_check(struct through *t, struct tnode *n, int fd, enum fresh fresh,
		int *ret_pol) MUST_USE;
/* The file @name of the directory @dirfd: an O_PATH descriptor, no link followed. -ENOENT as well for the
 * kernel's own file systems. */
int place_open(struct through *t, int dirfd, const struct ident *dir, const char *name,
	       struct ident *ret_id, struct stat *ret_st, int *ret_fd) MUST_USE;
/* Names at the top that are not the host's; *ret_dir: an empty directory is shown instead. */
bool place_masked(const struct tnode *dir, const char *name, bool *ret_dir);

/* ---- through.c ---- */

int name_ok(const char *name, size_t *ret_len) MUST_USE;
struct judge_name at_name(const struct use *dir, const char *name, size_t len);
struct judge_node at_node(const struct use *u);
int may_node(const struct use *u, unsigned what, const char *op) MUST_USE;
/* "/proc/self/fd/N" relative to t->proc_fd. */
struct fd_name {
	char s[16];
};
struct fd_name fd_name(int fd);
struct fd_path {
	char s[40];
};
struct fd_path fd_path(int fd);

/* ---- attr.c ---- */

uint64_t attr_ino(struct through *t, uint64_t dev, uint64_t ino);
/* What is shown of @st. */
void attr_show(struct through *t, int pol, const struct stat *st, const struct timespec *btime,
	       struct ovl_attr *ret);
int th_getattr(void *t, store_ino ino, uint64_t fh, struct ovl_attr *ret);
int th_setattr(void *t, store_ino ino, uint64_t fh, const struct stat *st, unsigned set,
	       struct ovl_attr *ret);
int th_statfs(void *t, store_ino ino, struct statvfs *ret);
ssize_t th_getxattr(void *t, store_ino ino, const char *name, void *value, size_t size);
ssize_t th_listxattr(void *t, store_ino ino, char *list, size_t size);
int th_setxattr(void *t, store_ino ino, const char *name, const void *value, size_t size,
		int flags);
int th_removexattr(void *t, store_ino ino, const char *name);
/* Of a process that may keep them (root): drop the set-id bits. True: there were any. */
bool attr_kill(int fd);

/* ---- names.c ---- */

int th_lookup(void *t, store_ino parent, const char *name, struct ovl_entry *ret);
int th_mknod(void *t, store_ino parent, const char *name, mode_t mode, dev_t rdev,
	     const struct ovl_cred *cred, struct ovl_entry *ret);
int th_mkdir(void *t, store_ino parent, const char *name, mode_t mode, const struct ovl_cred *cred,
	     struct ovl_entry *ret);
int th_symlink(void *t, store_ino parent, const char *name, const char *target,
	       const struct ovl_cred *cred, struct ovl_entry *ret);
int th_link(void *t, store_ino ino, store_ino parent, const char *name, struct ovl_entry *ret);
int th_unlink(void *t, store_ino parent, const char *name);
int th_rmdir(void *t, store_ino parent, const char *name);
int th_rename(void *t, store_ino parent, const char *name, store_ino newparent, const char *newname,
	      unsigned flags, const struct ovl_cred *cred, store_ino ret_moved[static 2]);
int th_readlink(void *t, store_ino ino, char ret_target[static 4096]);
int th_create(void *t, store_ino parent, const char *name, mode_t mode, int flags,
	      const struct ovl_cred *cred, struct ovl_entry *ret, struct tree_open *ret_o);
int th_tmpfile(void *t, store_ino parent, mode_t mode, int flags, const struct ovl_cred *cred,
	       struct ovl_entry *ret, struct tree_open *ret_o);

/* ---- file.c ---- */

/* What the host is asked for, of the flags of an opening. */
int file_flags(int flags);
/* Takes @fd, which is one of @n's; the handle's number. */
int handle_new(struct through *t, struct tnode *n, int fd, bool writes,
	       struct tree_open *ret) MUST_USE;
/* -ENFILE, before anything is made for one more. */
int handle_room(struct through *t) MUST_USE;
void handles_free(struct through *t);
/* NULL: none. Whoever asks has it open. */
struct handle *handle_of(struct through *t, store_ino ino, uint64_t fh);
int th_open(void *t, store_ino ino, int flags, struct tree_open *ret);
int th_opendir(void *t, store_ino ino, struct tree_open *ret);
void th_release(void *t, store_ino ino, uint64_t fh);
ssize_t th_read(void *t, store_ino ino, uint64_t fh, uint64_t off, void *buf, size_t n);
ssize_t th_write(void *t, store_ino ino, uint64_t fh, uint64_t off, const void *buf, size_t n,
		 unsigned how, bool *killpriv);
int th_fallocate(void *t, store_ino ino, uint64_t fh, int mode, uint64_t off, uint64_t len);
int64_t th_lseek(void *t, store_ino ino, uint64_t fh, int64_t off, int whence);
ssize_t th_copy_range(void *t, store_ino in, uint64_t fh_in, uint64_t off_in, store_ino out,
		      uint64_t fh_out, uint64_t off_out, uint64_t n);
int th_fsync(void *t, store_ino ino, uint64_t fh, bool datasync);
int th_fsyncdir(void *t, store_ino ino, uint64_t fh, bool datasync);

/* ---- dir.c ---- */

int th_readdir(void *t, store_ino dir, uint64_t fh, uint64_t cookie, bool plus,
	       int (*fn)(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e),
	       void *arg);
