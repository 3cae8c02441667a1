#include "mcp/compat.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"

struct rule;
/* Makes of @v, which is no longer in @args, what @r->to says. */
typedef int compat_fn(cJSON *args, cJSON *v, const struct rule *r);

struct rule {
	const char *tool; /* one, or the beginning of several names that end with '*' */
	const char *from, *to;
	compat_fn *fn; /* NULL: the value is the same under the other name */
};

/* In the place of what has the name. Takes @v; frees it when there is no memory to put it in. */
static int put(cJSON *args, const char *name, cJSON *v)
{
	cJSON_DeleteItemFromObjectCaseSensitive(args, name);
	if (v && cJSON_AddItemToObject(args, name, v))
		return 0;
	cJSON_Delete(v);
	return -ENOMEM;
}

static int drop(cJSON *args, cJSON *v, const struct rule *r)
{
	(void)args;
	(void)r;
	cJSON_Delete(v);
	return 0;
}

static double number(const cJSON *v)
{
	return cJSON_IsNumber(v)   ? v->valuedouble
	       : cJSON_IsString(v) ? strtod(v->valuestring, NULL)
				   : nan("");
}

/* The last lines: an offset that counts from the end. */
static int tail(cJSON *args, cJSON *v, const struct rule *r)
{
	double n = number(v);

	cJSON_Delete(v);
	return put(args, r->to, n > 0 ? cJSON_CreateNumber(-n) : cJSON_CreateString("tail"));
}

/* Tokens, of which a byte is a quarter. */
static int tokens(cJSON *args, cJSON *v, const struct rule *r)
{
	double n = number(v) * 4;

	cJSON_Delete(v);
	if (!isfinite(n))
		return 0;
	return put(args, r->to, cJSON_CreateNumber(n < 1024 ? 1024 : n > 204800 ? 204800 : n));
}

/* No limit is our largest. */
static int limit(cJSON *args, cJSON *v, const struct rule *r)
{
	if (number(v) > 0)
		return put(args, r->to, v);
	cJSON_Delete(v);
	return put(args, r->to, cJSON_CreateNumber(5000));
}

/* Entries counted from one: the first page is all of it. Another page is not dropped but refused, by its name. */
static int first_page(cJSON *args, cJSON *v, const struct rule *r)
{
	return number(v) <= 1 ? drop(args, v, r) : put(args, r->from, v);
}

static int words(const cJSON *list, const char *prefix, struct buf *b)
{
	const cJSON *v;
	int r = 0;

	cJSON_ArrayForEach(v, list) if (!r && cJSON_IsString(v)) r =
		buf_printf(b, "%s%s%s", b->len ? " " : "", prefix, v->valuestring);
	return r;
}

static int put_words(cJSON *args, const char *name, const struct buf *b)
{
	return b->len ? put(args, name, cJSON_CreateString((const char *)b->data)) : 0;
}

/* A list of patterns as one string. */
static int exclude(cJSON *args, cJSON *v, const struct rule *r)
{
	cleanup_buf struct buf b = {0};
	int err;

	if (!cJSON_IsArray(v))
		return put(args, r->to, v);
	err = words(v, "", &b);
	cJSON_Delete(v);
	return err ? err : put_words(args, r->to, &b);
}

/* The same in grep, whose glob can leave out. */
static int exclude_glob(cJSON *args, cJSON *v, const struct rule *r)
{
	const cJSON *glob = cJSON_GetObjectItemCaseSensitive(args, r->to);
	cleanup_buf struct buf b = {0};
	int err = cJSON_IsString(glob) ? buf_puts(&b, glob->valuestring) : 0;

	if (!err)
		err = words(v, "!", &b);
	cJSON_Delete(v);
	return err ? err : put_words(args, r->to, &b);
}

/* A language, as ripgrep names them, is the endings of its files. */
static int type_glob(cJSON *args, cJSON *v, const struct rule *r)
{
	static const char *const types[][2] = {
		{"c", "*.{c,h}"},
		{"cpp", "*.{cpp,cc,cxx,hpp,hh,hxx,h,inl}"},
		{"css", "*.{css,scss}"},
		{"html", "*.{html,htm}"},
		{"java", "*.java"},
		{"js", "*.{js,jsx,mjs,cjs,vue}"},
		{"kotlin", "*.{kt,kts}"},
		{"make", "{Makefile,makefile,GNUmakefile,*.mk,*.mak}"},
		{"markdown", "*.{md,markdown,mdx}"},
		{"md", "*.{md,markdown,mdx}"},
		{"perl", "*.{pl,pm,t}"},
		{"py", "*.{py,pyi}"},
		{"python", "*.{py,pyi}"},
		{"ruby", "*.{rb,gemspec,rake}"},
		{"rust", "*.rs"},
		{"sh", "*.{sh,bash,zsh,ksh}"},
		{"ts", "*.{ts,tsx,mts,cts}"},
		{"typescript", "*.{ts,tsx,mts,cts}"},
		{"yaml", "*.{yaml,yml}"},
	};
	const cJSON *glob = cJSON_GetObjectItemCaseSensitive(args, r->to);
	const char *name = cJSON_IsString(v) ? v->valuestring : "";
	cleanup_buf struct buf b = {0};
	int err = 0;

	/* A pattern of the caller's own says more. */
	if (!cJSON_IsString(glob) && *name)
		err = buf_printf(&b, "*.%s", name);
	for (size_t i = 0; !err && b.len && i < ARRAY_SIZE(types); i++) {
		if (strcmp(types[i][0], name) != 0)
			continue;
		buf_clear(&b);
		err = buf_puts(&b, types[i][1]);
		break;
	}
	cJSON_Delete(v);
	return err || !b.len ? err : put_words(args, r->to, &b);
}

static int quote(const char *word, struct buf *b)
{
	int r = buf_puts(b, b->len ? " '" : "'");

	for (; !r && *word; word++)
		r = *word == '\'' ? buf_puts(b, "'\\''") : buf_put(b, word, 1);
	return r ? r : buf_puts(b, "'");
}

static bool is_shell(const cJSON *v)
{
	const char *s = cJSON_IsString(v) ? v->valuestring : "", *slash = strrchr(s, '/');

	s = slash ? slash + 1 : s;
	return !strcmp(s, "bash") || !strcmp(s, "sh");
}

/* A list of words: what a shell is given to run, or a program with its arguments. */
static int command_words(cJSON *args, cJSON *v, const struct rule *r)
{
	const cJSON *flag = cJSON_GetArrayItem(v, 1), *script = cJSON_GetArrayItem(v, 2), *w;
	cleanup_buf struct buf b = {0};
	int err = 0;

	if (!cJSON_IsArray(v))
		return put(args, r->to, v);
	if (cJSON_GetArraySize(v) == 3 && is_shell(v->child) && cJSON_IsString(flag) &&
	    cJSON_IsString(script) &&
	    (!strcmp(flag->valuestring, "-c") || !strcmp(flag->valuestring, "-lc"))) {
		err = buf_puts(&b, script->valuestring);
	} else {
		cJSON_ArrayForEach(w, v) if (!err) err =
			cJSON_IsString(w) ? quote(w->valuestring, &b) : -EINVAL;
	}
	/* Not only strings, or none: let the check of types say so. */
	if (err == -EINVAL || (!err && !b.len))
		return put(args, r->to, v);
	cJSON_Delete(v);
	return err ? err : put_words(args, r->to, &b);
}

/* Another shell than ours is refused by its name. */
static int our_shell(cJSON *args, cJSON *v, const struct rule *r)
{
	return is_shell(v) ? drop(args, v, r) : put(args, r->from, v);
}

static const struct rule rules[] = {
	/* names as JavaScript writes them */
	{"*", "filePath", "path", NULL},
	{"*", "absolute_path", "path", NULL},
	{"edit", "oldString", "old_string", NULL},
	{"edit", "newString", "new_string", NULL},
	{"edit", "replaceAll", "replace_all", NULL},
	{"edit", "dryRun", "dry_run", NULL},
	/* parts of files */
	{"read_file", "head", "limit", NULL},
	{"read_file", "tail", "offset", tail},
	{"read_file", "pages", NULL, drop}, /* of PDFs */
	/* searching */
	{"grep", "type", "glob", type_glob},
	{"grep", "limit", "max_matches", limit},
	{"grep", "head_limit", "max_matches", limit},
	{"grep", "excludePatterns", "glob", exclude_glob},
	{"glob", "excludePatterns", "exclude", exclude},
	{"list_dir", "excludePatterns", "exclude", exclude},
	{"list_dir", "ignore", "exclude", exclude},
	{"list_dir", "offset", NULL, first_page},
	{"list_dir", "sortBy", NULL, drop},
	/* commands and jobs */
	{"shell_*", "cmd", "command", NULL},
	{"shell_*", "command", "command", command_words},
	{"shell_*", "shell", NULL, our_shell},
	{"shell_*", "login", NULL, drop},
	{"shell_*", "max_output_tokens", "max_output", tokens},
	{"shell_*", "dangerouslyDisableSandbox", NULL, drop},
	{"shell_*", "with_escalated_permissions", NULL, drop},
	{"shell_*", "sandbox_permissions", NULL, drop},
	{"shell_*", "additional_permissions", NULL, drop},
	{"shell_*", "prefix_rule", NULL, drop},
	{"shell_*", "justification", NULL, drop},
	{"shell_job_*", "session_id", "job_id", NULL},
	{"shell_job_input", "chars", "text", NULL},
	{"shell_job_input", "yield_time_ms", NULL, drop},
	{"shell_job_input", "max_output", NULL, drop},
	{"shell_job_output", "block", NULL, drop},
	{"shell_job_output", "timeout", NULL, drop},
};

static bool applies(const struct rule *r, const char *tool)
{
	size_t n = strlen(r->tool) - 1;

	return r->tool[n] == '*' ? !strncmp(r->tool, tool, n) : !strcmp(r->tool, tool);
}

static int apply(cJSON *args, const struct rule *r)
{
	const cJSON *have = cJSON_GetObjectItemCaseSensitive(args, r->from), *there = NULL;
	cJSON *v;

	if (!have || cJSON_IsNull(have))
		return 0;
	if (r->to && strcmp(r->to, r->from) != 0)
		there = cJSON_GetObjectItemCaseSensitive(args, r->to);
	/* Two names for one thing: the same twice is once, two values are for the check to refuse. A glob takes both. */
	if (there && !cJSON_IsNull(there) && r->fn != type_glob && r->fn != exclude_glob &&
	    (r->fn || !cJSON_Compare(have, there, true)))
		return 0;
	v = cJSON_DetachItemFromObjectCaseSensitive(args, r->from);
	return r->fn ? r->fn(args, v, r) : put(args, r->to, v);
}

int compat_args(const char *tool, cJSON *args)
{
	int r = 0;

	if (!args)
		return 0;
	for (size_t i = 0; !r && i < ARRAY_SIZE(rules); i++)
		if (applies(&rules[i], tool))
			r = apply(args, &rules[i]);
	return r;
}
