/* rattan push and pull: commits and bases as images in a registry. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/cli.h"
#include "cli/skopeo.h"

#define LAYOUT "/layout"

static void put_image(FILE *f, const struct registry_name *at)
{
	fprintf(f, "%s/%s%s", at->host, at->name, at->ref);
}

/* ---- push ---- */

static int pushed(const struct registry_name *at, const char *rev, const struct ctl_export_sum *s,
		  bool json)
{
	cJSON *o;

	if (!json) {
		cli_put(stdout, rev);
		printf(" is at ");
		put_image(stdout, at);
		printf(": %llu layers; sha256:%s\n", (unsigned long long)s->layers, s->digest);
		return cli_done();
	}
	o = cJSON_CreateObject();
	cli_json_str(o, "registry", at->host);
	cli_json_str(o, "name", at->name);
	cli_json_str(o, "ref", at->ref + 1);
	cli_json_str(o, "digest", s->digest);
	(void)cJSON_AddNumberToObject(o, "layers", (double)s->layers);
	return cli_print_json(o);
}

static int do_push(struct ctl_export_opts *o, const struct skopeo *k, struct diag *diag,
		   struct ctl_export_sum *ret)
{
	cleanup_free char *layout = NULL;
	struct transfer t;
	struct cli_work work;
	int r = transfer_begin(&t, diag);

	if (r == 0 && asprintf(&layout, "%s" LAYOUT, t.dir) < 0) {
		layout = NULL;
		r = -ENOMEM;
	}
	if (r == 0) {
		cli_work_begin(&work, "packing");
		o->dest = layout;
		o->progress = cli_work_bytes;
		o->idle = cli_work_idle;
		o->arg = &work;
		r = ctl_export(o, diag, ret);
		cli_work_end(&work, NULL);
	}
	if (r == 0)
		r = skopeo_push(k, layout, diag);
	transfer_end(&t, r == 0 ? NULL : "no image was pushed");
	return r;
}

static int run_push(int argc, char **argv)
{
	const char *env = NULL, *pack = NULL, *data = NULL;
	bool json = false, squash = false, host = false, insecure = false;
	char here[CLI_ENV_MAX];
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &env, "NAME",
		 "whose REV it is; default: this directory's, or 'default'"},
		{"squash", 0, CLI_FLAG, &squash, NULL, "one layer, not one for each commit"},
		{"with-host", 0, CLI_FLAG, &host, NULL, "also what REV shows of host directories"},
		{"compress", 0, CLI_TEXT, &pack, "HOW", "gzip (default), zstd or none"},
		{"insecure", 0, CLI_FLAG, &insecure, NULL,
		 "a registry without https, or with a certificate of its own"},
		{"data-dir", 0, CLI_TEXT, &data, "DIR", "the store of this data directory"},
		{"json", 0, CLI_FLAG, &json, NULL, "as JSON"},
		{0},
	};
	struct ctl_export_sum sum = {0};
	struct registry_name at;
	struct ctl_export_opts o;
	struct diag diag = {0};
	char **rest;
	int n, r = cli_parse(&cmd_push, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n != 2)
		return cli_fail(CLI_USAGE, "push: give a revision or base, and "
					   "oci:REGISTRY/NAME[:TAG]");
	if (pack && !cli_pack_ok(pack))
		return cli_fail(CLI_USAGE, "push: --compress takes gzip, zstd or none");
	r = registry_name_parse(rest[1], &at, &diag);
	if (r == 0 && *at.ref == '@')
		return cli_fail(CLI_USAGE, "push: an image is pushed to a tag; its digest is what "
					   "comes of it");
	if (r < 0)
		return cli_fail_errno(r, &diag, "push");
	if (!env)
		cli_env_here(here);
	o = (struct ctl_export_opts){.data_dir = data,
				     .kind = "oci",
				     .env = env ? env : here,
				     .rev = rest[0],
				     .pack = pack,
				     .squash = squash,
				     .host = host};
	r = do_push(&o, &(struct skopeo){&at, insecure}, &diag, &sum);
	return r < 0 ? cli_fail_errno(r, &diag, "push") : pushed(&at, rest[0], &sum, json);
}

const struct cli_command cmd_push = {
	.name = "push",
	.args = "REV oci:REGISTRY/NAME[:TAG] [-e NAME] [--squash] [--with-host] [--compress HOW] [--insecure] [--data-dir DIR] [--json]",
	.summary = "a commit or a base as an image in a registry",
	.details =
		"REV: a commit as for rollback, or the name of a base. Each commit from the base to REV is a layer\n"
		"of the image, with its message and time; the same commits give the same layers, and a registry is\n"
		"sent only those that it lacks. skopeo has to be there, which does the talking: skopeo login\n"
		"REGISTRY tells it a name and a password. A registry on this machine needs no https.\n"
		"The packed layers need room in TMPDIR, or /var/tmp.\n\n"
		"Examples:\n  rattan push head oci:registry.example.com/team/tools:v2\n"
		"  rattan push debian oci:localhost:5000/debian\n",
	.run = run_push,
};

/* ---- pull ---- */

static int pulled(const char *name, const struct ctl_import_sum *s, uint64_t had, bool json)
{
	cJSON *o;

	if (!json) {
		printf("%s is %.12s: %llu files, ", name, s->id, (unsigned long long)s->entries);
		cli_put_size(stdout, s->bytes);
		printf(" (");
		cli_put_size(stdout, s->written);
		printf(" new to the store); %llu layers, %llu of them were there\n"
		       "rattan run --base %s -e NEW -- COMMAND works in it\n",
		       (unsigned long long)s->layers, (unsigned long long)s->reused, name);
		return cli_done();
	}
	o = cJSON_CreateObject();
	cli_json_str(o, "name", name);
	cli_json_str(o, "id", s->id);
	(void)cJSON_AddNumberToObject(o, "entries", (double)s->entries);
	(void)cJSON_AddNumberToObject(o, "bytes", (double)s->bytes);
	(void)cJSON_AddNumberToObject(o, "new_bytes", (double)s->written);
	(void)cJSON_AddNumberToObject(o, "layers", (double)s->layers);
	(void)cJSON_AddNumberToObject(o, "reused", (double)s->reused);
	(void)cJSON_AddNumberToObject(o, "not_fetched", (double)had);
	(void)cJSON_AddNumberToObject(o, "skipped", (double)s->skipped);
	return cli_print_json(o);
}

static int put_wanted(const char *layout, const struct buf *manifest)
{
	cleanup_free char *path = NULL;
	cleanup_fd int fd = -1;

	if (asprintf(&path, "%s/wanted", layout) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return fd < 0 ? ret_nerrno()
		      : io_write_full(fd, manifest->data ? (void *)manifest->data : "",
				      manifest->len);
}

/* Which of its layers need not come, because the store has them. */
static int look(const char *data, const struct skopeo *k, const char *layout, struct diag *diag,
		uint64_t *ret_had)
{
	char digest[80] = "";
	int r = 0;

	for (int i = 0; r == 0 && (i == 0 || *digest) && i < 4; i++) {
		cleanup_buf struct buf b = {0};
		struct ctl_had_sum had = {0};

		r = skopeo_manifest(k, *digest ? digest : NULL, &b, diag);
		if (r == 0)
			r = put_wanted(layout, &b);
		if (r == 0)
			r = ctl_image_have(data, layout, diag, &had);
		*ret_had = had.bytes;
		(void)snprintf(digest, sizeof(digest), "%s%s", *had.manifest ? "sha256:" : "",
			       had.manifest);
	}
	return r;
}

static int see_base(void *arg, const struct ctl_base_info *b)
{
	const struct ctl_import_opts *o = arg;

	return !strcmp(b->name, o->name) ? -EEXIST : 0;
}

/* Before anything is fetched; the import looks again. */
static int name_free(struct ctl_import_opts *o, struct diag *diag)
{
	int r = o->replace ? 0 : ctl_base_list(o->data_dir, diag, see_base, o);

	return r == -EEXIST ? diag_set(diag, r,
				       "there is a base '%s' already; --replace gives its name to "
				       "the new one",
				       o->name)
			    : r;
}

static int do_pull(struct ctl_import_opts *o, const struct skopeo *k, struct diag *diag,
		   struct ctl_import_sum *ret, uint64_t *ret_had)
{
	struct transfer t;
	struct cli_work work;
	int r = name_free(o, diag);

	if (r < 0)
		return r;
	r = transfer_begin(&t, diag);
	if (r == 0)
		r = look(o->data_dir, k, t.dir, diag, ret_had);
	if (r == 0)
		r = skopeo_pull(k, t.dir, diag);
	if (r == 0) {
		cli_work_begin(&work, "importing");
		o->src = t.dir;
		o->progress = cli_work_bytes;
		o->idle = cli_work_idle;
		o->arg = &work;
		r = ctl_import(o, diag, ret);
		cli_work_end(&work, NULL);
	}
	transfer_end(&t, r == 0 ? NULL : "nothing was pulled");
	return r;
}

static bool is_image(const char *s)
{
	return !strncmp(s, "oci:", 4);
}

static int run_pull(int argc, char **argv)
{
	bool json = false, replace = false, insecure = false;
	cleanup_list struct cli_list limits = {0};
	const char *data = NULL;
	const struct cli_opt opts[] = {
		{"replace", 0, CLI_FLAG, &replace, NULL,
		 "give the name of a base that is there to this one"},
		{"limit", 0, CLI_LIST, &limits, "disk=N",
		 "the store may grow by so much; K, M, G, T"},
		{"insecure", 0, CLI_FLAG, &insecure, NULL,
		 "a registry without https, or with a certificate of its own"},
		{"data-dir", 0, CLI_TEXT, &data, "DIR", "the store of this data directory"},
		{"json", 0, CLI_FLAG, &json, NULL, "as JSON"},
		{0},
	};
	struct ctl_import_sum sum = {0};
	struct ctl_import_opts o;
	struct registry_name at;
	struct cli_limits max;
	struct diag diag = {0};
	uint64_t had = 0;
	char **rest;
	int n, i, r = cli_parse(&cmd_pull, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n != 2 || is_image(rest[0]) == is_image(rest[1]))
		return cli_fail(CLI_USAGE,
				"pull: give a name for the base, and oci:REGISTRY/NAME[:TAG]");
	i = is_image(rest[0]) ? 0 : 1;
	r = registry_name_parse(rest[i], &at, &diag);
	if (r == 0)
		r = cli_limits_parse(&limits, &max, &diag);
	if (r < 0)
		return cli_fail_errno(r, &diag, "pull");
	o = (struct ctl_import_opts){.data_dir = data,
				     .kind = "oci",
				     .name = rest[1 - i],
				     .replace = replace,
				     .disk_max = max.disk == UINT64_MAX ? 0 : max.disk};
	r = do_pull(&o, &(struct skopeo){&at, insecure}, &diag, &sum, &had);
	return r < 0 ? cli_fail_errno(r, &diag, "pull") : pulled(o.name, &sum, had, json);
}

const struct cli_command cmd_pull = {
	.name = "pull",
	.args = "NAME oci:REGISTRY/NAME[:TAG|@sha256:DIGEST] [--replace] [--limit disk=N] [--insecure] [--data-dir DIR] [--json]",
	.summary = "an image of a registry as a base",
	.details =
		"The image becomes the base NAME, as with import oci. Layers that the store has from an earlier pull\n"
		"or import are neither fetched nor read. skopeo has to be there, which does the talking; for an image\n"
		"that not everybody may have, skopeo login REGISTRY. What is stopped or fails leaves nothing.\n\n"
		"Examples:\n  rattan pull tools oci:registry.example.com/team/tools:v2\n"
		"  rattan run --base tools -e try -- sh\n",
	.run = run_pull,
};
