/*
 * policy/glob.h - all patterns of a policy as one automaton over the bytes of names.
 *
 * Grammar, over bytes, case-sensitive: '*' any bytes of one component, also none and also a leading dot; '?' one
 * byte; "**" as a whole component any number of components, at the end at least one; [a-z] one of these, [!a-z]
 * none of these, '[' that is not closed itself; {a,b} each alternative, also with slashes; '\' the next byte
 * itself; a slash at the end nothing.
 *
 * Threads: immutable after glob_seal but for states and transitions, which are made when they are first needed
 * and then stay; glob_step may run in any number of threads.
 * Bounds: -E2BIG for patterns that need more than GLOB_POSITIONS_MAX positions or GLOB_ALTERNATIVES_MAX
 * alternatives. A tree in which they come to more than GLOB_STATES_MAX states is closed where that happens.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define GLOB_POSITIONS_MAX    4096
#define GLOB_ALTERNATIVES_MAX 512
#define GLOB_STATES_MAX       4096

#define GLOB_DEAD 0 /* nothing below can match */
#define GLOB_FULL 1 /* beyond the bounds: as if everything matched */

#define GLOB_NO_HIT   (-1)
#define GLOB_FULL_HIT (-2)

struct glob_set;

int glob_new(struct glob_set **ret) MUST_USE;
void glob_free(struct glob_set *g);
/* -EINVAL with a sentence for a pattern that is malformed, or names the root. @rule: what glob_hit says. */
int glob_add(struct glob_set *g, const char *pattern, int rule, struct diag *diag) MUST_USE;
int glob_seal(struct glob_set *g) MUST_USE;
/* The state of the root. */
int glob_start(const struct glob_set *g);
/* The state of the place @name in one with @state. */
int glob_step(struct glob_set *g, int state, const char *name, size_t len);
/* The rule that the place with @state matches, the first of several; GLOB_NO_HIT, GLOB_FULL_HIT. */
int glob_hit(const struct glob_set *g, int state);
/* Can anything below match? */
bool glob_live(const struct glob_set *g, int state);

/* Does it hold a byte that means more than itself in some place? */
bool glob_special(const char *pattern);
/* When it matches one text alone: that, to be freed. NULL: it does not, or no memory. */
char *glob_literal(const char *pattern);
