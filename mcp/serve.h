/*
 * mcp/serve.h - the MCP server on this process's standard input and output.
 *
 * Takes descriptors 0 and 1 for the protocol (moved to private ones at once: 0 becomes /dev/null, 1
 * becomes standard error, M1), handles SIGTERM, SIGINT and SIGHUP, and starts threads: call it from
 * main with no threads running. Returns when the client has closed its end or a signal came, with
 * all commands dead and, unless @keep, what was not committed discarded (M4).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/log.h"
#include "fs/ctl/ctl_client.h"
#include "net/rules.h"
#include "runner/runner.h"

struct mcp_bind {
	int fd; /* of the directory, O_PATH */
	const char *host, *mount;
	bool rw;
};

struct profile;
struct profile_local;

enum mcp_sandbox {
	MCP_SANDBOX_NONE,    /* the environment's own policy */
	MCP_SANDBOX_PROFILE, /* one profile, whatever a client sends */
	MCP_SANDBOX_INHERIT, /* each call brings its own, and is refused without */
};

struct mcp_serve_opts {
	enum mcp_sandbox sandbox;
	const struct profile *profile;     /* MCP_SANDBOX_PROFILE */
	const struct profile_local *local; /* MCP_SANDBOX_INHERIT */
	const char *data_dir;              /* NULL: the default */
	const char *env;                   /* NULL: "default"; made when missing */
	const char *base;                  /* NULL: "host" */
	const char *
		manager; /* what installs packages on it: "apt", "pacman"; NULL: none that is known */
	bool through;    /* the environment shows the host itself: ctl_env_opts.through */
	const struct ctl_overlay *overlays;
	size_t noverlays;
	bool same_dirs, tell_dirs; /* see ctl_env_opts */
	const struct mcp_bind *binds;
	size_t nbinds;
	const char *
		refusal; /* why the current directory is not shown; each call that wants an environment says it. NULL */
	const char *const *bind_roots; /* the user's, for bind_host_dir; NULL-terminated, or NULL */
	const char *const *
		pacman_mirrors; /* the user's, as client/pacman.h has it; NULL-terminated, or NULL */
	const char *const *writable; /* NULL: the agent default */
	bool keep;                   /* leave uncommitted changes at the end */
	bool read_only;              /* offer what changes and runs nothing, alone */
	bool no_checkpoints;
	bool no_exec_workspace;
	/* Of each command, where no profile says otherwise: a network of its own with these rules. NULL: none. */
	const struct net_rules *net_rules;
	struct run_limits limits; /* of each command; 0: the default */
	uint64_t disk_max;        /* of the environment, see ctl_env_opts; 0: as it is */
	const char *tool_prefix;  /* NULL: "rattan_" */
	const char *version;      /* NULL: this build's */
	unsigned max_wait_s;      /* longest a call may block, for impatient clients; 0: 55 */
	enum log_level log_level;
};

/* 0 after an orderly end, or negative errno when the server could not start. */
int mcp_serve(const struct mcp_serve_opts *o) MUST_USE;
