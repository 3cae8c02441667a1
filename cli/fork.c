/* rattan fork: an environment at a state of another. */
#include "cli/cli.h"

static int put_json(const struct ctl_env_info *made, const struct ctl_env_info *from)
{
	cJSON *o = cJSON_CreateObject();

	cli_json_str(o, "environment", made->name);
	cli_json_str(o, "from", from->name);
	cli_json_str(o, "head", made->head);
	cli_json_str(o, "base", made->base);
	(void)cJSON_AddBoolToObject(o, "from_dirty", from->dirty);
	return cli_print_json(o);
}

static int put_text(const struct ctl_env_info *made, const struct ctl_env_info *from)
{
	printf("%s is at %.12s, forked from %s; rattan run -e %s -- COMMAND works in it\n",
	       made->name, *made->head ? made->head : "base", from->name, made->name);
	if (from->dirty)
		printf("what is not committed in %s is not in it\n", from->name);
	return cli_done();
}

static int run(int argc, char **argv)
{
	const char *env = NULL;
	bool json = false;
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &env, "NAME",
		 "the environment to fork; default: this directory's, or 'default'"},
		{"json", 0, CLI_FLAG, &json, NULL, "as JSON"},
		{0},
	};
	cleanup_env struct cli_env e = {0};
	struct ctl_env_info i[2];
	struct diag diag = {0};
	char **rest;
	int n, r = cli_parse(&cmd_fork, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n != 1 && n != 2)
		return cli_fail(CLI_USAGE,
				"fork: give a name for the new environment, and a revision "
				"if it is not head");
	r = cli_connect(env, &e.client, &e.ctl);
	if (r >= 0)
		return r;
	r = ctl_env_fork(NULL, client_env(e.client), n == 2 ? rest[1] : "head", rest[0], &diag, i);
	if (r < 0)
		return cli_fail_errno(r, &diag, "fork");
	return json ? put_json(&i[0], &i[1]) : put_text(&i[0], &i[1]);
}

const struct cli_command cmd_fork = {
	.name = "fork",
	.args = "NEW [REV] [-e NAME] [--json]",
	.summary = "a new environment at any state of another",
	.details =
		"NEW is an environment of its own from then on: changes, commits, rollbacks and the removal of one\n"
		"do not show in the other. All that is there is shared, so it takes no time and no space.\n"
		"REV as for rollback; without it head, the last commit. The history up to REV is also NEW's:\n"
		"rattan log shows it, and rollback goes back in it.\n\n"
		"Example:\n  rattan fork try-it && rattan run -e try-it -- make\n",
	.run = run,
};
