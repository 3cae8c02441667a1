/*
 * profile/profile.h - what a command may do, as data: a profile file, or the object that an MCP client sends
 * with a call, resolved into rules with their reasons.
 *
 * A profile is resolved anew for every command, from the document and from local settings alone: nothing
 * is kept from one to the next, and nothing that a client sends widens a local setting (R2).
 * Everything that is not understood is refused, with one sentence that names the field.
 * Threads: a struct profile never changes after it was made.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "base/err.h"
#include "net/rules.h"
#include "policy/rules.h"

struct role;

#define PROFILE_META_KEY     "codex/sandbox-state-meta"
#define PROFILE_META_VERSION "1.0.0"
#define PROFILE_TEXT_MAX     (1u << 20)

enum profile_family {
	PROFILE_AGENT,   /* paths are those of the environment's tree */
	PROFILE_MANAGED, /* paths are the host's: the tree shows them at the same places */
	PROFILE_ROLE,    /* no tree: the host's own files, by binds alone */
};

struct profile {
	enum profile_family family;
	char *name;
	struct policy_rules rules;
	bool full_read, full_write;
	bool network;
	struct net_rules *
		net; /* what of it: the local rules; NULL: there are none, or there is no network */
	bool landlock_only; /* the path rules are ones that Landlock alone can hold, and it must */
	char *cwd;          /* of the project; NULL: the environment's default */
	char *tmp;          /* the session's own directory for temporary files, or NULL */
	char *home;         /* or NULL: the environment's default */
	char **notes; /* what was in the document and has no effect; NULL-terminated, or NULL */
	size_t nnotes;
	struct role *role; /* PROFILE_ROLE */
};

/* What this side decides. All strings are lent. */
struct profile_local {
	const char *cwd;            /* of a document that names none; NULL: then it must */
	const char *session_tmp;    /* a clean absolute path, or NULL */
	const char *tmpdir;         /* $TMPDIR of whoever asks, or NULL */
	const char *home;           /* where all may be read; NULL: the environment's default */
	const char *const *runtime; /* what a restricted command may read beside; NULL-terminated */
	const char *const *closed;  /* directories that no profile opens; NULL-terminated */
	const struct net_rules *net; /* of a network, where the document gives one; NULL: none */
	bool landlock_only;
};

enum profile_mode {
	PROFILE_MODE_READ_ONLY,
	PROFILE_MODE_WORKSPACE_WRITE,
	PROFILE_MODE_FULL_ACCESS,
};

/* The object of one call. */
int profile_from_meta(const cJSON *meta, const struct profile_local *l, struct diag *diag,
		      struct profile **ret) MUST_USE;
/* A profile file's text; @name is for people. */
int profile_from_text(const char *text, size_t n, const char *name, const struct profile_local *l,
		      struct diag *diag, struct profile **ret) MUST_USE;
/* One of the modes that ask no client. */
int profile_from_mode(enum profile_mode mode, const struct profile_local *l, struct diag *diag,
		      struct profile **ret) MUST_USE;
void profile_free(struct profile *p);
static inline void cleanup_profilep(struct profile **p)
{
	profile_free(*p);
}
#define cleanup_profile __attribute__((cleanup(cleanup_profilep)))

/* Every rule and setting in order, each with its reason, one a line. */
int profile_explain(const struct profile *p, struct buf *ret) MUST_USE;
/* HOME, TMPDIR and the like, NULL-terminated: what the profile says of the environment's variables. */
int profile_vars(const struct profile *p, char ***ret) MUST_USE;
void profile_vars_free(char **vars);
/* Would both let a command do the same? */
bool profile_same(const struct profile *a, const struct profile *b);
