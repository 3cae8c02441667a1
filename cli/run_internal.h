/* cli/run_internal.h - shared by the files of `rattan run`. */
#pragma once

#include "cli/cli.h"
#include "profile/profile.h"

struct run_args {
	const char *by; /* the command's name: run, shell */
	struct cli_view_opts view;
	const char *profile, *session;
	struct cli_list set;
	bool explain, write_through;
	const char *cwd, *timeout, *text, *promises;
	struct cli_list setenv, env_files;
	bool keep, rm, verbose, shell, provision;
	bool interactive; /* rattan shell: the command is a shell of the sandbox */
	char **cmd;
	int ncmd;
};

struct run_plan {
	struct cli_view view;
	char **vars; /* NAME=value, NULL-terminated */
	size_t nvars;
	const struct profile *profile; /* NULL: none; lent */
	struct client_terms terms;     /* what of it is not in the client's own options */
	double timeout_s;
};

/* Takes @var; NULL is what an allocation that failed gave. */
int run_keep_var(struct run_plan *p, char *var) MUST_USE;
/* Says why, and gives the exit code. */
int run_not_started(int r, const struct diag *diag);
int run_with_client(const struct run_args *a, const struct run_plan *p, struct client *c);

/* run_profile.c: --profile FILE; an exit code. */
int run_profiled(const struct run_args *a, struct run_plan *plan);
/* What the profile says of the run itself: -1, or an exit code when it cannot start. */
int run_profile_spec(const struct run_args *a, const struct run_plan *p, struct run_spec *spec);

/* The whole of a command that runs one; an exit code. @interactive: it is a shell, and none is given. */
int run_main(const struct cli_command *cmd, int argc, char **argv, bool interactive);

/* run_tell.c: after the command. What it was refused when it @failed, and of its network with @all everything. true: the network
 * refused something. */
bool run_tell_refused(struct client_run *cr, bool failed, bool all);
/* What it has changed since the tree was at @token_before, and what can be done about it. */
void run_tell_changes(struct ctl *ctl, const char *env, uint64_t token_before);
/* That it ran in @env, which nobody named, when the other commands would find another one from here. */
void run_tell_where(const char *env);

/* shell.c: the command line of an interactive shell whose prompt names @env; for free(). NULL: no memory. */
char *shell_text(const char *env);
