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
	const char *prefix, *level, *log, *profile, *sandbox, *max_wait;
	bool keep, no_checkpoints, write_through, read_only;
};

/* Whoever types "rattan" sees nothing happen otherwise. */
static void greet(void)
{
	if (isatty(STDIN_FILENO))
		fprintf(stderr,
			"rattan: the MCP server now waits for a client on this terminal; Ctrl-D ends it. "
			"For people: rattan --help\n");
}

/* 0, or an exit code. */
static int seconds_of(const char *text, unsigned *ret)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (end == text || *end || *text == '-' || n < 1 || n > 3600)
		return cli_fail(CLI_USAGE,
				"serve: --max-wait is a number of seconds from 1 to 3600, not '%s'",
				text);
	*ret = (unsigned)n;
	return 0;
}

static int start(const struct args *a, struct mcp_serve_opts *o)
{
	int r;

	if (a->level && log_level_parse(a->level, &o->log_level) < 0)
		return cli_fail(CLI_USAGE,
				"serve: --log-level is error, warn, info or debug, not '%s'",
				a->level);
	o->read_only = a->read_only;
	r = a->max_wait ? seconds_of(a->max_wait, &o->max_wait_s) : 0;
	if (r)
		return r;
	r = a->log ? log_to_file(a->log) : 0;
	if (r < 0)
		return cli_fail(CLI_FAILED, "serve: --log %s: %s", a->log,
				r == -ENXIO ? "a pipe that nobody reads: start its reader first"
					    : err_text(r));
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

/* "NAME" or "NAME@ID". */
struct wanted {
	const char *base;
	char manager[8];
};

static int see_base(void *arg, const struct ctl_base_info *b)
{
	struct wanted *w = arg;
	size_t n = strlen(b->name);

	if (!strncmp(w->base, b->name, n) && (!w->base[n] || w->base[n] == '@'))
		memcpy(w->manager, b->manager, sizeof(w->manager));
	return 0;
}

/* Which tools there are is asked before anything is started; a base that is none is told by who starts on it. */
static void find_manager(struct wanted *w)
{
	struct diag diag = {0};

	if (w->base && strcmp(w->base, "host") != 0)
		(void)!ctl_base_list(NULL, &diag, see_base, w);
}

static int serve(const struct args *a)
{
	struct diag refused = {0};
	cleanup_view struct cli_view v = {.refused = &refused};
	cleanup_free struct mcp_bind *binds = NULL;
	struct mcp_serve_opts o = {.base = a->view.base,
				   .keep = a->keep,
				   .no_checkpoints = a->no_checkpoints,
				   .no_exec_workspace = a->view.no_exec,
				   .tool_prefix = a->prefix,
				   .version = RATTAN_VERSION,
				   .log_level = LOG_WARN};
	struct wanted w = {.base = a->view.base};
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
	/* Many clients show nothing of a server that does not start, and some start it once from elsewhere to look at it. */
	o.refusal = refused.text[0] ? refused.text : NULL;
	o.env = v.env;
	o.limits = v.limits.run;
	o.net_rules = v.net_on ? &v.net : NULL;
	o.disk_max = v.limits.disk;
	o.overlays = v.ov;
	o.noverlays = v.overlays.n;
	o.same_dirs = v.by_place;
	o.tell_dirs = true;
	o.binds = binds;
	o.nbinds = v.binds.n;
	o.bind_roots = v.binds.roots;
	o.pacman_mirrors = (const char *const *)v.config.pacman_mirrors;
	o.writable = v.writable;
	find_manager(&w);
	o.manager = w.manager[0] ? w.manager : NULL;
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

/* A profile on the command line is one decision: what the settings open goes with theirs alone. */
static void choose(const struct args *a, cJSON *settings)
{
	static const char *const others[] = {
		"profile", "sandbox", "write-through", "base",          "overlay", "overlay-cwd",
		"bind",    "bind-ro", "bind-cwd",      "writable-root", "env",     NULL};

	for (size_t i = 0; (a->profile || a->sandbox) && others[i]; i++)
		cJSON_DeleteItemFromObjectCaseSensitive(settings, others[i]);
}

static int run(int argc, char **argv)
{
	struct args a = {0};
	struct cli_config config = {0};
	struct diag diag = {0};
	const struct cli_opt opts[] = {
		CLI_VIEW_OPTS(a.view),
		{"no-checkpoints", 0, CLI_FLAG, &a.no_checkpoints, NULL,
		 "no automatic state after each call"},
		{"keep", 0, CLI_FLAG, &a.keep, NULL,
		 "keep uncommitted changes when the server ends"},
		{"read-only", 0, CLI_FLAG, &a.read_only, NULL,
		 "offer only the tools that change nothing and run nothing"},
		{"max-wait", 0, CLI_TEXT, &a.max_wait, "S",
		 "no call blocks for longer, for clients that give up early; default: 55"},
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
		{"log", 0, CLI_TEXT, &a.log, "FILE",
		 "log to the end of FILE instead of standard error"},
		{0},
	};
	char **rest;
	int n, r = cli_parse(&cmd_serve, opts, argc, argv, false, &rest, &n);

	if (r < 0 && n)
		r = words(argv[0], rest[0]);
	if (r < 0 && cli_config_load(&diag, &config) < 0)
		r = cli_fail_errno(-EINVAL, &diag, "serve");
	if (r < 0) {
		choose(&a, config.serve);
		r = cli_opts_fill(opts, config.serve, "serve");
	}
	if (r < 0)
		r = serve(&a);
	cli_view_opts_release(&a.view);
	cli_config_release(&config);
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
