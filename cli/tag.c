/* rattan tag: names for states of an environment. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

struct args {
	const char *env, *remove;
	bool all, force, json;
};

struct out {
	cJSON *json; /* or NULL: text */
	size_t n;
};

static const char *state_of(const struct ctl_ref *r)
{
	return *r->id ? r->id : r->at_base ? "base" : r->damaged ? "damaged" : "-";
}

static void put_json(cJSON *o, const struct ctl_ref *r)
{
	char when[40] = "";
	struct tm tm;

	if (r->time.tv_sec && gmtime_r(&r->time.tv_sec, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	cli_json_str(o, "name", r->name);
	cli_json_str(o, "id", r->id);
	(void)cJSON_AddBoolToObject(o, "at_base", r->at_base);
	(void)cJSON_AddBoolToObject(o, "automatic", r->automatic);
	(void)cJSON_AddBoolToObject(o, "damaged", r->damaged);
	cli_json_str(o, "time", when);
	cli_json_str(o, "message", r->message ? r->message : "");
}

static int on_ref(void *arg, const struct ctl_ref *r)
{
	struct out *out = arg;
	char when[32] = "";
	struct tm tm;

	out->n++;
	if (out->json) {
		cJSON *o = cJSON_CreateObject();

		put_json(o, r);
		(void)cJSON_AddItemToArray(out->json, o);
		return 0;
	}
	if (r->time.tv_sec && localtime_r(&r->time.tv_sec, &tm))
		(void)strftime(when, sizeof(when), "  %Y-%m-%d %H:%M:%S", &tm);
	printf("%-24s %.12s%s%s", r->name, state_of(r), when, r->automatic ? "  [auto]" : "");
	if (r->message && *r->message)
		printf("  ");
	cli_put(stdout, r->message ? r->message : "");
	printf("\n");
	return 0;
}

static int list(const struct args *a, const struct cli_env *e)
{
	struct out out = {.json = a->json ? cJSON_CreateArray() : NULL};
	struct diag diag = {0};
	int r = ctl_refs(e->ctl, a->all, &diag, on_ref, &out);

	if (r < 0) {
		cJSON_Delete(out.json);
		return cli_fail_errno(r, &diag, "tag");
	}
	return a->json ? cli_print_json(out.json) : cli_done();
}

/* What was done to the tag. */
static int tell(const struct args *a, const struct ctl_ref *r, const char *env)
{
	cJSON *o;

	if (!a->json) {
		printf("%s %s %.12s in %s", r->name, a->remove ? "named" : "is", state_of(r), env);
		if (*r->was)
			printf("; it was %.12s", r->was);
		printf("\n");
		return cli_done();
	}
	o = cJSON_CreateObject();
	put_json(o, r);
	if (!a->remove)
		cli_json_str(o, "was", r->was);
	return cli_print_json(o);
}

static int work(const struct args *a, char **rest, int n)
{
	cleanup_env struct cli_env e = {0};
	struct diag diag = {0};
	struct ctl_ref ref = {0};
	int r = cli_connect(a->env, &e.client, &e.ctl);

	if (r >= 0)
		return r;
	if (!n && !a->remove)
		return list(a, &e);
	r = a->remove ? ctl_untag(e.ctl, a->remove, &diag, &ref)
		      : ctl_tag(e.ctl, rest[0], n == 2 ? rest[1] : NULL, a->force, &diag, &ref);
	if (r < 0)
		return cli_fail_errno(r, &diag, "tag");
	r = tell(a, &ref, client_env(e.client));
	ctl_ref_release(&ref);
	return r;
}

/* What other commands have for a first word, and what would be a tag nobody meant. */
static bool is_word(const char *s)
{
	static const char *const words[] = {"list", "ls", "rm", "remove", "delete", NULL};

	for (const char *const *w = words; *w; w++)
		if (!strcmp(*w, s))
			return true;
	return false;
}

static int run(int argc, char **argv)
{
	struct args a = {0};
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &a.env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		{"delete", 'd', CLI_TEXT, &a.remove, "NAME", "remove this tag; the state stays"},
		{"force", 'f', CLI_FLAG, &a.force, NULL, "move a tag that names another state"},
		{"all", 'a', CLI_FLAG, &a.all, NULL, "list those of all environments, as ENV:NAME"},
		{"json", 0, CLI_FLAG, &a.json, NULL, "as JSON"},
		{0},
	};
	char **rest;
	int n, r = cli_parse(&cmd_tag, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n > 2)
		return cli_fail(CLI_USAGE, "tag: give a name, and a revision if it is not head");
	if (n && is_word(rest[0]))
		return cli_fail(
			CLI_USAGE,
			"tag: '%s' is taken for no name; rattan tag lists, rattan tag -d NAME "
			"removes one",
			rest[0]);
	if (n && a.remove)
		return cli_fail(CLI_USAGE, "tag: -d %s takes no further name", a.remove);
	if (n && a.all)
		return cli_fail(CLI_USAGE, "tag: --all is for listing; ENV:REV names a state of "
					   "another environment");
	return work(&a, rest, n);
}

const struct cli_command cmd_tag = {
	.name = "tag",
	.args = "[NAME [REV] | -d NAME] [-e NAME] [--force] [--all] [--json]",
	.summary = "names for states",
	.details =
		"A tag names a state of an environment wherever a revision is taken, and keeps it from being\n"
		"collected: rattan rollback NAME, rattan diff NAME, rattan fork NEW NAME, rattan mount NAME DIR.\n"
		"REV as for rollback; without it head, the last commit. rattan commit --label tags at once. 1 to 64\n"
		"of A-Z a-z 0-9 . _ -; not head or base, nor hex digits alone. A tag that names another state is\n"
		"moved with --force alone. Tags go with their environment; a fork begins with those of its history,\n"
		"and ENV:NAME is another environment's. Without a name all are listed, with the names of bases.\n\n"
		"Example:\n  rattan tag before-upgrade && rattan rollback before-upgrade\n",
	.run = run,
};
