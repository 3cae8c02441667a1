/* rattan commit: seal the state of an environment. */
#include "cli/cli.h"

static int put(const struct ctl_commit *cm, bool json)
{
	cJSON *o;

	if (!json) {
		printf("%.12s  +%llu ~%llu -%llu\n", cm->id, (unsigned long long)cm->added,
		       (unsigned long long)cm->modified, (unsigned long long)cm->deleted);
		return cli_done();
	}
	o = cJSON_CreateObject();
	cli_json_str(o, "id", cm->id);
	cli_json_str(o, "parent", cm->parent);
	(void)cJSON_AddNumberToObject(o, "added", (double)cm->added);
	(void)cJSON_AddNumberToObject(o, "modified", (double)cm->modified);
	(void)cJSON_AddNumberToObject(o, "deleted", (double)cm->deleted);
	return cli_print_json(o);
}

static int commit(const char *env, const char *message, const char *label, const char *expect,
		  bool json)
{
	cleanup_env struct cli_env e = {0};
	struct diag diag = {0};
	struct cli_work work;
	struct ctl_commit cm;
	int r = cli_connect(env, &e.client, &e.ctl);

	if (r >= 0)
		return r;
	cli_wait_begin(&work, e.ctl, "committing");
	r = ctl_commit(e.ctl, message, label, expect, &diag, &cm);
	cli_wait_end(&work, e.ctl,
		     r == 0            ? NULL
		     : r == -ECANCELED ? "the commit may still be made; rattan log shows it"
				       : "nothing was committed");
	if (r == -ENODATA)
		return cli_fail(CLI_FAILED, "nothing to commit: %s has not changed since head",
				client_env(e.client));
	if (r < 0)
		return cli_fail_errno(r, &diag, "commit");
	r = put(&cm, json);
	ctl_commit_release(&cm);
	return r;
}

static int run(int argc, char **argv)
{
	const char *env = NULL, *message = NULL, *label = NULL, *expect = NULL;
	bool json = false;
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		{"message", 'm', CLI_TEXT, &message, "TEXT", "what this state is; needed"},
		{"label", 0, CLI_TEXT, &label, "L", "a tag for it"},
		{"expect", 0, CLI_TEXT, &expect, "REV", "only if head is still this revision"},
		{"json", 0, CLI_FLAG, &json, NULL, "as JSON"},
		{0},
	};
	char **rest;
	int n, r = cli_parse(&cmd_commit, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n)
		return cli_fail(CLI_USAGE,
				"commit: '%s' is not an option; the message goes after -m, and a "
				"commit seals the whole environment",
				rest[0]);
	if (!message || !*message)
		return cli_fail(CLI_USAGE, "commit: there is no message; give -m TEXT");
	return commit(env, message, label, expect, json);
}

const struct cli_command cmd_commit = {
	.name = "commit",
	.args = "-m TEXT [-e NAME] [--label L] [--expect REV] [--json]",
	.summary = "seal the state of an environment",
	.details =
		"Takes constant time, however large the tree is. Prints the id and how many files were added +,\n"
		"modified or renamed ~, and deleted -, as rattan diff names them. Nothing to commit: exit code 1.\n"
		"With --label the commit has a name, as rattan tag gives it; where another state has that name\n"
		"nothing is committed.\n\n"
		"Example:\n  rattan commit -m 'tests pass'\n",
	.run = run,
};
