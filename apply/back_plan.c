/* A run the other way round: what it removed comes in, what it made goes out, what it renamed is renamed back. */
#include "apply/back.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apply/below.h"
#include "apply/plan.h"
#include "base/cleanup.h"

struct back {
	const struct trail *of;
	const struct known *known;
	int root;
	bool force;
	struct after **after;          /* of the run, by path */
	const struct step **out, **in; /* of the run, by slot */
	size_t slots;
	struct steps *steps;
	const struct apply_calls *c;
	struct apply_sum *sum;
};

static int by_path(const void *pa, const void *pb)
{
	struct after *const *a = pa, *const *b = pb;

	int c = strcmp((*a)->path, (*b)->path);

	return c ? c : (*a > *b) - (*a < *b); /* later ones behind */
}

/* As the run left it; NULL: it said nothing. */
static const struct ident *left_as(const struct back *b, const char *path)
{
	size_t lo = 0, hi = b->of->nafter;

	/* The last word counts. */
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (strcmp(b->after[mid]->path, path) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && !strcmp(b->after[lo - 1]->path, path) ? &b->after[lo - 1]->id : NULL;
}

static void tell(const struct back *b, enum apply_verdict v, char kind, const char *path,
		 const char *old, const char *reason)
{
	const struct apply_line l = {
		.verdict = v, .kind = kind, .path = path, .old = old, .reason = reason};

	b->sum->done += v == APPLY_DO;
	b->sum->conflicts += v == APPLY_CONFLICT;
	if (b->c->line)
		b->c->line(b->c->arg, &l);
}

/* ---- was it touched? ---- */

struct looking {
	const struct back *b;
	const struct timespec *at;
	char path[4096];
	bool untouched;
};

/* Everything has its last change before the run ended, or a later one of ours has left it so. */
static int look_below(struct looking *l, int dir, const char *name)
{
	size_t len = strlen(l->path);
	struct ident id;
	struct stat st;
	cleanup_fd int fd = -1;
	cleanup_dir DIR *d = NULL;
	int r = 0;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return ret_nerrno();
	ident_of(&st, &id);
	if (ident_before(l->at, &st.st_ctim) && !known_same(known_find(l->b->known, l->path), &id))
		l->untouched = false;
	if (!S_ISDIR(st.st_mode) || !l->untouched)
		return 0;
	fd = below_read(dir, name, &st);
	d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d) { /* nobody can say */
		l->untouched = false;
		return 0;
	}
	(void)steal_fd(&fd);
	for (struct dirent *e; r == 0 && l->untouched && (e = readdir(d));) {
		size_t n = strlen(e->d_name);

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (len + n + 2 > sizeof(l->path))
			return -ENAMETOOLONG;
		l->path[len] = '/';
		memcpy(l->path + len + 1, e->d_name, n + 1);
		r = look_below(l, dirfd(d), e->d_name);
		l->path[len] = '\0';
	}
	return r;
}

static int untouched_below(const struct back *b, int dir, const char *name, const char *path,
			   const struct timespec *at, bool *ret)
{
	struct looking l = {.b = b, .at = at, .untouched = true};
	size_t n = strlen(path);
	int r;

	if (n >= sizeof(l.path))
		return -ENAMETOOLONG;
	memcpy(l.path, path, n + 1);
	r = look_below(&l, dir, name);
	*ret = l.untouched;
	return r;
}

/* What is at @path: 1 it is as the run left it; 0 somebody has touched it; 2 it is taken back already. */
static int look(const struct back *b, const struct step *s, const char *path, struct ident *ret)
{
	const struct known_state *known = known_find(b->known, path);
	const struct ident *left = left_as(b, path);
	struct timespec at = b->of->done_at;
	const char *name;
	cleanup_fd int dir = -1;
	struct stat st;
	bool same;
	int r = below_stat(b->root, path, &st);

	*ret = (struct ident){0};
	if (r == 0)
		ident_of(&st, ret);
	else if (r != -ENOENT && r != -ENOTDIR)
		return 0;
	same = known_same(known, ret);
	if (same && known->back == b->of->id)
		return 2;
	/* Later runs, which are taken back by now, have left it so. */
	if (same && ident_before(&at, &known->at))
		at = known->at;
	if (!same && left)
		same = known_same(&(struct known_state){.id = *left}, ret);
	if (!ret->there)
		return same;
	if (!same || !S_ISDIR(ret->mode) || s->op == STEP_ATTR || s->moved)
		return same;
	dir = below_parent(b->root, path, &name);
	r = dir < 0 ? dir : untouched_below(b, dir, name, path, &at, &same);
	return r < 0 ? r : same;
}

/* ---- steps ---- */

static int add(const struct back *b, enum step_op op, const char *place, const char *path,
	       const struct step *of, const struct ident *is)
{
	struct step *s = steps_add(b->steps, op, place, path);

	if (!s)
		return -ENOMEM;
	s->slot = of->slot;
	s->moved = of->moved;
	s->forced = of->forced;
	s->what = of->what;
	s->was = *is;
	return 0;
}

static int copy_attrs(struct attrs *to, const struct attrs *from)
{
	*to = *from;
	to->x = NULL;
	to->nx = 0;
	if (!from->nx)
		return 0;
	to->x = calloc(from->nx, sizeof(*to->x));
	if (!to->x)
		return -ENOMEM;
	for (size_t i = 0; i < from->nx; i++) {
		to->x[i].name = strdup(from->x[i].name);
		to->x[i].value = malloc(from->x[i].len ? from->x[i].len : 1);
		to->nx = i + 1;
		if (!to->x[i].name || !to->x[i].value)
			return -ENOMEM;
		memcpy(to->x[i].value, from->x[i].value, from->x[i].len);
		to->x[i].len = from->x[i].len;
	}
	return 0;
}

static struct step *last(const struct back *b)
{
	return &b->steps->v[b->steps->n - 1];
}

static const struct step *partner(const struct back *b, const struct step *s, enum step_op op)
{
	if (s->slot >= b->slots)
		return NULL;
	return op == STEP_OUT ? b->out[s->slot] : b->in[s->slot];
}

static const char touched[] = "it was changed on the host since it was applied";

/* What was made, or came by a rename, goes. */
static int back_in(const struct back *b, const struct step *s)
{
	const struct step *out = s->moved ? partner(b, s, STEP_OUT) : NULL;
	struct ident is;
	int r = look(b, s, s->path, &is);

	if (r < 0 || r == 2)
		return r < 0 ? r : 0;
	if (!is.there) {
		tell(b, s->moved ? APPLY_CONFLICT : APPLY_NOTHING, s->moved ? 'R' : 'D', s->path,
		     NULL, "it is gone from the host already");
		return 0;
	}
	if (r == 0 && !b->force) {
		tell(b, APPLY_CONFLICT, s->moved ? 'R' : 'D', s->path, NULL, touched);
		return 0;
	}
	tell(b, APPLY_DO, s->moved ? 'R' : 'D', out ? out->place : s->path, out ? s->path : NULL,
	     "");
	r = add(b, STEP_OUT, s->path, NULL, s, &is);
	if (r < 0 || !s->moved || !out)
		return r;
	return add(b, STEP_IN, NULL, out->place, s, &is);
}

/* What was removed comes again. */
static int back_out(const struct back *b, const struct step *s)
{
	static const struct ident none;
	struct ident is;
	int r;

	if (s->moved)
		return 0;
	r = look(b, s, s->place, &is);
	if (r < 0 || r == 2)
		return r < 0 ? r : 0;
	/* A new one of that name goes first, if there is one and it may. */
	if (is.there && (!left_as(b, s->place) || !left_as(b, s->place)->there)) {
		tell(b, APPLY_CONFLICT, 'A', s->place, NULL,
		     "the host has something of that name by now");
		return 0;
	}
	tell(b, APPLY_DO, 'A', s->place, NULL, "");
	r = add(b, STEP_IN, NULL, s->place, s, &none);
	return r < 0 ? r : copy_attrs(&last(b)->new, &s->old);
}

/* 1: what an apply made of @s is there, or is to be overwritten; 0: there is nothing to do, which is told where it is a conflict. */
static int may_change(const struct back *b, const struct step *s, struct ident *ret)
{
	int r = look(b, s, s->path, ret);

	if (r < 0 || r == 2)
		return r < 0 ? r : 0;
	if (ret->there && (r != 0 || b->force))
		return 1;
	tell(b, APPLY_CONFLICT, 'M', s->path, NULL,
	     ret->there ? touched : "it was removed on the host");
	return 0;
}

static int back_swap(const struct back *b, const struct step *s)
{
	struct ident is;
	int r = may_change(b, s, &is);

	if (r <= 0)
		return r;
	tell(b, APPLY_DO, 'M', s->place, NULL, "");
	r = add(b, STEP_SWAP, s->path, s->place, s, &is);
	return r < 0 ? r : copy_attrs(&last(b)->new, &s->old);
}

static int back_attr(const struct back *b, const struct step *s)
{
	struct ident is;
	int r = may_change(b, s, &is);

	if (r <= 0)
		return r;
	if (!partner(b, s, STEP_IN))
		tell(b, APPLY_DO, 'M', s->place, NULL, "");
	r = add(b, STEP_ATTR, s->path, s->place, s, &is);
	if (r == 0)
		r = copy_attrs(&last(b)->new, &s->old);
	return r < 0 ? r : copy_attrs(&last(b)->old, &s->new);
}

static int back_dir(const struct back *b, const struct step *s)
{
	struct ident is = {0};
	struct stat st;
	int r;

	if (s->path && below_stat(b->root, s->path, &st) == 0)
		ident_of(&st, &is);
	r = add(b, STEP_DIR, is.there ? s->path : NULL, s->place, s, &is);
	if (r == 0 && s->place)
		r = copy_attrs(&last(b)->new, &s->old);
	if (r == 0 && is.there) {
		last(b)->old.mode = st.st_mode;
		last(b)->old.atime = st.st_atim;
		last(b)->old.mtime = st.st_mtim;
	}
	return r;
}

static int back_step(const struct back *b, const struct step *s)
{
	switch (s->op) {
	case STEP_IN:
		return back_in(b, s);
	case STEP_OUT:
		return back_out(b, s);
	case STEP_SWAP:
		return back_swap(b, s);
	case STEP_ATTR:
		return back_attr(b, s);
	case STEP_DIR:
	default:
		return 0;
	}
}

static int index_run(struct back *b)
{
	const struct trail *of = b->of;

	for (size_t i = 0; i < of->steps.n; i++)
		if (of->steps.v[i].slot >= b->slots)
			b->slots = (size_t)of->steps.v[i].slot + 1;
	b->after = calloc(of->nafter + 1, sizeof(struct after *));
	b->out = calloc(b->slots + 1, sizeof(struct step *));
	b->in = calloc(b->slots + 1, sizeof(struct step *));
	if (!b->after || !b->out || !b->in)
		return -ENOMEM;
	for (size_t i = 0; i < of->nafter; i++)
		b->after[i] = &of->after[i];
	if (of->nafter)
		qsort((void *)b->after, of->nafter, sizeof(struct after *), by_path);
	for (size_t i = 0; i < of->steps.n; i++) {
		const struct step *s = &of->steps.v[i];

		if (s->op == STEP_OUT)
			b->out[s->slot] = s;
		else if (s->op == STEP_IN)
			b->in[s->slot] = s;
	}
	return 0;
}

int back_plan(const struct trail *of, int root, int base, bool force, const struct apply_calls *c,
	      struct steps *ret, struct apply_sum *sum)
{
	struct known *known = NULL;
	struct back b = {.of = of, .root = root, .force = force, .steps = ret, .c = c, .sum = sum};
	int r = known_load(base, of->env, of->root, &known);

	b.known = known;
	if (r == 0)
		r = index_run(&b);
	for (size_t i = 0; r == 0 && i < of->steps.n; i++)
		r = back_step(&b, &of->steps.v[i]);
	for (size_t i = 0; r == 0 && ret->n && i < of->steps.n; i++)
		if (of->steps.v[i].op == STEP_DIR)
			r = back_dir(&b, &of->steps.v[i]);
	steps_sort(ret);
	known_free(known);
	free((void *)b.after);
	free((void *)b.out);
	free((void *)b.in);
	return r;
}
