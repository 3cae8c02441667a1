/* rattan serve: the MCP server. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/managed.h"
#include "cli/profiled.h"
#include "mcp/serve.h"

struct args {
	struct cli_view_opts view;
	const char *prefix, *level, *profile, *sandbox;
	bool keep, no_checkpoints, write_through;
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

/* ---- under a profile ---- */

static int mode_of(const char *word, struct mcp_serve_opts *o, enum profile_mode *ret)
{
	static const char *const words[] = {"read-only", "workspace-write", "danger-full-access",
					    "inherit", NULL};

	for (unsigned i = 0; words[i]; i++) {
		if (strcmp(words[i], word) != 0)
			continue;
		o->sandbox = i == 3 ? MCP_SANDBOX_INHERIT : MCP_SANDBOX_PROFILE;
		*ret = (enum profile_mode)i;
		return 0;
	}
	return cli_fail(CLI_USAGE,
			"serve: --sandbox is inherit, read-only, workspace-write or "
			"danger-full-access, not '%s'",
			word);
}

static int check_profiled(const struct args *a)
{
	const struct cli_view_opts *v = &a->view;

	if (a->profile && a->sandbox)
		return cli_fail(CLI_USAGE, "serve: --profile and --sandbox exclude each other: one "
					   "says what commands may do");
	if (v->binds.n || v->binds_ro.n || v->overlays.n || v->writable.n || v->bind_cwd ||
	    v->overlay_cwd || v->base)
		return cli_fail(CLI_USAGE,
				"serve: with a profile it alone says what is opened: "
				"--bind, --overlay, --writable-root and --base do not go "
				"with it");
	return 0;
}

/* 0, or an exit code. */
static int make_profile(const struct args *a, const struct profile_local *l,
			struct mcp_serve_opts *o, struct profile **ret)
{
	enum profile_mode mode = PROFILE_MODE_READ_ONLY;
	struct diag diag = {0};
	int r = a->sandbox ? mode_of(a->sandbox, o, &mode) : 0;

	if (r > 0 || o->sandbox == MCP_SANDBOX_INHERIT)
		return r;
	r = a->sandbox ? profile_from_mode(mode, l, &diag, ret)
		       : cli_profile_read(a->profile, l, &diag, ret);
	if (r < 0)
		return cli_fail_errno(r, &diag, "serve");
	if ((*ret)->family != PROFILE_MANAGED)
		return cli_fail(CLI_USAGE,
				"serve: only a managed profile can be served; an agent's "
				"is the default, and a role has no server in it");
	o->sandbox = MCP_SANDBOX_PROFILE;
	o->profile = *ret;
	return 0;
}

static int serve_profiled(const struct args *a, struct mcp_serve_opts *o)
{
	cleanup_managed struct cli_managed m = {0};
	cleanup_local struct cli_local local = {0};
	cleanup_profile struct profile *p = NULL;
	cleanup_net_rules struct net_rules net = {0};
	struct cli_config config = {0};
	struct cli_limits limits = {0};
	struct diag diag = {0};
	int r = check_profiled(a);

	if (r > 0)
		return r;
	r = cli_limits_parse(&a->view.limits, &limits, &diag);
	if (r == 0)
		r = cli_config_load(&diag, &config);
	if (r == 0)
		r = cli_net_rules(&a->view.net, &config, &diag, &net);
	if (r == 0)
		r = cli_local_init(&config, &diag, &local);
	local.l.net = &net;
	if (r == 0)
		r = a->write_through ? cli_local_through(&local, a->view.env) : 0;
	if (r == 0)
		r = cli_managed_tree(local.cwd, a->view.env, a->write_through, &diag, &m);
	if (r < 0) {
		cli_config_release(&config);
		return cli_fail_errno(r, &diag, "serve");
	}
	r = make_profile(a, &local.l, o, &p);
	o->local = &local.l;
	o->limits = limits.run;
	o->disk_max = limits.disk;
	if (r == 0 && a->write_through && limits.disk)
		r = cli_fail(CLI_USAGE,
			     "serve: --limit disk counts what an environment keeps, and with "
			     "--write-through it keeps nothing");
	o->env = m.opts.env;
	o->overlays = m.opts.overlays;
	o->noverlays = m.opts.noverlays;
	o->through = a->write_through;
	/* There is nothing to drop or to keep. */
	o->keep = o->keep || o->through;
	o->no_checkpoints = o->no_checkpoints || o->through;
	if (r == 0)
		r = start(a, o);
	cli_config_release(&config);
	return r;
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
	int r;

	if (a->write_through && !a->profile && !a->sandbox)
		return cli_fail(CLI_USAGE, "serve: --write-through needs --sandbox or --profile, "
					   "which say where");
	if (a->profile || a->sandbox)
		return serve_profiled(a, &o);
	r = cli_view(&a->view, &v, &diag);
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
	o.net_rules = v.net_on ? &v.net : NULL;
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
		{"profile", 0, CLI_TEXT, &a.profile, "FILE",
		 "a managed profile: what every command may do"},
		{"sandbox", 0, CLI_TEXT, &a.sandbox, "MODE",
		 "inherit (what each call brings), read-only, workspace-write, danger-full-access"},
		{"write-through", 0, CLI_FLAG, &a.write_through, NULL,
		 "with --sandbox or --profile: what is written goes to the host at once"},
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
