#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_internal.h"

/* Past this many, chunks are charged to no layer: the account is for people, not for safety. */
#define FRESH_MAX ((size_t)1 << 20)

struct fresh {
	struct digest d;
	uint32_t len;
	const void *by; /* who charges a layer for it just now */
};

static int by_digest(const void *a, const void *b)
{
	return memcmp(a, b, DIGEST_LEN);
}

void store_fresh_add(struct store *s, const struct digest *d, uint32_t len)
{
	struct fresh *f = malloc(sizeof(*f)), **at;

	if (!f)
		return;
	*f = (struct fresh){*d, len, NULL};
	(void)pthread_mutex_lock(&s->lock);
	at = s->n_fresh < FRESH_MAX ? tsearch(f, &s->fresh, by_digest) : NULL;
	if (at && *at == f) {
		s->n_fresh++;
		f = NULL;
	}
	(void)pthread_mutex_unlock(&s->lock);
	free(f);
}

uint32_t store_fresh_take(struct store *s, const struct digest *d, const void *by)
{
	struct fresh **at;
	uint32_t len = 0;

	(void)pthread_mutex_lock(&s->lock);
	at = tfind(d, &s->fresh, by_digest);
	if (at && !(*at)->by) {
		(*at)->by = by;
		len = (*at)->len;
	}
	(void)pthread_mutex_unlock(&s->lock);
	return len;
}

void store_fresh_charged(struct store *s, const struct digest *d, const void *by, bool done)
{
	struct fresh *f = NULL, **at;

	(void)pthread_mutex_lock(&s->lock);
	at = tfind(d, &s->fresh, by_digest);
	if (at && (*at)->by == by) {
		(*at)->by = NULL;
		f = *at;
	}
	if (f && done) {
		(void)tdelete(d, &s->fresh, by_digest);
		s->n_fresh--;
	}
	(void)pthread_mutex_unlock(&s->lock);
	if (done)
		free(f);
}

void store_fresh_free(struct store *s)
{
	tdestroy(s->fresh, free);
	s->fresh = NULL;
}
