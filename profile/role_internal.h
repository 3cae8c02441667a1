/* profile/role_internal.h - a role as it is written; for role.c and role_plan.c. */
#pragma once

#include "profile/role.h"

struct role_param {
	char *name;
	char **words; /* one of these; NULL: an absolute path */
	bool optional;
};

struct role_pair {
	char *name, *value;
};

struct role_bind {
	enum role_kind kind;
	char *source, *dest, *why; /* with {parameters} */
	char *outside;             /* nothing when the source lies below this, or NULL */
	struct role_pair when;     /* parameter and the value it must have; or NULL */
	bool real;      /* the source's links are followed, and it appears at its own name */
	bool copy_link; /* a link of the host becomes the same link */
	bool may_miss;
};

struct role {
	struct role_param *params;
	size_t nparams;
	struct role_bind *binds;
	size_t nbinds;
	struct role_pair *env;
	size_t nenv;
	char **make;
	size_t nmake;
	char *cwd;
};
