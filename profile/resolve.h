/*
 * profile/resolve.h - from what is written to rules on places: specials, links, protected names. Looks at the
 * host's links; changes nothing. For the files of this folder.
 */
#pragma once

#include "profile/doc.h"
#include "profile/profile.h"

/* A managed profile: paths are the host's. Takes nothing of @d. */
int resolve_managed(const struct doc *d, const struct profile_local *l, struct diag *diag,
		    struct profile *p) MUST_USE;
/* The agent's: paths are those of the tree, and what they lead to there is not looked at. */
int resolve_agent(const struct doc *d, const struct profile_local *l, struct diag *diag,
		  struct profile *p) MUST_USE;

/* rules.c: nothing when the same is there already. */
int rules_add(struct profile *p, struct diag *diag, enum policy_access access, const char *text,
	      const char *reason, ...) PRINTF(5, 6) MUST_USE;
/* What the rules on paths say of a place, patterns and protected names apart. */
enum policy_access rules_verdict(const struct policy_rules *r, const char *path);
int rules_note(struct profile *p, const char *fmt, ...) PRINTF(2, 3) MUST_USE;
