#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/tool.h"

/* What models send for our names; accepted where the schema has the second name. */
static const struct {
	const char *alias, *name;
} aliases[] = {
	{"cmd", "command"},
	{"workdir", "cwd"},
	{"directory", "cwd"},
	{"timeout_ms", "timeout"},
	{"yield_time_ms", "wait"},
	{"run_in_background", "wait"},
	{"wait_seconds", "wait"},
	{"wait", "wait_seconds"},
	{"id", "job_id"},
	{"bash_id", "job_id"},
	{"shell_id", "job_id"},
	{"task_id", "job_id"},
	{"ids", "job_ids"},
	{"rev", "from"},
	{"to_commit_id", "rev"},
	{"commit_id", "rev"},
	{"to", "rev"},
	{"tail", "tail_bytes"},
	{"file_path", "path"},
	{"filename", "path"},
	{"file", "path"},
	{"directory", "path"},
	{"dir_path", "path"},
	{"path", "file_path"},
	{"filename", "file_path"},
	{"file", "file_path"},
	{"old_str", "old_string"},
	{"oldText", "old_string"},
	{"old_text", "old_string"},
	{"new_str", "new_string"},
	{"newText", "new_string"},
	{"new_text", "new_string"},
	{"query", "pattern"},
	{"regex", "pattern"},
	{"text", "content"},
	{"contents", "content"},
	{"include", "glob"},
	{"head_limit", "max_matches"},
	{"limit", "max_entries"},
	{"-A", "after"},
	{"-B", "before"},
	{"-C", "context"},
	{"-i", "case"},
	{"-n", "output_mode"}, /* lines are numbered anyway */
	{"data", "text"},
	{"input", "text"},
	{"environment_id", "environment"},
};

static const cJSON *present(const cJSON *args, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(args, name);

	return v && !cJSON_IsNull(v) ? v : NULL;
}

/* 1 and the value, 0, or -EINVAL when two names are there with different values. */
static int find(const cJSON *args, const char *const *names, struct tool_result *out,
		const cJSON **ret, const char **ret_name)
{
	const cJSON *got = NULL;

	for (size_t i = 0; names[i]; i++) {
		const cJSON *v = present(args, names[i]);

		if (!v)
			continue;
		if (got && !cJSON_Compare(got, v, true)) {
			(void)tool_error(out,
					 "'%s' and '%s' are the same argument, with different "
					 "values; pass only '%s'",
					 *ret_name, names[i], names[0]);
			return -EINVAL;
		}
		if (!got) {
			got = v;
			*ret_name = names[i];
		}
	}
	*ret = got;
	return got != NULL;
}

static int bad_type(struct tool_result *out, const char *name, const char *want)
{
	(void)tool_error(out, "'%s' must be %s", name, want);
	return -EINVAL;
}

int arg_str(const cJSON *args, const char *const *names, struct tool_result *out, const char **ret)
{
	const char *name = names[0];
	const cJSON *v;
	int r = find(args, names, out, &v, &name);

	if (r <= 0)
		return r;
	if (!cJSON_IsString(v))
		return bad_type(out, name, "a string");
	*ret = v->valuestring;
	return 1;
}

static bool number_of(const cJSON *v, double *ret)
{
	char *end;

	if (cJSON_IsNumber(v)) {
		*ret = v->valuedouble;
		return isfinite(*ret);
	}
	if (!cJSON_IsString(v) || !v->valuestring[0] || !strchr("+-.0123456789", v->valuestring[0]))
		return false;
	*ret = strtod(v->valuestring, &end);
	return !*end && isfinite(*ret);
}

int arg_int(const cJSON *args, const char *const *names, int64_t min, int64_t max,
	    struct tool_result *out, int64_t *ret)
{
	const char *name = names[0];
	const cJSON *v;
	double d = 0;
	int r = find(args, names, out, &v, &name);

	if (r <= 0)
		return r;
	/* Above 2^53 a double no longer says which integer was meant. */
	if (!number_of(v, &d) || d != trunc(d) || fabs(d) > 9007199254740991.0)
		return bad_type(out, name, "an integer");
	if ((int64_t)d < min || (int64_t)d > max) {
		(void)tool_error(out, "'%s' must be between %lld and %lld", name, (long long)min,
				 (long long)max);
		return -EINVAL;
	}
	*ret = (int64_t)d;
	return 1;
}

int arg_num(const cJSON *args, const char *const *names, double min, double max,
	    struct tool_result *out, double *ret)
{
	const char *name = names[0];
	const cJSON *v;
	double d = 0;
	int r = find(args, names, out, &v, &name);

	if (r <= 0)
		return r;
	if (!number_of(v, &d))
		return bad_type(out, name, "a number");
	if (d < min || d > max) {
		(void)tool_error(out, "'%s' must be between %g and %g", name, min, max);
		return -EINVAL;
	}
	*ret = d;
	return 1;
}

int arg_bool(const cJSON *args, const char *const *names, struct tool_result *out, bool *ret)
{
	const char *name = names[0];
	const cJSON *v;
	int r = find(args, names, out, &v, &name);

	if (r <= 0)
		return r;
	if (cJSON_IsBool(v))
		*ret = cJSON_IsTrue(v);
	else if (cJSON_IsString(v) && !strcmp(v->valuestring, "true"))
		*ret = true;
	else if (cJSON_IsString(v) && !strcmp(v->valuestring, "false"))
		*ret = false;
	else
		return bad_type(out, name, "true or false");
	return 1;
}

int arg_object(const cJSON *args, const char *const *names, struct tool_result *out,
	       const cJSON **ret)
{
	const char *name = names[0];
	const cJSON *v;
	int r = find(args, names, out, &v, &name);

	if (r <= 0)
		return r;
	if (!cJSON_IsObject(v))
		return bad_type(out, name, "an object");
	*ret = v;
	return 1;
}

int arg_array(const cJSON *args, const char *const *names, struct tool_result *out,
	      const cJSON **ret)
{
	const char *name = names[0];
	const cJSON *v;
	int r = find(args, names, out, &v, &name);

	if (r <= 0)
		return r;
	if (!cJSON_IsArray(v))
		return bad_type(out, name, "an array");
	*ret = v;
	return 1;
}

int arg_enum(const cJSON *args, const char *const *names, const char *const *words,
	     struct tool_result *out, unsigned *ret)
{
	const char *s;
	cleanup_buf struct buf list = {0};
	int r = arg_str(args, names, out, &s);

	if (r <= 0)
		return r;
	for (unsigned i = 0; words[i]; i++) {
		if (!strcmp(words[i], s)) {
			*ret = i;
			return 1;
		}
	}
	for (unsigned i = 0; words[i]; i++)
		(void)!buf_printf(&list, "%s\"%s\"", i ? ", " : "", words[i]);
	(void)tool_error(out, "'%s' must be one of %s", names[0],
			 list.data ? (const char *)list.data : "the words in the schema");
	return -EINVAL;
}

/* ---- unknown and missing names ---- */

static bool known(const cJSON *props, const char *name)
{
	if (cJSON_GetObjectItemCaseSensitive(props, name))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(aliases); i++)
		if (!strcmp(aliases[i].alias, name) &&
		    cJSON_GetObjectItemCaseSensitive(props, aliases[i].name))
			return true;
	/* Models trained on other shells describe each command; it changes nothing. */
	return !strcmp(name, "description");
}

static bool given(const cJSON *args, const char *name)
{
	if (present(args, name))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(aliases); i++)
		if (!strcmp(aliases[i].name, name) && present(args, aliases[i].alias))
			return true;
	return false;
}

int args_check(const char *tool, const cJSON *schema, const cJSON *args, struct tool_result *out)
{
	const cJSON *props = cJSON_GetObjectItemCaseSensitive(schema, "properties");
	const cJSON *required = cJSON_GetObjectItemCaseSensitive(schema, "required");
	cleanup_buf struct buf list = {0};

	for (const cJSON *p = props ? props->child : NULL; p; p = p->next)
		(void)!buf_printf(&list, "%s%s", p->prev && p != props->child ? ", " : "",
				  p->string);
	for (const cJSON *a = args ? args->child : NULL; a; a = a->next) {
		if (cJSON_IsNull(a) || known(props, a->string))
			continue;
		(void)tool_error(out, "%s has no argument '%.60s'; it takes: %s", tool, a->string,
				 list.data ? (const char *)list.data : "none");
		return -EINVAL;
	}
	for (const cJSON *q = required ? required->child : NULL; q; q = q->next) {
		if (!cJSON_IsString(q) || given(args, q->valuestring))
			continue;
		(void)tool_error(out, "'%s' is missing; %s takes: %s", q->valuestring, tool,
				 list.data ? (const char *)list.data : "none");
		return -EINVAL;
	}
	return 0;
}
