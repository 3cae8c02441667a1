/*
 * mcp/shellargs.h - the arguments that shell_run and shell_job_start share, read and checked.
 */
#pragma once

#include "mcp/tool.h"

struct shell_req {
	const char *command;  /* lent from the arguments */
	const char *cwd_arg;  /* as it is written, lent; NULL: none */
	char *cwd;            /* absolute */
	double wait, timeout; /* seconds; timeout 0: none */
	const char *input;
	size_t max_output;
	bool separate, structured, interactive, tty, leave_running;
	bool timeout_ms; /* the timeout was so large that it must have been milliseconds */
	const char *promises;
	char **env; /* "NAME=value", NULL-terminated */
	size_t nenv;
};

enum shell_kind {
	SHELL_RUN,
	SHELL_JOB
};

/* 0; -EINVAL after tool_error; -ENOMEM. Release in any case. */
int shell_req_parse(struct tool_call *call, const cJSON *args, enum shell_kind kind,
		    struct tool_result *out, struct shell_req *ret) MUST_USE;
void shell_req_release(struct shell_req *r);
static inline void cleanup_shell_reqp(struct shell_req *r)
{
	shell_req_release(r);
}
#define cleanup_shell_req __attribute__((cleanup(cleanup_shell_reqp)))

/* @spec gets everything the request says; it lends from @req. */
struct mcp_serve_opts;
void shell_req_spec(const struct shell_req *req, const struct mcp_serve_opts *o,
		    struct run_spec *spec);
/* A path argument as an absolute path in the tree: relative to the workspace, "~" is the home. */
int shell_path(const char *path, char **ret) MUST_USE;
