#include "policy/denials.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"

void denials_init(struct denials *d)
{
	(void)pthread_mutex_init(&d->lock, NULL);
}

static void drop(struct denial *x)
{
	free(x->path);
	free(x->why);
	*x = (struct denial){0};
}

void denials_release(struct denials *d)
{
	for (size_t i = 0; i < d->n; i++)
		drop(&d->v[i]);
	(void)pthread_mutex_destroy(&d->lock);
}

static struct denial *find(struct denials *d, uint64_t hash, const char *path, const char *op)
{
	for (size_t i = 0; i < d->n; i++) {
		struct denial *x = &d->v[i];

		if (x->hash == hash && x->op == op && !strcmp(x->path, path))
			return x;
	}
	return NULL;
}

/* A free entry, or that of the oldest. */
static struct denial *room(struct denials *d)
{
	struct denial *old = &d->v[0];

	if (d->n < DENIALS_MAX)
		return &d->v[d->n++];
	for (size_t i = 1; i < d->n; i++)
		if (d->v[i].seq < old->seq)
			old = &d->v[i];
	drop(old);
	return old;
}

/* The rule that decides about the place, or @other when that one allows what was asked for. */
static char *why_text(struct policy *p, const char *path, enum policy_access need,
		      const char *other)
{
	cleanup_buf struct buf b = {0};
	struct policy_why why;
	char *text;
	size_t len;
	int r = policy_explain(p, path, &why);

	if (r == 0)
		r = why.access >= need ? buf_puts(&b, other) : policy_why_text(p, &why, &b);
	return r == 0 && buf_steal(&b, &text, &len) == 0 ? text : NULL;
}

/* Counts one more of what is there. */
static bool again(struct denials *d, uint64_t hash, const char *path, const char *op)
{
	struct denial *x = find(d, hash, path, op);

	if (!x)
		return false;
	x->count++;
	x->seq = d->seq;
	return true;
}

/* FNV-1a: only to tell most of them apart without comparing. */
static uint64_t hash_of(const char *op, const char *path)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ (uintptr_t)op;

	for (; *path; path++)
		h = (h ^ (uint8_t)*path) * UINT64_C(0x100000001b3);
	return h;
}

void denials_note(struct denials *d, struct policy *p, const struct denial_of *of)
{
	uint64_t hash = hash_of(of->op, of->path);
	char *path, *why;
	bool known;

	(void)pthread_mutex_lock(&d->lock);
	d->seq++;
	known = again(d, hash, of->path, of->op);
	(void)pthread_mutex_unlock(&d->lock);
	if (known)
		return;
	path = strdup(of->path);
	why = why_text(p, of->path, of->need, of->other);
	(void)pthread_mutex_lock(&d->lock);
	if (path && why && !again(d, hash, path, of->op)) {
		*room(d) = (struct denial){.seq = d->seq,
					   .hash = hash,
					   .count = 1,
					   .op = of->op,
					   .path = path,
					   .why = why};
		path = why = NULL;
	}
	(void)pthread_mutex_unlock(&d->lock);
	free(path);
	free(why);
}

uint64_t denials_seq(struct denials *d)
{
	uint64_t seq;

	(void)pthread_mutex_lock(&d->lock);
	seq = d->seq;
	(void)pthread_mutex_unlock(&d->lock);
	return seq;
}

static int later(const void *a, const void *b)
{
	const struct denial *const *x = a, *const *y = b;

	return (*x)->seq < (*y)->seq ? 1 : (*x)->seq > (*y)->seq ? -1 : 0;
}

int denials_each(struct denials *d, uint64_t since, int (*fn)(void *arg, const struct denial *x),
		 void *arg, uint64_t *ret_seq)
{
	const struct denial *order[DENIALS_MAX];
	size_t n = 0;
	int r = 0;

	(void)pthread_mutex_lock(&d->lock);
	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].seq > since)
			order[n++] = &d->v[i];
	qsort(order, n, sizeof(order[0]), later);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = fn(arg, order[i]);
	*ret_seq = d->seq;
	(void)pthread_mutex_unlock(&d->lock);
	return r;
}
