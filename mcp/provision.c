#include "mcp/provision.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/files/text.h"
#include "mcp/session.h"

#define SLICE_MS 100
#define GRACE_MS 2000

int provision_words(const cJSON *args, const char *key, size_t max, bool (*ok)(const char *word),
		    const char *what, struct tool_result *out, const char ***ret)
{
	const cJSON *list, *e;
	const char **v;
	size_t n = 0;
	int r = arg_array(args, ARG(key), out, &list);

	if (r <= 0)
		return r < 0 ? 0 : tool_error(out, "%s is needed: %s", key, what);
	cJSON_ArrayForEach(e, list)
	{
		const char *word = cJSON_GetStringValue(e);

		if (!word || !ok(word))
			return tool_error(out, "%s: '%.80s' is none: %s", key,
					  word ? word : "(no text)", what);
		n++;
	}
	if (n == 0 || n > max)
		return tool_error(out, "%s has 1 to %zu entries: %s", key, max, what);
	v = calloc(n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	n = 0;
	cJSON_ArrayForEach(e, list) v[n++] = cJSON_GetStringValue(e);
	*ret = v;
	return 1;
}

/* The end of what it said. */
static int put_tail(struct run *run, size_t max, struct buf *out)
{
	cleanup_buf struct buf head = {0}, tail = {0};
	const uint8_t *from;
	uint64_t skipped;
	size_t n;
	int r = run_output(run, 0, &head, &tail, &skipped);

	if (r == 0 && !skipped) {
		r = buf_put(&head, tail.data, tail.len);
		buf_clear(&tail);
	}
	if (r < 0)
		return r;
	from = tail.len ? tail.data : head.data;
	n = tail.len ? tail.len : head.len;
	if (n > max) {
		from += n - max;
		n = max;
		r = buf_puts(out, "[...]\n");
	}
	for (size_t i = 0; r == 0 && i < n; i++) {
		char c = (char)from[i];

		/* Progress that is written over itself, colours and other bytes that mean something to a terminal. */
		r = buf_put(out, (c >= 32 && c != 127) || c == '\n' || c == '\t' ? &c : "?", 1);
	}
	return r == 0 && n && from[n - 1] != '\n' ? buf_puts(out, "\n") : r;
}

static int put_refused(struct run *run, struct buf *out)
{
	cleanup_free struct run_asked *v = NULL;
	size_t n = 0;
	uint64_t total;
	int r = run_asked(run, &v, &n, &total);

	for (size_t i = 0; r == 0 && i < n; i++)
		if (v[i].verdict != NET_OK)
			r = buf_printf(out, "[network: %s:%u %s]\n", v[i].host[0] ? v[i].host : "?",
				       v[i].port, net_verdict_text(v[i].verdict));
	return r;
}

/* 1 ended; 0 the call is over. */
static int wait_for(struct tool_call *call, struct run *run, struct run_result *res)
{
	for (;;) {
		int r = run_wait(run, SLICE_MS, res);

		if (r)
			return r;
		if (!tool_cancelled(call))
			continue;
		(void)run_kill(run, GRACE_MS);
		r = run_wait(run, 2 * GRACE_MS, res);
		return r < 0 ? r : 0;
	}
}

/* What it did has no effect, or what is to be said of that. */
static void take_back(struct client_run *cr, struct diag *ret)
{
	struct diag why = {0};
	int r = client_run_drop(cr, &why);

	*ret = (struct diag){0};
	if (r == 0)
		diag_set(ret, 0, "nothing is changed");
	else
		diag_set(ret, r, "%s; that is tried again when the environment is used next",
			 why.text[0] ? why.text : err_text(r));
}

static int failed(const struct provision *p, struct client_run *cr, const struct run_result *res,
		  struct tool_result *out)
{
	cleanup_buf struct buf text = {.max = 64u << 10};
	struct run *run = client_run_of(cr);
	struct diag effect;
	int r;

	take_back(cr, &effect);
	if (res->state == RUN_NOT_STARTED)
		return tool_error(out, "%s could not start: %s: %s", p->name, res->step,
				  res->error);
	if (res->timed_out)
		r = buf_printf(&text,
			       "%s took longer than %g seconds and was ended; %s. "
			       "Give a longer timeout, or fewer packages\n",
			       p->name, p->timeout, effect.text);
	else
		r = buf_printf(&text, "%s failed with exit code %d; %s\n", p->name, res->code,
			       effect.text);
	if (r == 0)
		r = put_refused(run, &text);
	if (r == 0)
		r = put_tail(run, p->tail, &text);
	return r < 0 ? r : tool_error(out, "%s", (const char *)text.data);
}

static int answer(struct tool_call *call, struct client_run *cr, const struct provision *p,
		  struct tool_result *out)
{
	struct run *run = client_run_of(cr);
	struct run_result res = {0};
	struct diag diag = {0};
	int r = wait_for(call, run, &res);

	if (r < 0)
		return r;
	if (r == 0) {
		take_back(cr, &diag);
		return tool_error(out, "stopped; %s", diag.text);
	}
	if (res.state != RUN_EXITED || res.code || res.timed_out || res.killed)
		return failed(p, cr, &res, out);
	r = client_run_keep(cr, &diag);
	if (r < 0)
		return tool_error(out, "%s ended well, but %s", p->name,
				  diag.text[0] ? diag.text : err_text(r));
	r = buf_printf(&out->text, "done in %.1f s\n", res.wall_s);
	if (r == 0)
		r = put_tail(run, p->tail, &out->text);
	return r < 0 ? r : 1;
}

int provision_run(struct tool_call *call, struct client *c, const struct provision *p,
		  struct tool_result *out)
{
	const struct mcp_serve_opts *o = session_opts(tool_session(call));
	const struct client_terms terms = {.provision = true};
	struct client_run *cr;
	struct diag diag = {0};
	struct run_spec spec;
	int r;

	if (o->no_exec_workspace)
		return tool_error(out, "this server was started with --no-exec-workspace: what is "
				       "installed could not be executed");
	run_spec_init(&spec);
	spec.argv = p->argv;
	spec.env = p->vars;
	spec.net_rules = p->net;
	spec.stderr_mode = RUN_STDERR_MERGED;
	spec.timeout_ms = (uint64_t)(p->timeout * 1000);
	spec.limits = o->limits;
	r = client_run_start(c, &terms, &spec, p->name, &diag, &cr);
	if (r == -EBUSY)
		return tool_error(out,
				  "packages are installed while nothing else runs here; end or "
				  "wait for jobs (shell_job_list), then try again");
	if (r < 0)
		return tool_error(out, "%s could not start: %s", p->name,
				  diag.text[0] ? diag.text : err_text(r));
	r = answer(call, cr, p, out);
	client_run_free(cr);
	return r;
}
