#include "fs/core/diff.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/core/diff_internal.h"

#define PATHS_SHARE 16
#define PATHS_LEAST ((size_t)256 << 20)

/* ---- candidates ---- */

int diff_add_cand(struct diff *d, enum side side, const struct obj *o, struct dir *dir,
		  const char *path)
{
	struct cand *c =
		grow_one(&d->cands[side], &d->ncands[side], &d->cands_max[side], sizeof *c);

	if (!c)
		return -ENOMEM;
	*c = (struct cand){.o = *o, .dir = dir, .path = path};
	return 0;
}

static int add_change(struct diff *d, enum diff_kind kind, unsigned what, const char *path,
		      const char *old_path, const struct obj *from, const struct obj *to)
{
	struct diff_change *c = grow_one(&d->out, &d->nout, &d->out_max, sizeof *c);

	if (!c)
		return -ENOMEM;
	*c = (struct diff_change){.kind = kind, .what = what, .path = path, .old_path = old_path};
	if (from)
		c->from = *from;
	if (to)
		c->to = *to;
	return 0;
}

/* What the flags ask for, of what differs. */
static unsigned wanted(const struct diff *d, const struct obj *o, unsigned what)
{
	if (d->flags & DIFF_PEOPLE && !(what & DIFF_OWNER_SEEN))
		what &= ~(unsigned)DIFF_OWNER;
	if (d->flags & DIFF_ALL)
		return what;
	/* A directory's content is its names, which are entries of their own. */
	return what & ~(unsigned)(DIFF_TIMES | (S_ISDIR(o->mode) ? DIFF_CONTENT : 0));
}

static bool elsewhere(const struct diff *d, const struct obj *to)
{
	return d->flags & DIFF_HIDDEN && to->elsewhere;
}

int diff_compared(struct diff *d, const struct obj *from, const struct obj *to, const char *path,
		  const char *old_path)
{
	unsigned what;
	int r;

	if ((from->mode & S_IFMT) != (to->mode & S_IFMT))
		return add_change(d, DIFF_TYPE, DIFF_CONTENT, path, old_path, from, to);
	r = diff_compare(d, from, to, &what);
	what = wanted(d, to, what);
	return r < 0 || (!what && !elsewhere(d, to))
		       ? r
		       : add_change(d, DIFF_MODIFIED, what, path, old_path, from, to);
}

static int name_path(struct diff *d, enum side side, struct dir *dir, const char *name, size_t len,
		     const char **ret)
{
	const char *above = NULL;
	int r = diff_path(d, side, dir, &above);

	if (r < 0)
		return r;
	*ret = arena_join(&d->arena, above ? above : "", name, len);
	return *ret ? 0 : -ENOMEM;
}

/* A name that nothing moved: only a directory above it can have been called something else. */
static int compare_name(struct diff *d, const struct touched_name *t, struct dir *dir,
			const struct obj *from, const struct obj *to)
{
	const char *was, *is, *path = NULL, *old_path = NULL;
	int r = diff_path(d, FROM, dir, &was);

	if (r == 0)
		r = diff_path(d, TO, dir, &is);
	if (r == 0)
		r = name_path(d, TO, dir, t->name, t->len, &path);
	if (r == 0 && was && is && strcmp(was, is) != 0)
		r = name_path(d, FROM, dir, t->name, t->len, &old_path);
	return r < 0 ? r : diff_compared(d, from, to, path, old_path);
}

/* ---- 1: touched names ---- */

/* What @name took over, at the newer side: of what was and of what is there alike. */
static int look_at_hidden(struct diff *d, const struct touched_name *t, struct obj *from,
			  struct obj *to)
{
	cleanup_buf struct buf b = {0};
	char key[HIDDEN_KEY_LEN];
	struct hidden *h;
	int r;

	if (!(d->flags & DIFF_HIDDEN) || !d->view[TO])
		return 0;
	hidden_key(t->name, t->len, key);
	r = store_view_xattr(d->view[TO], t->parent, key, &b);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	h = arena_get(&d->arena, sizeof(*h));
	if (!h)
		return -ENOMEM;
	from->hidden = to->hidden = h;
	return hidden_decode(b.data, b.len, h);
}

static int look_at_name(struct diff *d, const struct touched_name *t)
{
	struct obj from, to;
	const char *path;
	struct dir *dir;
	int r = diff_dir(d, t->parent, &dir);

	if (r == 0)
		r = diff_object(d, FROM, dir, t->name, t->len, &from);
	if (r == 0)
		r = diff_object(d, TO, dir, t->name, t->len, &to);
	if (r == 0)
		r = look_at_hidden(d, t, &from, &to);
	if (r < 0)
		return r;
	if (diff_same(&from, &to)) {
		if (from.at == OBJ_STORE && to.at == OBJ_STORE && !diff_ino_touched(d, to.ino))
			return 0;
		return compare_name(d, t, dir, &from, &to);
	}
	if (from.at != OBJ_NONE) {
		r = name_path(d, FROM, dir, t->name, t->len, &path);
		if (r == 0)
			r = diff_add_cand(d, FROM, &from, dir, path);
	}
	if (r == 0 && to.at != OBJ_NONE) {
		r = name_path(d, TO, dir, t->name, t->len, &path);
		if (r == 0)
			r = diff_add_cand(d, TO, &to, dir, path);
	}
	return r;
}

/* ---- 2: touched inodes whose names were not ---- */

struct places {
	struct diff *d;
	struct touched_name *v; /* copies: the callback may not call the store */
	size_t n, max;
};

static int see_place(void *arg, store_ino parent, const char *name, size_t len)
{
	struct places *p = arg;
	struct touched_name *t;
	char *copy;

	if (diff_name_touched(p->d, parent, name, len))
		return 0; /* dealt with there */
	t = grow_one(&p->v, &p->n, &p->max, sizeof *t);
	copy = t ? arena_get(&p->d->arena, len + 1) : NULL;
	if (!copy)
		return -ENOMEM;
	memcpy(copy, name, len);
	copy[len] = '\0';
	*t = (struct touched_name){parent, len, copy};
	return 0;
}

static int compare_place(struct diff *d, const struct touched_name *t, const struct obj *from,
			 const struct obj *to)
{
	struct obj now;
	struct dir *dir;
	int r = diff_dir(d, t->parent, &dir);

	if (r == 0)
		r = diff_object(d, TO, dir, t->name, t->len, &now);
	if (r < 0 || !diff_same(&now, to)) /* a reference to a place that it has left */
		return r;
	return compare_name(d, t, dir, from, to);
}

static int look_at_inode(struct diff *d, store_ino ino)
{
	struct places p = {.d = d};
	struct rec_inode rec = {0};
	struct obj from, to;
	int r = diff_object_of(d, FROM, ino, &from);

	/* Of what stands on nothing the root has no name under which it would be found: only an id asks for it. */
	if (r == 0 && ino == STORE_ROOT_INO && !d->view[FROM] && (d->flags & DIFF_ALL)) {
		r = diff_object_of(d, TO, ino, &to);
		return r < 0 || to.at == OBJ_NONE
			       ? r
			       : add_change(d, DIFF_ADDED, 0, "/", NULL, NULL, &to);
	}
	if (r < 0 || from.at == OBJ_NONE)
		return r;
	r = diff_object_of(d, TO, ino, &to);
	if (r < 0 || to.at == OBJ_NONE)
		return r;
	if (ino == STORE_ROOT_INO)
		return diff_compared(d, &from, &to, "/", NULL);
	r = diff_record(d, TO, ino, &rec);
	if (r == 0 && rec.parent && rec.name)
		r = see_place(&p, rec.parent, rec.name, rec.name_len);
	else if (r == 0)
		r = store_view_links(d->view[TO], ino, see_place, &p);
	rec_inode_release(&rec);
	for (size_t i = 0; r == 0 && i < p.n; i++)
		r = compare_place(d, &p.v[i], &from, &to);
	free(p.v);
	return r;
}

/* ---- 3: what moved ---- */

static int by_ino(const void *pa, const void *pb)
{
	const struct cand *const *a = pa, *const *b = pb;

	if ((*a)->o.ino != (*b)->o.ino)
		return (*a)->o.ino < (*b)->o.ino ? -1 : 1;
	return strcmp((*a)->path, (*b)->path);
}

static int by_key(const void *pa, const void *pb)
{
	const struct cand *const *a = pa, *const *b = pb;
	int r = host_key_cmp(&(*a)->o.key, &(*b)->o.key);

	return r ? r : strcmp((*a)->path, (*b)->path);
}

static int ino_order(const struct cand *a, const struct cand *b)
{
	return a->o.ino < b->o.ino ? -1 : a->o.ino > b->o.ino;
}

static int key_order(const struct cand *a, const struct cand *b)
{
	return host_key_cmp(&a->o.key, &b->o.key);
}

static int path_order(const struct cand *a, const struct cand *b)
{
	return strcmp(a->path, b->path);
}

static int by_path(const void *pa, const void *pb)
{
	const struct cand *const *a = pa, *const *b = pb;

	return strcmp((*a)->path, (*b)->path);
}

static bool has_ino(const struct cand *c)
{
	return c->o.at == OBJ_STORE;
}

static bool has_key(const struct cand *c)
{
	return c->o.key.root;
}

static bool any(const struct cand *c)
{
	(void)c;
	return true;
}

/* Is the directory that @f lay in somewhere else by now, and so would @f be that went with it? */
static int left_behind(struct diff *d, const struct cand *f, bool *ret)
{
	const char *was = NULL, *is = NULL;
	int r = f->dir ? diff_path(d, FROM, f->dir, &was) : 0;

	if (r == 0 && f->dir && d->flags & DIFF_HIDDEN)
		r = diff_path(d, TO, f->dir, &is);
	*ret = r == 0 && is && was && strcmp(is, was) != 0;
	return r;
}

static int moved(struct diff *d, struct cand *f, struct cand *t)
{
	bool left;
	unsigned what;
	int r;

	if (!diff_same(&f->o, &t->o))
		return 0;
	f->used = t->used = true;
	r = left_behind(d, f, &left);
	if (r < 0)
		return r;
	/* the directory above was replaced, and it was moved over */
	if (!left && !strcmp(f->path, t->path))
		return diff_compared(d, &f->o, &t->o, t->path, NULL);
	r = diff_compare(d, &f->o, &t->o, &what);
	return r < 0 ? r
		     : add_change(d, DIFF_RENAMED, wanted(d, &t->o, what), t->path, f->path, &f->o,
				  &t->o);
}

static int replaced(struct diff *d, struct cand *f, struct cand *t)
{
	bool left;
	int r = left_behind(d, f, &left);

	/* A host directory hides names that nobody has listed: it is not the same as a new one. */
	if (r < 0 || left || diff_is_host_dir(f) || diff_is_host_dir(t))
		return r;
	f->used = t->used = true;
	return diff_compared(d, &f->o, &t->o, t->path, NULL);
}

struct pairing {
	bool (*takes)(const struct cand *c);
	int (*sort)(const void *a, const void *b);
	int (*order)(const struct cand *a, const struct cand *b);
	int (*found)(struct diff *d, struct cand *f, struct cand *t);
};

static struct cand **sorted(struct diff *d, enum side side, const struct pairing *p, size_t *ret_n)
{
	struct cand **v = calloc(d->ncands[side] + 1, sizeof(struct cand *));

	*ret_n = 0;
	for (size_t i = 0; v && i < d->ncands[side]; i++)
		if (!d->cands[side][i].used && p->takes(&d->cands[side][i]))
			v[(*ret_n)++] = &d->cands[side][i];
	if (v)
		qsort(v, *ret_n, sizeof(struct cand *), p->sort);
	return v;
}

static int pair_up(struct diff *d, const struct pairing *p)
{
	size_t nf, nt, i = 0, k = 0;
	struct cand **f = sorted(d, FROM, p, &nf), **t = sorted(d, TO, p, &nt);
	int r = f && t ? 0 : -ENOMEM;

	while (r == 0 && i < nf && k < nt) {
		int o = p->order(f[i], t[k]);

		if (o == 0)
			r = p->found(d, f[i++], t[k++]);
		else if (o < 0)
			i++;
		else
			k++;
	}
	free(f);
	free(t);
	return r;
}

/* ---- 4: what lies below a directory that came or went ---- */

struct below {
	struct diff *d;
	enum side side;
	struct dir *dir;
	struct touched_name *v;
	size_t n, max;
};

static int see_below(void *arg, const char *name, size_t len, const struct rec_name *rn)
{
	struct below *b = arg;
	struct touched_name *t;
	char *copy;

	if (!rn->ino || diff_name_touched(b->d, b->dir->ino, name, len))
		return 0;
	t = grow_one(&b->v, &b->n, &b->max, sizeof *t);
	copy = t ? arena_get(&b->d->arena, len + 1) : NULL;
	if (!copy)
		return -ENOMEM;
	memcpy(copy, name, len);
	copy[len] = '\0';
	*t = (struct touched_name){b->dir->ino, len, copy};
	return 0;
}

/* Names below a directory that exists at one side only are written when it is emptied or filled. What
 * was not (the layer removed it whole) is listed here: candidates for the loop below, too. */
static int list_below(struct diff *d, enum side side, store_ino ino)
{
	enum side other = side == FROM ? TO : FROM;
	struct below b = {.d = d, .side = side};
	const char *elsewhere = NULL;
	int r = diff_dir(d, ino, &b.dir);

	if (r == 0)
		r = diff_path(d, other, b.dir, &elsewhere);
	if (r < 0 || elsewhere)
		return r;
	r = store_view_names(d->view[side], ino, see_below, &b);
	for (size_t i = 0; r == 0 && i < b.n; i++) {
		struct obj o;
		const char *path;

		r = diff_object(d, side, b.dir, b.v[i].name, b.v[i].len, &o);
		if (r == 0 && o.at != OBJ_NONE)
			r = name_path(d, side, b.dir, b.v[i].name, b.v[i].len, &path);
		if (r == 0 && o.at != OBJ_NONE)
			r = diff_add_cand(d, side, &o, b.dir, path);
	}
	free(b.v);
	return r;
}

static int list_all_below(struct diff *d, enum side side)
{
	for (size_t i = 0; i < d->ncands[side]; i++) { /* grows on the way */
		const struct cand *c = &d->cands[side][i];
		int r = 0;

		if (!c->used && c->o.at == OBJ_STORE && S_ISDIR(c->o.mode))
			r = list_below(d, side, c->o.ino);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- all together ---- */

static int rest(struct diff *d)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < d->ncands[FROM]; i++)
		if (!d->cands[FROM][i].used)
			r = add_change(d, DIFF_DELETED, 0, d->cands[FROM][i].path, NULL,
				       &d->cands[FROM][i].o, NULL);
	for (size_t i = 0; r == 0 && i < d->ncands[TO]; i++)
		if (!d->cands[TO][i].used)
			r = add_change(d, DIFF_ADDED, 0, d->cands[TO][i].path, NULL, NULL,
				       &d->cands[TO][i].o);
	return r;
}

static int change_cmp(const void *pa, const void *pb)
{
	const struct diff_change *a = pa, *b = pb;
	int r = strcmp(a->path, b->path);

	/* at one path, what was there goes before what comes */
	return r ? r : (a->kind != DIFF_DELETED) - (b->kind != DIFF_DELETED);
}

static int open_views(struct diff *d, store_layer from, store_layer to)
{
	int r = 0;

	if (from)
		r = store_view_open(d->s, from, &d->view[FROM]);
	if (r == 0 && to)
		r = store_view_open(d->s, to, &d->view[TO]);
	return r;
}

static int look_at_all(struct diff *d)
{
	static const struct pairing pairings[] = {
		{has_ino, by_ino, ino_order, moved},
		{has_key, by_key, key_order, moved},
	};
	static const struct pairing at_path = {any, by_path, path_order, replaced};
	int r = 0;

	for (size_t i = 0; r == 0 && i < d->nnames; i++)
		r = look_at_name(d, &d->names[i]);
	for (size_t i = 0; r == 0 && i < d->ninos; i++)
		r = look_at_inode(d, d->inos[i]);
	for (size_t i = 0; r == 0 && i < sizeof pairings / sizeof *pairings; i++)
		r = pair_up(d, &pairings[i]);
	if (r == 0)
		r = list_all_below(d, FROM);
	if (r == 0)
		r = list_all_below(d, TO);
	/* Who brings changes to the host does so by itself, and what a commit's id is made of is what was written. */
	if (r == 0 && (d->flags & (DIFF_PEOPLE | DIFF_HIDDEN)) == DIFF_PEOPLE) {
		r = diff_made_anew(d);
		if (r == 0)
			r = pair_up(d, &pairings[1]);
	}
	if (r == 0)
		r = pair_up(d, &at_path);
	return r < 0 ? r : rest(d);
}

/* A part of the machine's memory: what is compared may be made by anybody, names of any depth with it. */
static size_t paths_default(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
	size_t share = pages > 0 && size > 0 ? (size_t)pages / PATHS_SHARE * (size_t)size : 0;

	return share > PATHS_LEAST ? share : PATHS_LEAST;
}

int diff_run(struct diff *d, struct store *s, store_layer from, store_layer to, unsigned flags)
{
	int r;

	d->s = s;
	d->flags = flags;
	d->arena.max = d->paths_max ? d->paths_max : paths_default();
	if (from == to)
		return 0;
	r = open_views(d, from, to);
	if (r == 0)
		r = diff_collect(d, from, to);
	if (r == 0)
		r = look_at_all(d);
	if (r == -ENOMEM && d->arena.full)
		r = -E2BIG;
	if (r == 0 && d->host_counts)
		r = -ENODATA;
	if (r == 0 && d->nout > 1)
		qsort(d->out, d->nout, sizeof *d->out, change_cmp);
	return r;
}

void diff_release(struct diff *d)
{
	diff_look_release(d);
	store_view_close(d->view[FROM]);
	store_view_close(d->view[TO]);
	free(d->names);
	free(d->inos);
	free(d->extents);
	free(d->cands[FROM]);
	free(d->cands[TO]);
	free(d->out);
	arena_release(&d->arena);
}

int diff_layers(struct store *s, store_layer from, store_layer to, unsigned flags,
		int (*fn)(void *arg, const struct diff_entry *e), void *arg)
{
	struct diff d = {0};
	int r = diff_run(&d, s, from, to, flags);

	for (size_t i = 0; r == 0 && i < d.nout; i++) {
		const struct diff_change *c = &d.out[i];
		const struct obj *o = c->to.at != OBJ_NONE ? &c->to : &c->from;
		struct diff_entry e = {
			.kind = c->kind,
			.what = (c->what & ~DIFF_OWNER_SEEN) |
				(c->kind != DIFF_RENAMED && elsewhere(&d, &c->to) ? DIFF_ELSEWHERE
										  : 0),
			.path = c->path,
			.old_path = c->old_path,
			.mode = o->mode,
			.size = o->size,
			.ino = o->ino,
			.host_before = c->from.at == OBJ_HOST,
			.hidden = c->kind == DIFF_ADDED ? c->to.hidden : c->from.hidden,
		};

		r = fn(arg, &e);
	}
	diff_release(&d);
	return r;
}
