/* rattan serve: the MCP server. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "mcp/serve.h"

struct args {
	struct cli_view_opts view;
	const char *prefix, *level;
	bool keep, no_checkpoints;
};

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
	cleanup_view struct cli_view v = {0};
	cleanup_free struct mcp_bind *binds = NULL;
	struct mcp_serve_opts o = {.base = a->view.base,
				   .keep = a->keep,
				   .no_checkpoints = a->no_checkpoints,
				   .no_exec_workspace = a->view.no_exec,
				   .tool_prefix = a->prefix,
				   .version = RATTAN_VERSION,
				   .log_level = LOG_WARN};
	struct diag diag = {0};
	int r = cli_view(&a->view, &v, &diag);

	if (r < 0)
		return cli_fail_errno(r, &diag, "serve");
	binds = calloc(v.binds.n + 1, sizeof(*binds));
	if (!binds)
		return cli_fail(CLI_FAILED, "out of memory");
	for (size_t i = 0; i < v.binds.n; i++)
		binds[i] = (struct mcp_bind){v.binds.v[i].dir.fd, v.binds.v[i].dir.path,
					     v.binds.v[i].mount, v.binds.v[i].rw};
	o.env = v.env;
	o.limits = v.limits.run;
	o.disk_max = v.limits.disk;
	o.overlays = v.ov;
	o.noverlays = v.overlays.n;
	o.binds = binds;
	o.nbinds = v.binds.n;
	o.bind_roots = v.binds.roots;
	o.writable = v.writable;
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
		CLI_VIEW_OPTS(a.view),
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
	cli_view_opts_release(&a.view);
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
