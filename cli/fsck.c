/* rattan fsck: is the store whole, and if not, which files and commits are touched? */
#include <string.h>

#include "cli/cli.h"

/* Of this command alone: as fsck(8) tells them apart. */
enum {
	FSCK_DAMAGED = 1,
	FSCK_REPAIRED = 5,
	FSCK_NOT_CHECKED = 8,
};

struct report {
	struct cli_work work;
	cJSON *found; /* JSON wanted */
};

static int on_progress(void *arg, const char *stage, uint64_t done, uint64_t total)
{
	return cli_work_on(&((struct report *)arg)->work, stage, done, total);
}

static int on_idle(void *arg)
{
	return cli_work_idle(&((struct report *)arg)->work);
}

static void put_list(const char *what, char **v, uint64_t n, int len)
{
	uint64_t shown = 0;

	if (!n)
		return;
	printf("  %s", what);
	for (; v && v[shown]; shown++)
		printf("%s %.*s", shown ? "," : "", len, v[shown]);
	if (n > shown)
		printf(" and %llu more", (unsigned long long)(n - shown));
	putchar('\n');
}

static int put_text(void *arg, const struct ctl_finding *f)
{
	const char *word = f->state == 'N'   ? "note: "
			   : f->state == 'F' ? "repaired: "
			   : f->state == 'R' ? "damage (can be repaired): "
					     : "damage: ";

	cli_bar_clear(&((struct report *)arg)->work.bar);
	if (f->path) {
		cli_put(stdout, f->path);
		fputs(": ", stdout);
	}
	fputs(word, stdout);
	cli_put(stdout, f->text);
	putchar('\n');
	put_list("in the working tree of", f->envs, f->nenvs, 64);
	put_list("in the commits", f->commits, f->ncommits, 12);
	return fflush(stdout) ? -EIO : 0;
}

static void json_list(cJSON *o, const char *key, char **v)
{
	cJSON *a = cJSON_AddArrayToObject(o, key);

	for (size_t i = 0; v && v[i]; i++)
		(void)cJSON_AddItemToArray(a, cJSON_CreateString(v[i]));
}

static int put_json(void *arg, const struct ctl_finding *f)
{
	struct report *r = arg;
	cJSON *o = cJSON_CreateObject();

	cli_bar_clear(&r->work.bar);
	cli_json_str(o, "state",
		     f->state == 'N'   ? "note"
		     : f->state == 'F' ? "repaired"
		     : f->state == 'R' ? "repairable"
				       : "damage");
	cli_json_str(o, "kind", f->kind);
	cli_json_str(o, "where", f->where);
	cli_json_str(o, "text", f->text);
	if (f->path)
		cli_json_str(o, "path", f->path);
	json_list(o, "environments", f->envs);
	json_list(o, "commits", f->commits);
	(void)cJSON_AddNumberToObject(o, "environment_count", (double)f->nenvs);
	(void)cJSON_AddNumberToObject(o, "commit_count", (double)f->ncommits);
	return cJSON_AddItemToArray(r->found, o) ? 0 : -ENOMEM;
}

static int verdict(const struct ctl_fsck_sum *s)
{
	if (s->damaged || s->repairable)
		return FSCK_DAMAGED;
	return s->repaired ? FSCK_REPAIRED : CLI_OK;
}

static int sum_json(struct report *r, const struct ctl_fsck_sum *s)
{
	const struct {
		const char *key;
		uint64_t n;
	} nums[] = {{"records", s->records},  {"chunks", s->chunks}, {"chunk_bytes", s->bytes},
		    {"pages", s->pages},      {"layers", s->layers}, {"commits", s->commits},
		    {"environments", s->envs}};
	int code = verdict(s), k;
	cJSON *o = cJSON_CreateObject(), *sum;

	cli_json_str(o, "state",
		     code == CLI_OK          ? "clean"
		     : code == FSCK_REPAIRED ? "repaired"
					     : "damaged");
	sum = cJSON_AddObjectToObject(o, "checked");
	for (size_t i = 0; i < ARRAY_SIZE(nums); i++)
		(void)cJSON_AddNumberToObject(sum, nums[i].key, (double)nums[i].n);
	(void)cJSON_AddNumberToObject(o, "damaged", (double)s->damaged);
	(void)cJSON_AddNumberToObject(o, "repairable", (double)s->repairable);
	(void)cJSON_AddNumberToObject(o, "repaired", (double)s->repaired);
	(void)cJSON_AddItemToObject(o, "findings", r->found);
	r->found = NULL;
	k = cli_print_json(o);
	return k ? FSCK_NOT_CHECKED : code;
}

static int sum_text(const struct ctl_fsck_sum *s, bool repair)
{
	int code = verdict(s);

	printf("%llu records, %llu chunks", (unsigned long long)s->records,
	       (unsigned long long)s->chunks);
	if (s->bytes) {
		fputs(" (", stdout);
		cli_put_size(stdout, s->bytes);
		fputs(")", stdout);
	}
	printf(", %llu commits, %llu environments: ", (unsigned long long)s->commits,
	       (unsigned long long)s->envs);
	if (code == CLI_OK)
		puts("clean");
	else if (code == FSCK_REPAIRED)
		printf("%llu repaired, clean now\n", (unsigned long long)s->repaired);
	else
		printf("%llu damaged\n", (unsigned long long)(s->damaged + s->repairable));
	if (s->repairable && !repair)
		puts("rattan fsck --repair rebuilds what sound data tells; the rest needs a backup");
	return cli_done() ? FSCK_NOT_CHECKED : code;
}

static int run(int argc, char **argv)
{
	bool json = false, quick = false, repair = false;
	const char *data = NULL;
	const struct cli_opt opts[] = {
		{"data-dir", 0, CLI_TEXT, &data, "DIR", "the store of this data directory"},
		{"json", 0, CLI_FLAG, &json, NULL, "the report as JSON"},
		{"quick", 'q', CLI_FLAG, &quick, NULL,
		 "records only; do not read the bytes of files"},
		{"repair", 0, CLI_FLAG, &repair, NULL,
		 "rebuild what can be rebuilt from sound data"},
		{0},
	};
	struct report rep = {0};
	struct ctl_fsck_opts o = {.progress = on_progress, .idle = on_idle, .arg = &rep};
	struct ctl_fsck_sum sum = {0};
	struct diag diag = {0};
	char **rest;
	int n, r = cli_parse(&cmd_fsck, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n)
		return cli_fail(CLI_USAGE, "fsck: '%s' is not an option; it takes no names",
				rest[0]);
	cli_work_begin(&rep.work, "checking");
	o.data_dir = data;
	o.quick = quick;
	o.repair = repair;
	o.finding = json ? put_json : put_text;
	rep.found = json ? cJSON_CreateArray() : NULL;
	r = ctl_fsck(&o, &diag, &sum);
	cli_work_end(&rep.work, r == 0   ? NULL
				: repair ? "not all was checked; what was repaired is"
					 : "not all was checked");
	if (r < 0) {
		int code = cli_fail_errno(r, &diag, "fsck");

		cJSON_Delete(rep.found);
		return code == CLI_FAILED ? FSCK_NOT_CHECKED : code;
	}
	return json ? sum_json(&rep, &sum) : sum_text(&sum, repair);
}

const struct cli_command cmd_fsck = {
	.name = "fsck",
	.args = "[--data-dir DIR] [--json] [--quick] [--repair]",
	.summary = "check the whole store, and name what damage touches",
	.details =
		"Looks at every page, record, reference, count and digest of the store, beside whatever uses\n"
		"it, and names the files, working trees and commits that damage touches. All else stays usable:\n"
		"reading a damaged file is an error (EIO), never wrong bytes.\n\n"
		"--repair rebuilds indexes, counts and journals from sound records, and lists each; nothing\n"
		"may use the store then. What has no second copy is not invented.\n\n"
		"Exit codes: 0 clean; 1 damage was found, and is there; 2 usage; 3 no store; 4 in use (--repair);\n"
		"5 damage was found, and all of it repaired; 8 it could not be checked.\n\n"
		"Example:\n  rattan fsck && cp -a ~/.local/share/rattan /backup/\n",
	.run = run,
};
