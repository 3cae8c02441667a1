/*
 * apply/known.h - what runs of an environment have left on the host, the latest of each place: a change may be based on that, too.
 *
 * Immutable once loaded.
 */
#pragma once

#include "apply/trail.h"

struct known;
int known_load(int base_fd, const char *env, const char *root, struct known **ret) MUST_USE;
void known_free(struct known *k);
struct known_state {
	struct ident id;
	struct timespec at; /* until then what lies below was not touched by others */
	uint64_t back;      /* the run that took that one back; 0: one that applied */
};
/* NULL: nothing is known. */
const struct known_state *known_find(const struct known *k, const char *path);
/* Is what is there, @is, what a run has left? Of a directory itself, not of what is in it. */
bool known_same(const struct known_state *k, const struct ident *is);
/*
 * Is it a run that has left @path without anything there? Either it has taken it away, or @dir, which is there at the place above now, is
 * one that it has brought with all that is in it, and not with that name. What was seen at @path at @seen, before that run,
 * stood in another directory then: nobody has removed it from this one.
 */
bool known_absent(const struct known *k, const char *path, const struct ident *dir,
		  const struct timespec *seen);
/* Each at or below @dir, without that one itself; nonzero from @fn stops. */
int known_below(const struct known *k, const char *dir,
		int (*fn)(void *arg, const char *path, const struct known_state *s), void *arg);
