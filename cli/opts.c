#include <stdlib.h>
#include <string.h>

#include "base/near.h"
#include "cli/cli.h"

enum {
	NAMES_MAX = 40
};

void cli_list_release(struct cli_list *l)
{
	free((void *)l->v);
	*l = (struct cli_list){0};
}

const char *cli_nearest(const char *given, const char *const *names)
{
	const char *best = NULL;
	unsigned least = strlen(given) < 6 ? 2 : (unsigned)strlen(given) / 3 + 1;

	for (; *names; names++) {
		unsigned d = near_distance(given, *names, false);

		if (d < least) {
			least = d;
			best = *names;
		}
	}
	return best;
}

/* ---- parsing ---- */

static int unknown(const struct cli_command *cmd, const struct cli_opt *opts, const char *given)
{
	const char *names[NAMES_MAX + 1] = {NULL}, *near;
	size_t n = 0;

	for (; opts->name && n < NAMES_MAX; opts++)
		names[n++] = opts->name;
	near = cli_nearest(given, names);
	if (near)
		return cli_fail(CLI_USAGE, "%s: unknown option --%s; did you mean --%s?", cmd->name,
				given, near);
	return cli_fail(CLI_USAGE, "%s: unknown option --%s; see rattan %s --help", cmd->name,
			given, cmd->name);
}

static int list_add(struct cli_list *l, const char *s)
{
	const char **v = realloc((void *)l->v, (l->n + 2) * sizeof(*v));

	if (!v)
		return cli_fail(CLI_FAILED, "out of memory");
	l->v = v;
	v[l->n++] = s;
	v[l->n] = NULL;
	return -1;
}

static int store(const struct cli_opt *o, const char *value)
{
	switch (o->kind) {
	case CLI_FLAG:
		*(bool *)o->to = true;
		return -1;
	case CLI_TEXT:
		*(const char **)o->to = value;
		return -1;
	case CLI_LIST:
	default:
		return list_add(o->to, value);
	}
}

/* argv[*i] is "--name", "--name=value" or "-x", "-xvalue". */
static int take(const struct cli_command *cmd, const struct cli_opt *opts, int argc, char **argv,
		int *i)
{
	char *s = argv[*i], *eq, name[64];
	bool is_long = s[1] == '-';
	const struct cli_opt *o = opts;

	eq = is_long ? strchr(s, '=') : s[2] ? s + 1 : NULL;
	if (is_long)
		(void)snprintf(name, sizeof(name), "%.*s", eq ? (int)(eq - s - 2) : 60, s + 2);
	else
		(void)snprintf(name, sizeof(name), "%c", s[1]);
	if (!strcmp(name, "help") || (!is_long && s[1] == 'h'))
		return cli_help(cmd, opts);
	if (!strcmp(name, "dump-help"))
		return cli_help_dump(cmd, opts);
	for (; o->name; o++)
		if (is_long ? !strcmp(o->name, name) : o->letter == s[1])
			break;
	if (!o->name && is_long)
		return unknown(cmd, opts, name);
	if (!o->name)
		return cli_fail(CLI_USAGE, "%s: unknown option -%s; see rattan %s --help",
				cmd->name, name, cmd->name);
	if (o->kind == CLI_FLAG && eq)
		return cli_fail(CLI_USAGE, "%s: --%s takes no value", cmd->name, o->name);
	if (o->kind == CLI_FLAG)
		return store(o, NULL);
	if (!eq && *i + 1 >= argc)
		return cli_fail(CLI_USAGE, "%s: --%s needs a value: --%s %s", cmd->name, o->name,
				o->name, o->arg);
	return store(o, eq ? eq + 1 : argv[++*i]);
}

int cli_parse(const struct cli_command *cmd, const struct cli_opt *opts, int argc, char **argv,
	      bool stop_early, char ***ret_rest, int *ret_n)
{
	int n = 0, i = 1;

	*ret_rest = argv + 1;
	for (; i < argc; i++) {
		int r;

		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		if (argv[i][0] != '-' || !argv[i][1]) {
			if (stop_early)
				break;
			argv[1 + n++] = argv[i];
			continue;
		}
		r = take(cmd, opts, argc, argv, &i);
		if (r >= 0)
			return r;
	}
	while (i < argc)
		argv[1 + n++] = argv[i++];
	argv[1 + n] = NULL;
	*ret_n = n;
	return -1;
}
