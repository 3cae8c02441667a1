/* Options from the settings, where the command line says nothing. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static bool given(const struct cli_opt *o)
{
	switch (o->kind) {
	case CLI_FLAG:
		return *(bool *)o->to;
	case CLI_TEXT:
		return *(const char **)o->to != NULL;
	case CLI_LIST:
	default:
		return ((struct cli_list *)o->to)->n > 0;
	}
}

static int wrong(const char *where, const struct cli_opt *o, const char *want)
{
	return cli_fail(CLI_USAGE, "config.json: %s.%s must be %s", where, o->name, want);
}

static int take_list(const struct cli_opt *o, const cJSON *v, const char *where)
{
	struct cli_list *l = o->to;
	size_t n = 0;

	if (!cJSON_IsArray(v))
		return wrong(where, o, "a list of texts");
	l->v = calloc((size_t)cJSON_GetArraySize(v) + 1, sizeof(*l->v));
	if (!l->v)
		return cli_fail(CLI_FAILED, "out of memory");
	for (const cJSON *i = v->child; i; i = i->next) {
		if (!cJSON_IsString(i))
			return wrong(where, o, "a list of texts");
		l->v[n++] = i->valuestring;
	}
	l->n = n;
	return -1;
}

static int take(const struct cli_opt *o, const cJSON *v, const char *where)
{
	if (o->kind == CLI_LIST)
		return take_list(o, v, where);
	if (o->kind == CLI_TEXT && cJSON_IsString(v)) {
		*(const char **)o->to = v->valuestring;
		return -1;
	}
	if (o->kind == CLI_TEXT)
		return wrong(where, o, "a text");
	if (!cJSON_IsBool(v))
		return wrong(where, o, "true or false");
	*(bool *)o->to = cJSON_IsTrue(v);
	return -1;
}

static int unknown(const struct cli_opt *opts, const char *name, const char *where)
{
	const char *names[64] = {NULL}, *near;
	size_t n = 0;

	for (; opts->name && n + 1 < sizeof(names) / sizeof(names[0]); opts++)
		names[n++] = opts->name;
	near = cli_nearest(name, names);
	return cli_fail(CLI_USAGE, "config.json: %s.%s is not an option%s%s%s", where, name,
			near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

int cli_opts_fill(const struct cli_opt *opts, const cJSON *from, const char *where)
{
	int r = -1;

	for (const cJSON *v = from ? from->child : NULL; v && r < 0; v = v->next) {
		size_t i = 0;

		while (opts[i].name && strcmp(opts[i].name, v->string) != 0)
			i++;
		if (!opts[i].name)
			r = unknown(opts, v->string, where);
		else if (!given(&opts[i]))
			r = take(&opts[i], v, where);
	}
	return r;
}
