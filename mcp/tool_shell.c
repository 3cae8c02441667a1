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
#define LEAVE_MS 20  /* the same, and how long what ends together takes to end */
#define GRACE_MS 2000
#define TAIL     4096 /* of the output, to see what a command complains of */

/* ---- what changed ---- */

static void look_at_changes(struct client *c, struct job *j, struct changes *ch)
{
	ch->known = !session_changes(c, job_token(j), changes_add, ch);
	/* Of an earlier mount nothing is known. */
	(void)!client_denials(c, job_denied(j), DENIALS_KEPT, &ch->denied);
	(void)!job_asked(j, &ch->asked, &ch->nasked, &ch->asked_total);
	ch->shut = job_shut(j);
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

/* 1 ended, 0 still running (or only what it left behind), -ECANCELED. */
static int wait_for(struct tool_call *call, struct job *j, double seconds, bool leave)
{
	long long until = io_now_ms() + (long long)(seconds * 1000), said = io_now_ms();
	const unsigned slice = leave ? LEAVE_MS : SLICE_MS;
	bool over = false;

	for (;;) {
		long long now = io_now_ms(), left = until - now;

		if (tool_cancelled(call))
			return -ECANCELED;
		if (now - said >= 800) {
			say_progress(call, j);
			said = now;
		}
		if (job_run(j, (unsigned)(left <= 0 ? 0 : left < slice ? left : slice)))
			return 1;
		/* Once more when it has: most leave nothing running. */
		if (left <= 0 || over)
			return 0;
		over = leave && job_command_ended(j);
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
static int run_seated(struct tool_call *call, struct job *j, struct seat *seat,
		      const struct shell_req *req)
{
	int r = wait_for(call, j, time_left(call, seat, req->wait), req->leave_running);

	if (r < 0)
		(void)!job_kill(j, GRACE_MS, true);
	if (r <= 0 && job_background(j, true))
		log_warn("a command was ended: no thread to watch it");
	return r < 0 ? r : 0;
}

/* Does the end of what it said blame a permission? */
static bool says_denied(struct job *j, const struct job_info *in)
{
	cleanup_buf struct buf b = {0};
	const int stream = in->separate;
	uint64_t size = job_size(j, stream);

	if (sh_range(&b, j, stream, size > TAIL ? size - TAIL : 0, size) || !b.data)
		return false;
	return strstr((const char *)b.data, "Permission denied") ||
	       strstr((const char *)b.data, "Read-only file system");
}

/* Landlock refuses before the tree does, and nobody hears of it: where one may write is what helps then. */
static int put_places(struct tool_call *call, struct job *j, const struct job_info *in,
		      const struct changes *ch, struct buf *out)
{
	static const char *const agent[] = {"/workspace", "/tmp", "/var/tmp", "/home/user", NULL};
	const struct mcp_serve_opts *o = session_opts(tool_session(call));
	const char *const *at = o->writable ? o->writable : agent;
	int r;

	if (o->sandbox != MCP_SANDBOX_NONE || !in->ended || in->result.code == 0 ||
	    ch->denied.total || !says_denied(j, in))
		return 0;
	r = buf_puts(out, "[commands may write below");
	for (; !r && *at; at++)
		r = buf_printf(out, " %s", *at);
	return r ? r
		 : buf_puts(out,
			    " and what is bound read-write; the server's --writable-root opens "
			    "more]\n");
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
	r = run_seated(call, j, &seat, &req);
	if (r == 0)
		look_at_changes(seat.client, j, &ch);
	tool_rise(call, &seat);
	if (r < 0)
		return tool_error(out, "the server is ending");
	job_get_info(j, &in);
	r = req.structured ? shell_answer_json(j, &in, &ch, req.max_output, out)
			   : shell_answer(j, &ch, req.max_output, out);
	if (!r && !req.structured)
		r = put_places(call, j, &in, &ch, &out->text);
	if (!r && !req.structured && req.timeout_ms)
		r = buf_printf(&out->text, "[timeout was taken as milliseconds: %g seconds]\n",
			       req.timeout);
	if (!r && !req.structured)
		r = seat_note(&seat, &out->text);
	changes_release(&ch);
	return r;
}

const struct mcp_tool tool_shell_run = {
	.name = "shell_run",
	.title = "Run command",
	.description =
		"Run a command line with bash in the sandbox: pipes, redirects, loops, here-documents. First "
		"line of the result: exit code, time, output size, changed files. What is not finished after "
		"`wait` seconds goes on as a job, whose id is returned: see shell_job_wait, "
		"shell_job_output. It is killed after `timeout` seconds. Only files are kept between calls: "
		"pass cwd each time. stdin is empty unless given. Long output is cut in the middle; the rest "
		"can be read.",
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
		"\"tty\":{\"type\":\"boolean\","
		"\"description\":\"Give it a terminal (80x24); then use shell_job_input\"},"
		"\"env\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"},"
		"\"description\":\"Extra variables\"},"
		"\"leave_running\":{\"type\":\"boolean\","
		"\"description\":\"What it started in the background goes on, as a job\"},"
		"\"max_output\":{\"type\":\"integer\",\"minimum\":1024,\"maximum\":204800,"
		"\"default\":24576,\"description\":\"Bytes of output to show\"},"
		"\"structured\":{\"type\":\"boolean\",\"description\":"
		"\"Answer with JSON: rc, signal, stdout, stderr, changed, ...\"},"
		"\"promises\":{\"type\":\"string\",\"description\":"
		"\"Narrow what it may do: words such as stdio rpath wpath cpath exec proc\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Name; default: the server's\"}}}",
	.flags = TOOL_DESTRUCTIVE | TOOL_WAITS | TOOL_CHANGES | TOOL_NETWORK | TOOL_LONG,
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
		"Start a command line in the background and return its job id at once. It sees and makes the "
		"same files as shell_run. Jobs end with the session.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"command\"],"
		"\"properties\":{"
		"\"command\":{\"type\":\"string\",\"description\":\"Shell command line\"},"
		"\"cwd\":{\"type\":\"string\",\"description\":\"Directory; default /workspace\"},"
		"\"timeout\":{\"type\":\"number\",\"minimum\":0,\"maximum\":86400,"
		"\"description\":\"Seconds until it is killed; default: none\"},"
		"\"stdin\":{\"type\":\"string\",\"description\":\"Text for its standard input\"},"
		"\"interactive\":{\"type\":\"boolean\","
		"\"description\":\"Keep stdin open for shell_job_input\"},"
		"\"stderr\":{\"type\":\"string\",\"enum\":[\"merged\",\"separate\"],"
		"\"default\":\"merged\",\"description\":\"As in shell_run\"},"
		"\"tty\":{\"type\":\"boolean\","
		"\"description\":\"As in shell_run\"},"
		"\"env\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"},"
		"\"description\":\"Extra variables\"},"
		"\"promises\":{\"type\":\"string\",\"description\":\"As in shell_run\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Name\"}}}",
	.flags = TOOL_DESTRUCTIVE | TOOL_SITS | TOOL_NETWORK,
	.run = run_job_start,
};
