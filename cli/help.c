/* What a command's tables say, for people (--help), and for the generator of man pages and completions (--dump-help). */
#include <string.h>

#include "cli/cli.h"

void cli_help_opt(const struct cli_opt *o)
{
	char left[64];

	(void)snprintf(left, sizeof(left), "%s%c%s--%s%s%s", o->letter ? "-" : " ",
		       o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
		       o->arg ? " " : "", o->arg ? o->arg : "");
	printf("  %-26s %s\n", left, o->help);
}

int cli_help(const struct cli_command *cmd, const struct cli_opt *opts)
{
	static const struct cli_opt help = {"help", 0, CLI_FLAG, NULL, NULL, "this text"};

	printf("usage: rattan %s%s%s\n%s\n", cmd->name, *cmd->args ? " " : "", cmd->args,
	       cmd->summary);
	if (opts->name)
		printf("\n");
	for (const struct cli_opt *o = opts; o->name; o++)
		cli_help_opt(o);
	cli_help_opt(&help);
	printf("\n%s", cmd->details);
	return cli_done();
}

static const char *kind_name(enum cli_kind k)
{
	switch (k) {
	case CLI_FLAG:
		return "flag";
	case CLI_TEXT:
		return "text";
	case CLI_LIST:
	default:
		return "list";
	}
}

int cli_help_dump(const struct cli_command *cmd, const struct cli_opt *opts)
{
	cJSON *o = cJSON_CreateObject(), *list;

	cli_json_str(o, "name", cmd->name);
	cli_json_str(o, "args", cmd->args);
	cli_json_str(o, "summary", cmd->summary);
	cli_json_str(o, "details", cmd->details);
	list = cJSON_AddArrayToObject(o, "options");
	for (; opts->name; opts++) {
		const char letter[] = {opts->letter, 0};
		cJSON *one = cJSON_CreateObject();

		cli_json_str(one, "name", opts->name);
		if (opts->letter)
			cli_json_str(one, "letter", letter);
		cli_json_str(one, "kind", kind_name(opts->kind));
		if (opts->arg)
			cli_json_str(one, "arg", opts->arg);
		cli_json_str(one, "help", opts->help);
		(void)cJSON_AddItemToArray(list, one);
	}
	return cli_print_json(o);
}
