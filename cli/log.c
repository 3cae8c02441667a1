/* rattan log: the commits, newest first. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

struct name {
	char name[256], id[65];
	bool at_base, told;
};

struct out {
	cJSON *json; /* or NULL: text */
	unsigned long left, shown, damaged;
	const char *head; /* where it is */
	bool all;
	struct name *names;
	size_t nnames;
};

static int on_ref(void *arg, const struct ctl_ref *r)
{
	struct out *o = arg;
	struct name *v;

	if (!o->all && !r->at_base && !strncmp(r->name, "base/", 5))
		return 0;

	/* What every store has, and is the base where it is one. */
	if (!strcmp(r->name, "base/host"))
		return 0;
	v = reallocarray(o->names, o->nnames + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	o->names = v;
	v = &v[o->nnames++];
	*v = (struct name){.at_base = r->at_base};
	memcpy(v->name, r->name, sizeof(v->name));
	memcpy(v->id, r->id, sizeof(v->id));
	return 0;
}

static bool is_head(const struct out *o, const struct ctl_commit *cm)
{
	return !cm->damaged && !strcmp(cm->id, o->head);
}

static bool names(const struct name *n, const struct ctl_commit *cm)
{
	return *n->id && !cm->damaged && !strcmp(n->id, cm->id);
}

/* "(v1, v2)": its tags. A label that is none of them: an automatic state's says whose it is, another's was a tag that has been moved
 * or removed since, and names nothing any more. */
static void put_names(const struct out *o, const struct ctl_commit *cm, bool sep)
{
	const char *before = sep ? "  (" : "(";
	bool label = *cm->label;

	for (size_t i = 0; i < o->nnames; i++) {
		if (!names(&o->names[i], cm))
			continue;
		printf("%s%s", before, o->names[i].name);
		before = ", ";
		label &= strcmp(o->names[i].name, cm->label) != 0;
	}
	if (label) {
		printf("%s%s", before, cm->automatic ? "" : "labelled ");
		cli_put(stdout, cm->label);
		before = ", ";
	}
	if (*before == ',')
		printf(")");
}

/* What no line above has told: the names of bases, and of states that are not listed. */
static void put_others(const struct out *o)
{
	for (size_t i = 0; i < o->nnames; i++)
		if (!o->names[i].told)
			printf("%-12.12s  (%s)\n",
			       *o->names[i].id       ? o->names[i].id
			       : o->names[i].at_base ? "base"
						     : "-",
			       o->names[i].name);
}

static void put_text(const struct out *o, const struct ctl_commit *cm)
{
	const char *message = cm->message ? cm->message : "";
	char when[32] = "";
	struct tm tm;

	if (cm->damaged) {
		printf("%.12s  damaged: rattan fsck tells more\n", *cm->id ? cm->id : "?");
		return;
	}
	if (localtime_r(&cm->time.tv_sec, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	printf("%.12s  %s  +%llu ~%llu -%llu  ", cm->id, when, (unsigned long long)cm->added,
	       (unsigned long long)cm->modified, (unsigned long long)cm->deleted);
	printf("%s%s", is_head(o, cm) ? "[head] " : "", cm->automatic ? "[auto] " : "");
	cli_put(stdout, message);
	put_names(o, cm, *message);
	printf("\n");
}

static void put_json(const struct out *out, const struct ctl_commit *cm)
{
	cJSON *o = cJSON_CreateObject(), *tags = cJSON_AddArrayToObject(o, "tags");
	char when[40] = "";
	struct tm tm;

	for (size_t i = 0; i < out->nnames; i++)
		if (names(&out->names[i], cm))
			(void)cJSON_AddItemToArray(tags, cJSON_CreateString(out->names[i].name));

	if (gmtime_r(&cm->time.tv_sec, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	cli_json_str(o, "id", cm->id);
	cli_json_str(o, "parent", cm->parent);
	cli_json_str(o, "environment", cm->env);
	cli_json_str(o, "label", cm->label);
	cli_json_str(o, "message", cm->message ? cm->message : "");
	(void)cJSON_AddBoolToObject(o, "automatic", cm->automatic);
	(void)cJSON_AddBoolToObject(o, "at_head", is_head(out, cm));
	(void)cJSON_AddBoolToObject(o, "damaged", cm->damaged);
	cli_json_str(o, "time", when);
	(void)cJSON_AddNumberToObject(o, "added", (double)cm->added);
	(void)cJSON_AddNumberToObject(o, "modified", (double)cm->modified);
	(void)cJSON_AddNumberToObject(o, "deleted", (double)cm->deleted);
	(void)cJSON_AddItemToArray(out->json, o);
}

static int on_commit(void *arg, const struct ctl_commit *cm)
{
	struct out *o = arg;

	for (size_t i = 0; i < o->nnames; i++)
		o->names[i].told |= names(&o->names[i], cm);
	if (!o->left)
		return 0;
	o->left--;
	o->shown++;
	o->damaged += cm->damaged;
	if (o->json)
		put_json(o, cm);
	else
		put_text(o, cm);
	return 0;
}

/* Below the commits: how the image that the environment began on was made. */
static int on_step(void *arg, const struct ctl_step *s)
{
	struct out *o = arg;

	if (!o->left)
		return 0;
	o->left--;
	cli_put_step(s, "[base] ");
	return 0;
}

static int run(int argc, char **argv)
{
	const char *env = NULL, *count = NULL;
	bool json = false, all = false, automatic = false;
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		{"all", 'a', CLI_FLAG, &all, NULL, "of all environments"},
		{"auto", 0, CLI_FLAG, &automatic, NULL, "automatic states as well"},
		{"number", 'n', CLI_TEXT, &count, "N", "at most N"},
		{"json", 0, CLI_FLAG, &json, NULL, "as JSON"},
		{0},
	};
	cleanup_env struct cli_env e = {0};
	struct out out = {.left = ~0ul};
	struct ctl_status st;
	struct diag diag = {0};
	char **rest, *end;
	bool based;
	int n, r = cli_parse(&cmd_log, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n)
		return cli_fail(CLI_USAGE, "log: takes no argument; -e %s names an environment",
				rest[0]);
	if (count) {
		out.left = strtoul(count, &end, 10);
		if (end == count || *end || *count == '-' || !out.left)
			return cli_fail(CLI_USAGE, "log: -n %s is not a number from 1 on", count);
	}
	r = cli_connect(env, &e.client, &e.ctl);
	if (r >= 0)
		return r;
	r = ctl_status(e.ctl, &diag, &st);
	if (r < 0)
		return cli_fail_errno(r, &diag, "log");
	out.head = st.head;
	out.all = all;
	if (json)
		out.json = cJSON_CreateArray();
	r = ctl_refs(e.ctl, all, &diag, on_ref, &out);
	if (r == 0)
		r = ctl_log(e.ctl, all, automatic, &diag, on_commit, &out);
	/* the base "host" is of no image */
	based = st.base[0] && strcmp(st.base, CTL_BASE_HOST) != 0;
	ctl_status_release(&st);
	if (r == 0 && !json && !out.shown)
		printf("no commits yet: %s is at its base\n", client_env(e.client));
	if (r == 0 && !json && !all && based)
		r = ctl_base_history(NULL, NULL, client_env(e.client), &diag, on_step, &out);
	if (r == 0 && !json)
		put_others(&out);
	free(out.names);
	if (r < 0) {
		cJSON_Delete(out.json);
		return cli_fail_errno(r, &diag, "log");
	}
	r = json ? cli_print_json(out.json) : cli_done();
	return out.damaged && r == CLI_OK ? CLI_FAILED : r;
}

const struct cli_command cmd_log = {
	.name = "log",
	.args = "[-e NAME] [--all] [--auto] [-n N] [--json]",
	.summary = "commits, newest first",
	.details =
		"A line is: id, time, files +added ~modified or renamed -deleted, message, (tags). [head] is the\n"
		"commit that the environment is at; [auto], with --auto, what a rollback, a reset or the\n"
		"end of an MCP session left behind, and the states after each of a session's calls. Of a fork also those before it.\n"
		"[base]: how the image was made that the environment began on; ids there are not of this store.\n"
		"Last come other names that a revision may have: of the environment's base (with --all of every\n"
		"base), and of states that are not listed.\n\n"
		"Example:\n  rattan log -n 10\n",
	.run = run,
};
