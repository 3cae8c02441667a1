/* rattan env: list and remove environments, and replace what serves one. */
#include <string.h>

#include "cli/cli.h"

/* What a daemon has and the store has not yet, for a moment. */
static bool changes_unseen(const char *name)
{
	const struct ctl_env_opts o = {.env = name, .no_start = true};
	cleanup_ctl struct ctl *c = NULL;
	struct ctl_status s;
	bool dirty;

	if (ctl_open(&o, NULL, &c) < 0 || ctl_status(c, NULL, &s) < 0)
		return false;
	dirty = s.dirty;
	ctl_status_release(&s);
	return dirty;
}

static bool has_changes(const struct ctl_env_info *e)
{
	return e->dirty || (e->running && changes_unseen(e->name));
}

static int put_text(void *arg, const struct ctl_env_info *e)
{
	size_t *n = arg;

	if (!(*n)++)
		printf("%-32s %-10s %-14s %s\n", "NAME", "BASE", "HEAD", "STATE");
	if (e->damaged) {
		printf("%-32s damaged: rattan fsck tells more\n", *e->name ? e->name : "?");
		return 0;
	}
	printf("%-32s %-10s %-14.12s %s%s%s\n", e->name, e->base, *e->head ? e->head : "base",
	       e->running ? "running" : "idle", has_changes(e) ? ", uncommitted changes" : "",
	       e->stale ? ", was found dead and cleaned up" : "");
	return 0;
}

static int put_json(void *arg, const struct ctl_env_info *e)
{
	cJSON *o = cJSON_CreateObject();

	cli_json_str(o, "name", e->name);
	cli_json_str(o, "base", e->base);
	cli_json_str(o, "head", e->head);
	(void)cJSON_AddBoolToObject(o, "running", e->running);
	(void)cJSON_AddBoolToObject(o, "dirty", has_changes(e));
	(void)cJSON_AddBoolToObject(o, "stale", e->stale);
	(void)cJSON_AddBoolToObject(o, "damaged", e->damaged);
	(void)cJSON_AddNumberToObject(o, "created", (double)e->created.tv_sec);
	(void)cJSON_AddItemToArray(arg, o);
	return 0;
}

static int list(bool json)
{
	cJSON *o = json ? cJSON_CreateArray() : NULL;
	struct diag diag = {0};
	size_t n = 0;
	int r = json ? ctl_env_list(NULL, &diag, put_json, o)
		     : ctl_env_list(NULL, &diag, put_text, &n);

	if (r < 0) {
		cJSON_Delete(o);
		return cli_fail_errno(r, &diag, "env list");
	}
	if (json)
		return cli_print_json(o);
	if (!n)
		printf("no environments yet; rattan run makes one\n");
	return cli_done();
}

struct looked_for {
	const char *name;
	bool changes;
};

static int look_for(void *arg, const struct ctl_env_info *e)
{
	struct looked_for *l = arg;

	if (!strcmp(e->name, l->name))
		l->changes = has_changes(e);
	return 0;
}

static int remove_all(char **names, int n, bool force)
{
	for (int i = 0; i < n; i++) {
		struct looked_for l = {.name = names[i]};
		struct diag diag = {0};
		int r;

		(void)!ctl_env_list(NULL, NULL, look_for, &l);
		r = ctl_env_remove(NULL, names[i], force, &diag);

		if (r == -ENOENT)
			return cli_fail(CLI_NOT_FOUND,
					"there is no environment '%s'; rattan env list names all",
					names[i]);
		if (r < 0)
			return cli_fail_errno(r, &diag, "env rm");
		if (l.changes)
			fprintf(stderr, "rattan: %s had uncommitted changes, which are gone\n",
				names[i]);
	}
	return CLI_OK;
}

/* Only what runs is replaced: whatever is started later is of the installed build anyway. */
static int restart(char **names, int n)
{
	for (int i = 0; i < n; i++) {
		const struct ctl_env_opts o = {.env = names[i], .no_start = true};
		cleanup_ctl struct ctl *c = NULL;
		struct diag diag = {0};
		int r = ctl_open(&o, &diag, &c);

		if (r == 0)
			r = ctl_restart(c, &diag);
		if (r < 0)
			return cli_fail_errno(r, &diag, "env restart");
	}
	return CLI_OK;
}

static int run(int argc, char **argv)
{
	static const char *const words[] = {"list", "rm", "restart", NULL};
	bool json = false, force = false;
	const struct cli_opt opts[] = {
		{"json", 0, CLI_FLAG, &json, NULL, "list as JSON"},
		{"force", 'f', CLI_FLAG, &force, NULL, "rm: end the commands that run in it"},
		{0},
	};
	const char *near;
	char **rest;
	int n, r = cli_parse(&cmd_env, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (!n || (n == 1 && (!strcmp(rest[0], "list") || !strcmp(rest[0], "ls"))))
		return list(json);
	if (!strcmp(rest[0], "rm"))
		return n > 1 ? remove_all(rest + 1, n - 1, force)
			     : cli_fail(CLI_USAGE, "env rm: give the name of an environment");
	if (!strcmp(rest[0], "restart"))
		return n > 1 ? restart(rest + 1, n - 1)
			     : cli_fail(CLI_USAGE, "env restart: give the name of an environment");
	near = cli_nearest(rest[0], words);
	return cli_fail(CLI_USAGE, "env: '%s' is not list, rm or restart%s%s%s", rest[0],
			near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

const struct cli_command cmd_env = {
	.name = "env",
	.args = "list [--json] | rm NAME... [--force] | restart NAME...",
	.summary = "list or remove environments, or replace what serves them",
	.details =
		"Removing an environment removes its working tree, and with it what was not committed. Its\n"
		"commits stay in the store: rattan log --all lists them, and rollback finds them by id. rattan gc\n"
		"frees the room of the tree, and with --removed that of the commits. Restarting puts the installed build in the place of the\n"
		"one that serves the environment; commands that run in it go on.\n\n"
		"Examples:\n  rattan env list\n  rattan env rm scratch\n",
	.run = run,
};
