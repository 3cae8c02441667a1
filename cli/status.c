/* rattan status: the state of an environment. */
#include "apply/apply.h"
#include "cli/cli.h"

static void put_changes(const struct ctl_status *s)
{
	if (!s->dirty) {
		printf("changes      none since head\n");
		return;
	}
	if (s->added + s->modified + s->deleted + s->renamed == 0) {
		printf("changes      not committed, and too many, or too deep, to be counted\n");
		return;
	}
	printf("changes      %llu added, %llu modified, %llu deleted, %llu renamed, not committed\n",
	       (unsigned long long)s->added, (unsigned long long)s->modified,
	       (unsigned long long)s->deleted, (unsigned long long)s->renamed);
}

static int on_run(void *arg, const struct apply_info *i)
{
	*(unsigned *)arg += i->state == APPLY_RUN_PENDING;
	return 0;
}

/* An apply that was killed, and waits for the next one to undo it. */
static unsigned apply_pending(const char *env)
{
	cleanup_free char *dir = NULL;
	unsigned n = 0;

	if (ctl_data_dir(&dir) < 0 || apply_list(dir, env, on_run, &n) < 0)
		return 0;
	return n;
}

static int put_text(const struct ctl_status *s)
{
	printf("environment  %s\nbase         %s\nhead         %.12s%s", s->env, s->base,
	       *s->head ? s->head : "(the base)", *s->head_label ? "  " : "");
	cli_put(stdout, s->head_label);
	printf("\n");
	put_changes(s);
	for (char **o = s->overlays; o && *o; o++) {
		printf("overlay      ");
		cli_put(stdout, *o);
		printf("\n");
	}
	for (size_t i = 0; i < s->nbinds; i++) {
		printf("bind         ");
		cli_put(stdout, s->binds[i].host);
		printf("=");
		cli_put(stdout, s->binds[i].mount);
		printf(":%s\n", s->binds[i].rw ? "rw" : "ro");
	}
	if (apply_pending(s->env))
		printf("apply        was killed half-way; the next rattan apply or unapply undoes it\n");
	printf("running      %u command%s\nstore        ", s->leases, s->leases == 1 ? "" : "s");
	cli_put_size(stdout, s->store_bytes);
	printf(", ");
	cli_put_size(stdout, s->disk_free);
	printf(" free on its disk\ndisk limit   ");
	cli_put_size(stdout, s->disk_used);
	printf(" written of ");
	if (s->disk_max >= INT64_MAX)
		printf("any");
	else
		cli_put_size(stdout, s->disk_max);
	printf("\ndaemon       pid %d, up %llu s\n", s->daemon_pid,
	       (unsigned long long)s->uptime_s);
	return cli_done();
}

static int put_json(const struct ctl_status *s)
{
	cJSON *o = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(o, "overlays");

	for (char **v = s->overlays; v && *v; v++)
		(void)cJSON_AddItemToArray(list, cJSON_CreateString(*v));
	list = cJSON_AddArrayToObject(o, "binds");
	for (size_t i = 0; i < s->nbinds; i++) {
		cJSON *b = cJSON_CreateObject();

		cli_json_str(b, "host", s->binds[i].host);
		cli_json_str(b, "mount", s->binds[i].mount);
		(void)cJSON_AddBoolToObject(b, "rw", s->binds[i].rw);
		(void)cJSON_AddItemToArray(list, b);
	}
	cli_json_str(o, "environment", s->env);
	cli_json_str(o, "base", s->base);
	cli_json_str(o, "head", s->head);
	cli_json_str(o, "head_label", s->head_label);
	(void)cJSON_AddBoolToObject(o, "dirty", s->dirty);
	(void)cJSON_AddNumberToObject(o, "added", (double)s->added);
	(void)cJSON_AddNumberToObject(o, "modified", (double)s->modified);
	(void)cJSON_AddNumberToObject(o, "deleted", (double)s->deleted);
	(void)cJSON_AddNumberToObject(o, "renamed", (double)s->renamed);
	(void)cJSON_AddNumberToObject(o, "bytes_dirty", (double)s->bytes_dirty);
	(void)cJSON_AddNumberToObject(o, "running", s->leases);
	(void)cJSON_AddNumberToObject(o, "store_bytes", (double)s->store_bytes);
	(void)cJSON_AddNumberToObject(o, "disk_free", (double)s->disk_free);
	(void)cJSON_AddNumberToObject(o, "disk_limit", (double)s->disk_max);
	(void)cJSON_AddNumberToObject(o, "disk_written", (double)s->disk_used);
	(void)cJSON_AddNumberToObject(o, "apply_pending", apply_pending(s->env));
	(void)cJSON_AddNumberToObject(o, "daemon_pid", s->daemon_pid);
	(void)cJSON_AddNumberToObject(o, "uptime_s", (double)s->uptime_s);
	return cli_print_json(o);
}

static int run(int argc, char **argv)
{
	const char *env = NULL;
	bool json = false;
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		{"json", 0, CLI_FLAG, &json, NULL, "as JSON"},
		{0},
	};
	cleanup_env struct cli_env e = {0};
	struct diag diag = {0};
	struct cli_work work;
	struct ctl_status s;
	char **rest;
	int n, r = cli_parse(&cmd_status, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n)
		return cli_fail(CLI_USAGE, "status: takes no argument; -e %s names an environment",
				rest[0]);
	r = cli_connect(env, &e.client, &e.ctl);
	if (r >= 0)
		return r;
	cli_wait_begin(&work, e.ctl, "comparing");
	r = ctl_status(e.ctl, &diag, &s);
	cli_wait_end(&work, e.ctl, r < 0 ? "nothing was changed" : NULL);
	if (r < 0)
		return cli_fail_errno(r, &diag, "status");
	r = json ? put_json(&s) : put_text(&s);
	ctl_status_release(&s);
	return r;
}

const struct cli_command cmd_status = {
	.name = "status",
	.args = "[-e NAME] [--json]",
	.summary = "what state an environment is in",
	.details = "Example:\n  rattan status --json\n",
	.run = run,
};
