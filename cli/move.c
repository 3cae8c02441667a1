/* rattan rollback, reset and undo: move an environment to another state. */
#include <string.h>

#include "cli/cli.h"

struct args {
	const char *env;
	bool force, json;
	char **rest;
	int n;
};

static const char *name_of(const char *id)
{
	return *id ? id : "base";
}

static int put(const struct args *a, const char *env, const struct ctl_moved *m)
{
	cJSON *o;

	if (!a->json) {
		printf("%s is at %.12s", env, name_of(m->to));
		if (m->saved)
			printf("; what was not committed is kept as %.12s (rattan undo -e %s brings it "
			       "back)",
			       m->from, env);
		printf("\n");
		return cli_done();
	}
	o = cJSON_CreateObject();
	cli_json_str(o, "environment", env);
	cli_json_str(o, "from", m->from);
	cli_json_str(o, "to", m->to);
	(void)cJSON_AddBoolToObject(o, "saved", m->saved);
	return cli_print_json(o);
}

static int parse(const struct cli_command *cmd, int argc, char **argv, struct args *a)
{
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &a->env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		{"force", 'f', CLI_FLAG, &a->force, NULL, "end the commands that run in it"},
		{"json", 0, CLI_FLAG, &a->json, NULL, "as JSON"},
		{0},
	};

	return cli_parse(cmd, opts, argc, argv, false, &a->rest, &a->n);
}

static int no_words(const struct cli_command *cmd, int argc, char **argv, struct args *a)
{
	int r = parse(cmd, argc, argv, a);

	if (r < 0 && a->n)
		return cli_fail(CLI_USAGE, "%s: takes no argument; -e %s names an environment",
				cmd->name, a->rest[0]);
	return r;
}

static int rollback(int argc, char **argv)
{
	cleanup_env struct cli_env e = {0};
	struct diag diag = {0};
	struct ctl_moved m;
	struct args a = {0};
	int r = parse(&cmd_rollback, argc, argv, &a);

	if (r >= 0)
		return r;
	if (a.n != 1)
		return cli_fail(CLI_USAGE,
				"rollback: give one revision: an id or the beginning of one, head, "
				"head~1, or base");
	r = cli_connect(a.env, &e.client, &e.ctl);
	if (r >= 0)
		return r;
	r = ctl_rollback(e.ctl, a.rest[0], a.force, &diag, &m);
	if (r == -ENOENT && !*diag.text)
		return cli_fail(CLI_NOT_FOUND, "unknown revision '%s'; rattan log --auto lists all",
				a.rest[0]);
	return r < 0 ? cli_fail_errno(r, &diag, "rollback") : put(&a, client_env(e.client), &m);
}

static int reset(int argc, char **argv)
{
	cleanup_env struct cli_env e = {0};
	struct diag diag = {0};
	struct ctl_moved m;
	struct args a = {0};
	int r = no_words(&cmd_reset, argc, argv, &a);

	if (r >= 0)
		return r;
	r = cli_connect(a.env, &e.client, &e.ctl);
	if (r >= 0)
		return r;
	r = ctl_reset(e.ctl, a.force, &diag, &m);
	if (r == 0 && !a.json && !m.saved && !strcmp(m.from, m.to)) {
		printf("%s has no uncommitted changes\n", client_env(e.client));
		return cli_done();
	}
	return r < 0 ? cli_fail_errno(r, &diag, "reset") : put(&a, client_env(e.client), &m);
}

static int undo(int argc, char **argv)
{
	cleanup_env struct cli_env e = {0};
	struct diag diag = {0};
	struct ctl_moved m;
	struct args a = {0};
	int r = no_words(&cmd_undo, argc, argv, &a);

	if (r >= 0)
		return r;
	r = cli_connect(a.env, &e.client, &e.ctl);
	if (r >= 0)
		return r;
	r = ctl_undo(e.ctl, a.force, &diag, &m);
	if (r == -ENODATA)
		return cli_fail(CLI_FAILED, "there is nothing to undo in %s", client_env(e.client));
	return r < 0 ? cli_fail_errno(r, &diag, "undo") : put(&a, client_env(e.client), &m);
}

const struct cli_command cmd_rollback = {
	.name = "rollback",
	.args = "REV [-e NAME] [--force] [--json]",
	.summary = "go to any state, back or forward",
	.details =
		"REV is the id of a commit or automatic state, or the beginning of one; head, the last\n"
		"commit; head~N, the Nth before it; or base. What was not committed is kept as an\n"
		"automatic state, and undo brings it back. Refused while commands run, unless --force.\n\n"
		"Example:\n  rattan rollback head\n",
	.run = rollback,
};

const struct cli_command cmd_reset = {
	.name = "reset",
	.args = "[-e NAME] [--force] [--json]",
	.summary = "drop uncommitted changes",
	.details =
		"The changes are kept as an automatic state until space is needed, so undo brings them\n"
		"back.\n\nExample:\n  rattan reset\n",
	.run = reset,
};

const struct cli_command cmd_undo = {
	.name = "undo",
	.args = "[-e NAME] [--force] [--json]",
	.summary = "take back the last rollback or reset",
	.details = "Example:\n  rattan reset && rattan undo\n",
	.run = undo,
};
