/*
 * fs/core/policy.h - which places of a tree may be changed.
 *
 * The rules are compiled once. Every place has a state, a small number that follows from the state of
 * its parent and its own name: a verdict costs one table probe and never looks at a whole path, and it
 * does not depend on whether the place exists (F4). Immutable after policy_new: no locks.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct policy;

enum policy_what {
	POLICY_WRITE = 1 << 0, /* create, remove, rename, link, change content or attributes */
};

#define POLICY_NONE 0 /* nothing here or below may be changed */
#define POLICY_ALL  1 /* everything here and below may be */

/* @writable: absolute paths, NULL-terminated; NULL: everywhere. -EINVAL for a relative path or "..". */
int policy_new(const char *const *writable, struct policy **ret) MUST_USE;
void policy_free(struct policy *p);
/* Every place has the same verdict: callers may skip the work. */
bool policy_trivial(const struct policy *p);
int policy_root(const struct policy *p);
int policy_child(const struct policy *p, int state, const char *name, size_t len);
bool policy_may(const struct policy *p, int state, unsigned what);
/* The place @name below @state is the top of a writable place: it may be filled, not removed. */
bool policy_pinned(const struct policy *p, int state, const char *name, size_t len);
/* The verdict on an inode with two places: what both allow. */
int policy_meet(const struct policy *p, int a, int b);
