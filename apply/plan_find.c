/* Changes by place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apply/plan.h"
#include "base/cleanup.h"

static const char *new_place(const struct decision *d)
{
	return d->c->kind == 'D' ? NULL : d->c->path;
}

static const char *old_place(const struct decision *d)
{
	switch (d->c->kind) {
	case 'D':
	case 'T':
		return d->c->path;
	case 'R':
		return d->c->old;
	default:
		return NULL;
	}
}

static int by_new(const void *pa, const void *pb)
{
	struct decision *const *a = pa, *const *b = pb;

	return strcmp(new_place(*a), new_place(*b));
}

static int by_old(const void *pa, const void *pb)
{
	struct decision *const *a = pa, *const *b = pb;

	return strcmp(old_place(*a), old_place(*b));
}

int plan_index(struct plan *p)
{
	p->news = calloc(p->n + 1, sizeof(struct decision *));
	p->olds = calloc(p->n + 1, sizeof(struct decision *));
	if (!p->news || !p->olds)
		return -ENOMEM;
	for (size_t i = 0; i < p->n; i++) {
		if (new_place(&p->v[i]))
			p->news[p->nnews++] = &p->v[i];
		if (old_place(&p->v[i]))
			p->olds[p->nolds++] = &p->v[i];
	}
	if (p->nnews)
		qsort((void *)p->news, p->nnews, sizeof(struct decision *), by_new);
	if (p->nolds)
		qsort((void *)p->olds, p->nolds, sizeof(struct decision *), by_old);
	return 0;
}

static struct decision *find(struct decision **v, size_t n,
			     const char *(*place)(const struct decision *d), const char *path)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(place(v[mid]), path);

		if (c == 0)
			return v[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

struct decision *plan_new(const struct plan *p, const char *path)
{
	return find(p->news, p->nnews, new_place, path);
}

struct decision *plan_old(const struct plan *p, const char *path)
{
	return find(p->olds, p->nolds, old_place, path);
}

char *plan_parent(const char *path)
{
	const char *slash = strrchr(path, '/');

	return *path ? strndup(path, slash ? (size_t)(slash - path) : 0) : NULL;
}

int plan_place(const struct plan *p, const char *path, char **ret, struct decision **ret_in)
{
	cleanup_free char *above = strdup(path);

	*ret = NULL;
	*ret_in = NULL;
	if (!above)
		return -ENOMEM;
	for (char *slash; (slash = strrchr(above, '/'));) {
		struct decision *d;

		*slash = '\0';
		d = plan_new(p, above);
		if (!d || d->c->kind == 'M')
			continue;
		if (d->c->kind != 'R' || d->copied) {
			*ret_in = d;
			return 0;
		}
		if (asprintf(ret, "%s%s", d->c->old, path + strlen(above)) < 0) {
			*ret = NULL;
			return -ENOMEM;
		}
		*ret_in = d;
		return 0;
	}
	*ret = strdup(path);
	return *ret ? 0 : -ENOMEM;
}
