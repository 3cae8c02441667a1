/* Files to read, of which the output of jobs is in no tree. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/files/call.h"
#include "mcp/jobs.h"
#include "mcp/session.h"

/* -ENOENT: no job's. */
static int open_output(struct files_call *fc, const char *name, int *ret_fd, struct stat *ret_st)
{
	size_t n = strlen(name);
	bool err = n > 4 && !strcmp(name + n - 4, ".err");
	cleanup_job struct job *j = NULL;
	cleanup_fd int fd = -1;
	char id[JOB_ID_MAX];
	int r;

	if (n <= 4 || n - 4 >= sizeof(id) || (!err && strcmp(name + n - 4, ".log") != 0))
		return -ENOENT;
	(void)snprintf(id, sizeof(id), "%.*s", (int)n - 4, name);
	j = jobs_find(session_jobs(tool_session(fc->call)), id);
	r = j ? job_open_output(j, err, &fd) : -ENOENT;
	if (r < 0)
		return r;
	if (fstat(fd, ret_st) < 0)
		return ret_nerrno();
	*ret_fd = steal_fd(&fd);
	return 0;
}

static bool is_output(const char *path)
{
	return !strncmp(path, JOB_OUTPUT_DIR, strlen(JOB_OUTPUT_DIR));
}

int files_path_to_change(struct files_call *fc, const char *raw, char **ret)
{
	int r = files_path(fc, raw, ret);

	if (r <= 0 || !is_output(*ret))
		return r;
	return tool_error(fc->out,
			  "%s: the output of jobs is only read; write elsewhere, as in /tmp", *ret);
}

int files_open_read(struct files_call *fc, const char *path, int *ret_fd, struct stat *ret_st)
{
	if (is_output(path)) {
		int r = open_output(fc, path + strlen(JOB_OUTPUT_DIR), ret_fd, ret_st);

		if (r != -ENOENT)
			return r;
	}
	return fsio_open_read(fc->at.root_fd, path, ret_fd, ret_st);
}
