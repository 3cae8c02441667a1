/* rattan diff: what changed, by name and by content. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/diff_internal.h"
#include "cli/place.h"

struct changes {
	struct change *v;
	size_t n, cap;
	const char *below; /* only at or below this path; NULL: all */
};

static void changes_release(struct changes *c)
{
	for (size_t i = 0; i < c->n; i++) {
		free(c->v[i].path);
		free(c->v[i].old_path);
	}
	free(c->v);
}

static int on_change(void *arg, const struct ctl_change *ch)
{
	struct changes *c = arg;
	struct change *v;

	if (c->below && !hostdir_below(ch->path, c->below) &&
	    !(ch->old_path && hostdir_below(ch->old_path, c->below)))
		return 0;
	if (c->n == c->cap) {
		size_t cap = c->cap ? c->cap * 2 : 64;

		v = realloc(c->v, cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		c->v = v;
		c->cap = cap;
	}
	v = &c->v[c->n];
	*v = (struct change){.kind = ch->kind,
			     .path = strdup(ch->path),
			     .mode = ch->mode,
			     .size = ch->size,
			     .what = ch->what};
	if (ch->old_path)
		v->old_path = strdup(ch->old_path);
	c->n++;
	return v->path && (v->old_path || !ch->old_path) ? 0 : -ENOMEM;
}

/* ---- by name ---- */

static enum cli_colour colour_of(char kind)
{
	return kind == 'A'   ? CLI_GREEN
	       : kind == 'D' ? CLI_RED
	       : kind == 'R' ? CLI_CYAN
			     : CLI_YELLOW;
}

/* As they are: a kind, and one name or, of a rename, the old one and the new one, each with a NUL after it. */
static void put_raw(const struct change *c)
{
	const char *const words[] = {c->kind == 'R' && c->old_path ? c->old_path : NULL, c->path};

	printf("%c%c", c->kind, 0);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (words[i])
			(void)fwrite(words[i], 1, strlen(words[i]) + 1, stdout);
}

static void put_name(const struct cli_page *pg, const struct change *c)
{
	cli_colour(pg, colour_of(c->kind));
	printf("%c ", c->kind);
	if (c->old_path && c->kind == 'R') {
		cli_put(stdout, c->old_path);
		printf(" -> ");
	}
	cli_put(stdout, c->path);
	printf("%s", S_ISDIR(c->mode) ? "/" : "");
	cli_colour(pg, CLI_PLAIN);
	printf("\n");
}

static void put_stat(const struct changes *c)
{
	uint64_t bytes = 0;
	size_t count[128] = {0};

	for (size_t i = 0; i < c->n; i++) {
		count[c->v[i].kind & 127]++;
		bytes += S_ISREG(c->v[i].mode) && c->v[i].kind != 'D' ? c->v[i].size : 0;
	}
	printf("%zu changed: %zu added, %zu modified, %zu deleted, %zu renamed, %zu of another type; now ",
	       c->n, count['A'], count['M'], count['D'], count['R'], count['T']);
	cli_put_size(stdout, bytes);
	printf("\n");
}

/* Of what is neither new nor gone. */
static cJSON *json_what(const struct change *c)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} names[] = {{CTL_CONTENT, "content"},
		     {CTL_MODE, "mode"},
		     {CTL_OWNER, "owner"},
		     {CTL_XATTRS, "xattrs"},
		     {CTL_TIMES, "times"}};
	cJSON *list = cJSON_CreateArray();

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (c->what & names[i].bit)
			(void)cJSON_AddItemToArray(list, cJSON_CreateString(names[i].name));
	return list;
}

static int put_json(const struct changes *c)
{
	cJSON *list = cJSON_CreateArray();

	for (size_t i = 0; i < c->n; i++) {
		char kind[2] = {c->v[i].kind, 0}, mode[12];
		cJSON *o = cJSON_CreateObject();

		(void)snprintf(mode, sizeof(mode), "%06o", c->v[i].mode);
		cli_json_str(o, "kind", kind);
		cli_json_str(o, "path", c->v[i].path);
		if (c->v[i].old_path)
			cli_json_str(o, "old_path", c->v[i].old_path);
		cli_json_str(o, "mode", mode);
		(void)cJSON_AddNumberToObject(o, "size", (double)c->v[i].size);
		if (c->v[i].kind == 'M' || c->v[i].kind == 'R')
			(void)cJSON_AddItemToObject(o, "changed", json_what(&c->v[i]));
		(void)cJSON_AddItemToArray(list, o);
	}
	return cli_print_json(list);
}

/* ---- the command ---- */

struct args {
	const char *env;
	struct cli_diff_opts show;
	const char *a, *b, *path;
};

/* [A [B]] [PATH] */
static int words(struct args *a, char **rest, int n)
{
	for (int i = 0; i < n; i++) {
		if (cli_diff_path(rest[i])) {
			if (i != n - 1)
				return cli_fail(CLI_USAGE, "diff: a path comes last: '%s'",
						rest[i]);
			a->path = rest[i];
		} else if (i == 0) {
			a->a = rest[i];
		} else if (i == 1) {
			a->b = rest[i];
		} else {
			return cli_fail(CLI_USAGE,
					"diff: too much: '%s'; a path has a slash, such as ./%s",
					rest[i], rest[i]);
		}
	}
	return -1;
}

static int put_all(struct cli_page *pg, const struct cli_diff_opts *o, struct ctl *ctl,
		   const char *rev_a, const char *rev_b, const struct changes *c)
{
	const struct change *at;
	int r;

	if (o->json)
		return put_json(c);
	for (size_t i = 0; o->raw && i < c->n; i++)
		put_raw(&c->v[i]);
	for (size_t i = 0; !o->raw && !o->stat && i < c->n; i++)
		put_name(pg, &c->v[i]);
	if (o->stat)
		put_stat(c);
	if (o->stat || o->names || o->raw)
		return cli_done();
	r = diff_put_contents(pg, ctl, rev_a, rev_b, c->v, c->n, &at);
	if (r < 0)
		cli_page_end(pg);
	if (r == -ENOENT)
		return cli_fail(
			CLI_FAILED,
			"diff: the program diff is not installed; --name-status needs none");
	if (r < 0)
		return cli_fail_errno(r, NULL, at->path);
	return cli_done();
}

int cli_diff_check(const struct cli_diff_opts *o, const char *name)
{
	if (o->raw && (o->stat || o->json))
		return cli_fail(CLI_USAGE, "%s: -z is of names; --stat and --json have none", name);
	return -1;
}

bool cli_diff_path(const char *word)
{
	return strchr(word, '/') || !strcmp(word, ".") || !strcmp(word, "..");
}

static int load(struct ctl *ctl, const char *a, const char *b, struct diag *diag, struct changes *c)
{
	struct cli_work work;
	int r;

	cli_wait_begin(&work, ctl, "comparing");
	r = ctl_diff(ctl, a, b, diag, on_change, c);
	cli_wait_end(&work, ctl, r < 0 ? "nothing was changed" : NULL);
	return r;
}

/* What is at or below the first of @p's places that has a change. */
static int load_place(struct ctl *ctl, const char *a, const char *b, const struct cli_place *p,
		      struct diag *diag, struct changes *c)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(p->at) && !c->n; i++) {
		if (i && !p->at[i])
			break;
		c->below = p->at[i];
		r = load(ctl, a, b, diag, c);
	}
	return r;
}

int cli_diff_between(struct ctl *ctl, const char *a, const char *b, const char *path,
		     const struct cli_diff_opts *o, const char *name, void (*head)(void *arg),
		     void *arg)
{
	__attribute__((cleanup(changes_release))) struct changes c = {0};
	cleanup_place struct cli_place place = {0};
	const char *from = a ? a : "head";
	struct diag diag = {0};
	struct cli_page pg;
	int r = path ? cli_place(ctl, path, name, &place) : -1;

	if (r >= 0)
		return r;
	r = load_place(ctl, a, b, &place, &diag, &c);
	if (r == -ENOENT && a && *diag.text)
		return cli_fail(CLI_NOT_FOUND, "%s%s", diag.text,
				head ? "" : "; a path has a slash, such as ./src");
	if (r < 0)
		return cli_fail_errno(r, &diag, name);
	r = path && !c.n ? cli_place_unchanged(ctl, &place, from, b, path, name) : -1;
	if (r >= 0)
		return r;
	cli_page_start(&pg, o->no_pager || o->raw || o->json);
	if (head && !o->json && !o->raw)
		head(arg);
	r = put_all(&pg, o, ctl, from, b, &c);
	cli_page_end(&pg);
	return r;
}

static int diff(struct args *a, char **rest, int n)
{
	cleanup_env struct cli_env e = {0};
	int r = cli_diff_check(&a->show, "diff");

	if (r < 0)
		r = words(a, rest, n);
	if (r < 0)
		r = cli_connect(a->env, &e.client, &e.ctl);
	return r >= 0 ? r
		      : cli_diff_between(e.ctl, a->a, a->b, a->path, &a->show, "diff", NULL, NULL);
}

static int run(int argc, char **argv)
{
	struct args a = {0};
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &a.env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		CLI_DIFF_OPTS(a.show),
		{0},
	};
	char **rest;
	int n, r = cli_parse(&cmd_diff, opts, argc, argv, false, &rest, &n);

	return r >= 0 ? r : diff(&a, rest, n);
}

const struct cli_command cmd_diff = {
	.name = "diff",
	.args = "[A [B]] [PATH] [-e NAME] [--name-status | --stat | --json | -z]",
	.summary = "what changed",
	.details =
		"Without revisions: from head to the working tree; A: from A to the working tree; A B:\n"
		"between the two. PATH (with a slash) limits it to that file or directory: ./FILE, ../FILE or\n"
		"a path of the host is that file of a directory that is shown; dir/FILE is below this\n"
		"directory, or else below /workspace. Where there is neither a change nor a file the exit\n"
		"code is 3.\n\n"
		"Kinds: A added, M modified, D deleted, R renamed, T of another type. With -z names are as they\n"
		"are: the kind, the path, of a rename the old and the new one, with a NUL after each.\n\n"
		"On a terminal it is in colours (not with NO_COLOR), and by the page: through PAGER, or less.\n\n"
		"Examples:\n  rattan diff\n  rattan diff base head --name-status\n  rattan diff ./src\n  rattan diff /workspace/src\n",
	.run = run,
};
