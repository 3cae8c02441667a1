/* rattan serve: the MCP server. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "mcp/serve.h"

struct args {
	const char *env, *base, *prefix, *level;
	struct cli_list binds, binds_ro, overlays, writable;
	bool bind_cwd, overlay_cwd, keep, no_checkpoints, no_exec;
};

static int collect(const struct cli_list *l, enum cli_dir_kind kind, struct cli_dirs *to,
		   struct diag *diag)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < l->n; i++)
		r = cli_dirs_add(to, kind, l->v[i], diag);
	return r;
}

static int collect_all(const struct args *a, struct cli_dirs *binds, struct cli_dirs *overlays,
		       struct diag *diag)
{
	int r = 0;

	if (a->bind_cwd && a->overlay_cwd)
		return diag_set(diag, -EINVAL,
				"--bind-cwd and --overlay-cwd exclude each other: the "
				"directory is written through to, or it is not");
	if (a->overlay_cwd)
		r = cli_dirs_add_cwd(overlays, CLI_OVERLAY, diag);
	if (a->bind_cwd)
		r = cli_dirs_add_cwd(binds, CLI_BIND, diag);
	if (r >= 0)
		r = collect(&a->binds, CLI_BIND, binds, diag);
	if (r >= 0)
		r = collect(&a->binds_ro, CLI_BIND_RO, binds, diag);
	if (r >= 0)
		r = collect(&a->overlays, CLI_OVERLAY, overlays, diag);
	return r < 0 ? r : cli_dirs_check(binds, overlays, diag);
}

/* Whoever types "rattan" sees nothing happen otherwise. */
static void greet(void)
{
	if (isatty(STDIN_FILENO))
		fprintf(stderr,
			"rattan: the MCP server now waits for a client on this terminal; Ctrl-D ends it. "
			"For people: rattan --help\n");
}

static int start(const struct args *a, struct mcp_serve_opts *o)
{
	int r;

	if (a->level && log_level_parse(a->level, &o->log_level) < 0)
		return cli_fail(CLI_USAGE,
				"serve: --log-level is error, warn, info or debug, not '%s'",
				a->level);
	greet();
	r = mcp_serve(o);
	return r < 0 ? cli_fail_errno(r, NULL, "the server could not start") : CLI_OK;
}

static int serve(const struct args *a)
{
	cleanup_dirs struct cli_dirs binds = {0}, overlays = {0};
	cleanup_free struct ctl_overlay *ov = NULL;
	cleanup_free struct mcp_bind *bv = NULL;
	cleanup_free const char **writable = NULL;
	char name[CLI_ENV_MAX];
	struct mcp_serve_opts o = {.env = a->env,
				   .base = a->base,
				   .keep = a->keep,
				   .no_checkpoints = a->no_checkpoints,
				   .no_exec_workspace = a->no_exec,
				   .tool_prefix = a->prefix,
				   .version = RATTAN_VERSION,
				   .log_level = LOG_WARN};
	struct diag diag = {0};
	int r = collect_all(a, &binds, &overlays, &diag);

	if (r < 0)
		return cli_fail_errno(r, &diag, "serve");
	ov = calloc(overlays.n + 1, sizeof(*ov));
	bv = calloc(binds.n + 1, sizeof(*bv));
	if (!ov || !bv || cli_writable(&a->writable, &writable) < 0)
		return cli_fail(CLI_FAILED, "out of memory");
	for (size_t i = 0; i < overlays.n; i++)
		ov[i] = (struct ctl_overlay){overlays.v[i].host, overlays.v[i].mount};
	for (size_t i = 0; i < binds.n; i++)
		bv[i] = (struct mcp_bind){binds.v[i].host, binds.v[i].mount, binds.v[i].rw};
	if (!o.env && (a->overlay_cwd || a->bind_cwd)) {
		cli_env_name(a->overlay_cwd ? overlays.v[0].host : binds.v[0].host, a->bind_cwd,
			     name);
		o.env = name;
	}
	o.overlays = ov;
	o.noverlays = overlays.n;
	o.binds = bv;
	o.nbinds = binds.n;
	o.writable = writable;
	return start(a, &o);
}

/* "rattan -e x run ..." comes here as well. */
static int words(const char *called, const char *first)
{
	if (strcmp(called, "serve") != 0)
		return cli_fail(CLI_USAGE,
				"'%s' comes too late: the command is the first word, its options "
				"follow: rattan %s ...",
				first, first);
	return cli_fail(CLI_USAGE, "serve: '%s' is not an option; see rattan serve --help", first);
}

static int run(int argc, char **argv)
{
	struct args a = {0};
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &a.env, "NAME",
		 "environment; default: one of this directory with --overlay-cwd or --bind-cwd, else "
		 "'default'"},
		{"base", 0, CLI_TEXT, &a.base, "NAME",
		 "what a new environment starts from; default: host"},
		{"overlay-cwd", 0, CLI_FLAG, &a.overlay_cwd, NULL,
		 "this directory at /workspace, copy-on-write"},
		{"bind-cwd", 0, CLI_FLAG, &a.bind_cwd, NULL,
		 "this directory at /workspace, written through"},
		{"overlay", 0, CLI_LIST, &a.overlays, "HOST=MOUNT",
		 "another directory, copy-on-write"},
		{"bind", 0, CLI_LIST, &a.binds, "HOST=MOUNT[:ro|rw]",
		 "another directory, written through"},
		{"bind-ro", 0, CLI_LIST, &a.binds_ro, "HOST=MOUNT", "another directory, read-only"},
		{"writable-root", 0, CLI_LIST, &a.writable, "PATH",
		 "open more of the view for writing; / is all"},
		{"no-exec-workspace", 0, CLI_FLAG, &a.no_exec, NULL,
		 "nothing in writable places can be executed"},
		{"no-checkpoints", 0, CLI_FLAG, &a.no_checkpoints, NULL,
		 "no automatic state after each call"},
		{"keep", 0, CLI_FLAG, &a.keep, NULL,
		 "keep uncommitted changes when the server ends"},
		{"tool-prefix", 0, CLI_TEXT, &a.prefix, "P",
		 "of the file tools' names; default: rattan_"},
		{"log-level", 0, CLI_TEXT, &a.level, "L",
		 "error, warn, info or debug; default: warn"},
		{0},
	};
	char **rest;
	int n, r = cli_parse(&cmd_serve, opts, argc, argv, false, &rest, &n);

	if (r < 0)
		r = n ? words(argv[0], rest[0]) : serve(&a);
	cli_list_release(&a.binds);
	cli_list_release(&a.binds_ro);
	cli_list_release(&a.overlays);
	cli_list_release(&a.writable);
	return r;
}

const struct cli_command cmd_serve = {
	.name = "serve",
	.args = "[OPTIONS]",
	.summary = "MCP server on stdin and stdout (also without a command)",
	.details =
		"The server speaks the Model Context Protocol, one JSON message a line. What is not\n"
		"committed when it ends is dropped, unless --keep is given.\n\n"
		"Example, in a client's configuration:\n"
		"  { \"mcpServers\": { \"rattan\": { \"command\": \"rattan\", \"args\": [\"--overlay-cwd\"] } } }\n",
	.run = run,
};
