/*
 * policy/denials.h - what the policy refused, so that it can be told why something failed.
 *
 * One entry for a place and an operation, at its last time; the oldest go when there are DENIALS_MAX. Costs nothing
 * while nothing is refused. Threads: a leaf lock of its own.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "policy/policy.h"

#define DENIALS_MAX 256

struct denial {
	uint64_t seq; /* of its last time, from 1 */
	uint64_t hash;
	uint64_t count;
	const char *op;
	char *path, *why;
};
struct denials {
	pthread_mutex_t lock;
	struct denial v[DENIALS_MAX];
	size_t n;
	uint64_t seq;
};

void denials_init(struct denials *d);
void denials_release(struct denials *d);
/* @path: absolute. @op and @other live for ever; @other is the reason where the rule about the place allows @need. */
struct denial_of {
	const char *path, *op, *other;
	enum policy_access need;
};
/* Without memory it is counted alone. */
void denials_note(struct denials *d, struct policy *p, const struct denial_of *of);
uint64_t denials_seq(struct denials *d);
/* Those whose last time is after @since, the latest first; @fn is called with the lock held: it only collects. */
int denials_each(struct denials *d, uint64_t since, int (*fn)(void *arg, const struct denial *x),
		 void *arg, uint64_t *ret_seq) MUST_USE;
