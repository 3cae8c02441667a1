/* Removing from a tree that is being filled: what an entry replaces, and what a whiteout hides. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/image/sink_internal.h"

/* One directory on the way down. Depth comes from the source, so it is no recursion. */
struct level {
	store_ino ino; /* one reference */
	uint64_t cookie;
	char name[STORE_NAME_MAX + 1]; /* in the level above */
};

struct removal {
	struct sink *k;
	bool below; /* only what the layers below have */
	struct level *v;
	size_t n, cap;
};

struct child {
	store_ino ino;
	mode_t type;
	uint64_t cookie;
	char name[STORE_NAME_MAX + 1];
};

static int take_one(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct child *c = arg;
	size_t n = strlen(name);

	if (c->name[0])
		return 1;
	if (!strcmp(name, ".") || !strcmp(name, "..") || n >= sizeof(c->name))
		return 0;
	memcpy(c->name, name, n + 1);
	c->cookie = cookie;
	c->ino = e->ino;
	c->type = e->attr.st.st_mode & S_IFMT;
	return 0;
}

static int push(struct removal *x, store_ino dir, const char *name)
{
	struct ovl_entry e;
	int r;

	if (x->n == x->cap) {
		size_t cap = x->cap ? x->cap * 2 : 16;
		struct level *v = reallocarray(x->v, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		x->v = v;
		x->cap = cap;
	}
	r = ovl_lookup(x->k->ovl, dir, name, &e);
	if (r < 0 || !e.ino)
		return r < 0 ? r : -ENOENT;
	x->v[x->n] = (struct level){.ino = e.ino};
	(void)memcpy(x->v[x->n].name, name, strlen(name) + 1);
	x->n++;
	return 0;
}

/* Does this layer say that it is there? */
static bool is_ours(const struct removal *x, store_ino ino)
{
	return x->below && (ino >= x->k->mark || sink_dir_declared(x->k, ino));
}

static int unlink_child(struct removal *x, store_ino dir, const char *name, bool isdir)
{
	int r = sink_dir_touch(x->k, dir);

	if (r == 0)
		r = isdir ? ovl_rmdir(x->k->ovl, dir, name) : ovl_unlink(x->k->ovl, dir, name);
	return r;
}

/* The directory is empty, as far as it is to be. */
static int leave(struct removal *x)
{
	struct level *l = &x->v[--x->n];
	bool stays = is_ours(x, l->ino);
	int r = 0;

	ovl_forget(x->k->ovl, l->ino, 1);
	if (x->n && !stays)
		r = unlink_child(x, x->v[x->n - 1].ino, l->name, true);
	return r == -ENOTEMPTY && x->below ? 0 : r;
}

static int one_step(struct removal *x)
{
	struct level *l = &x->v[x->n - 1];
	struct child c = {0};
	int r = ovl_readdir(x->k->ovl, l->ino, l->cookie, false, take_one, &c);

	if (r < 0 || !c.name[0])
		return r < 0 ? r : leave(x);
	l->cookie = c.cookie;
	if (S_ISDIR(c.type))
		return push(x, l->ino, c.name);
	return is_ours(x, c.ino) || (x->below && sink_link_noted(x->k, l->ino, c.name))
		       ? 0
		       : unlink_child(x, l->ino, c.name, false);
}

/* What is in the directory @name of @dir. */
static int empty(struct sink *k, store_ino dir, const char *name, bool below)
{
	struct removal x = {.k = k, .below = below};
	int r = push(&x, dir, name);

	while (r == 0 && x.n) {
		if (k->o.stop && k->o.stop(k->o.arg))
			r = diag_set(k->o.diag, -ECANCELED, "stopped");
		if (r == 0)
			r = one_step(&x);
	}
	while (x.n)
		ovl_forget(k->ovl, x.v[--x.n].ino, 1);
	free(x.v);
	return r;
}

int sink_remove(struct sink *k, store_ino dir, const char *name, const struct ovl_entry *e)
{
	int r;

	if (!S_ISDIR(e->attr.st.st_mode))
		return ovl_unlink(k->ovl, dir, name);
	sink_forget_place(k);
	r = empty(k, dir, name, false);
	return r < 0 ? r : ovl_rmdir(k->ovl, dir, name);
}

static int hide(struct sink *k, store_ino dir, const char *name, const struct ovl_entry *e,
		bool inside)
{
	struct removal x = {.k = k, .below = true};
	int r = 0;

	if (S_ISDIR(e->attr.st.st_mode)) {
		sink_forget_place(k);
		r = empty(k, dir, name, true);
	}
	if (r < 0 || inside || is_ours(&x, e->ino) || sink_link_noted(k, dir, name))
		return r;
	r = unlink_child(&x, dir, name, S_ISDIR(e->attr.st.st_mode));
	return r == -ENOTEMPTY ? 0 : r;
}

/* What is not there need not be hidden. */
int sink_whiteout(struct sink *k, const char *path, bool inside)
{
	struct ovl_entry e = {0};
	struct sink_place p;
	store_ino dir;
	int r = sink_split(k, path, &p);

	if (r < 0)
		return r;
	if (!p.name[0] && !inside)
		return diag_set(k->o.diag, -EBADMSG, "a whiteout of the root");
	if (!p.name[0]) {
		r = empty(k, STORE_ROOT_INO, ".", true);
		return r < 0 ? sink_fail(k, r, "cannot hide what is below", "the root") : 0;
	}
	r = sink_walk(k, p.path, p.dir_len, false, &dir);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = ovl_lookup(k->ovl, dir, p.name, &e);
	if (r == 0 && e.ino)
		r = hide(k, dir, p.name, &e, inside);
	if (e.ino)
		ovl_forget(k->ovl, e.ino, 1);
	ovl_forget(k->ovl, dir, 1);
	return r < 0 ? sink_fail(k, r, "cannot hide", path) : 0;
}
