/*
 * cli/managed.h - a managed profile over an environment whose tree shows the host at the host's own places.
 */
#pragma once

#include "cli/cli.h"
#include "profile/profile.h"

struct cli_managed {
	struct ctl_env_opts opts; /* for client_new */
	struct ctl_overlay *overlays;
	char **vars; /* HOME, TMPDIR and the like, NULL-terminated */
	struct buf policy;
	char name[CLI_ENV_MAX];
};
void cli_managed_release(struct cli_managed *m);
#define cleanup_managed __attribute__((cleanup(cli_managed_release)))
/* The tree alone, of the project @cwd. @env NULL: one of the project's own. @through: what is written goes to the host. */
int cli_managed_tree(const char *cwd, const char *env, bool through, struct diag *diag,
		     struct cli_managed *ret) MUST_USE;
/* The tree under the profile. */
int cli_managed(const struct profile *p, const char *env, bool through, struct diag *diag,
		struct cli_managed *ret) MUST_USE;
