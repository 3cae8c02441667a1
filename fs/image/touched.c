/* The paths that differ between two layers. */
#include "fs/image/touched.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "fs/core/diff.h"
#include "fs/image/image_internal.h"

void touched_release(struct touched *t)
{
	for (size_t i = 0; i < t->n; i++)
		touched_release(&t->v[i]);
	free(t->v);
	free(t->name);
	*t = (struct touched){0};
}

static int name_cmp(const char *a, const char *b, size_t len)
{
	int r = strncmp(a, b, len);

	return r ? r : (unsigned char)a[len];
}

/* Where @name is, or belongs. */
static size_t place(const struct touched *t, const char *name, size_t len)
{
	size_t lo = 0, hi = t->n;

	/* They mostly come in order. */
	if (hi && name_cmp(t->v[hi - 1].name, name, len) < 0)
		return hi;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (name_cmp(t->v[mid].name, name, len) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int child(struct touched *t, const char *name, size_t len, struct touched **ret)
{
	size_t at = place(t, name, len);
	char *copy;

	if (at < t->n && name_cmp(t->v[at].name, name, len) == 0) {
		*ret = &t->v[at];
		return 0;
	}
	if (t->n == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 4;
		struct touched *v = reallocarray(t->v, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		t->v = v;
		t->cap = cap;
	}
	copy = strndup(name, len);
	if (!copy)
		return -ENOMEM;
	memmove(&t->v[at + 1], &t->v[at], (t->n - at) * sizeof(*t->v));
	t->v[at] = (struct touched){.name = copy};
	t->n++;
	*ret = &t->v[at];
	return 0;
}

int touched_add(struct touched *t, const char *path)
{
	while (*path) {
		size_t len = strcspn(path, "/");
		int r = len ? child(t, path, len, &t) : 0;

		if (r < 0)
			return r;
		path += len + (path[len] == '/');
	}
	return 0;
}

/* ---- what differs ---- */

struct between {
	struct touched *t;
	bool any;
};

static int see_change(void *arg, const struct diff_entry *e)
{
	struct between *b = arg;
	int r = touched_add(b->t, e->path);

	b->any = true;
	return r == 0 && e->old_path ? touched_add(b->t, e->old_path) : r;
}

/* ---- the other names of files ---- */

struct place_of {
	store_ino parent;
	char name[STORE_NAME_MAX + 1];
};
struct linked {
	struct buf inos; /* store_ino each: met on the way, with several names */
	struct buf places;
};

static int see_linked(void *arg, struct ovl *o, const struct tree_entry *e)
{
	struct linked *l = arg;

	(void)o;
	/* Of a host's file nobody knows the other names. */
	if (S_ISDIR(e->st->st_mode) || e->st->st_nlink < 2 || e->ino >= STORE_HOST_INO || e->link)
		return 0;
	return buf_put(&l->inos, &e->ino, sizeof(e->ino));
}

static int see_place(void *arg, store_ino parent, const char *name, size_t len)
{
	struct place_of p = {.parent = parent};
	struct linked *l = arg;

	if (len > STORE_NAME_MAX)
		return -EBADMSG;
	memcpy(p.name, name, len);
	return buf_put(&l->places, &p, sizeof(p));
}

/* Components from the last to the first; *ret owned, NULL: it is not in the tree. */
static int path_of(struct store_view *v, const struct place_of *p, char **ret)
{
	char *path = strdup(p->name);
	store_ino at = p->parent;
	int r = path ? 0 : -ENOMEM;

	for (unsigned depth = 0; r == 0 && at != STORE_ROOT_INO; depth++) {
		cleanup_rec_inode struct rec_inode rec = {0};
		cleanup_free char *below = path;

		path = NULL;
		r = depth < 1u << 20 ? store_view_inode(v, at, &rec) : -EBADMSG;
		if (r == 0 && (!rec.nlink || !rec.name))
			r = -ENOENT;
		if (r == 0 && asprintf(&path, "%.*s/%s", (int)rec.name_len, rec.name, below) < 0) {
			path = NULL;
			r = -ENOMEM;
		}
		at = rec.parent;
	}
	if (r < 0)
		free(path);
	*ret = r < 0 ? NULL : path;
	return r == -ENOENT ? 0 : r;
}

static int add_places(struct store_view *v, struct linked *l, struct touched *t)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->places.len; i += sizeof(struct place_of)) {
		cleanup_free char *path = NULL;
		struct place_of p;

		memcpy(&p, l->places.data + i, sizeof(p));
		r = path_of(v, &p, &path);
		if (r == 0 && path)
			r = touched_add(t, path);
	}
	return r;
}

static int add_links(struct store *s, store_layer to, struct linked *l, struct touched *t)
{
	struct store_view *v;
	int r = store_view_open(s, to, &v);

	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < l->inos.len; i += sizeof(store_ino)) {
		store_ino ino;

		memcpy(&ino, l->inos.data + i, sizeof(ino));
		l->places.len = 0;
		r = store_view_links(v, ino, see_place, l);
		if (r == 0)
			r = add_places(v, l, t);
	}
	store_view_close(v);
	return r;
}

int touched_between(struct store *s, store_layer from, store_layer to, struct touched *t,
		    bool *ret_any, struct diag *diag)
{
	struct between b = {.t = t};
	struct linked l = {{0}, {0}};
	struct tree_part part = {.from = from, .touched = t};
	struct tree_visit v = {.enter = see_linked, .arg = &l, .part = &part};
	int r = diff_layers(s, from, to, DIFF_ALL, see_change, &b);

	*ret_any = b.any;
	if (r < 0)
		return diag_set(diag, r, "cannot tell what differs between two states: %s",
				err_text(r));
	r = b.any ? tree_walk(s, to, &v, diag) : 0;
	if (r == 0)
		r = add_links(s, to, &l, t);
	buf_release(&l.inos);
	buf_release(&l.places);
	return r;
}
