/*
 * policy/rules.h - what a mount lets its users do, as a plain list: before it is compiled (policy.h), on the wire
 * and in records.
 *
 * Order of rules has no meaning (policy.h says which one decides). A zeroed struct policy_rules is an empty list:
 * nothing is allowed anywhere.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define POLICY_RULES_MAX 4096
#define POLICY_TEXT_MAX  4095         /* bytes of one path or pattern */
#define POLICY_BYTES_MAX (512u << 10) /* of all texts and reasons */
#define POLICY_NAMES_MAX 32

/* In order of what they allow. */
enum policy_access {
	POLICY_NONE, /* no rule says anything: as denied, and not shown */
	POLICY_DENY,
	POLICY_READ,
	POLICY_WRITE, /* and read */
};
enum policy_kind {
	POLICY_PATH, /* the place and everything below */
	POLICY_GLOB, /* POLICY_DENY alone: every place that matches, and everything below (policy/glob.h) */
};

struct policy_rule {
	enum policy_access access; /* not POLICY_NONE */
	enum policy_kind kind;
	bool bare; /* of POLICY_WRITE: the protected names are ordinary here (temporary directories) */
	/* With policy_rules.strict: files here have no other names elsewhere that a pattern could be about. */
	bool solid;
	char *text;   /* absolute */
	char *reason; /* for people; NULL: none */
};

struct policy_rules {
	struct policy_rule *v;
	size_t n;
	size_t bytes;                 /* of all texts and reasons */
	enum policy_access otherwise; /* where no rule says anything */
	/* Names that cannot be written at the top of a place that a rule makes writable, unless a rule opens them or
	 * something below. NULL-terminated; NULL: none. */
	char **names;
	bool deep;   /* they are protected at every depth below it */
	bool hide;   /* what is denied looks as if it were not there */
	bool strict; /* a file with links that cannot be seen may be one that is closed */
};

void policy_rules_release(struct policy_rules *r);
static inline void cleanup_policy_rulesp(struct policy_rules *r)
{
	policy_rules_release(r);
}
#define cleanup_policy_rules __attribute__((cleanup(cleanup_policy_rulesp)))

/* @text: absolute and without ".." (-EINVAL); repeated slashes and "." go. -E2BIG beyond the limits. @reason may be
 * NULL. On failure the list is as it was. */
int policy_rules_add(struct policy_rules *r, enum policy_access access, enum policy_kind kind,
		     const char *text, const char *reason, struct diag *diag) MUST_USE;
int policy_rules_protect(struct policy_rules *r, const char *name, struct diag *diag) MUST_USE;
/* Everything can be read and these places written; NULL: everything can be written. */
int policy_rules_writable(const char *const *places, struct diag *diag,
			  struct policy_rules *ret) MUST_USE;
int policy_rules_copy(const struct policy_rules *r, struct policy_rules *ret) MUST_USE;
/* The same list in any order? */
bool policy_rules_same(const struct policy_rules *a, const struct policy_rules *b);

/* As msgpack: one value. Reading is bounded and strict: -EBADMSG for what is no such list, else as
 * policy_rules_add. */
int policy_rules_encode(const struct policy_rules *r, struct buf *out) MUST_USE;
int policy_rules_decode(const void *p, size_t n, struct diag *diag,
			struct policy_rules *ret) MUST_USE;

/* The next component of an absolute path after *@at; false at the end. Skips "." and empty ones. */
bool policy_component(const char **at, const char **ret, size_t *ret_len);
const char *policy_access_name(enum policy_access a);
