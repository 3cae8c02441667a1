/* See proof.h. */
#include "store/proof.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <xxhash.h>

#define SECRET 192 /* XXH3 takes 136 or more */

struct proofs {
	pthread_mutex_t lock;                       /* a leaf; the slots, and what they point at */
	struct proof *slot[PROOF_SETS][PROOF_WAYS]; /* newest first; NULL: none */
	uint8_t secret[SECRET];                     /* never changes */
};

int proofs_new(struct proofs **ret)
{
	struct proofs *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	r = getrandom(p->secret, SECRET, 0) == SECRET ? -pthread_mutex_init(&p->lock, NULL) : -EIO;
	if (r < 0) {
		free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void proofs_free(struct proofs *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < PROOF_SETS; i++)
		for (size_t j = 0; j < PROOF_WAYS; j++)
			free(p->slot[i][j]);
	(void)pthread_mutex_destroy(&p->lock);
	free(p);
}

/* A digest is as random as a hash gets. */
static struct proof **set_of(struct proofs *p, const struct digest *d)
{
	uint32_t h;

	memcpy(&h, d->b + 8, sizeof(h));
	return p->slot[h % PROOF_SETS];
}

/* Under the lock: the place of @d in its set, PROOF_WAYS none. */
static size_t way_of(struct proof *const set[static PROOF_WAYS], const struct digest *d)
{
	size_t i = 0;

	while (i < PROOF_WAYS && set[i] && memcmp(set[i]->of.b, d->b, DIGEST_LEN) != 0)
		i++;
	return i < PROOF_WAYS && !set[i] ? PROOF_WAYS : i;
}

/* Under the lock. */
static void to_front(struct proof *set[static PROOF_WAYS], size_t way, struct proof *x)
{
	memmove(set + 1, set, way * sizeof(*set));
	set[0] = x;
}

static uint64_t page_sum(const struct proofs *p, const void *data, size_t n)
{
	return XXH3_64bits_withSecret(data, n, p->secret, SECRET);
}

void proofs_note(struct proofs *p, const struct digest *d, const void *data, size_t len)
{
	struct proof *x =
		len < PROOF_MIN || len > PROOF_PAGES * PROOF_PAGE ? NULL : malloc(sizeof(*x));
	struct proof **set = set_of(p, d);
	size_t way;

	if (!x)
		return;
	*x = (struct proof){.of = *d, .len = (uint32_t)len};
	for (size_t i = 0, at = 0; at < len; i++, at += PROOF_PAGE)
		x->page[i] = page_sum(p, (const uint8_t *)data + at,
				      len - at < PROOF_PAGE ? len - at : PROOF_PAGE);
	(void)pthread_mutex_lock(&p->lock);
	way = way_of(set, d);
	if (way == PROOF_WAYS)
		way--;
	free(set[way]);
	to_front(set, way, x);
	(void)pthread_mutex_unlock(&p->lock);
}

bool proofs_find(struct proofs *p, const struct digest *d, struct proof *ret)
{
	struct proof **set = set_of(p, d);
	size_t way;

	(void)pthread_mutex_lock(&p->lock);
	way = way_of(set, d);
	if (way < PROOF_WAYS) {
		*ret = *set[way];
		to_front(set, way, set[way]);
	}
	(void)pthread_mutex_unlock(&p->lock);
	return way < PROOF_WAYS;
}

bool proof_fits(const struct proofs *p, const struct proof *x, size_t first, const void *data,
		size_t n)
{
	size_t off = first * PROOF_PAGE;

	if (off > x->len || n > x->len - off || (n % PROOF_PAGE && off + n != x->len))
		return false;
	for (size_t at = 0; at < n; first++, at += PROOF_PAGE)
		if (page_sum(p, (const uint8_t *)data + at,
			     n - at < PROOF_PAGE ? n - at : PROOF_PAGE) != x->page[first])
			return false;
	return true;
}
