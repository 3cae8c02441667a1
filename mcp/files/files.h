/*
 * mcp/files/files.h - the file tools: exact file input and output on the mounted tree of an
 * environment, without starting a sandbox.
 *
 * They see what a command sees: every path is resolved below the root descriptor of the mount, with
 * the tree's own symlinks and binds, and permissions and policy are the kernel's and the daemon's.
 */
#pragma once

#include "mcp/tool.h"

extern const struct mcp_tool tool_read_file;
extern const struct mcp_tool tool_write_file;
extern const struct mcp_tool tool_edit;
extern const struct mcp_tool tool_grep;
extern const struct mcp_tool tool_list_dir;
extern const struct mcp_tool tool_glob;
extern const struct mcp_tool tool_shell_list;
