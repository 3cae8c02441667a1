/* A sealed tree, read through the core, in the order of names. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "fs/core/ovl.h"
#include "fs/image/first_name.h"
#include "fs/image/image_internal.h"
#include "fs/image/touched.h"

#define PIECE (1u << 20)

struct level {
	store_ino ino; /* one reference */
	struct stat st;
	char *names; /* each NUL-terminated */
	const char **sorted;
	size_t n, next;
	const struct touched *only; /* of a part: no other names; NULL: all */
	store_ino
		below; /* of a part: this directory in the tree below; one reference; 0: not there */
	size_t path_len;
};

struct walk {
	struct ovl *o, *from; /* @from: of a part, the tree below; NULL: none */
	const struct tree_visit *v;
	struct diag *diag;
	struct level *l;
	size_t n, cap;
	struct buf path;
	struct first_names first;
};

static int fail(struct walk *w, int r)
{
	return diag_set(w->diag, r, "cannot read /%s: %s%s",
			w->path.data ? (const char *)w->path.data : "", err_text(r),
			r == -EIO ? "; rattan fsck tells whether the store is damaged" : "");
}

/* ---- names ---- */

struct names {
	struct buf b;
	size_t n;
};

static int take_name(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct names *l = arg;

	(void)cookie;
	(void)e;
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	l->n++;
	/* a callback's nonzero only stops: what has no memory is seen by the count */
	return buf_put(&l->b, name, strlen(name) + 1) < 0;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* What of a part may differ, which is in order. */
static int list_only(struct level *l)
{
	l->n = l->only->n;
	l->sorted = calloc(l->n ? l->n : 1, sizeof(*l->sorted));
	if (!l->sorted)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++)
		l->sorted[i] = l->only->v[i].name;
	return 0;
}

static int list(struct walk *w, struct level *l)
{
	struct names names = {0};
	int r = ovl_readdir(w->o, l->ino, 0, false, take_name, &names);
	size_t n = 0;

	l->sorted = r == 0 ? calloc(names.n ? names.n : 1, sizeof(*l->sorted)) : NULL;
	if (r == 0 && !l->sorted)
		r = -ENOMEM;
	for (size_t at = 0; r == 0 && at < names.b.len; n++) {
		l->sorted[n] = (const char *)names.b.data + at;
		at += strlen(l->sorted[n]) + 1;
	}
	if (r == 0 && n != names.n)
		r = -ENOMEM;
	if (r < 0) {
		buf_release(&names.b);
		return fail(w, r);
	}
	l->names = (char *)names.b.data;
	l->n = n;
	if (n)
		qsort(l->sorted, n, sizeof(*l->sorted), by_bytes);
	return 0;
}

/* ---- inodes with several names ---- */

static int seen_before(struct walk *w, const struct ovl_entry *e, const char **ret)
{
	*ret = NULL;
	if (S_ISDIR(e->attr.st.st_mode) || e->attr.st.st_nlink < 2)
		return 0;
	return first_name(&w->first, e->ino, (const char *)w->path.data, ret);
}

/* ---- walking ---- */

static void level_release(struct walk *w, struct level *l)
{
	ovl_forget(w->o, l->ino, 1);
	if (l->below)
		ovl_forget(w->from, l->below, 1);
	free(l->names);
	free((void *)l->sorted);
}

/* @below, @only: of struct level. */
static int push(struct walk *w, const struct ovl_entry *e, store_ino below,
		const struct touched *only)
{
	struct ovl_entry again, under;
	struct level *l;
	int r;

	if (w->n == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 16;

		l = reallocarray(w->l, cap, sizeof(*l));
		if (!l)
			return -ENOMEM;
		w->l = l;
		w->cap = cap;
	}
	r = ovl_lookup(w->o, e->ino, ".", &again);
	if (r == 0 && below)
		r = ovl_lookup(w->from, below, ".", &under);
	if (r < 0)
		return fail(w, r);
	l = &w->l[w->n++];
	*l = (struct level){.ino = e->ino,
			    .st = e->attr.st,
			    .path_len = w->path.len,
			    .below = below,
			    .only = only};
	return only ? list_only(l) : list(w, l);
}

static const char *last_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int pop(struct walk *w)
{
	struct level *l = &w->l[w->n - 1];
	int r = 0;

	w->path.len = l->path_len;
	w->path.data[w->path.len] = 0;
	if (w->v->leave) {
		struct tree_entry e = {.path = (const char *)w->path.data,
				       .name = last_of((const char *)w->path.data),
				       .ino = l->ino,
				       .st = &l->st};

		r = w->v->leave(w->v->arg, w->o, &e);
	}
	level_release(w, l);
	w->n--;
	return r;
}

static int hides(struct walk *w, bool inside)
{
	return w->v->hides ? w->v->hides(w->v->arg, (const char *)w->path.data, inside) : 0;
}

/* @below: what the tree below has there, or NULL; @only: of a part, what of its names may differ. */
static int visit(struct walk *w, const struct ovl_entry *e, const struct ovl_entry *below,
		 const struct touched *only)
{
	struct tree_entry t = {.path = (const char *)w->path.data,
			       .name = last_of((const char *)w->path.data),
			       .ino = e->ino,
			       .st = &e->attr.st};
	bool dir = S_ISDIR(e->attr.st.st_mode), was = below && S_ISDIR(below->attr.st.st_mode),
	     same = dir && was && below->ino == e->ino;
	char target[4096];
	int r = seen_before(w, e, &t.link);

	if (r == 0 && S_ISLNK(e->attr.st.st_mode)) {
		r = ovl_readlink(w->o, e->ino, target);
		t.target = target;
	}
	if (r < 0)
		return fail(w, r);
	r = w->v->enter(w->v->arg, w->o, &t);
	if (r == 0 && dir && was && !same)
		r = hides(w, true);
	return r == 0 && dir ? push(w, e, same ? below->ino : 0, same ? only : NULL) : r;
}

static int child(struct walk *w, struct level *l)
{
	const struct touched *only = l->only ? &l->only->v[l->next] : NULL;
	const char *name = l->sorted[l->next++];
	struct ovl_entry e, below = {0};
	store_ino under = l->below;
	int r;

	w->path.len = l->path_len;
	r = l->path_len ? buf_puts(&w->path, "/") : 0;
	if (r == 0)
		r = buf_puts(&w->path, name);
	if (r == 0)
		r = ovl_lookup(w->o, l->ino, name, &e);
	if (r < 0)
		return fail(w, r);
	if (under) {
		r = ovl_lookup(w->from, under, name, &below);
		if (r < 0)
			r = fail(w, r);
	}
	/* What is not there is one of a part; or a host directory's, and gone. */
	if (r == 0 && e.ino)
		r = visit(w, &e, below.ino ? &below : NULL, only);
	else if (r == 0 && below.ino)
		r = hides(w, false);
	if (e.ino)
		ovl_forget(w->o, e.ino, 1);
	if (below.ino)
		ovl_forget(w->from, below.ino, 1);
	return r;
}

static int walk_root(struct walk *w)
{
	const struct tree_part *part = w->v->part;
	struct ovl_entry root, below = {0};
	int r = ovl_lookup(w->o, STORE_ROOT_INO, ".", &root);

	if (r < 0)
		return fail(w, r);
	if (w->from) {
		r = ovl_lookup(w->from, STORE_ROOT_INO, ".", &below);
		if (r < 0)
			r = fail(w, r);
	}
	if (r == 0)
		r = visit(w, &root, below.ino ? &below : NULL, part ? part->touched : NULL);
	ovl_forget(w->o, root.ino, 1);
	if (below.ino)
		ovl_forget(w->from, below.ino, 1);
	return r;
}

static int walk(struct walk *w)
{
	int r = buf_put(&w->path, "", 0);

	if (r == 0)
		r = walk_root(w);
	while (r == 0 && w->n) {
		struct level *l = &w->l[w->n - 1];

		r = l->next == l->n ? pop(w) : child(w, l);
		if (r == 0 && w->v->p && progress_stop(w->v->p))
			r = diag_set(w->diag, -ECANCELED, "stopped");
	}
	return r;
}

int tree_walk(struct store *s, store_layer layer, const struct tree_visit *v, struct diag *diag)
{
	struct ovl_opts oo = {.store = s, .layer = layer, .flags = OVL_RDONLY};
	struct walk w = {.v = v, .diag = diag};
	int r = ovl_open(&oo, &w.o);

	if (r == 0 && v->part && v->part->from) {
		oo.layer = v->part->from;
		r = ovl_open(&oo, &w.from);
	}
	if (r < 0)
		diag_set(diag, r, "cannot open the tree: %s", err_text(r));
	else
		r = walk(&w);
	while (w.n)
		level_release(&w, &w.l[--w.n]);
	first_names_release(&w.first);
	free(w.l);
	buf_release(&w.path);
	if (w.from)
		(void)ovl_close(w.from);
	if (w.o)
		(void)ovl_close(w.o);
	return r;
}

struct counting {
	struct tree_counts *n;
	bool host;
	struct diag *diag;
};

static int count_one(void *arg, struct ovl *o, const struct tree_entry *e)
{
	const struct counting *c = arg;

	(void)o;
	/* All of a host may be below, and to count that takes as long as to read its disk. */
	if (e->ino >= STORE_HOST_INO && !c->host)
		return diag_set(
			c->diag, -EINVAL,
			"the tree shows directories of the host ('/%s' is of one), which the store "
			"has not: --with-host writes them too; an imported base has none",
			e->path);
	c->n->entries++;
	if (S_ISREG(e->st->st_mode) && !e->link)
		c->n->bytes += (uint64_t)e->st->st_size;
	return 0;
}

int tree_count(struct store *s, store_layer layer, bool host, struct progress *p, struct diag *diag,
	       struct tree_counts *ret)
{
	struct counting c = {.n = ret, .host = host, .diag = diag};
	struct tree_visit v = {.enter = count_one, .arg = &c, .p = p};

	*ret = (struct tree_counts){0};
	return tree_walk(s, layer, &v, diag);
}

/* ---- one inode ---- */

int tree_xattrs(struct ovl *o, store_ino ino,
		int (*fn)(void *arg, const char *name, const void *value, size_t len), void *arg)
{
	cleanup_free char *names = NULL, *value = NULL;
	ssize_t n = ovl_listxattr(o, ino, NULL, 0), len;
	const char **v;
	size_t k = 0;
	int r = 0;

	if (n <= 0)
		return n < 0 ? (int)n : 0;
	names = malloc((size_t)n + 1);
	value = malloc(65536);
	v = calloc((size_t)n, sizeof(*v));
	if (!names || !value || !v) {
		free((void *)v);
		return -ENOMEM;
	}
	n = ovl_listxattr(o, ino, names, (size_t)n);
	for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1)
		v[k++] = p;
	if (k)
		qsort(v, k, sizeof(*v), by_bytes);
	for (size_t i = 0; r == 0 && i < k; i++) {
		len = ovl_getxattr(o, ino, v[i], value, 65536);
		if (len >= 0)
			r = fn(arg, v[i], value, (size_t)len);
		else if (len != -ENODATA)
			r = (int)len;
	}
	free((void *)v);
	return n < 0 ? (int)n : r;
}

static int data_piece(struct ovl *o, const struct tree_entry *e, struct progress *p, void *buf,
		      uint64_t at, uint64_t end,
		      int (*fn)(void *arg, uint64_t off, const void *p, size_t n), void *arg)
{
	while (at < end) {
		size_t want = end - at < PIECE ? (size_t)(end - at) : PIECE;
		ssize_t n = ovl_read(o, e->ino, at, buf, want);
		int r;

		if (n <= 0)
			return n < 0 ? (int)n : -ESTALE; /* a host file that became shorter */
		r = fn(arg, at, buf, (size_t)n);
		if (r < 0)
			return r;
		at += (uint64_t)n;
		p->done += (uint64_t)n;
		if (progress_stop(p))
			return -ECANCELED;
	}
	return 0;
}

int tree_data(struct ovl *o, const struct tree_entry *e, struct progress *p,
	      int (*fn)(void *arg, uint64_t off, const void *p, size_t n), void *arg)
{
	cleanup_free void *buf = malloc(PIECE);
	int64_t size = e->st->st_size, at = 0, data, hole;
	int r = buf ? 0 : -ENOMEM;

	while (r == 0 && at < size) {
		data = ovl_lseek(o, e->ino, at, SEEK_DATA);
		if (data == -ENXIO)
			return 0;
		hole = data < 0 ? data : ovl_lseek(o, e->ino, data, SEEK_HOLE);
		if (hole < 0)
			return (int)hole;
		r = data_piece(o, e, p, buf, (uint64_t)data, (uint64_t)(hole < size ? hole : size),
			       fn, arg);
		at = hole;
	}
	return r;
}
