#include "apply/step.h"

#include <stdlib.h>
#include <string.h>

void step_release(struct step *s)
{
	free(s->path);
	free(s->place);
	attrs_release(&s->old);
	attrs_release(&s->new);
}

void steps_release(struct steps *l)
{
	for (size_t i = 0; i < l->n; i++)
		step_release(&l->v[i]);
	free(l->v);
	*l = (struct steps){0};
}

struct step *steps_add(struct steps *l, enum step_op op, const char *place, const char *path)
{
	struct step *s;

	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 32;

		s = realloc(l->v, cap * sizeof(*s));
		if (!s)
			return NULL;
		l->v = s;
		l->cap = cap;
	}
	s = &l->v[l->n];
	*s = (struct step){.op = op,
			   .path = path ? strdup(path) : NULL,
			   .place = place ? strdup(place) : NULL};
	if ((path && !s->path) || (place && !s->place)) {
		step_release(s);
		return NULL;
	}
	l->n++;
	return s;
}

static int phase(const struct step *s)
{
	return s->op == STEP_SWAP ? STEP_IN : (int)s->op;
}

static int by_order(const void *pa, const void *pb)
{
	const struct step *a = pa, *b = pb;

	if (phase(a) != phase(b))
		return phase(a) - phase(b);
	if (a->op == STEP_OUT)
		return strcmp(b->place, a->place);
	/* A directory that is closed comes behind what is in it. */
	if (a->op == STEP_ATTR)
		return strcmp(b->path, a->path);
	return strcmp(a->path ? a->path : "", b->path ? b->path : "");
}

void steps_sort(struct steps *l)
{
	if (l->n)
		qsort(l->v, l->n, sizeof(*l->v), by_order);
}
