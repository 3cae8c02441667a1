/* The steps of what may be done. */
#include <stdlib.h>
#include <string.h>

#include "apply/below.h"
#include "apply/plan.h"
#include "base/cleanup.h"

static bool stands(const struct decision *d)
{
	return d->wanted && d->verdict == APPLY_DO && !d->subsumed;
}

static struct step *add(struct plan *p, enum step_op op, const char *place, const char *path,
			const struct decision *d)
{
	struct step *s = steps_add(&p->steps, op, place, path);

	if (!s)
		return NULL;
	s->slot = d->slot;
	s->was = d->is;
	s->forced = d->forced;
	return s;
}

/* What the host has, to be set again. */
static int load_old(struct plan *p, struct step *s, const char *place)
{
	cleanup_fd int fd = below_open(p->root, place);

	return fd < 0 ? fd : attrs_get(fd, &s->old);
}

static int add_attr(struct plan *p, struct decision *d, const char *place)
{
	unsigned what = 0;
	struct step *s;

	what |= d->c->what & APPLY_MODE && !S_ISLNK(d->c->mode) ? ATTRS_MODE : 0;
	what |= d->c->what & APPLY_OWNER ? ATTRS_OWNER | ATTRS_MODE : 0;
	what |= d->c->what & APPLY_XATTRS ? ATTRS_XATTRS | ATTRS_MODE : 0;
	what |= d->c->what & APPLY_TIMES ? ATTRS_TIMES : 0;
	if (!what)
		return 0;
	s = add(p, STEP_ATTR, place, d->c->path, d);
	if (!s)
		return -ENOMEM;
	s->what = what;
	return load_old(p, s, place);
}

static int add_out(struct plan *p, struct decision *d, const char *place, bool moved)
{
	struct step *s = add(p, STEP_OUT, place, NULL, d);

	if (!s)
		return -ENOMEM;
	s->moved = moved;
	return load_old(p, s, place);
}

static int add_in(struct plan *p, struct decision *d, bool moved)
{
	struct step *s = add(p, STEP_IN, NULL, d->c->path, d);

	if (!s)
		return -ENOMEM;
	s->moved = moved;
	if (!moved)
		s->was = (struct ident){0};
	return 0;
}

static int add_swap(struct plan *p, struct decision *d)
{
	struct step *s = add(p, STEP_SWAP, d->place, d->c->path, d);

	return s ? load_old(p, s, d->place) : -ENOMEM;
}

/* In a directory that is new, it comes with that one. */
static int comes_along(struct plan *p, struct decision *d, bool *ret)
{
	struct decision *in;
	char *place;
	int r = plan_place(p, d->c->path, &place, &in);

	*ret = r == 0 && !place;
	free(place);
	return r;
}

static int add_renamed(struct plan *p, struct decision *d)
{
	cleanup_free char *old = strdup(d->c->old);
	bool along;
	int r = old ? add_out(p, d, old, !d->copied) : -ENOMEM;

	if (r < 0)
		return r;
	if (!d->copied) {
		r = add_in(p, d, true);
		return r < 0 ? r : add_attr(p, d, old);
	}
	r = comes_along(p, d, &along);
	if (r < 0 || along)
		return r;
	d->slot = p->slots++;
	return add_in(p, d, false);
}

static int add_one(struct plan *p, struct decision *d)
{
	bool along;
	int r;

	d->slot = p->slots++;
	switch (d->c->kind) {
	case 'D':
		return add_out(p, d, d->place, false);
	case 'A':
		r = comes_along(p, d, &along);
		return r < 0 || along ? r : add_in(p, d, false);
	case 'R':
		return add_renamed(p, d);
	case 'T':
		return add_swap(p, d);
	default:
		if (d->c->what & APPLY_CONTENT && !S_ISDIR(d->c->mode))
			return add_swap(p, d);
		return add_attr(p, d, d->place);
	}
}

/* ---- directories whose names change ---- */

struct touched {
	char *place, *path; /* either may be NULL */
};
struct dirs {
	struct touched *v;
	size_t n, cap;
};

static void dirs_release(struct dirs *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].place);
		free(l->v[i].path);
	}
	free(l->v);
}

/* Takes both. */
static int dirs_add(struct dirs *l, char *place, char *path)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 32;
		struct touched *more = realloc(l->v, cap * sizeof(*more));

		if (!more) {
			free(place);
			free(path);
			return -ENOMEM;
		}
		l->v = more;
		l->cap = cap;
	}
	l->v[l->n++] = (struct touched){place, path};
	return 0;
}

static int compare(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) : !a - !b;
}

static int by_place(const void *pa, const void *pb)
{
	const struct touched *a = pa, *b = pb;
	int c = compare(a->place, b->place);

	/* One on the host is the same wherever it goes. */
	return c || a->place ? c : compare(a->path, b->path);
}

/* Where the host's directory @place is afterwards; NULL: it goes. */
static int after_of(const struct plan *p, const char *place, char **ret)
{
	cleanup_free char *above = strdup(place);

	*ret = NULL;
	for (bool first = true; above; first = false) {
		struct decision *d = plan_old(p, above);
		char *slash;

		if (d && stands(d) && d->c->kind == 'R' && !d->copied)
			return asprintf(ret, "%s%s", d->c->path, place + strlen(above)) < 0
				       ? (*ret = NULL, -ENOMEM)
				       : 0;
		if (d && stands(d) && (d->c->kind != 'T' || !first || !S_ISDIR(d->c->mode)))
			return 0;
		slash = strrchr(above, '/');
		if (!slash)
			break;
		*slash = '\0';
	}
	*ret = above ? strdup(place) : NULL;
	return *ret ? 0 : -ENOMEM;
}

/* The directory of a place on the host. */
static int touch_place(struct plan *p, struct dirs *l, const char *place)
{
	char *dir = plan_parent(place), *path;
	int r = dir ? after_of(p, dir, &path) : -ENOMEM;

	if (r < 0) {
		free(dir);
		return r;
	}
	return dirs_add(l, dir, path);
}

/* The directory of a place to be. */
static int touch_path(struct plan *p, struct dirs *l, const char *path)
{
	char *dir = plan_parent(path), *place = NULL;
	struct decision *d = dir ? plan_new(p, dir) : NULL, *in;
	int r = dir ? 0 : -ENOMEM;

	if (d && d->c->kind == 'R' && !d->copied)
		r = (place = strdup(d->c->old)) ? 0 : -ENOMEM;
	else if (r == 0 && !(d && d->c->kind != 'M'))
		r = plan_place(p, dir, &place, &in);
	if (r < 0) {
		free(dir);
		return r;
	}
	return dirs_add(l, place, dir);
}

static int collect(struct plan *p, struct dirs *l)
{
	size_t n = p->steps.n;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		const struct step *s = &p->steps.v[i];

		if (s->op == STEP_OUT)
			r = touch_place(p, l, s->place);
		else if (s->op == STEP_IN || s->op == STEP_SWAP)
			r = touch_path(p, l, s->path);
		else if (s->op == STEP_ATTR && S_ISDIR(s->was.mode))
			r = dirs_add(l, strdup(s->place), strdup(s->path));
	}
	/* New ones that their owner may not write to stay open until all is in them. */
	for (size_t i = 0; r == 0 && i < p->n; i++) {
		const struct decision *d = &p->v[i];

		if (stands(d) && (d->c->kind == 'A' || d->c->kind == 'T') && S_ISDIR(d->c->mode) &&
		    (d->c->mode & 0700) != 0700)
			r = dirs_add(l, NULL, strdup(d->c->path));
	}
	/* The stage is made in it. */
	return r < 0 ? r : touch_place(p, l, "x");
}

/* The tree's times are the directory's, if it is one there. */
static int load_new(struct plan *p, struct step *s)
{
	struct decision *d = plan_new(p, s->path);
	struct stat st;
	mode_t mode = s->old.mode;

	if (below_stat(p->j->tree, s->path, &st) < 0 || !S_ISDIR(st.st_mode))
		st = (struct stat){
			.st_mode = s->old.mode, .st_atim = s->old.atime, .st_mtim = s->old.mtime};
	if (!s->place || (d && stands(d) && d->c->what & (APPLY_MODE | APPLY_XATTRS)))
		mode = st.st_mode;
	s->new = (struct attrs){.mode = mode, .atime = s->old.atime, .mtime = st.st_mtim};
	if (!s->place)
		s->new.atime = st.st_atim;
	return 0;
}

static int add_dir(struct plan *p, const char *place, const char *path)
{
	struct step *s;
	struct stat st;
	int r;

	s = steps_add(&p->steps, STEP_DIR, place, path);
	if (!s)
		return -ENOMEM;
	if (place) {
		r = below_stat(p->root, place, &st);
		if (r == 0)
			r = load_old(p, s, place);
		if (r < 0)
			return r;
		ident_of(&st, &s->was);
		free(s->old.x);
		s->old.x = NULL;
		s->old.nx = 0;
	}
	return path ? load_new(p, s) : 0;
}

static int add_dirs(struct plan *p)
{
	struct dirs l = {0};
	int r = collect(p, &l);

	if (l.n)
		qsort(l.v, l.n, sizeof(*l.v), by_place);
	for (size_t i = 0; r == 0 && i < l.n; i++)
		if (i == 0 || by_place(&l.v[i - 1], &l.v[i]) != 0)
			r = add_dir(p, l.v[i].place, l.v[i].path);
	dirs_release(&l);
	return r;
}

int plan_steps(struct plan *p, struct diag *diag)
{
	int r = 0;

	for (size_t i = 0; i < p->n; i++) {
		struct decision *d = &p->v[i];

		if (!stands(d))
			continue;
		r = add_one(p, d);
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			return diag_set(diag, r, "%s cannot be looked at: %s", d->c->path,
					err_text(r));
	}
	if (p->steps.n)
		r = add_dirs(p);
	steps_sort(&p->steps);
	return r;
}
