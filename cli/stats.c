/* rattan stats: what takes the space in the store, and whose it is. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

struct rows {
	struct ctl_usage_row *v;
	size_t n;
	struct cli_work work;
};

static int on_progress(void *arg, const char *stage, uint64_t done, uint64_t total)
{
	return cli_work_on(&((struct rows *)arg)->work, stage, done, total);
}

static int on_idle(void *arg)
{
	return cli_work_idle(&((struct rows *)arg)->work);
}

static int on_row(void *arg, const struct ctl_usage_row *r)
{
	struct rows *x = arg;
	struct ctl_usage_row *v = realloc(x->v, (x->n + 1) * sizeof(*v));

	if (!v)
		return -ENOMEM;
	x->v = v;
	v[x->n++] = *r;
	return 0;
}

static uint64_t bytes(const struct ctl_usage_size *s)
{
	return s->chunk_bytes + s->record_bytes;
}

/* ---- for programs ---- */

static void json_num(cJSON *o, const char *key, uint64_t n)
{
	(void)cJSON_AddNumberToObject(o, key, (double)n);
}

static void json_size(cJSON *o, const char *key, const struct ctl_usage_size *s)
{
	cJSON *one = cJSON_AddObjectToObject(o, key);

	json_num(one, "bytes", bytes(s));
	json_num(one, "chunks", s->chunks);
	json_num(one, "chunk_bytes", s->chunk_bytes);
	json_num(one, "records", s->records);
	json_num(one, "record_bytes", s->record_bytes);
}

static void json_row(cJSON *list, const struct ctl_usage_row *r)
{
	cJSON *o = cJSON_CreateObject();

	cli_json_str(o, "kind", r->kind);
	cli_json_str(o, "name", r->name);
	json_size(o, "reaches", &r->reaches);
	json_size(o, "alone", &r->alone);
	json_size(o, "commits", &r->commits);
	json_size(o, "undo", &r->undo);
	json_num(o, "states", r->states);
	(void)cJSON_AddItemToArray(list, o);
}

static int put_json(const struct rows *x, const struct ctl_usage_sum *s)
{
	cJSON *o = cJSON_CreateObject(), *list;

	json_num(o, "disk_bytes", s->chunk_file_bytes + s->meta_file_bytes + s->other_file_bytes);
	json_num(o, "chunk_file_bytes", s->chunk_file_bytes);
	json_num(o, "meta_file_bytes", s->meta_file_bytes);
	json_num(o, "other_file_bytes", s->other_file_bytes);
	json_num(o, "free_bytes", s->free_bytes);
	json_size(o, "total", &s->total);
	json_size(o, "shared", &s->shared);
	json_size(o, "garbage", &s->garbage);
	json_num(o, "compressed_chunks", s->packed);
	json_num(o, "compressed_bytes", s->packed_bytes);
	json_num(o, "compressed_from_bytes", s->packed_raw);
	json_num(o, "damaged", s->damaged);
	list = cJSON_AddArrayToObject(o, "owners");
	for (size_t i = 0; i < x->n; i++)
		json_row(list, &x->v[i]);
	return cli_print_json(o);
}

/* ---- for people ---- */

static void put_sum(const struct ctl_usage_sum *s)
{
	cli_put_size(stdout, s->chunk_file_bytes + s->meta_file_bytes + s->other_file_bytes);
	printf(" on the disk: ");
	cli_put_size(stdout, s->total.chunk_bytes);
	printf(" in %llu chunks, ", (unsigned long long)s->total.chunks);
	cli_put_size(stdout, s->total.record_bytes);
	printf(" in %llu records, ", (unsigned long long)s->total.records);
	cli_put_size(stdout, s->free_bytes);
	printf(" free for what comes; gc would remove ");
	cli_put_size(stdout, bytes(&s->garbage));
	printf("\n");
	if (s->packed) {
		printf("%llu of the chunks are compressed, ", (unsigned long long)s->packed);
		cli_put_size(stdout, s->packed_raw);
		printf(" to ");
		cli_put_size(stdout, s->packed_bytes);
		printf("\n");
	}
	if (s->damaged)
		printf("%llu records are damaged, and what they name counts as removable: see rattan fsck\n",
		       (unsigned long long)s->damaged);
}

static void put_cell(uint64_t n)
{
	char text[32] = "";
	FILE *f = fmemopen(text, sizeof(text), "w");

	if (f) {
		cli_put_size(f, n);
		(void)fclose(f);
	}
	printf(" %11s", text);
}

static void put_row(const struct ctl_usage_row *r)
{
	const char *what = !strcmp(r->kind, "removed") ? "commits of removed environments"
			   : !strcmp(r->kind, "other") ? "mounts, and what is being made"
						       : r->name;

	/* Nothing is mounted, mostly. */
	if (!*r->name && !bytes(&r->reaches))
		return;
	printf("%-32s %-11s", what, *r->name ? r->kind : "-");
	put_cell(bytes(&r->reaches));
	put_cell(bytes(&r->alone));
	put_cell(bytes(&r->commits));
	put_cell(bytes(&r->undo));
	printf(" %7llu\n", (unsigned long long)r->states);
}

static int put_text(const struct rows *x, const struct ctl_usage_sum *s)
{
	put_sum(s);
	printf("\n%-32s %-11s %11s %11s %11s %11s %7s\n", "NAME", "KIND", "REACHES", "ALONE",
	       "BY COMMITS", "BY UNDO", "STATES");
	for (size_t i = 0; i < x->n; i++)
		put_row(&x->v[i]);
	printf("%-32s %-11s", "shared", "-");
	put_cell(bytes(&s->shared));
	printf("\n");
	return cli_done();
}

static int run(int argc, char **argv)
{
	const char *data = NULL;
	bool json = false;
	const struct cli_opt opts[] = {
		{"data-dir", 0, CLI_TEXT, &data, "DIR", "the store of this data directory"},
		{"json", 0, CLI_FLAG, &json, NULL, "as JSON"},
		{0},
	};
	struct rows x = {0};
	struct ctl_stats_opts o = {
		.row = on_row, .progress = on_progress, .idle = on_idle, .arg = &x};
	struct ctl_usage_sum sum = {0};
	struct diag diag = {0};
	char **rest;
	int n, r = cli_parse(&cmd_stats, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n)
		return cli_fail(CLI_USAGE, "stats: '%s' is not an option; it takes no names",
				rest[0]);
	o.data_dir = data;
	cli_work_begin(&x.work, "counting");
	r = ctl_stats(&o, &diag, &sum);
	cli_work_end(&x.work, r == 0 ? NULL : "not all was counted");
	if (r < 0)
		r = cli_fail_errno(r, &diag, "stats");
	else
		r = json ? put_json(&x, &sum) : put_text(&x, &sum);
	free(x.v);
	return r;
}

const struct cli_command cmd_stats = {
	.name = "stats",
	.args = "[--data-dir DIR] [--json]",
	.summary = "what takes the space in the store, and whose it is",
	.details =
		"The first line sums up. Then, for each environment and base: what it REACHES (others may, too); what it\n"
		"reaches ALONE: what removing it gives back with the next rattan gc --removed; how much of that its COMMITS keep until\n"
		"--removed is given; and how much only the states that undo can go back to hold (not counting those that others stand\n"
		"on), and how many of them there are. 'shared' is what two or more reach.\n"
		"All of it is counted, as it is stored: file content once however many files have it, and the records of names and\n"
		"attributes. Pages that are half full are in the size on the disk only. Runs beside whatever uses the store; what an\n"
		"environment has not written down yet is not counted, and what is being written may count as removable.\n\n"
		"Example:\n  rattan stats\n  rattan stats --json | grep '\"disk_bytes\"'\n",
	.run = run,
};
