#include "mcp/tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "mcp/denials.h"
#include "mcp/files/text.h"
#include "mcp/jobs.h"
#include "mcp/json.h"
#include "mcp/sandbox.h"
#include "mcp/session.h"
#include "mcp/shellargs.h"
#include "mcp/shelltext.h"
#include "profile/program.h"

#define SLICE_MS 100 /* how late a cancellation may be noticed */
#define GRACE_MS 2000

/* ---- what changed ---- */

static void look_at_changes(struct client *c, struct job *j, struct changes *ch)
{
	ch->known = !session_changes(c, job_token(j), changes_add, ch);
	/* Of an earlier mount nothing is known. */
	(void)!client_denials(c, job_denied(j), DENIALS_KEPT, &ch->denied);
	(void)!job_asked(j, &ch->asked, &ch->nasked, &ch->asked_total);
}

static int put_changes(struct buf *out, const struct changes *ch)
{
	const char *p = (const char *)ch->paths.data, *end = p + ch->paths.len;
	unsigned n = 0;
	int r;

	if (!ch->known || !ch->total)
		return 0;
	r = buf_puts(out, "[changed:");
	for (; !r && p < end && n < CHANGES_SHOWN; n++) {
		const char *from = p + (*p == '-');

		/* As the file tools name them: relative in the workspace. */
		if (!strncmp(from, TOOL_WORKSPACE "/", sizeof(TOOL_WORKSPACE)))
			from += sizeof(TOOL_WORKSPACE);
		r = buf_printf(out, "%s %s", n ? "," : "", *p == '-' ? "-" : "");
		if (!r)
			r = text_put_name(out, from, strlen(from));
		p += strlen(p) + 1;
	}
	if (!r && ch->total > n)
		r = buf_printf(out, ", and %u more; env_diff lists all", ch->total - n);
	return r ? r : buf_puts(out, "]\n");
}

static cJSON *changes_json(const struct changes *ch)
{
	cJSON *a = cJSON_CreateArray();
	const char *p = (const char *)ch->paths.data, *end = p + ch->paths.len;

	for (; a && p < end; p += strlen(p) + 1) {
		cJSON *item = cJSON_CreateString(p);

		if (!item)
			break;
		(void)cJSON_AddItemToArray(a, item);
	}
	return a;
}

/* ---- facts for programs ---- */

static void put_facts(cJSON *o, const struct job_info *in, const struct changes *ch)
{
	const struct run_result *res = &in->result;

	(void)cJSON_AddBoolToObject(o, "running", !in->ended);
	if (in->ended) {
		(void)cJSON_AddNumberToObject(o, "rc", res->code);
		(void)cJSON_AddBoolToObject(o, "timed_out", res->timed_out);
		if (res->state == RUN_SIGNALED)
			(void)cJSON_AddNumberToObject(o, "signal", res->signal);
		else
			(void)cJSON_AddNullToObject(o, "signal");
		if (res->state == RUN_NOT_STARTED) {
			(void)cJSON_AddStringToObject(o, "step", res->step);
			(void)cJSON_AddStringToObject(o, "error", res->error);
		}
		(void)cJSON_AddNumberToObject(o, "seconds", res->wall_s);
		(void)cJSON_AddNumberToObject(o, "max_rss", (double)res->max_rss);
		(void)cJSON_AddStringToObject(o, "enforced", res->enforced);
	}
	(void)cJSON_AddNumberToObject(o, "stdout_bytes", (double)in->size[0]);
	if (in->separate)
		(void)cJSON_AddNumberToObject(o, "stderr_bytes", (double)in->size[1]);
	if (ch->known) {
		(void)cJSON_AddNumberToObject(o, "changed_total", ch->total);
		(void)cJSON_AddItemToObject(o, "changed", changes_json(ch));
	}
	denials_facts(o, ch);
}

static int add_stream(cJSON *o, const char *name, struct job *j, int stream, size_t max,
		      const char *id, bool *ret_left)
{
	cleanup_buf struct buf b = {0};
	uint64_t left = 0;
	int r = sh_output(&b, j, stream, max, id, &left);

	if (r)
		return r;
	*ret_left |= left != 0;
	return cJSON_AddStringToObject(o, name, b.data ? (const char *)b.data : "") ? 0 : -ENOMEM;
}

/* The same as JSON text, for programs that parse it. */
static int answer_structured(struct job *j, const struct job_info *in, const struct changes *ch,
			     size_t max, struct tool_result *out)
{
	cJSON *o = cJSON_CreateObject();
	bool left = false;
	int r;

	if (!o)
		return -ENOMEM;
	put_facts(o, in, ch);
	r = add_stream(o, "stdout", j, 0, max / 2, in->id, &left);
	if (!r)
		r = add_stream(o, "stderr", j, 1, max / 2, in->id, &left);
	if (!in->ended || left)
		(void)cJSON_AddStringToObject(o, "job_id", in->id);
	if (left)
		job_keep(j);
	if (!r)
		r = json_put(&out->text, o);
	cJSON_Delete(o);
	return r;
}

/* ---- text ---- */

static int put_streams(struct job *j, const struct job_info *in, size_t max, struct buf *out)
{
	size_t half = in->separate && in->size[1] ? max / 2 : max;
	uint64_t left = 0, left_err = 0;
	int r;

	r = sh_output(out, j, 0, half, in->id, &left);
	if (!r && out->len && out->data[out->len - 1] != '\n')
		r = buf_puts(out, "\n");
	if (!r && in->separate && in->size[1]) {
		r = buf_puts(out, "--- stderr ---\n");
		if (!r)
			r = sh_output(out, j, 1, half, in->id, &left_err);
		if (!r && out->data[out->len - 1] != '\n')
			r = buf_puts(out, "\n");
	}
	if (left || left_err)
		job_keep(j);
	return r;
}

static int put_notes(const struct job_info *in, struct buf *out)
{
	int r = 0;

	if (in->ended && in->result.out_limited)
		r = buf_puts(out, "[output over 64 MiB was discarded]\n");
	if (!r && !in->ended)
		r = buf_printf(out,
			       "[still running: shell_job_wait job_id=\"%s\" waits for it, "
			       "shell_job_output reads on, shell_job_kill ends it]\n",
			       in->id);
	if (!r && in->ended && in->result.timed_out)
		r = buf_puts(out, "[raise timeout, or start it with shell_job_start]\n");
	if (!r && in->ended && in->result.state == RUN_NOT_STARTED &&
	    !strcmp(in->result.step, "cwd"))
		r = buf_puts(out,
			     "[cwd is a directory in the sandbox; the workspace is " TOOL_WORKSPACE
			     ", and directories of the host are not there]\n");
	return r;
}

int shell_answer(struct job *j, const struct changes *ch, size_t max, struct tool_result *out)
{
	struct job_info in;
	int r;

	job_get_info(j, &in);
	r = sh_status(&out->text, &in, ch, sh_lines(j, 0));
	if (!r)
		r = buf_puts(&out->text, "\n");
	if (!r)
		r = put_streams(j, &in, max, &out->text);
	if (!r)
		r = put_notes(&in, &out->text);
	if (!r)
		r = denials_put(&out->text, &in, ch);
	if (!r)
		r = put_changes(&out->text, ch);
	/* A failing command is information; only what did not run, or was cut short, is an error. */
	out->is_error = in.ended && (in.result.state == RUN_NOT_STARTED || in.result.timed_out);
	out->meta = cJSON_CreateObject();
	if (out->meta) {
		put_facts(out->meta, &in, ch);
		if (!in.ended)
			(void)cJSON_AddStringToObject(out->meta, "job_id", in.id);
	}
	return r;
}

/* ---- waiting ---- */

/* The last line of output, for progress. */
static void say_progress(struct tool_call *call, struct job *j)
{
	cleanup_buf struct buf b = {0};
	uint64_t size = job_size(j, 0);
	char *line, *nl;

	if (sh_range(&b, j, 0, size > 300 ? size - 300 : 0, size) || !b.len)
		return;
	while (b.len && b.data[b.len - 1] == '\n')
		b.data[--b.len] = 0;
	line = (char *)b.data;
	nl = strrchr(line, '\n');
	if (nl)
		line = nl + 1;
	if (strlen(line) > 120)
		line[120] = 0;
	tool_progress(call, 0, 0, line);
}

/* 1 ended, 0 still running, -ECANCELED. */
static int wait_for(struct tool_call *call, struct job *j, double seconds)
{
	long long until = io_now_ms() + (long long)(seconds * 1000), said = io_now_ms();

	for (;;) {
		long long now = io_now_ms(), left = until - now;

		if (tool_cancelled(call))
			return -ECANCELED;
		if (now - said >= 800) {
			say_progress(call, j);
			said = now;
		}
		if (job_run(j, (unsigned)(left <= 0 ? 0 : left < SLICE_MS ? left : SLICE_MS)))
			return 1;
		if (left <= 0)
			return 0;
	}
}

static int not_started(struct tool_result *out, int r, const struct diag *d)
{
	if (r == -EINVAL || r == -EAGAIN)
		return tool_error(out, "%s", d->text[0] ? d->text : err_text(r));
	if (r == -ESHUTDOWN)
		return tool_error(out, "the server is ending");
	return tool_error(out, "not started: %s (%s)",
			  d->text[0] ? d->text
				     : "the command could not "
				       "be run",
			  err_text(r));
}

/* Relative to the profile's project. */
static int cwd_under(const struct profile *p, struct shell_req *req)
{
	char *cwd;

	if (!p->cwd || (req->cwd_arg && (req->cwd_arg[0] == '/' || req->cwd_arg[0] == '~')))
		return 0;
	if (asprintf(&cwd, "%s%s%s", p->cwd, req->cwd_arg ? "/" : "",
		     req->cwd_arg ? req->cwd_arg : "") < 0)
		return -ENOMEM;
	free(req->cwd);
	req->cwd = cwd;
	return 0;
}

/* The profile's variables, and after them the request's, which win. */
static int vars_under(const struct seat *seat, const struct shell_req *req, const char ***ret)
{
	size_t n = 0;

	while (seat->vars[n])
		n++;
	*ret = calloc(n + req->nenv + 1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	memcpy((void *)*ret, seat->vars, n * sizeof(**ret));
	for (size_t i = 0; i < req->nenv; i++)
		(*ret)[n + i] = req->env[i];
	return 0;
}

/* 0; -EINVAL with a sentence when the profile cannot run a shell. */
static int spec_under(const struct seat *seat, struct shell_req *req, struct run_spec *spec,
		      const char ***ret_vars, struct diag *diag)
{
	const struct profile *p = seat->profile;
	int r = cwd_under(p, req);

	if (r == 0)
		r = vars_under(seat, req, ret_vars);
	if (r == 0)
		r = profile_check_program(p, "sh", NULL, diag);
	if (r < 0)
		return r == -ENOMEM ? r : -EINVAL;
	spec->cwd = req->cwd;
	spec->env = *ret_vars;
	spec->network = p->network && !p->net;
	spec->net_rules = p->net;
	spec->require_landlock = p->landlock_only;
	if (getuid()) {
		spec->uid = getuid();
		spec->gid = getgid();
	}
	return 0;
}

static int start_at(struct tool_call *call, const struct seat *seat, struct shell_req *req,
		    struct tool_result *out, struct job **ret_job)
{
	struct mcp_session *s = tool_session(call);
	cleanup_free const char **vars = NULL;
	struct diag diag = {0};
	struct run_spec spec;
	int r = 0;

	shell_req_spec(req, session_opts(s), &spec);
	if (seat->profile)
		r = spec_under(seat, req, &spec, &vars, &diag);
	if (r == 0)
		r = job_start(session_jobs(s), seat->client, seat->terms, &spec, req->command,
			      &diag, ret_job);
	return r ? not_started(out, r, &diag) ? -ENOMEM : 0 : 1;
}

/* Parse and start: 1 when @ret_job runs, in @seat, until tool_rise; else what the tool returns, the reason in @out. */
static int start(struct tool_call *call, const cJSON *args, enum shell_kind kind,
		 struct tool_result *out, struct shell_req *req, struct seat *seat,
		 struct job **ret_job)
{
	int r = shell_req_parse(call, args, kind, out, req);

	if (r)
		return r == -EINVAL ? 0 : r;
	if (!tool_sit(call, args, out, seat))
		return 0;
	r = start_at(call, seat, req, out, ret_job);
	if (r <= 0)
		tool_rise(call, seat);
	return r;
}

/* A call may block so long in all, of which it has sat down late. */
static double time_left(struct tool_call *call, const struct seat *seat, double wait)
{
	double left = session_max_wait(tool_session(call)) - seat->waited_s;

	return wait < left ? wait : left > 0 ? left : 0;
}

/* The command has the call's seat until it has ended, or goes on by itself. 0, or -ECANCELED. */
static int run_seated(struct tool_call *call, struct job *j, struct seat *seat, double wait)
{
	int r = wait_for(call, j, time_left(call, seat, wait));

	if (r < 0)
		(void)!job_kill(j, GRACE_MS, true);
	if (r <= 0 && job_background(j, true))
		log_warn("a command was ended: no thread to watch it");
	return r < 0 ? r : 0;
}

static int run_shell(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	cleanup_shell_req struct shell_req req = {0};
	cleanup_job struct job *j = NULL;
	struct changes ch = {0};
	struct job_info in;
	struct seat seat;
	int r;

	r = start(call, args, SHELL_RUN, out, &req, &seat, &j);
	if (r <= 0)
		return r;
	r = run_seated(call, j, &seat, req.wait);
	if (r == 0)
		look_at_changes(seat.client, j, &ch);
	tool_rise(call, &seat);
	if (r < 0)
		return tool_error(out, "the server is ending");
	job_get_info(j, &in);
	r = req.structured ? answer_structured(j, &in, &ch, req.max_output, out)
			   : shell_answer(j, &ch, req.max_output, out);
	if (!r && !req.structured)
		r = seat_note(&seat, &out->text);
	changes_release(&ch);
	return r;
}

const struct mcp_tool tool_shell_run = {
	.name = "shell_run",
	.title = "Run command",
	.description =
		"Run a command line in the sandbox with bash: pipes, redirects, loops, here-documents all "
		"work. The first line of the result is the status: exit code, time, output size, number of "
		"changed files. A command that is not finished after `wait` seconds keeps running as a job "
		"and its id is returned: go on with shell_job_wait or shell_job_output. It is killed after "
		"`timeout` seconds. Nothing but files is kept between calls: pass cwd each time. stdin is "
		"empty unless given. Long output is cut in the middle; the rest can be read.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"command\"],"
		"\"properties\":{"
		"\"command\":{\"type\":\"string\",\"description\":\"Shell command line\"},"
		"\"cwd\":{\"type\":\"string\",\"description\":\"Directory; default /workspace\"},"
		"\"wait\":{\"type\":\"number\",\"minimum\":0,\"maximum\":55,\"default\":45,"
		"\"description\":\"Seconds until it becomes a job; 0: at once\"},"
		"\"timeout\":{\"type\":\"number\",\"minimum\":0,\"maximum\":86400,"
		"\"description\":\"Seconds until it is killed; default 300, none when wait is 0\"},"
		"\"stdin\":{\"type\":\"string\",\"description\":\"Text for its standard input\"},"
		"\"stderr\":{\"type\":\"string\",\"enum\":[\"merged\",\"separate\"],"
		"\"default\":\"merged\",\"description\":\"In order with stdout, or apart\"},"
		"\"env\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"},"
		"\"description\":\"Extra environment variables\"},"
		"\"max_output\":{\"type\":\"integer\",\"minimum\":1024,\"maximum\":204800,"
		"\"default\":24576,\"description\":\"Bytes of output to show\"},"
		"\"structured\":{\"type\":\"boolean\",\"default\":false,\"description\":"
		"\"Answer with JSON text: rc, timed_out, signal, stdout, stderr, changed, denials\"},"
		"\"promises\":{\"type\":\"string\",\"description\":"
		"\"Narrow what it may do: words such as stdio rpath wpath cpath exec proc\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Environment; default: the "
		"server's\"}}}",
	.flags = TOOL_DESTRUCTIVE | TOOL_WAITS,
	.run = run_shell,
};

static int run_job_start(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	cleanup_shell_req struct shell_req req = {0};
	cleanup_job struct job *j = NULL;
	struct job_info in;
	struct seat seat;
	int r;

	r = start(call, args, SHELL_JOB, out, &req, &seat, &j);
	if (r <= 0)
		return r;
	r = job_background(j, true);
	tool_rise(call, &seat);
	if (r)
		return tool_error(out, "not started: no thread to watch it");
	job_get_info(j, &in);
	out->meta = cJSON_CreateObject();
	(void)cJSON_AddStringToObject(out->meta, "job_id", in.id);
	r = buf_printf(&out->text,
		       "started job %s\n[shell_job_wait job_id=\"%s\" waits for it, "
		       "shell_job_output shows its output]\n",
		       in.id, in.id);
	return r ? r : seat_note(&seat, &out->text);
}

const struct mcp_tool tool_shell_job_start = {
	.name = "shell_job_start",
	.title = "Start job",
	.description =
		"Start a command line in the background, in the same tree, and return its job id at once. It "
		"sees and makes the same files as shell_run. Jobs end with the session.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"command\"],"
		"\"properties\":{"
		"\"command\":{\"type\":\"string\",\"description\":\"Shell command line\"},"
		"\"cwd\":{\"type\":\"string\",\"description\":\"Directory; default /workspace\"},"
		"\"timeout\":{\"type\":\"number\",\"minimum\":0,\"maximum\":86400,"
		"\"description\":\"Seconds until it is killed; default: none\"},"
		"\"stdin\":{\"type\":\"string\",\"description\":\"Text for its standard input\"},"
		"\"interactive\":{\"type\":\"boolean\",\"default\":false,"
		"\"description\":\"Keep stdin open for shell_job_input\"},"
		"\"stderr\":{\"type\":\"string\",\"enum\":[\"merged\",\"separate\"],"
		"\"default\":\"merged\",\"description\":\"In order with stdout, or apart\"},"
		"\"env\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"},"
		"\"description\":\"Extra environment variables\"},"
		"\"promises\":{\"type\":\"string\",\"description\":\"As in shell_run\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Environment; default: the "
		"server's\"}}}",
	.flags = TOOL_DESTRUCTIVE | TOOL_SITS,
	.run = run_job_start,
};
