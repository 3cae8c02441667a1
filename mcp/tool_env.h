/*
 * mcp/tool_env.h - what the tools that look at or move an environment share.
 */
#pragma once

#include "mcp/tools.h"

#define ENV_ARG "\"environment\":{\"type\":\"string\",\"description\":\"Name\"}"
#define ENV_SCHEMA(props) \
	"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{" props ENV_ARG "}}"

/* A connection for one tool call. */
struct env_call {
	struct client *client;
	struct ctl *ctl;
	struct diag diag;
};

/* False: answered. */
bool env_begin(struct tool_call *call, const cJSON *args, struct tool_result *out,
	       struct env_call *ret);
/* Gives the connection back and, for an error of the daemon, answers. Returns what a handler returns. */
int env_end(struct env_call *e, int r, struct tool_result *out) MUST_USE;
/* The first 12 digits; "base" for "". */
const char *env_short_id(const char *id, char room[static 16]);
