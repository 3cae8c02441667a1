/*
 * profile/role.h - the third family: no tree of an environment, but an empty root with exactly the listed binds of
 * the host's own files, in the order in which they are mounted, each with its reason.
 *
 * A role names its sources with parameters, "{run}/home"; role_bind puts values in their place. Nothing is opened
 * here: who mounts opens each source without following links (K13).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "profile/field.h"

enum role_kind {
	ROLE_RO,
	ROLE_RW,
	ROLE_DEV,
	ROLE_PROC,
	ROLE_LINK,
};

struct role_mount {
	enum role_kind kind;
	char *source; /* ROLE_LINK: what the link says; NULL: none */
	char *dest;
	char *why;
};

struct role_value {
	const char *name, *value;
};

struct role;

int role_parse(const struct field *f, struct role **ret) MUST_USE;
void role_free(struct role *r);
int role_explain(const struct role *r, struct buf *ret) MUST_USE;

/* What a role comes to, with values for its parameters. */
struct role_plan {
	struct role_mount *mounts; /* in mount order */
	size_t n;
	char **make; /* directories that are made, 0700, before anything is mounted; NULL-terminated */
	char **env; /* NAME=value, NULL-terminated */
	char *cwd;
};
/* -EINVAL: a parameter is missing, unknown, or no clean absolute path. */
int role_plan(const struct role *r, const struct role_value *values, size_t n, struct diag *diag,
	      struct role_plan *ret) MUST_USE;
void role_plan_release(struct role_plan *p);
