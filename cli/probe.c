/* rattan doctor, rattan --probe: can this host run sandboxes, and if not, what to do. */
#include "runner/probe.h"
#include "cli/cli.h"

enum {
	ITEMS_MAX = 64
};

static void put_text(const struct probe_item *items, int n, bool good)
{
	for (int i = 0; i < n; i++) {
		const struct probe_item *it = &items[i];

		printf("%-8s %-20s %-9s ",
		       it->found                    ? "ok"
		       : it->need == PROBE_REQUIRED ? "MISSING"
						    : "-",
		       it->name, it->need == PROBE_REQUIRED ? "required" : "optional");
		cli_put(stdout, it->detail);
		printf("\n");
		if (!it->found && *it->remedy) {
			printf("         -> ");
			cli_put(stdout, it->remedy);
			printf("\n");
		}
	}
	printf("%s\n", good ? "this host can run sandboxes" : "this host cannot run sandboxes yet");
}

static int put_json(const struct probe_item *items, int n, bool good)
{
	cJSON *o = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(o, "items");

	(void)cJSON_AddBoolToObject(o, "ok", good);
	for (int i = 0; i < n; i++) {
		cJSON *it = cJSON_CreateObject();

		cli_json_str(it, "name", items[i].name);
		(void)cJSON_AddBoolToObject(it, "required", items[i].need == PROBE_REQUIRED);
		(void)cJSON_AddBoolToObject(it, "found", items[i].found);
		cli_json_str(it, "detail", items[i].detail);
		cli_json_str(it, "remedy", items[i].remedy);
		(void)cJSON_AddItemToArray(list, it);
	}
	return cli_print_json(o);
}

static int run(int argc, char **argv)
{
	cleanup_free struct probe_item *items = calloc(ITEMS_MAX, sizeof(*items));
	bool json = false, good = false;
	const struct cli_opt opts[] = {{"json", 0, CLI_FLAG, &json, NULL, "as JSON"}, {0}};
	char **rest;
	int n, r = cli_parse(&cmd_probe, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n)
		return cli_fail(CLI_USAGE, "doctor: takes no argument; '%s' is one", rest[0]);
	if (!items)
		return cli_fail(CLI_FAILED, "out of memory");
	n = probe_run(items, ITEMS_MAX, &good);
	if (n < 0)
		return cli_fail_errno(n, NULL, "doctor");
	if (json)
		r = put_json(items, n, good);
	else {
		put_text(items, n, good);
		r = cli_done();
	}
	return r ? r : good ? CLI_OK : CLI_FAILED;
}

const struct cli_command cmd_probe = {
	.name = "doctor",
	.args = "[--json]",
	.summary = "can this host run sandboxes, and if not, what to do (also --probe)",
	.details =
		"Each thing is tried, not looked up; the last one is a sandbox in which something that\n"
		"must be denied is denied. Exit code 0 only if commands can run.\n\n"
		"Example:\n  rattan doctor\n",
	.run = run,
};
