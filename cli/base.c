/* rattan base: list and remove the trees that environments can begin on. */
#include <string.h>
#include <time.h>

#include "cli/cli.h"

static int put_text(void *arg, const struct ctl_base_info *b)
{
	size_t *n = arg;
	char when[32];
	struct tm tm;

	if (!(*n)++)
		printf("%-24s %-14s %-6s %-17s %10s %s\n", "NAME", "ID", "FROM", "MADE", "FILES",
		       "SIZE");
	when[0] = 0;
	if (localtime_r(&b->created.tv_sec, &tm))
		(void)!strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &tm);
	printf("%-24s %-14.12s %-6s %-17s ", b->name, *b->id ? b->id : "-", b->source, when);
	if (!*b->id) {
		printf("%10s -\n", "-");
		return 0;
	}
	printf("%10llu ", (unsigned long long)b->entries);
	cli_put_size(stdout, b->bytes);
	putchar('\n');
	return 0;
}

static int put_json(void *arg, const struct ctl_base_info *b)
{
	cJSON *o = cJSON_CreateObject();

	cli_json_str(o, "name", b->name);
	cli_json_str(o, "id", b->id);
	cli_json_str(o, "source", b->source);
	cli_json_str(o, "manager", b->manager);
	(void)cJSON_AddNumberToObject(o, "created", (double)b->created.tv_sec);
	(void)cJSON_AddNumberToObject(o, "entries", (double)b->entries);
	(void)cJSON_AddNumberToObject(o, "bytes", (double)b->bytes);
	(void)cJSON_AddItemToArray(arg, o);
	return 0;
}

static int list(const char *data, bool json)
{
	cJSON *o = json ? cJSON_CreateArray() : NULL;
	struct diag diag = {0};
	size_t n = 0;
	int r = json ? ctl_base_list(data, &diag, put_json, o)
		     : ctl_base_list(data, &diag, put_text, &n);

	if (r < 0) {
		cJSON_Delete(o);
		return cli_fail_errno(r, &diag, "base list");
	}
	if (json)
		return cli_print_json(o);
	if (!n)
		printf("no bases yet; \"host\" is made when it is first used, rattan import makes others\n");
	return cli_done();
}

struct steps {
	cJSON *json; /* or NULL: text */
	size_t n;
};

static int on_step(void *arg, const struct ctl_step *s)
{
	struct steps *o = arg;

	o->n++;
	if (o->json)
		cli_json_step(o->json, s);
	else
		cli_put_step(s, "");
	return 0;
}

static int tell_history(const char *data, const char *name, bool json)
{
	struct steps o = {.json = json ? cJSON_CreateArray() : NULL};
	struct diag diag = {0};
	int r = ctl_base_history(data, name, NULL, &diag, on_step, &o);

	if (r < 0) {
		cJSON_Delete(o.json);
		return cli_fail_errno(r, &diag, "base log");
	}
	if (json)
		return cli_print_json(o.json);
	if (!o.n)
		printf("%s is of no image that tells how it was made\n", name);
	return cli_done();
}

static int remove_all(const char *data, char **names, int n)
{
	for (int i = 0; i < n; i++) {
		struct diag diag = {0};
		int r = ctl_base_remove(data, names[i], &diag);

		if (r < 0)
			return cli_fail_errno(r, &diag, "base rm");
	}
	return CLI_OK;
}

static int run(int argc, char **argv)
{
	static const char *const words[] = {"list", "log", "rm", NULL};
	const char *data = NULL, *near;
	bool json = false;
	const struct cli_opt opts[] = {
		{"data-dir", 0, CLI_TEXT, &data, "DIR", "the store of this data directory"},
		{"json", 0, CLI_FLAG, &json, NULL, "list and log as JSON"},
		{0},
	};
	char **rest;
	int n, r = cli_parse(&cmd_base, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (!n || (n == 1 && (!strcmp(rest[0], "list") || !strcmp(rest[0], "ls"))))
		return list(data, json);
	if (!strcmp(rest[0], "rm"))
		return n > 1 ? remove_all(data, rest + 1, n - 1)
			     : cli_fail(CLI_USAGE, "base rm: give the name of a base");
	if (!strcmp(rest[0], "log"))
		return n == 2 ? tell_history(data, rest[1], json)
			      : cli_fail(CLI_USAGE, "base log: give the name of a base");
	near = cli_nearest(rest[0], words);
	return cli_fail(CLI_USAGE, "base: '%s' is not list, log or rm%s%s%s", rest[0],
			near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

const struct cli_command cmd_base = {
	.name = "base",
	.args = "list [--json] | log NAME [--json] | rm NAME... [--data-dir DIR]",
	.summary = "list, look into or remove the trees that environments begin on",
	.details =
		"A base is made by rattan import, and used by run --base NAME when an environment is new; NAME@ID\n"
		"demands that its content is still that of ID (the first 8 digits do). log tells how the image was\n"
		"made that it came from, newest first: of commits that were pushed their ids there, times and\n"
		"messages. Removing one removes the name. Environments that began on it go on; rattan gc frees what nothing needs any more.\n\n"
		"Examples:\n  rattan base list\n  rattan base rm old\n",
	.run = run,
};
