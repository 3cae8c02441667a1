/* A directory of a layer's own where a host directory is at the other side. */
#include <stdlib.h>
#include <string.h>

#include "fs/core/diff_internal.h"

bool diff_is_host_dir(const struct cand *c)
{
	return c->o.at == OBJ_HOST && S_ISDIR(c->o.mode);
}

struct anew {
	struct diff *d;
	enum side side;     /* the host's */
	const char **known; /* sorted: paths of its candidates that others have found */
	size_t nknown;
	struct cand **made; /* sorted: directories of the other side */
	size_t nmade;
	/* of the directory that is listed */
	struct host_key key;
	const char *path;
};

static int path_cmp(const void *pa, const void *pb)
{
	const char *const *a = pa, *const *b = pb;

	return strcmp(*a, *b);
}

static int made_cmp(const void *pa, const void *pb)
{
	const struct cand *const *a = pa, *const *b = pb;

	return strcmp((*a)->path, (*b)->path);
}

static struct cand *made_at(const struct anew *x, const char *path)
{
	struct cand probe = {.path = path}, *p = &probe, **found;

	found = x->nmade ? bsearch(&p, x->made, x->nmade, sizeof p, made_cmp) : NULL;
	return found ? *found : NULL;
}

static int see_name(void *arg, const char *name, uint64_t ino, unsigned type)
{
	struct anew *x = arg;
	const char *path = arena_join(&x->d->arena, x->path, name, strlen(name));
	struct obj o;
	int r;

	(void)ino;
	(void)type;
	if (!path)
		return -ENOMEM;
	/* Moved elsewhere, or listed because it was written to before its directory went. */
	if (x->nknown && bsearch(&path, x->known, x->nknown, sizeof path, path_cmp))
		return 0;
	r = diff_host_object(x->d, &x->key, name, strlen(name), &o);
	return r < 0 || o.at == OBJ_NONE ? r : diff_add_cand(x->d, x->side, &o, NULL, path);
}

/* The names of the host directory that candidate @i is; it moves when the array grows. 0 when they cannot be listed. */
static int list_names(struct anew *x, size_t i)
{
	struct cand *c = &x->d->cands[x->side][i];
	size_t before = x->d->ncands[x->side];
	struct hostsrc *h;
	int r = diff_source(x->d, &c->o.key, &h);

	if (r < 0 || !h)
		return r;
	x->key = c->o.key;
	x->path = c->path;
	r = hostsrc_list(h, x->key.rel, see_name, x);
	if (r == 0)
		return 1;
	x->d->ncands[x->side] = before;
	return r == -ENOMEM ? r : 0;
}

static int look_at(struct anew *x, size_t i)
{
	struct cand *c = &x->d->cands[x->side][i], *made;
	int r;

	made = c->used || !diff_is_host_dir(c) ? NULL : made_at(x, c->path);
	if (!made)
		return 0;
	r = list_names(x, i);
	if (r <= 0)
		return r;
	c = &x->d->cands[x->side][i];
	c->used = made->used = true;
	return x->side == FROM ? diff_compared(x->d, &c->o, &made->o, made->path, NULL)
			       : diff_compared(x->d, &made->o, &c->o, c->path, NULL);
}

/* What stays as it is while candidates of @x->side are added. */
static int prepare(struct anew *x)
{
	struct diff *d = x->d;
	enum side other = x->side == FROM ? TO : FROM;

	x->known = calloc(d->ncands[x->side] + 1, sizeof(*x->known));
	x->made = calloc(d->ncands[other] + 1, sizeof(*x->made));
	if (!x->known || !x->made)
		return -ENOMEM;
	for (; x->nknown < d->ncands[x->side]; x->nknown++)
		x->known[x->nknown] = d->cands[x->side][x->nknown].path;
	for (size_t i = 0; i < d->ncands[other]; i++) {
		struct cand *c = &d->cands[other][i];

		/* One that shows a host directory has names that are not listed either. */
		if (!c->used && c->o.at == OBJ_STORE && S_ISDIR(c->o.mode) && !c->o.key.root)
			x->made[x->nmade++] = c;
	}
	qsort(x->known, x->nknown, sizeof(*x->known), path_cmp);
	qsort(x->made, x->nmade, sizeof(*x->made), made_cmp);
	return 0;
}

static int side_made_anew(struct diff *d, enum side side)
{
	struct anew x = {.d = d, .side = side};
	int r = prepare(&x);

	for (size_t i = 0; r == 0 && x.nmade && i < d->ncands[side]; i++) /* grows on the way */
		r = look_at(&x, i);
	free(x.known);
	free(x.made);
	return r;
}

int diff_made_anew(struct diff *d)
{
	int r = side_made_anew(d, FROM);

	return r < 0 ? r : side_made_anew(d, TO);
}
