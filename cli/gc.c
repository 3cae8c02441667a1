/* rattan gc: remove what nothing can reach any more. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static int put_json(const struct ctl_gc_sum *s, bool dry)
{
	const struct {
		const char *key;
		uint64_t n;
	} nums[] = {{"layers", s->layers},
		    {"records", s->records},
		    {"states", s->states},
		    {"moves", s->moves},
		    {"chunks", s->chunks},
		    {"chunk_bytes", s->chunk_bytes},
		    {"live_chunks", s->live_chunks},
		    {"damaged", s->damaged},
		    {"compressed_chunks", s->packed},
		    {"compressed_from_bytes", s->packed_from},
		    {"compressed_bytes", s->packed_to},
		    {"free_bytes", s->free_bytes},
		    {"given_back_bytes", s->given_back}};
	cJSON *o = cJSON_CreateObject();

	(void)cJSON_AddBoolToObject(o, "dry_run", dry);
	for (size_t i = 0; i < ARRAY_SIZE(nums); i++)
		(void)cJSON_AddNumberToObject(o, nums[i].key, (double)nums[i].n);
	return cli_print_json(o);
}

static int put_text(const struct ctl_gc_sum *s, bool dry, bool shrink)
{
	if (s->damaged)
		printf("%llu trees or chunks stay, because they are damaged: see rattan fsck\n",
		       (unsigned long long)s->damaged);
	if (s->layers || s->chunks) {
		printf("%s %llu trees (%llu records) and %llu chunks (",
		       dry ? "would remove" : "removed", (unsigned long long)s->layers,
		       (unsigned long long)s->records, (unsigned long long)s->chunks);
		cli_put_size(stdout, s->chunk_bytes);
		printf(")");
	} else if (s->states) {
		printf("%s %llu automatic states", dry ? "would drop" : "dropped",
		       (unsigned long long)s->states);
	} else {
		printf("nothing to remove");
	}
	if (s->packed) {
		printf("; compressed %llu chunks, ", (unsigned long long)s->packed);
		cli_put_size(stdout, s->packed_from);
		printf(" to ");
		cli_put_size(stdout, s->packed_to);
	}
	if (s->given_back || (shrink && !dry)) {
		printf("; gave ");
		cli_put_size(stdout, s->given_back);
		printf(" back to the disk");
	} else {
		printf("; ");
		cli_put_size(stdout, s->free_bytes);
		printf(" in the store's files are free for what comes%s",
		       s->free_bytes > 64u << 20 ? " (--shrink gives them to the disk)" : "");
	}
	printf("\n");
	return cli_done();
}

/* None given leaves @ret alone. */
static bool count_ok(const char *s, unsigned *ret)
{
	char *end;
	unsigned long v = s ? strtoul(s, &end, 10) : 0;

	if (!s)
		return true;
	if (end == s || *end || *s == '-' || v == 0 || v > 1000000)
		return false;
	*ret = (unsigned)v;
	return true;
}

static int run(int argc, char **argv)
{
	bool json = false, dry = false, shrink = false, compress = false, removed = false;
	const char *data = NULL, *states = NULL, *days = NULL;
	const struct cli_opt opts[] = {
		{"data-dir", 0, CLI_TEXT, &data, "DIR", "the store of this data directory"},
		{"dry-run", 'n', CLI_FLAG, &dry, NULL,
		 "tell what would be removed, remove nothing"},
		{"shrink", 0, CLI_FLAG, &shrink, NULL, "give the free room back to the disk"},
		{"compress", 0, CLI_FLAG, &compress, NULL,
		 "compress the content that stays, where that saves an eighth"},
		{"removed", 0, CLI_FLAG, &removed, NULL,
		 "also the commits of environments that were removed"},
		{"keep-states", 0, CLI_TEXT, &states, "N",
		 "of an environment's states that undo can reach, the newest N; 100"},
		{"keep-days", 0, CLI_TEXT, &days, "N",
		 "and of these what is younger than N days; 30"},
		{"json", 0, CLI_FLAG, &json, NULL, "as JSON"},
		{0},
	};
	struct ctl_gc_sum sum = {0};
	struct diag diag = {0};
	struct ctl_gc_opts o = {0};
	struct cli_work work;
	char **rest;
	int n, r = cli_parse(&cmd_gc, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n)
		return cli_fail(CLI_USAGE, "gc: '%s' is not an option; it takes no names", rest[0]);
	if (dry && (shrink || compress))
		return cli_fail(CLI_USAGE, "gc: --dry-run changes nothing; leave out --%s",
				shrink ? "shrink" : "compress");
	if (!count_ok(states, &o.keep_states) || !count_ok(days, &o.keep_days))
		return cli_fail(CLI_USAGE,
				"gc: --keep-states and --keep-days take a number from 1 on");
	cli_work_begin(&work, "collecting");
	o = (struct ctl_gc_opts){.data_dir = data,
				 .dry_run = dry,
				 .shrink = shrink,
				 .compress = compress,
				 .removed = removed,
				 .keep_states = o.keep_states,
				 .keep_days = o.keep_days,
				 .progress = cli_work_on,
				 .idle = cli_work_idle,
				 .arg = &work};
	r = ctl_gc(&o, &diag, &sum);
	cli_work_end(&work, r == 0 ? NULL
			    : dry  ? "nothing was removed"
				   : "what was removed is; the next rattan gc goes on");
	if (r < 0)
		return cli_fail_errno(r, &diag, "gc");
	return json ? put_json(&sum, dry) : put_text(&sum, dry, shrink);
}

const struct cli_command cmd_gc = {
	.name = "gc",
	.args = "[--dry-run] [--compress] [--shrink] [--removed] [--keep-states N] [--keep-days N] [--data-dir DIR] "
		"[--json]",
	.summary = "remove what nothing can reach any more",
	.details =
		"Removes the working trees of removed environments, what rollback, reset and undo and the calls\n"
		"of an MCP session left behind (an environment's newest 100 stay for 30 days, the newest one for ever; RATTAN_KEEP_STATES and\n"
		"RATTAN_KEEP_DAYS say otherwise to every collection that follows), and file content that\n"
		"nothing names any more. Commits stay, those of removed environments, too, unless --removed is\n"
		"given. Runs beside whatever uses the store; a running environment does the same by itself now\n"
		"and then, and compresses what stays. The room is used for what comes; --shrink gives it back to the disk.\n\n"
		"Example:\n  rattan env rm scratch && rattan gc --compress --shrink\n",
	.run = run,
};
