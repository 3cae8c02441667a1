/*
 * tests/unit/core/diff_fixture.h - changes made through the core, by path, layer upon layer.
 */
#pragma once

#include "data_fixture.h"
#include "fs/core/diff.h"
#include "fs/core/hostbase.h"
#include "fs/core/ovl.h"

struct tree {
	struct fixture f;
	struct ovl *o;
};

static inline void tree_on(struct tree *t, store_layer parent)
{
	struct ovl_opts opts = {.store = t->f.s};

	if (t->o && ovl_close(t->o) < 0)
		tap_fatal("ovl_close");
	t->o = NULL;
	if (store_layer_new(t->f.s, parent, &t->f.layer) < 0)
		tap_fatal("layer");
	opts.layer = t->f.layer;
	if (ovl_open(&opts, &t->o) < 0)
		tap_fatal("ovl_open");
}

static inline int tree_sealing(void *arg, store_layer *ret_open)
{
	struct tree *t = arg;
	int r = store_layer_seal(t->f.s, t->f.layer);

	if (r == 0)
		r = store_layer_new(t->f.s, t->f.layer, ret_open);
	return r;
}

/* Seal what was done; the layer that holds it. */
static inline store_layer tree_seal(struct tree *t)
{
	store_layer sealed = t->f.layer;
	store_layer child = 0;
	struct store_layer_info info;

	if (ovl_commit(t->o, tree_sealing, t) < 0)
		tap_fatal("ovl_commit");
	for (child = sealed + 1;; child++)
		if (store_layer_get(t->f.s, child, &info) == 0 && info.parent == sealed &&
		    info.state == STORE_LAYER_OPEN)
			break;
	t->f.layer = child;
	return sealed;
}

/* Keeps its reference until the tree is closed: the number of a host file is good for no longer. */
static inline store_ino tree_ino(struct tree *t, const char *path)
{
	struct ovl_entry e;

	if (ovl_walk(t->o, path, &e) < 0 || !e.ino)
		tap_fatal("no %s", path);
	return e.ino;
}

/* The directory and the last name of a path. */
static inline store_ino tree_dir(struct tree *t, const char *path, const char **ret_name)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');

	(void)snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
	*ret_name = slash + 1;
	return *dir ? tree_ino(t, dir) : STORE_ROOT_INO;
}

#define TREE_DO(call, path)                                                      \
	do {                                                                     \
		int tree_r_ = (call);                                            \
		if (tree_r_ < 0)                                                 \
			tap_fatal("%s: %s: %s", #call, path, err_text(tree_r_)); \
	} while (0)

/* New files belong to whoever owns the host files of the test, so that a diff shows no change of owner. */
static inline struct ovl_cred tree_cred(void)
{
	return (struct ovl_cred){.uid = getuid(), .gid = getgid()};
}

static inline void tree_mkdir(struct tree *t, const char *path)
{
	struct ovl_cred cred = tree_cred();
	struct ovl_entry e;
	const char *name;
	store_ino dir = tree_dir(t, path, &name);

	TREE_DO(ovl_mkdir(t->o, dir, name, 0755, &cred, &e), path);
	ovl_forget(t->o, e.ino, 1);
}

static inline void tree_write_at(struct tree *t, const char *path, uint64_t off, const void *p,
				 size_t n)
{
	struct ovl_cred cred = tree_cred();
	struct ovl_entry e;
	const char *name;
	store_ino dir = tree_dir(t, path, &name);

	TREE_DO(ovl_lookup(t->o, dir, name, &e), path);
	if (!e.ino)
		TREE_DO(ovl_mknod(t->o, dir, name, S_IFREG | 0644, 0, &cred, &e), path);
	if (n && ovl_write(t->o, e.ino, off, p, n, false) != (ssize_t)n)
		tap_fatal("write %s", path);
	ovl_forget(t->o, e.ino, 1);
}

/* The whole text of a file, in place. */
static inline void tree_write(struct tree *t, const char *path, const char *text)
{
	struct stat st = {.st_size = (off_t)strlen(text)};
	struct ovl_attr a;

	tree_write_at(t, path, 0, text, strlen(text));
	TREE_DO(ovl_setattr(t->o, tree_ino(t, path), &st, OVL_SET_SIZE, &a), path);
}

static inline void tree_chmod(struct tree *t, const char *path, mode_t mode)
{
	struct stat st = {.st_mode = mode};
	struct ovl_attr a;

	TREE_DO(ovl_setattr(t->o, tree_ino(t, path), &st, OVL_SET_MODE, &a), path);
}

static inline void tree_rename(struct tree *t, const char *from, const char *to)
{
	const char *a, *b;
	store_ino p = tree_dir(t, from, &a), q = tree_dir(t, to, &b);

	TREE_DO(ovl_rename(t->o, p, a, q, b, 0), from);
}

static inline void tree_unlink(struct tree *t, const char *path)
{
	const char *name;
	store_ino dir = tree_dir(t, path, &name);

	TREE_DO(ovl_unlink(t->o, dir, name), path);
}

static inline void tree_rmdir(struct tree *t, const char *path)
{
	const char *name;
	store_ino dir = tree_dir(t, path, &name);

	TREE_DO(ovl_rmdir(t->o, dir, name), path);
}

static inline void tree_symlink(struct tree *t, const char *path, const char *target)
{
	struct ovl_cred cred = tree_cred();
	struct ovl_entry e;
	const char *name;
	store_ino dir = tree_dir(t, path, &name);

	TREE_DO(ovl_symlink(t->o, dir, name, target, &cred, &e), path);
	ovl_forget(t->o, e.ino, 1);
}

static inline void tree_link(struct tree *t, const char *from, const char *to)
{
	struct ovl_entry e;
	const char *name;
	store_ino ino = tree_ino(t, from), dir = tree_dir(t, to, &name);

	TREE_DO(ovl_link(t->o, ino, dir, name, &e), to);
	ovl_forget(t->o, e.ino, 1);
}

/* ---- what differs, as text ---- */

struct listing_text {
	char s[8192];
	size_t n;
};

static inline int tree_entry(void *arg, const struct diff_entry *e)
{
	struct listing_text *l = arg;
	size_t left = sizeof l->s - l->n;
	int k = snprintf(l->s + l->n, left, "%c%s%s%s%s%s%s%s %s%s%s\n", (int)e->kind,
			 e->what & DIFF_CONTENT ? "c" : "", e->what & DIFF_MODE ? "m" : "",
			 e->what & DIFF_OWNER ? "o" : "", e->what & DIFF_XATTRS ? "x" : "",
			 e->what & DIFF_TIMES ? "t" : "", e->what & DIFF_ELSEWHERE ? "e" : "",
			 e->host_before ? "h" : "", e->old_path ? e->old_path : "",
			 e->old_path ? " > " : "", e->path);

	if (k > 0 && (size_t)k < left)
		l->n += (size_t)k;
	return 0;
}

static inline void is_diff(struct tree *t, store_layer from, store_layer to, unsigned flags,
			   const char *want, const char *what)
{
	struct listing_text l = {0};
	int r = diff_layers(t->f.s, from, to, flags, tree_entry, &l);

	eq_int(r, 0, "%s: diff", what);
	eq_str(l.s, want, "%s", what);
}
