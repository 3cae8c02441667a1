/*
 * policy/policy.h - the compiled rules: what may be done with a place.
 *
 * Every place has a state, a small number that follows from the state of its directory and its own name: a verdict
 * costs what reading the name costs, never looks at a whole path, and does not depend on whether the place exists
 * (F4). The same place has the same state for the life of the policy.
 *
 * Which rule decides: the one whose path has the most components of those that name the place or a directory above
 * it; of equally long ones deny before write before read. A place that matches a pattern is denied, and what lies
 * below with it, whatever names it; only a write rule for something strictly below opens that again. A protected
 * name at the top of a place that a rule makes writable can only be read, unless a write rule names it or something
 * below. Where no rule says anything: policy_rules.otherwise.
 *
 * Threads: all calls on one policy may run at once. States are made when they are first needed, at most
 * POLICY_STATES_MAX; beyond that places are denied.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "policy/rules.h"

#define POLICY_STATES_MAX 65536

struct policy;

/* -EINVAL and -E2BIG with a sentence for rules that cannot be; @rules is copied. NULL: everything is writable. */
int policy_new(const struct policy_rules *rules, struct diag *diag, struct policy **ret) MUST_USE;
void policy_free(struct policy *p);
/* Everything may be done everywhere: callers may skip the work. */
bool policy_trivial(const struct policy *p);

int policy_root(const struct policy *p);
int policy_child(struct policy *p, int state, const char *name, size_t len);

enum policy_what {
	POLICY_MAY_PASS = 1 << 0, /* look it up, and go through it */
	POLICY_MAY_READ = 1 << 1,
	POLICY_MAY_LIST = 1 << 2, /* names of a directory, of those that policy_shows */
	POLICY_MAY_MKDIR = 1 << 3,
	POLICY_MAY_PUT =
		1
		<< 4, /* make anything here, also what is no directory: no rule below would be led astray */
	POLICY_MAY_WRITE = 1 << 5, /* change content and attributes, remove */
};
unsigned policy_may(const struct policy *p, int state);
/* A refusal is to look as if there were no such name. */
bool policy_hides(const struct policy *p, int state);
/* Is a name with state @child listed in a directory with state @dir? */
bool policy_shows(const struct policy *p, int dir, int child);
/* The place @name below @state is named by a rule or lies on the way to one: it stays, and is not moved. */
bool policy_pinned(const struct policy *p, int state, const char *name, size_t len);
/* Directories with states @a and @b have equal verdicts for everything below. May say no when they have. */
bool policy_same_below(const struct policy *p, int a, int b);

/* Files with several places. The state with what both allow; no directory has it. */
int policy_meet(const struct policy *p, int a, int b);
/* A file at @state has more places that nobody can see: the state with what all they could be allow. */
int policy_unseen(const struct policy *p, int state);
/* A place without rules below. */
int policy_leaf(enum policy_access access);

/* Are there places below writable ones that cannot be written? A fence that knows only what is writable cannot say
 * so. */
bool policy_carves(const struct policy *p);
/* Every place that a rule makes writable; nonzero from @fn stops. */
int policy_writable(const struct policy *p, int (*fn)(void *arg, const char *path), void *arg);

enum policy_by {
	POLICY_BY_NONE,  /* no rule says anything */
	POLICY_BY_RULE,  /* @rule */
	POLICY_BY_GLOB,  /* @rule */
	POLICY_BY_NAME,  /* a protected name */
	POLICY_BY_LIMIT, /* the patterns or the tree are beyond the bounds */
};
struct policy_why {
	enum policy_access access;
	enum policy_by by;
	size_t rule; /* its place in the list */
};
/* What decides about @path, which is absolute and without "..": -EINVAL. */
int policy_explain(struct policy *p, const char *path, struct policy_why *ret) MUST_USE;
/* The same in words, appended: "deny /w/vault (secrets of the build)". */
int policy_why_text(const struct policy *p, const struct policy_why *why, struct buf *out) MUST_USE;
const struct policy_rules *policy_rules_of(const struct policy *p);
