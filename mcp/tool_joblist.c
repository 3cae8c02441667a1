/* Jobs by their ids, those of other servers included: shell_job_status and shell_job_list. */
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "mcp/record.h"
#include "mcp/session.h"
#include "mcp/tool_jobs.h"

/* False: answered. A job is in one environment, which need not be said. */
static bool in_environment(const cJSON *args, struct tool_result *out, struct job *j)
{
	const char *env = NULL;
	struct job_info in;
	int r = arg_str(args, ARG("environment", "environment_id"), out, &env);

	job_get_info(j, &in);
	if (r <= 0 || !strcmp(env, in.env))
		return r >= 0;
	(void)tool_error(out,
			 "job %s runs in environment '%s', not in '%.64s'; leave 'environment' out",
			 in.id, in.env, env);
	return false;
}

static int put_when(struct buf *b, time_t t)
{
	char when[32] = "";
	struct tm tm;

	if (!t || !gmtime_r(&t, &tm))
		return 0;
	(void)strftime(when, sizeof(when), " at %Y-%m-%d %H:%M:%SZ", &tm);
	return buf_puts(b, when);
}

/* Of a job that is not ours: what its server has written down. */
static int put_other(struct buf *b, const struct record_job *j)
{
	int r;

	if (j->lives)
		return buf_puts(
			b,
			"belongs to another server, which runs still: it can be asked there alone");
	r = buf_puts(b, "belonged to an earlier server that ended");
	if (!r)
		r = put_when(b, j->ended);
	if (!r && j->how[0])
		return buf_printf(b, "; the job had ended before (%s), and its output is gone",
				  j->how);
	return r ? r
		 : buf_puts(
			   b,
			   ", and was lost with it: what it had changed by then is there, its output "
			   "is not; start it again if it is needed");
}

/* Those that there are, or none. */
static void put_live(struct jobs *js, struct buf *b)
{
	struct job *list[8];
	size_t n = jobs_list(js, list, ARRAY_SIZE(list));

	for (size_t i = 0; i < n; i++) {
		struct job_info in;

		job_get_info(list[i], &in);
		(void)!buf_printf(b, "%s%s", i ? ", " : "", in.id);
		job_put(list[i]);
	}
	if (!n)
		(void)!buf_puts(b, "none");
}

static int no_job(struct tool_call *call, const char *id, struct tool_result *out)
{
	struct jobs *js = session_jobs(tool_session(call));
	cleanup_buf struct buf why = {0}, live = {0};
	struct record_job other;
	int r;

	put_live(js, &live);
	if (!live.data)
		return -ENOMEM;
	if (record_find(session_record(tool_session(call)), id, &other)) {
		r = put_other(&why, &other);
		return r ? r
			 : tool_error(out, "job %.40s %s; jobs of this one: %s", id,
				      (const char *)why.data, (const char *)live.data);
	}
	return tool_error(out, "there is no job '%.40s': %s; jobs: %s", id,
			  jobs_of_other(js, id)
				  ? "it is not of this server, and of no other that is known"
				  : "the last 64 that have ended are kept",
			  (const char *)live.data);
}

struct job *jobtool_find_id(struct tool_call *call, const cJSON *args, const char *id,
			    struct tool_result *out)
{
	struct job *j = jobs_find(session_jobs(tool_session(call)), id);

	if (!j)
		(void)no_job(call, id, out);
	if (j && !in_environment(args, out, j)) {
		job_put(j);
		return NULL;
	}
	return j;
}

struct job *jobtool_find(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	const char *id;
	int r = arg_str(args, ARG("job_id", "id", "bash_id", "shell_id", "task_id"), out, &id);

	if (r == 0)
		(void)tool_error(out, "'job_id' is missing; shell_job_list shows the jobs");
	return r <= 0 ? NULL : jobtool_find_id(call, args, id, out);
}

void jobtool_facts(struct tool_result *out, const struct job_info *in)
{
	cJSON *o = cJSON_CreateObject();

	if (!o)
		return;
	(void)cJSON_AddStringToObject(o, "job_id", in->id);
	(void)cJSON_AddBoolToObject(o, "running", !in->ended);
	if (in->ended) {
		(void)cJSON_AddNumberToObject(o, "rc", in->result.code);
		(void)cJSON_AddBoolToObject(o, "timed_out", in->result.timed_out);
		(void)cJSON_AddBoolToObject(o, "killed", in->cancelled);
	}
	(void)cJSON_AddNumberToObject(o, "seconds", in->age_s);
	(void)cJSON_AddNumberToObject(o, "stdout_bytes", (double)in->size[0]);
	(void)cJSON_AddNumberToObject(o, "stderr_bytes", (double)in->size[1]);
	out->meta = o;
}

int jobtool_put_line(struct buf *b, const struct job_info *in)
{
	cleanup_buf struct buf cmd = {0};
	int r = buf_printf(b, "%s: ", in->id);

	if (!r)
		r = sh_state(b, in);
	if (!r)
		r = buf_puts(b, "  out ");
	if (!r)
		r = sh_size(b, in->size[0] + in->size[1]);
	if (!r && in->ended)
		r = buf_printf(b, "  (%.0fs ago)", in->ended_s);
	if (!r)
		r = sh_clean(&cmd, (const uint8_t *)in->command,
			     strlen(in->command) < 80 ? strlen(in->command) : 80);
	for (size_t i = 0; i < cmd.len; i++)
		if (cmd.data[i] == '\n')
			cmd.data[i] = ' ';
	return r ? r : buf_printf(b, "  %s\n", cmd.data ? (const char *)cmd.data : "");
}

static int run_status(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	cleanup_job struct job *j = jobtool_find(call, args, out);
	struct job_info in;

	if (!j)
		return 0;
	job_get_info(j, &in);
	jobtool_facts(out, &in);
	return jobtool_put_line(&out->text, &in);
}

/* "j3-7f3a01bc: lost with its server, which ended at ...  make -j2" */
static int put_lost(struct tool_call *call, const char *env, struct buf *out)
{
	struct mcp_session *s = tool_session(call);
	struct record_job lost[8];
	size_t n;
	int r = 0;

	if (!env)
		env = session_opts(s)->env ? session_opts(s)->env : "default";
	n = record_lost(session_record(s), env, lost, ARRAY_SIZE(lost));
	for (size_t i = 0; !r && i < n; i++) {
		cleanup_buf struct buf cmd = {0};

		r = buf_printf(out, "%s: lost with its server, which ended", lost[i].id);
		if (!r)
			r = put_when(out, lost[i].ended);
		if (!r)
			r = sh_clean(&cmd, (const uint8_t *)lost[i].command,
				     strnlen(lost[i].command, 80));
		if (!r)
			r = buf_printf(out, "  %s\n", cmd.data ? (const char *)cmd.data : "");
	}
	return r;
}

static int run_list(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	struct job *list[JOBS_MAX_KEPT + JOBS_MAX_RUNNING];
	size_t n = jobs_list(session_jobs(tool_session(call)), list, ARRAY_SIZE(list)), running = 0;
	cleanup_buf struct buf lines = {0};
	const char *env = NULL;
	size_t shown = 0;
	int r = arg_str(args, ARG("environment", "environment_id"), out, &env);
	bool answered = r < 0;

	r = 0;
	for (size_t i = 0; i < n; i++) {
		struct job_info in;

		job_get_info(list[i], &in);
		if (!env || !strcmp(env, in.env)) {
			shown++;
			running += !in.ended;
			r = r ? r : jobtool_put_line(&lines, &in);
		}
		job_put(list[i]);
	}
	if (answered)
		return 0;
	if (!r)
		r = buf_printf(&out->text, "%zu job%s, %zu running\n", shown, shown == 1 ? "" : "s",
			       running);
	if (!r && lines.len)
		r = buf_put(&out->text, lines.data, lines.len);
	return r ? r : put_lost(call, env, &out->text);
}

const struct mcp_tool tool_shell_job_status = {
	.name = "shell_job_status",
	.title = "Job status",
	.description = "State of one job: running or how it ended, time, size of its output.",
	.input_schema = JOB_SCHEMA(""),
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
	.run = run_status,
};

const struct mcp_tool tool_shell_job_list = {
	.name = "shell_job_list",
	.title = "List jobs",
	.description =
		"Jobs of this session, newest first, with state, output size and command; and those lost "
		"with an earlier one.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{" JOB_ENV "}}",
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
	.run = run_list,
};
