/*
 * profile/resolving.h - one profile while it is resolved: places whose names lead elsewhere, and what is protected
 * in writable ones. For resolve.c and protect.c.
 */
#pragma once

#include "profile/resolve.h"

struct pin {
	char *path;
	char *why;
	bool grant; /* on the way to something opened, rather than closed */
};

struct resolving {
	const struct doc *doc;
	const struct profile_local *local;
	struct diag *diag;
	struct profile *p;
	const char *cwd; /* NULL: none */
	bool denies;     /* the document does */
	struct pin *pins;
	size_t npins;
	/* of what is resolved now */
	const char *path;
	bool grant;
};

void resolving_release(struct resolving *r);

/* A rule on where @path leads, and on @path itself. */
int resolving_add(struct resolving *r, enum policy_access access, const char *path,
		  const char *why) MUST_USE;
/* The protected names of every writable place, and what they lead to (R16 to R20). */
int resolving_protect(struct resolving *r) MUST_USE;
/* After all else: who could replace a link on the way to a place could move the rule away from it (R26). */
int resolving_pin(struct resolving *r) MUST_USE;
