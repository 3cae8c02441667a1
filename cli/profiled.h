/*
 * cli/profiled.h - profiles on the command line: reading a file, explaining it, and running a role's session.
 */
#pragma once

#include "cli/cli.h"
#include "profile/profile.h"

/* The session's own directory for temporary files, in the environment's tree. */
#define CLI_SESSION_TMP "/tmp/rattan-session"

/* What this side decides, for profile_from_*; all of it is owned here. */
struct cli_local {
	struct profile_local l;
	char *cwd;
	char *tmp; /* of a session that writes through */
	char *own[2];
	const char *closed[3];
};
int cli_local_init(const struct cli_config *c, struct diag *diag, struct cli_local *ret) MUST_USE;
/* The session's directory is one on the host, of environment @env (NULL: the project's own). */
int cli_local_through(struct cli_local *l, const char *env) MUST_USE;
void cli_local_release(struct cli_local *l);
#define cleanup_local __attribute__((cleanup(cli_local_release)))

int cli_profile_read(const char *file, const struct profile_local *l, struct diag *diag,
		     struct profile **ret) MUST_USE;

/* Prints what it comes to; with @paths the verdict on each instead. An exit code. */
int cli_profile_explain(const struct profile *p, const struct profile_local *l,
			const struct cli_list *set, char *const *paths, int npaths);

/* A role's session with our standard streams: an exit code. @set: "NAME=VALUE" for its parameters. What is closed in @l is bound
 * by no role. */
int cli_role_run(const struct profile *p, const struct profile_local *l, const struct cli_list *set,
		 const char *session, char *const *argv, char *const *env);
