#include "mcp/tools.h"

#include "base/cleanup.h"
#include "mcp/files/files.h"
#include "mcp/server.h"

/* The order of tools/list; prompt caches of clients like it stable. */
const struct mcp_tool *const mcp_tools[] = {
	&tool_shell_run,
	&tool_shell_list,
	&tool_read_file,
	&tool_write_file,
	&tool_edit,
	&tool_grep,
	&tool_list_dir,
	&tool_glob,
	&tool_shell_job_start,
	&tool_shell_job_status,
	&tool_shell_job_wait,
	&tool_shell_job_output,
	&tool_shell_job_input,
	&tool_shell_job_kill,
	&tool_shell_job_list,
	&tool_env_status,
	&tool_env_diff,
	&tool_env_commit,
	&tool_env_snapshot_list,
	&tool_env_rollback,
	&tool_env_fork,
	&tool_env_reset,
	&tool_env_discard,
	&tool_env_gc,
	&tool_bind_host_dir,
	&tool_unbind_host_dir,
	&tool_apt_install,
	&tool_pacman_install,
	&tool_pacman_run,
};
const size_t mcp_tools_count = ARRAY_SIZE(mcp_tools);
