/*
 * mcp/tools.h - the entries of the tool table, and what the shell and job tools share.
 */
#pragma once

#include "mcp/jobs.h"
#include "mcp/shelltext.h"
#include "mcp/tool.h"

extern const struct mcp_tool tool_shell_run;
extern const struct mcp_tool tool_shell_job_start;
extern const struct mcp_tool tool_shell_job_status;
extern const struct mcp_tool tool_shell_job_wait;
extern const struct mcp_tool tool_shell_job_output;
extern const struct mcp_tool tool_shell_job_input;
extern const struct mcp_tool tool_shell_job_kill;
extern const struct mcp_tool tool_shell_job_list;
extern const struct mcp_tool tool_env_status;
extern const struct mcp_tool tool_env_diff;
extern const struct mcp_tool tool_env_commit;
extern const struct mcp_tool tool_env_snapshot_list;
extern const struct mcp_tool tool_env_rollback;
extern const struct mcp_tool tool_env_fork;
extern const struct mcp_tool tool_env_reset;
extern const struct mcp_tool tool_env_discard;
extern const struct mcp_tool tool_env_gc;
extern const struct mcp_tool tool_bind_host_dir;
extern const struct mcp_tool tool_pacman_install;
extern const struct mcp_tool tool_pacman_run;
extern const struct mcp_tool tool_unbind_host_dir;
extern const struct mcp_tool tool_apt_install;

/* The same facts as JSON text. */
int shell_answer_json(struct job *j, const struct job_info *in, const struct changes *ch,
		      size_t max, struct tool_result *out) MUST_USE;
/* Status line, output and notes of a job as the answer. */
int shell_answer(struct job *j, const struct changes *ch, size_t max,
		 struct tool_result *out) MUST_USE;
