/*
 * mcp/compat.h - calls as models send them that were trained on other tools: Vibe's, Claude Code's, Codex's, the filesystem
 * server's and a few more. What is only another name or form for the same is rewritten to ours before a call is checked.
 *
 * Nothing here can widen what a call may do: arguments that ask for less confinement are dropped.
 * Errors: -ENOMEM.
 */
#pragma once

#include <cjson/cJSON.h>

#include "base/err.h"

/* @args of @tool (its name without prefix), changed in place; NULL: none. */
int compat_args(const char *tool, cJSON *args) MUST_USE;
