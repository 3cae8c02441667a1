#include "mcp/tools.h"

#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/sandbox.h"
#include "mcp/session.h"
#include "mcp/until.h"

#define SLICE_MS 100

/* NULL: answered. */
static struct job *find_job(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	struct jobs *js = session_jobs(tool_session(call));
	cleanup_buf struct buf live = {0};
	struct job *list[8], *j;
	const char *id;
	size_t n;
	int r = arg_str(args, ARG("job_id", "id", "bash_id", "shell_id", "task_id"), out, &id);

	if (r == 0)
		(void)tool_error(out, "'job_id' is missing; shell_job_list shows the jobs");
	if (r <= 0)
		return NULL;
	j = jobs_find(js, id);
	if (j)
		return j;
	n = jobs_list(js, list, ARRAY_SIZE(list));
	for (size_t i = 0; i < n; i++) {
		struct job_info in;

		job_get_info(list[i], &in);
		(void)!buf_printf(&live, "%s%s", i ? ", " : "", in.id);
		job_put(list[i]);
	}
	(void)tool_error(out,
			 "there is no job '%.40s': it is too old, or of an earlier session, which "
			 "ended it; jobs: %s",
			 id, n ? (const char *)live.data : "none");
	return NULL;
}

static void add_facts(struct tool_result *out, const struct job_info *in)
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

/* "j3-7f3a: exit 0 in 2.10s  out 36.2 KiB  (12s ago)  make -j2" */
static int put_line(struct buf *b, const struct job_info *in)
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
	cleanup_job struct job *j = find_job(call, args, out);
	struct job_info in;

	if (!j)
		return 0;
	job_get_info(j, &in);
	add_facts(out, &in);
	return put_line(&out->text, &in);
}

static int run_list(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	struct job *list[JOBS_MAX_KEPT + JOBS_MAX_RUNNING];
	size_t n = jobs_list(session_jobs(tool_session(call)), list, ARRAY_SIZE(list)), running = 0;
	cleanup_buf struct buf lines = {0};
	int r = 0;

	(void)args;
	for (size_t i = 0; i < n; i++) {
		struct job_info in;

		job_get_info(list[i], &in);
		running += !in.ended;
		if (!r)
			r = put_line(&lines, &in);
		job_put(list[i]);
	}
	if (!r)
		r = buf_printf(&out->text, "%zu job%s, %zu running\n", n, n == 1 ? "" : "s",
			       running);
	return r || !lines.len ? r : buf_put(&out->text, lines.data, lines.len);
}

/* ---- wait ---- */

/* 1 matched, 0 ended or out of time, -ECANCELED, -EFBIG. */
static int wait_job(struct tool_call *call, struct job *j, double seconds, struct until *u)
{
	long long deadline = io_now_ms() + (long long)(seconds * 1000);

	for (;;) {
		long long left = deadline - io_now_ms();
		bool ended;
		int r;

		if (tool_cancelled(call))
			return -ECANCELED;
		ended = job_wait(j, (unsigned)(left <= 0 ? 0 : left < SLICE_MS ? left : SLICE_MS));
		r = u ? until_look(u, j) : 0;
		if (r)
			return r;
		if (ended || left <= 0)
			return 0;
	}
}

static int run_wait_tool(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	double seconds = 30, max = session_max_wait(tool_session(call));
	cleanup_job struct job *j = NULL;
	cleanup_until struct until *u = NULL;
	const char *pattern = NULL;
	struct diag diag = {0};
	struct changes none = {0};
	struct job_info in;
	int64_t bytes = 24576;
	int r;

	if (arg_num(args, ARG("wait_seconds", "wait"), 0, 86400, out, &seconds) < 0 ||
	    arg_str(args, ARG("until"), out, &pattern) < 0 ||
	    arg_int(args, ARG("max_output"), 256, 204800, out, &bytes) < 0)
		return 0;
	j = find_job(call, args, out);
	if (!j)
		return 0;
	if (pattern && *pattern) {
		r = until_new(pattern, &diag, &u);
		if (r)
			return r == -EINVAL ? tool_error(out, "%s", diag.text) : r;
	}
	r = wait_job(call, j, seconds < max ? seconds : max, u);
	if (r == -ECANCELED)
		return tool_error(out, "the server is ending");
	if (r == -EFBIG)
		return tool_error(out,
				  "the until pattern needs too much work on this output; use a "
				  "simpler one");
	job_get_info(j, &in);
	if (r == 1)
		r = buf_printf(&out->text, "matched until: %s\n", until_line(u));
	if (!r)
		r = shell_answer(j, &none, (size_t)bytes, out);
	out->is_error = false; /* the wait itself went well */
	cJSON_Delete(out->meta);
	out->meta = NULL;
	add_facts(out, &in);
	return r;
}

/* ---- output ---- */

/* A page that starts and ends where a line does, if there is one. */
static int put_page(struct job *j, int stream, uint64_t from, uint64_t to, struct buf *out)
{
	int r = sh_range(out, j, stream, from, to);

	if (!r && out->len && out->data[out->len - 1] != '\n')
		r = buf_puts(out, "\n");
	return r;
}

static int run_output_tool(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	static const char *const streams[] = {"stdout", "stderr", NULL};
	cleanup_job struct job *j = NULL;
	int64_t tail = 8192, offset = -1, max = 24576;
	struct job_info in;
	uint64_t from, to, size;
	unsigned stream = 0;
	int r, paged;

	paged = arg_int(args, ARG("offset"), 0, INT64_MAX / 2, out, &offset);
	if (paged < 0 || arg_int(args, ARG("tail_bytes", "tail"), 1, 204800, out, &tail) < 0 ||
	    arg_int(args, ARG("max_output"), 256, 204800, out, &max) < 0 ||
	    arg_enum(args, ARG("stream"), streams, out, &stream) < 0)
		return 0;
	j = find_job(call, args, out);
	if (!j)
		return 0;
	job_get_info(j, &in);
	size = in.size[stream];
	if (paged) {
		from = (uint64_t)offset < size ? (uint64_t)offset : size;
		to = size - from > (uint64_t)max ? from + (uint64_t)max : size;
	} else {
		from = size > (uint64_t)tail ? size - (uint64_t)tail : 0;
		to = size;
	}
	r = sh_state(&out->text, &in);
	if (!r)
		r = buf_printf(&out->text,
			       "  bytes %" PRIu64 "-%" PRIu64 " of %" PRIu64
			       "%s  next offset=%" PRIu64 "\n",
			       from, to, size, in.ended ? "" : " so far", to);
	if (!r)
		r = put_page(j, (int)stream, from, to, &out->text);
	if (!r && in.result.out_limited && to == size)
		r = buf_puts(&out->text, "[output over 64 MiB was discarded]\n");
	add_facts(out, &in);
	if (out->meta)
		(void)cJSON_AddNumberToObject(out->meta, "next_offset", (double)to);
	return r;
}

/* ---- input, kill ---- */

static int send_input(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	cleanup_job struct job *j = NULL;
	const char *text = NULL;
	bool eof = false;
	struct job_info in;
	int r = 0;

	if (arg_str(args, ARG("text", "input", "data"), out, &text) < 0 ||
	    arg_bool(args, ARG("eof"), out, &eof) < 0)
		return 0;
	j = find_job(call, args, out);
	if (!j)
		return 0;
	if (!text && !eof)
		return tool_error(out, "nothing to do: pass text, or eof=true to close its input");
	job_get_info(j, &in);
	if (!in.input)
		return tool_error(out,
				  "this job has no open input; start it with interactive=true");
	if (text && *text)
		r = job_input(j, text, strlen(text));
	if (!r && eof)
		r = job_input(j, NULL, 0);
	if (r == -EPIPE)
		return tool_error(out, "the command has ended or closed its input");
	if (r < 0)
		return tool_error(out, "the input could not be delivered: %s", err_text(r));
	return buf_printf(&out->text, "sent %zu bytes%s\n", text ? strlen(text) : 0,
			  eof ? ", closed its input" : "");
}

static int run_kill_tool(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	cleanup_job struct job *j = NULL;
	double grace = 2;
	struct job_info in;
	int r;

	if (arg_num(args, ARG("grace"), 0, 30, out, &grace) < 0)
		return 0;
	j = find_job(call, args, out);
	if (!j)
		return 0;
	r = job_kill(j, (unsigned)(grace * 1000), true);
	if (r && r != -ESRCH)
		return tool_error(out, "it could not be killed: %s", err_text(r));
	(void)job_wait(j, (unsigned)(grace * 1000) + 3000);
	job_get_info(j, &in);
	add_facts(out, &in);
	if (r == -ESRCH)
		r = buf_puts(&out->text, "already ended: ");
	return r ? r : put_line(&out->text, &in);
}

#define JOB_ID \
	"\"job_id\":{\"type\":\"string\",\"description\":\"Id from shell_run or shell_job_start\"}"
#define JOB_SCHEMA(more)                                                                 \
	"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"job_id\"]," \
	"\"properties\":{" JOB_ID more "}}"

/* Input is for code, and code runs under the profile of the call that sends it. */
static int run_input_tool(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	struct seat seat;
	int r;

	if (session_opts(tool_session(call))->sandbox == MCP_SANDBOX_NONE)
		return send_input(call, args, out);
	if (!tool_sit(call, args, out, &seat))
		return 0;
	r = send_input(call, args, out);
	tool_rise(call, &seat);
	return r;
}

const struct mcp_tool tool_shell_job_status = {
	.name = "shell_job_status",
	.title = "Job status",
	.description = "State of one job: running or how it ended, time, size of its output.",
	.input_schema = JOB_SCHEMA(""),
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
	.run = run_status,
};

const struct mcp_tool tool_shell_job_wait = {
	.name = "shell_job_wait",
	.title = "Wait for job",
	.description =
		"Wait until a job ends, a line of its output matches `until`, or the time is over; returns "
		"its state and output. Call it again for longer waits.",
	.input_schema = JOB_SCHEMA(
		",\"wait_seconds\":{\"type\":\"number\",\"minimum\":0,\"maximum\":55,\"default\":30,"
		"\"description\":\"Seconds to wait\"},"
		"\"until\":{\"type\":\"string\",\"description\":\"Regular expression (PCRE2) that a line "
		"of output must match\"},"
		"\"max_output\":{\"type\":\"integer\",\"minimum\":256,\"maximum\":204800,"
		"\"default\":24576,\"description\":\"Bytes of output to show\"}"),
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_WAITS,
	.run = run_wait_tool,
};

const struct mcp_tool tool_shell_job_output = {
	.name = "shell_job_output",
	.title = "Job output",
	.description =
		"Output of a job, running or ended: its last bytes, or a page from `offset` on. The "
		"first line gives the offset for the next page.",
	.input_schema = JOB_SCHEMA(
		",\"tail_bytes\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":204800,"
		"\"default\":8192,\"description\":\"Without offset: this many last bytes\"},"
		"\"offset\":{\"type\":\"integer\",\"minimum\":0,\"description\":\"First byte\"},"
		"\"max_output\":{\"type\":\"integer\",\"minimum\":256,\"maximum\":204800,"
		"\"default\":24576,\"description\":\"With offset: most bytes\"},"
		"\"stream\":{\"type\":\"string\",\"enum\":[\"stdout\",\"stderr\"],"
		"\"default\":\"stdout\",\"description\":\"stderr only where it was kept apart\"}"),
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
	.run = run_output_tool,
};

const struct mcp_tool tool_shell_job_input = {
	.name = "shell_job_input",
	.title = "Send input to job",
	.description = "Write text to the standard input of a job started with interactive=true.",
	.input_schema = JOB_SCHEMA(
		",\"text\":{\"type\":\"string\",\"description\":\"Text; end a line with a newline\"},"
		"\"eof\":{\"type\":\"boolean\",\"default\":false,\"description\":\"Close its input "
		"afterwards\"}"),
	.flags = TOOL_SITS,
	.run = run_input_tool,
};

const struct mcp_tool tool_shell_job_kill = {
	.name = "shell_job_kill",
	.title = "Kill job",
	.description =
		"End a job and every process it started: SIGTERM, then SIGKILL after `grace`.",
	.input_schema = JOB_SCHEMA(
		",\"grace\":{\"type\":\"number\",\"minimum\":0,\"maximum\":30,\"default\":2,"
		"\"description\":\"Seconds between the two signals\"}"),
	.flags = TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT,
	.run = run_kill_tool,
};

const struct mcp_tool tool_shell_job_list = {
	.name = "shell_job_list",
	.title = "List jobs",
	.description =
		"All jobs of this session, newest first, with state, output size and command.",
	.input_schema = "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{}}",
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
	.run = run_list,
};
