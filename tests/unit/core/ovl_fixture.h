/*
 * tests/unit/core/ovl_fixture.h - a store in a scratch directory, a tree over it, and paths instead
 * of inode numbers. Failures outside of what is tested end the binary.
 */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/core/journal.h"
#include "fs/core/ovl.h"
#include "tests/lib/tap.h"

struct fx {
	char dir[PATH_MAX]; /* scratch, removed at the end */
	struct store *s;
	store_layer layer;
	struct ovl *o;
	struct ovl_opts opts;
};

static const struct ovl_cred fx_cred_zero;

static inline struct ovl_cred fx_cred(void)
{
	struct ovl_cred c = fx_cred_zero;

	c.uid = geteuid();
	c.gid = getegid();
	return c;
}

static inline void fx_run(const char *const *argv)
{
	pid_t pid;
	int status;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ) != 0 ||
	    waitpid(pid, &status, 0) < 0 || status != 0)
		tap_fatal("%s failed", argv[0]);
}

static inline void fx_copy(const char *from, const char *to)
{
	const char *argv[] = {"cp", "-a", from, to, NULL};

	fx_run(argv);
}

static inline void fx_rm(const char *path)
{
	const char *argv[] = {"rm", "-rf", path, NULL};

	fx_run(argv);
}

static inline void fx_path(const struct fx *f, const char *name, char out[static PATH_MAX])
{
	size_t n = strlen(f->dir), k = strlen(name);

	if (n + k + 2 > PATH_MAX)
		tap_fatal("path too long");
	memcpy(out, f->dir, n);
	out[n] = '/';
	memcpy(out + n + 1, name, k + 1);
}

static inline void fx_mount(struct fx *f)
{
	int r;

	f->opts.store = f->s;
	f->opts.layer = f->layer;
	r = ovl_open(&f->opts, &f->o);
	if (r < 0)
		tap_fatal("ovl_open: %s", err_text(r));
}

static inline void fx_umount(struct fx *f)
{
	int r = ovl_close(f->o);

	f->o = NULL;
	if (r < 0)
		tap_fatal("ovl_close: %s", err_text(r));
}

/* A sealed layer whose root shows the host directory @root. */
static inline store_layer fx_host_layer(struct fx *f, const char *root, unsigned flags)
{
	struct rec_inode r = {0};
	struct store_batch *b;
	store_layer l;
	struct stat st;

	if (stat(root, &st) < 0)
		tap_fatal("stat %s", root);
	r.mode = st.st_mode;
	r.uid = st.st_uid;
	r.gid = st.st_gid;
	r.nlink = (uint32_t)st.st_nlink;
	r.mtime = st.st_mtim;
	r.ctime = r.atime = r.btime = st.st_ctim;
	r.origin.root = strdup(root);
	r.origin.rel = strdup("");
	r.origin.flags = flags;
	r.origin.dev = st.st_dev;
	r.origin.ino = st.st_ino;
	if (store_layer_new(f->s, 0, &l) < 0 || store_batch_begin(f->s, l, &b) < 0 ||
	    store_batch_inode(b, STORE_ROOT_INO, &r) < 0 || store_batch_commit(b) < 0 ||
	    store_layer_seal(f->s, l) < 0)
		tap_fatal("cannot make the host layer");
	rec_inode_release(&r);
	return l;
}

static inline void fx_child(struct fx *f, store_layer parent)
{
	int r = store_layer_new(f->s, parent, &f->layer);

	if (r < 0)
		tap_fatal("store_layer_new: %s", err_text(r));
}

static inline void fx_open(struct fx *f)
{
	const char *tmp = getenv("TMPDIR");
	char data[PATH_MAX];
	struct diag d = {0};

	*f = (struct fx){0};
	if (snprintf(f->dir, sizeof(f->dir), "%s/rattan-core-XXXXXX", tmp ? tmp : "/tmp") >=
		    (int)sizeof(f->dir) ||
	    !mkdtemp(f->dir))
		tap_fatal("mkdtemp");
	fx_path(f, "data", data);
	if (store_open(data, STORE_CREATE, &d, &f->s) < 0)
		tap_fatal("store_open: %s", d.text);
	fx_child(f, 0);
}

static inline void fx_close(struct fx *f)
{
	if (f->o)
		fx_umount(f);
	store_close(f->s);
	fx_rm(f->dir);
}

static inline int fx_seal(void *arg, store_layer *ret)
{
	struct fx *f = arg;
	int r = store_layer_seal(f->s, f->layer);

	if (r == 0)
		r = store_layer_new(f->s, f->layer, ret);
	if (r == 0)
		f->layer = *ret;
	return r;
}

static inline void fx_copy_data(int from, int to)
{
	off_t at = 0, end;

	while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
		end = lseek(from, at, SEEK_HOLE);
		while (at < end) {
			char buf[4096];
			ssize_t n = pread(from, buf, sizeof(buf), at);

			if (n <= 0 || pwrite(to, buf, (size_t)n, at) != n)
				tap_fatal("copy of the journal");
			at += n;
		}
	}
}

/* A journal as it is at one moment: no flush may cut it or append to it meanwhile, which its head would show. -1: there
 * is no such moment. */
static inline int fx_journal_copy(int from)
{
	for (int i = 0; i < 20; i++) {
		char before[4096], after[4096];
		int to;

		if (journal_create(&to) < 0)
			tap_fatal("journal_create");
		if (pread(from, before, sizeof(before), 0) != (ssize_t)sizeof(before))
			tap_fatal("journal head");
		fx_copy_data(from, to);
		if (pread(from, after, sizeof(after), 0) != (ssize_t)sizeof(after))
			tap_fatal("journal head");
		if (memcmp(before, after, sizeof(before)) == 0)
			return to;
		(void)close(to);
	}
	return -1;
}

/* One reference on the directory that holds the last name of @path, and that name. */
static inline int fx_parent(struct fx *f, const char *path, store_ino *ret_dir,
			    const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];
	struct ovl_entry e;
	int r;

	if (snprintf(dir, sizeof(dir), "/%.*s/", slash ? (int)(slash - path) : 0, path) >=
	    (int)sizeof(dir))
		return -ENAMETOOLONG;
	r = ovl_walk(f->o, dir, &e);
	if (r < 0)
		return r;
	*ret_dir = e.ino;
	*ret_name = slash ? slash + 1 : path;
	return 0;
}

static inline int fx_get(struct fx *f, const char *path, struct ovl_entry *ret)
{
	char abs[PATH_MAX];

	if (snprintf(abs, sizeof(abs), "/%s", path) >= (int)sizeof(abs))
		return -ENAMETOOLONG;
	return ovl_walk(f->o, abs, ret);
}

/* Without keeping a reference. */
static inline int fx_stat(struct fx *f, const char *path, struct stat *ret)
{
	struct ovl_entry e;
	int r = fx_get(f, path, &e);

	if (r == 0) {
		*ret = e.attr.st;
		ovl_forget(f->o, e.ino, 1);
	}
	return r;
}

enum fx_make {
	FX_FILE,
	FX_DIR,
	FX_FIFO
};

static inline int fx_make(struct fx *f, const char *path, enum fx_make what, mode_t mode)
{
	struct ovl_cred c = fx_cred();
	struct ovl_entry e;
	const char *name;
	store_ino dir;
	int r = fx_parent(f, path, &dir, &name);

	if (r < 0)
		return r;
	if (what == FX_DIR)
		r = ovl_mkdir(f->o, dir, name, mode, &c, &e);
	else
		r = ovl_mknod(f->o, dir, name, mode | (what == FX_FILE ? S_IFREG : S_IFIFO), 0, &c,
			      &e);
	ovl_forget(f->o, dir, 1);
	if (r == 0)
		ovl_forget(f->o, e.ino, 1);
	return r;
}

static inline int fx_symlink(struct fx *f, const char *target, const char *path)
{
	struct ovl_cred c = fx_cred();
	struct ovl_entry e;
	const char *name;
	store_ino dir;
	int r = fx_parent(f, path, &dir, &name);

	if (r < 0)
		return r;
	r = ovl_symlink(f->o, dir, name, target, &c, &e);
	ovl_forget(f->o, dir, 1);
	if (r == 0)
		ovl_forget(f->o, e.ino, 1);
	return r;
}

static inline int fx_remove(struct fx *f, const char *path, bool dir)
{
	const char *name;
	store_ino parent;
	int r = fx_parent(f, path, &parent, &name);

	if (r < 0)
		return r;
	r = dir ? ovl_rmdir(f->o, parent, name) : ovl_unlink(f->o, parent, name);
	ovl_forget(f->o, parent, 1);
	return r;
}

static inline int fx_rename(struct fx *f, const char *from, const char *to, unsigned flags)
{
	struct ovl_cred c = fx_cred();
	store_ino p, q, moved[2];
	const char *a, *b;
	int r = fx_parent(f, from, &p, &a);

	if (r < 0)
		return r;
	r = fx_parent(f, to, &q, &b);
	if (r == 0) {
		r = ovl_rename_told(f->o, p, a, q, b, flags, &c, moved);
		ovl_forget(f->o, q, 1);
	}
	ovl_forget(f->o, p, 1);
	return r;
}

static inline int fx_link(struct fx *f, const char *from, const char *to)
{
	struct ovl_entry e, got;
	const char *name;
	store_ino dir;
	int r = fx_get(f, from, &e);

	if (r < 0)
		return r;
	r = fx_parent(f, to, &dir, &name);
	if (r == 0) {
		r = ovl_link(f->o, e.ino, dir, name, &got);
		if (r == 0)
			ovl_forget(f->o, got.ino, 1);
		ovl_forget(f->o, dir, 1);
	}
	ovl_forget(f->o, e.ino, 1);
	return r;
}

static inline ssize_t fx_write(struct fx *f, const char *path, uint64_t off, const void *p,
			       size_t n)
{
	struct ovl_entry e;
	ssize_t r = fx_get(f, path, &e);

	if (r < 0)
		return r;
	r = ovl_write(f->o, e.ino, off, p, n, false);
	ovl_forget(f->o, e.ino, 1);
	return r;
}

static inline ssize_t fx_read(struct fx *f, const char *path, uint64_t off, void *p, size_t n)
{
	struct ovl_entry e;
	ssize_t r = fx_get(f, path, &e);

	if (r < 0)
		return r;
	r = ovl_read(f->o, e.ino, off, p, n);
	ovl_forget(f->o, e.ino, 1);
	return r;
}

static inline int fx_set(struct fx *f, const char *path, const struct stat *st, unsigned set)
{
	struct ovl_entry e;
	struct ovl_attr a;
	int r = fx_get(f, path, &e);

	if (r < 0)
		return r;
	r = ovl_setattr(f->o, e.ino, st, set, &a);
	ovl_forget(f->o, e.ino, 1);
	return r;
}
