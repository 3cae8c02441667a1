/* rattan show: one commit, and what it changed. */
#include <string.h>
#include <time.h>

#include "cli/cli.h"

struct shown {
	struct ctl_commit cm;
	const char *rev;
};

static void put_head(void *arg)
{
	const struct shown *s = arg;
	const struct ctl_commit *cm = &s->cm;
	char when[40] = "";
	struct tm tm;

	if (localtime_r(&cm->time.tv_sec, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S %z", &tm);
	printf("%s %s\n", cm->automatic ? "state" : "commit", *cm->id ? cm->id : s->rev);
	printf("environment  %s\n", cm->env);
	printf("time         %s\n", when);
	if (*cm->label) {
		printf("label        ");
		cli_put(stdout, cm->label);
		printf("\n");
	}
	if (cm->message && *cm->message) {
		printf("\n");
		cli_put_text(stdout, cm->message, strlen(cm->message));
		printf("\n");
	}
	printf("\n");
}

static int show(const char *env, const char *rev, const char *path, const struct cli_diff_opts *o)
{
	cleanup_env struct cli_env e = {0};
	struct shown s = {.rev = rev};
	struct diag diag = {0};
	int r = cli_connect(env, &e.client, &e.ctl);

	if (r >= 0)
		return r;
	r = ctl_log_one(e.ctl, rev, &diag, &s.cm);
	if (r < 0)
		return cli_fail_errno(r, &diag, "show");
	r = cli_diff_between(e.ctl, *s.cm.parent ? s.cm.parent : "base", s.cm.id, path, o, "show",
			     put_head, &s);
	ctl_commit_release(&s.cm);
	return r;
}

static int run(int argc, char **argv)
{
	const char *env = NULL, *path = NULL;
	struct cli_diff_opts o = {0};
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		CLI_DIFF_OPTS(o),
		{0},
	};
	char **rest;
	int n, r = cli_parse(&cmd_show, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	r = cli_diff_check(&o, "show");
	if (r >= 0)
		return r;
	if (n && cli_diff_path(rest[n - 1]))
		path = rest[--n];
	if (n > 1)
		return cli_fail(CLI_USAGE, "show: one revision at a time; '%s' is too much",
				rest[1]);
	return show(env, n ? rest[0] : "head", path, &o);
}

const struct cli_command cmd_show = {
	.name = "show",
	.args = "[REV] [PATH] [-e NAME] [--name-status | --stat | --json | -z]",
	.summary = "a commit, and what it changed",
	.details =
		"REV as for rollback; without one head. What it changed is against the commit before it.\n"
		"PATH as for diff.\n\n"
		"Examples:\n  rattan show head~1 --stat\n  rattan show head ./src\n",
	.run = run,
};
