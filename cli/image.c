/* rattan import and export: root file systems. */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static const char *const kinds[] = {"dir", "tar", "oci", NULL};

static bool kind_ok(const char *s)
{
	for (size_t i = 0; kinds[i]; i++)
		if (!strcmp(kinds[i], s))
			return true;
	return false;
}

static int bad_kind(const char *cmd, const char *given)
{
	return cli_fail(CLI_USAGE, "%s: '%s' is not dir, tar or oci", cmd, given);
}

/* ---- import ---- */

static int imported_json(const char *name, const struct ctl_import_sum *s)
{
	const struct {
		const char *key;
		uint64_t n;
	} nums[] = {{"entries", s->entries}, {"bytes", s->bytes},   {"new_bytes", s->written},
		    {"layers", s->layers},   {"reused", s->reused}, {"skipped", s->skipped},
		    {"unread", s->unread}};
	cJSON *o = cJSON_CreateObject();

	cli_json_str(o, "name", name);
	cli_json_str(o, "id", s->id);
	for (size_t i = 0; i < ARRAY_SIZE(nums); i++)
		(void)cJSON_AddNumberToObject(o, nums[i].key, (double)nums[i].n);
	return cli_print_json(o);
}

static int imported_text(const char *name, const struct ctl_import_sum *s)
{
	printf("%s is %.12s: %llu files, ", name, s->id, (unsigned long long)s->entries);
	cli_put_size(stdout, s->bytes);
	printf(" (");
	cli_put_size(stdout, s->written);
	printf(" new to the store)");
	if (s->layers > 1 || s->reused)
		printf("; %llu layers, %llu of them were there", (unsigned long long)s->layers,
		       (unsigned long long)s->reused);
	if (s->unread)
		printf("; %llu files are as the last import read them",
		       (unsigned long long)s->unread);
	printf("\nrattan run --base %s -e NEW -- COMMAND works in it\n", name);
	if (s->skipped)
		printf("%llu sockets or attributes of another system were left out\n",
		       (unsigned long long)s->skipped);
	return cli_done();
}

/* "PATH" or "PATH:TAG"; a path that is there is meant as it is. */
static void split_tag(char *src, const char **ret_tag)
{
	char *colon = strrchr(src, ':');

	if (colon && access(src, F_OK) < 0 && !strchr(colon, '/')) {
		*colon = 0;
		*ret_tag = colon + 1;
	}
}

static int do_import(struct ctl_import_opts *o, bool json)
{
	struct ctl_import_sum sum = {0};
	struct diag diag = {0};
	struct cli_work work;
	int r;

	cli_work_begin(&work, "importing");
	o->progress = cli_work_bytes;
	o->idle = cli_work_idle;
	o->arg = &work;
	r = ctl_import(o, &diag, &sum);
	cli_work_end(&work, r == 0 ? NULL : "nothing was imported");
	if (r < 0)
		return cli_fail_errno(r, &diag, "import");
	return json ? imported_json(o->name, &sum) : imported_text(o->name, &sum);
}

static int run_import(int argc, char **argv)
{
	bool json = false, replace = false, reread = false;
	cleanup_list struct cli_list limits = {0};
	const char *data = NULL, *strip = NULL;
	const struct cli_opt opts[] = {
		{"strip", 0, CLI_TEXT, &strip, "N",
		 "tar: drop the first N components of each path"},
		{"replace", 0, CLI_FLAG, &replace, NULL,
		 "give the name of a base that is there to this one"},
		{"force", 'f', CLI_FLAG, &replace, NULL, "the same"},
		{"reread", 0, CLI_FLAG, &reread, NULL,
		 "dir: also the files that an earlier import of it has read"},
		{"limit", 0, CLI_LIST, &limits, "disk=N",
		 "the store may grow by so much; K, M, G, T"},
		{"data-dir", 0, CLI_TEXT, &data, "DIR", "the store of this data directory"},
		{"json", 0, CLI_FLAG, &json, NULL, "as JSON"},
		{0},
	};
	struct ctl_import_opts o = {0};
	struct cli_limits max;
	struct diag diag = {0};
	char **rest;
	int n, r = cli_parse(&cmd_import, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n != 3)
		return cli_fail(CLI_USAGE,
				"import: give dir, tar or oci, where it is, and a name for "
				"the base");
	if (!kind_ok(rest[0]))
		return bad_kind("import", rest[0]);
	if (!strcmp(rest[1], "-") && strcmp(rest[0], "tar") != 0)
		return cli_fail(CLI_USAGE, "import: only tar can come from standard input");
	if (strip &&
	    (strlen(strip) != 1 || *strip < '0' || *strip > '9' || strcmp(rest[0], "tar") != 0))
		return cli_fail(CLI_USAGE, "import: --strip takes 0 to 9, of a tar archive");
	if (reread && strcmp(rest[0], "dir") != 0)
		return cli_fail(CLI_USAGE, "import: --reread is for a directory");
	r = cli_limits_parse(&limits, &max, &diag);
	if (r < 0)
		return cli_fail_errno(r, &diag, "import");
	o = (struct ctl_import_opts){.data_dir = data,
				     .kind = rest[0],
				     .src = rest[1],
				     .name = rest[2],
				     .strip = strip ? (unsigned)(*strip - '0') : 0,
				     .replace = replace,
				     .reread = reread,
				     .disk_max = max.disk == UINT64_MAX ? 0 : max.disk};
	if (!strcmp(o.kind, "oci"))
		split_tag(rest[1], &o.tag);
	return do_import(&o, json);
}

const struct cli_command cmd_import = {
	.name = "import",
	.args = "dir|tar|oci SRC NAME [--strip N] [--replace] [--reread] [--limit disk=N] [--data-dir DIR] [--json]",
	.summary = "make a base of a directory, a tar archive or an OCI image",
	.details =
		"dir: a directory as it is, without other file systems that are mounted in it. tar: an archive,\n"
		"also packed with gzip, bzip2, xz or zstd; - is standard input. oci: an image layout, a directory\n"
		"or a tar archive of one; SRC:TAG chooses one of several images. Owners, modes, times, links, holes,\n"
		"devices and attributes stay what they are. Equal content has an equal id. What the store has\n"
		"already is not kept twice; of a directory that was imported before, files that did not change since\n"
		"are not read. Nothing is left of an import that fails or is stopped.\n\n"
		"Examples:\n  rattan import tar rootfs.tar.zst debian\n"
		"  skopeo copy docker://docker.io/library/alpine oci:alpine:latest && rattan import oci alpine alpine\n"
		"  rattan run --base alpine -e try -- sh\n",
	.run = run_import,
};

/* ---- export ---- */

bool cli_pack_ok(const char *how)
{
	return !strcmp(how, "gzip") || !strcmp(how, "zstd") || !strcmp(how, "none");
}

static int exported_json(const struct ctl_export_opts *o, const struct ctl_export_sum *s)
{
	cJSON *j = cJSON_CreateObject();

	cli_json_str(j, "kind", o->kind);
	cli_json_str(j, "dest", o->dest);
	if (*s->digest)
		cli_json_str(j, "digest", s->digest);
	(void)cJSON_AddNumberToObject(j, "entries", (double)s->entries);
	(void)cJSON_AddNumberToObject(j, "bytes", (double)s->bytes);
	if (*s->digest)
		(void)cJSON_AddNumberToObject(j, "layers", (double)s->layers);
	(void)cJSON_AddNumberToObject(j, "skipped", (double)s->skipped);
	return cli_print_json(j);
}

static int exported_text(const struct ctl_export_opts *o, const struct ctl_export_sum *s)
{
	FILE *f = strcmp(o->dest, "-") ? stdout : stderr;

	cli_put(f, o->rev);
	fprintf(f, " is in ");
	cli_put(f, strcmp(o->dest, "-") ? o->dest : "the output");
	fprintf(f, ": %llu files, ", (unsigned long long)s->entries);
	cli_put_size(f, s->bytes);
	if (*s->digest)
		fprintf(f, "; sha256:%s", s->digest);
	fputc('\n', f);
	if (s->skipped)
		fprintf(f,
			"%llu owners, devices, sockets or attributes could not be given to it%s\n",
			(unsigned long long)s->skipped,
			geteuid() && !strcmp(o->kind, "dir") ? "; as root they can" : "");
	return f == stdout ? cli_done() : CLI_OK;
}

static const char *stopped(const struct ctl_export_opts *o)
{
	return strcmp(o->dest, "-") ? "nothing was exported"
				    : "the archive on standard output is cut short";
}

static int run_export(int argc, char **argv)
{
	const char *env = NULL, *tag = NULL, *pack = NULL, *data = NULL;
	char here[CLI_ENV_MAX];
	bool json = false, squash = false, host = false;
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &env, "NAME",
		 "whose REV it is; default: this directory's, or 'default'"},
		{"tag", 0, CLI_TEXT, &tag, "TAG", "oci: the image's name in the layout; latest"},
		{"squash", 0, CLI_FLAG, &squash, NULL, "oci: one layer, not one for each commit"},
		{"with-host", 0, CLI_FLAG, &host, NULL, "also what REV shows of host directories"},
		{"compress", 0, CLI_TEXT, &pack, "HOW",
		 "gzip, zstd or none; default: gzip for oci, none for tar"},
		{"data-dir", 0, CLI_TEXT, &data, "DIR", "the store of this data directory"},
		{"json", 0, CLI_FLAG, &json, NULL, "as JSON"},
		{0},
	};
	struct ctl_export_sum sum = {0};
	struct ctl_export_opts o;
	struct diag diag = {0};
	struct cli_work work;
	char **rest;
	int n, r = cli_parse(&cmd_export, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n != 3)
		return cli_fail(CLI_USAGE,
				"export: give dir, tar or oci, a revision or base, and where "
				"it is to go");
	if (!kind_ok(rest[0]))
		return bad_kind("export", rest[0]);
	if (!strcmp(rest[2], "-") && strcmp(rest[0], "tar") != 0)
		return cli_fail(CLI_USAGE, "export: only tar can go to standard output");
	if (!strcmp(rest[2], "-") && json)
		return cli_fail(CLI_USAGE,
				"export: standard output is for the archive; leave out --json");
	if (pack && !cli_pack_ok(pack))
		return cli_fail(CLI_USAGE, "export: --compress takes gzip, zstd or none");
	if (!env)
		cli_env_here(here);
	cli_work_begin(&work, "exporting");
	o = (struct ctl_export_opts){.data_dir = data,
				     .kind = rest[0],
				     .env = env ? env : here,
				     .rev = rest[1],
				     .dest = rest[2],
				     .tag = tag,
				     .pack = pack,
				     .squash = squash,
				     .host = host,
				     .progress = cli_work_bytes,
				     .idle = cli_work_idle,
				     .arg = &work};
	r = ctl_export(&o, &diag, &sum);
	cli_work_end(&work, r == 0 ? NULL : stopped(&o));
	if (r < 0)
		return cli_fail_errno(r, &diag, "export");
	return json ? exported_json(&o, &sum) : exported_text(&o, &sum);
}

const struct cli_command cmd_export = {
	.name = "export",
	.args = "dir|tar|oci REV DEST [-e NAME] [--tag TAG] [--squash] [--with-host] [--compress HOW] [--data-dir DIR] [--json]",
	.summary = "a commit or a base as a directory, a tar archive or an OCI image",
	.details =
		"REV: a commit as for rollback, or the name of a base. DEST must not be there yet, or be an empty\n"
		"directory; - is standard output, for tar. DEST is whole or not there: nothing is left of an export\n"
		"that fails or is stopped, and what a killed one leaves beside it, DEST.rattan-partial-NUMBER, the next\n"
		"one takes away. The same tree gives the same bytes. As root, dir is exact; others get what they may\n"
		"make, and are told what is missing. What is not committed is not exported. An OCI image has a\n"
		"layer for each commit from the base to REV. What REV shows of host directories, as all of the base\n"
		"'host', is not in the store: it is written with --with-host alone.\n\n"
		"Examples:\n  rattan export tar head - | zstd > tree.tar.zst\n"
		"  rattan export oci head image && skopeo inspect oci:image:latest\n",
	.run = run_export,
};
