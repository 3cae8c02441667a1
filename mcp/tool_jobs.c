/* shell_job_wait, _output, _input and _kill. */
#include "mcp/tool_jobs.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/sandbox.h"
#include "mcp/session.h"
#include "mcp/until.h"

#define SLICE_MS       100
#define INPUT_PAUSE_US 20000

/* ---- wait ---- */

#define WAIT_MAX 32

struct waiting {
	struct job *v[WAIT_MAX];
	struct until *u[WAIT_MAX]; /* all NULL: for their ends alone */
	size_t n, at;              /* at: which one it was */
};

static void waiting_release(struct waiting *w)
{
	for (size_t i = 0; i < w->n; i++) {
		until_free(w->u[i]);
		job_put(w->v[i]);
	}
}
#define cleanup_waiting __attribute__((cleanup(waiting_release)))

/* Takes @j; NULL: answered already. False: answered. */
static bool add_job(struct waiting *w, struct job *j)
{
	if (j)
		w->v[w->n++] = j;
	return j;
}

/* False: answered. */
static bool jobs_named(struct tool_call *call, const cJSON *args, struct tool_result *out,
		       struct waiting *w)
{
	const cJSON *ids = NULL, *id;
	int r = arg_array(args, ARG("job_ids", "ids"), out, &ids);

	if (r <= 0)
		return r == 0 && add_job(w, jobtool_find(call, args, out));
	cJSON_ArrayForEach(id, ids)
	{
		if (!cJSON_IsString(id) || w->n == WAIT_MAX) {
			(void)tool_error(out, "'job_ids' must be a list of at most %d ids",
					 WAIT_MAX);
			return false;
		}
		if (!add_job(w, jobtool_find_id(call, args, id->valuestring, out)))
			return false;
	}
	if (!w->n)
		(void)tool_error(out, "'job_ids' is empty; shell_job_list shows the jobs");
	return w->n;
}

/* -EINVAL after an error text. */
static int patterns(struct waiting *w, const char *pattern, struct tool_result *out)
{
	struct diag diag = {0};
	int r = 0;

	for (size_t i = 0; !r && pattern && *pattern && i < w->n; i++)
		r = until_new(pattern, &diag, &w->u[i]);
	if (r == -EINVAL)
		(void)tool_error(out, "until is %s", diag.text);
	return r;
}

/* Until the first of them ends, or a line of its output matches: 1 matched, 0 ended (or out of time, when w->at is w->n),
 * -ECANCELED, -EFBIG. */
static int wait_jobs(struct tool_call *call, struct waiting *w, double seconds)
{
	long long deadline = io_now_ms() + (long long)(seconds * 1000);

	for (;;) {
		long long left = deadline - io_now_ms();
		unsigned slice = (unsigned)(left <= 0 ? 0 : left < SLICE_MS ? left : SLICE_MS);

		if (tool_cancelled(call))
			return -ECANCELED;
		for (w->at = 0; w->at < w->n; w->at++) {
			/* One for a time, the others for a look. */
			bool ended = job_wait(w->v[w->at], w->at ? 0 : slice);
			int r = w->u[w->at] ? until_look(w->u[w->at], w->v[w->at]) : 0;

			if (r || ended)
				return r;
		}
		if (left <= 0)
			return 0;
	}
}

/* Of several jobs: which one it was, and how the others are. */
static int put_others(const struct waiting *w, struct buf *out)
{
	int r = 0;

	for (size_t i = 0; !r && i < w->n; i++) {
		struct job_info in;

		job_get_info(w->v[i], &in);
		if (i != w->at)
			r = jobtool_put_line(out, &in);
	}
	return r;
}

static int put_first(const struct waiting *w, bool matched, struct buf *out)
{
	struct job_info in;
	int r = 0;

	if (w->n > 1 && w->at == w->n)
		return buf_printf(out, "none of %zu jobs has ended yet\n", w->n);
	if (w->n > 1) {
		job_get_info(w->v[w->at], &in);
		r = buf_printf(out, "first: %s\n", in.id);
	}
	if (!r && matched)
		r = buf_printf(out, "matched until: %s\n", until_line(w->u[w->at]));
	return r;
}

static int answer_wait(struct waiting *w, bool matched, size_t max, struct tool_result *out)
{
	struct changes none = {0};
	struct job_info in;
	int r = put_first(w, matched, &out->text);

	/* The one there is has its answer in any case. */
	if (w->n == 1)
		w->at = 0;
	if (!r && w->at < w->n) {
		r = shell_answer(w->v[w->at], &none, max, out);
		job_get_info(w->v[w->at], &in);
		cJSON_Delete(out->meta);
		out->meta = NULL;
		jobtool_facts(out, &in);
	}
	out->is_error = false; /* the wait itself went well */
	return r || w->n == 1 ? r : put_others(w, &out->text);
}

static int run_wait_tool(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	double seconds = 30, max = session_max_wait(tool_session(call));
	cleanup_waiting struct waiting w = {0};
	const char *pattern = NULL;
	int64_t bytes = 24576;
	int r;

	if (arg_num(args, ARG("wait_seconds", "wait"), 0, 86400, out, &seconds) < 0 ||
	    arg_str(args, ARG("until"), out, &pattern) < 0 ||
	    arg_int(args, ARG("max_output"), 256, 204800, out, &bytes) < 0)
		return 0;
	if (!jobs_named(call, args, out, &w))
		return 0;
	r = patterns(&w, pattern, out);
	if (r)
		return r == -EINVAL ? 0 : r;
	r = wait_jobs(call, &w, seconds < max ? seconds : max);
	if (r == -ECANCELED)
		return tool_error(out, "the server is ending");
	if (r == -EFBIG)
		return tool_error(out,
				  "the until pattern needs too much work on this output; use a "
				  "simpler one");
	return r < 0 ? r : answer_wait(&w, r == 1, (size_t)bytes, out);
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

/* Of the page, the lines that match. */
static int put_matching(struct job *j, int stream, uint64_t from, uint64_t to, struct until *u,
			struct buf *out)
{
	cleanup_buf struct buf page = {0};
	int r = put_page(j, stream, from, to, &page);
	const char *p = (const char *)page.data, *end = p + page.len;
	size_t lines = 0, matched = 0;

	for (const char *nl; !r && p < end; p = nl + 1, lines++) {
		nl = memchr(p, '\n', (size_t)(end - p));
		if (!nl)
			break;
		r = until_match(u, p, (size_t)(nl - p));
		matched += r > 0;
		if (r)
			r = r < 0 ? r : buf_put(out, p, (size_t)(nl - p) + 1);
	}
	return r ? r : buf_printf(out, "[%zu of %zu lines match]\n", matched, lines);
}

static int run_output_tool(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	static const char *const streams[] = {"stdout", "stderr", NULL};
	cleanup_job struct job *j = NULL;
	cleanup_until struct until *u = NULL;
	const char *filter = NULL;
	struct diag diag = {0};
	int64_t tail = 8192, offset = -1, max = 24576;
	struct job_info in;
	uint64_t from, to, size;
	unsigned stream = 0;
	int r, paged;

	paged = arg_int(args, ARG("offset"), 0, INT64_MAX / 2, out, &offset);
	if (paged < 0 || arg_int(args, ARG("tail_bytes", "tail"), 1, 204800, out, &tail) < 0 ||
	    arg_int(args, ARG("max_output"), 256, 204800, out, &max) < 0 ||
	    arg_enum(args, ARG("stream"), streams, out, &stream) < 0 ||
	    arg_str(args, ARG("filter"), out, &filter) < 0)
		return 0;
	j = jobtool_find(call, args, out);
	if (!j)
		return 0;
	r = filter && *filter ? until_new(filter, &diag, &u) : 0;
	if (r)
		return r == -EINVAL ? tool_error(out, "filter is %s", diag.text) : r;
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
		r = u ? put_matching(j, (int)stream, from, to, u, &out->text)
		      : put_page(j, (int)stream, from, to, &out->text);
	if (r == -EFBIG)
		return tool_error(
			out, "the filter needs too much work on this output; use a simpler one");
	if (!r && in.result.out_limited && to == size)
		r = sh_limited(&out->text, &in);
	jobtool_facts(out, &in);
	if (out->meta)
		(void)cJSON_AddNumberToObject(out->meta, "next_offset", (double)to);
	return r;
}

/* ---- input, kill ---- */

/* All of @text, as long as a call may take; *ret_sent of it has gone when the command does not read. */
static int deliver(struct tool_call *call, struct job *j, const char *text, size_t *ret_sent)
{
	const long long end =
		io_now_ms() + (long long)(session_max_wait(tool_session(call)) * 1000);
	const size_t len = strlen(text);

	*ret_sent = 0;
	while (*ret_sent < len) {
		ssize_t n = job_input(j, text + *ret_sent, len - *ret_sent);

		if (n < 0)
			return (int)n;
		*ret_sent += (size_t)n;
		if (n == 0 && (tool_cancelled(call) || io_now_ms() >= end))
			return -EAGAIN;
		if (n == 0)
			(void)usleep(INPUT_PAUSE_US);
	}
	return 0;
}

static int send_input(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	cleanup_job struct job *j = NULL;
	const char *text = NULL;
	bool eof = false;
	struct job_info in;
	size_t sent = 0;
	int r = 0;

	if (arg_str(args, ARG("text", "input", "data"), out, &text) < 0 ||
	    arg_bool(args, ARG("eof"), out, &eof) < 0)
		return 0;
	j = jobtool_find(call, args, out);
	if (!j)
		return 0;
	if (!text && !eof)
		return tool_error(out, "nothing to do: pass text, or eof=true to close its input");
	job_get_info(j, &in);
	if (!in.input)
		return tool_error(
			out,
			"this job has no open input; start it with interactive=true or tty=true");
	if (text)
		r = deliver(call, j, text, &sent);
	if (!r && eof)
		r = (int)job_input(j, NULL, 0);
	if (r == -EPIPE)
		return tool_error(out, "the command has ended or closed its input");
	if (r == -EAGAIN)
		return tool_error(
			out,
			"the command does not read its input: the first %zu bytes are kept for it; "
			"send the rest when it reads again, or end it with shell_job_kill",
			sent);
	if (r < 0)
		return tool_error(out, "the input could not be delivered: %s", err_text(r));
	return buf_printf(&out->text, "sent %zu bytes%s\n", sent, eof ? ", closed its input" : "");
}

static int run_kill_tool(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	cleanup_job struct job *j = NULL;
	double grace = 2;
	struct job_info in;
	int r;

	if (arg_num(args, ARG("grace"), 0, 30, out, &grace) < 0)
		return 0;
	j = jobtool_find(call, args, out);
	if (!j)
		return 0;
	r = job_kill(j, (unsigned)(grace * 1000), true);
	if (r && r != -ESRCH)
		return tool_error(out, "it could not be killed: %s", err_text(r));
	(void)job_wait(j, (unsigned)(grace * 1000) + 3000);
	job_get_info(j, &in);
	jobtool_facts(out, &in);
	if (r == -ESRCH)
		r = buf_puts(&out->text, "already ended: ");
	return r ? r : jobtool_put_line(&out->text, &in);
}

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

const struct mcp_tool tool_shell_job_wait = {
	.name = "shell_job_wait",
	.title = "Wait for job",
	.description =
		"Wait until a job (or the first of job_ids) ends, a line of its output matches `until`, or "
		"the time is over; returns its state and output. Call again for longer waits.",
	.input_schema = WAIT_SCHEMA(
		",\"wait_seconds\":{\"type\":\"number\",\"minimum\":0,\"maximum\":55,\"default\":30,"
		"\"description\":\"Seconds to wait\"},"
		"\"until\":{\"type\":\"string\",\"description\":\"Regular expression (PCRE2) that a line "
		"of output must match\"},"
		"\"max_output\":{\"type\":\"integer\",\"minimum\":256,\"maximum\":204800,"
		"\"default\":24576,\"description\":\"Bytes of output to show\"}"),
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_WAITS | TOOL_LONG,
	.run = run_wait_tool,
};

const struct mcp_tool tool_shell_job_output = {
	.name = "shell_job_output",
	.title = "Job output",
	.description =
		"Output of a job, running or ended: its last bytes, or a page from `offset` on. The first "
		"line gives the next offset.",
	.input_schema = JOB_SCHEMA(
		",\"tail_bytes\":{\"type\":\"integer\",\"maximum\":204800,"
		"\"default\":8192,\"description\":\"Without offset: this many last bytes\"},"
		"\"offset\":{\"type\":\"integer\",\"minimum\":0,\"description\":\"First byte\"},"
		"\"max_output\":{\"type\":\"integer\",\"minimum\":256,\"maximum\":204800,"
		"\"default\":24576,\"description\":\"With offset: most bytes\"},"
		"\"stream\":{\"type\":\"string\",\"enum\":[\"stdout\",\"stderr\"],"
		"\"default\":\"stdout\",\"description\":\"stderr only where it was kept apart\"},"
		"\"filter\":{\"type\":\"string\",\"description\":\"Only lines that match this\"}"),
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_LONG,
	.run = run_output_tool,
};

const struct mcp_tool tool_shell_job_input = {
	.name = "shell_job_input",
	.title = "Send input to job",
	.description =
		"Write to the standard input of a job started with interactive=true, or type on the terminal "
		"of one with tty=true.",
	.input_schema = JOB_SCHEMA(
		",\"text\":{\"type\":\"string\",\"description\":\"Text; end a line with a newline\"},"
		"\"eof\":{\"type\":\"boolean\",\"description\":\"Close its input "
		"afterwards\"}"),
	.flags = TOOL_SITS | TOOL_WAITS,
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
