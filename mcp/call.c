#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "mcp/checkpoint.h"
#include "mcp/compat.h"
#include "mcp/json.h"
#include "mcp/server.h"
#include "mcp/session.h"

#define PROGRESS_FIRST_MS 1000
#define PROGRESS_NEXT_MS  5000
#define TEXT_MAX          (1u << 20)

/* ---- one call ---- */

static void call_free(struct tool_call *c)
{
	if (c->cancel_fd >= 0)
		(void)close(c->cancel_fd);
	free(c->token);
	reply_to_release(&c->to);
	msg_release(&c->msg);
	(void)pthread_mutex_destroy(&c->note_lock);
	free(c);
}

/* Takes the contents of @m and @to when it succeeds. */
static struct tool_call *call_new(struct server *s, struct msg *m, struct reply_to *to)
{
	struct tool_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->cancel_fd < 0) {
		free(c);
		return NULL;
	}
	(void)pthread_mutex_init(&c->note_lock, NULL);
	c->srv = s;
	c->to = *to;
	c->msg = *m;
	c->token = steal_ptr(&c->msg.progress);
	c->started_ms = io_now_ms();
	c->next_progress_ms = c->started_ms + PROGRESS_FIRST_MS;
	to->id = NULL;
	to->batch = NULL;
	*m = (struct msg){.kind = MSG_NONE};
	return c;
}

static void stop_call(struct tool_call *c, bool by_client)
{
	uint64_t one = 1;

	if (by_client)
		c->cancelled = true;
	c->stop = true;
	(void)!write(c->cancel_fd, &one, sizeof(one));
}

static void link_locked(struct server *s, struct tool_call *c)
{
	struct tool_call **p = &s->calls;

	while (*p)
		p = &(*p)->next;
	*p = c;
	s->ncalls++;
}

static void unlink_locked(struct server *s, struct tool_call *c)
{
	struct tool_call **p = &s->calls;

	while (*p && *p != c)
		p = &(*p)->next;
	if (!*p)
		return;
	*p = c->next;
	c->next = NULL;
	s->ncalls--;
}

/* ---- workers ---- */

static void answer(struct tool_call *c, int r, struct tool_result *out)
{
	struct server *s = c->srv;
	char why[160];

	if (c->cancelled) {
		reply_none(s, &c->to); /* M2 */
		return;
	}
	if (r && !out->is_error) {
		log_error("tool %s failed: %s", c->tool->name, err_text(r));
		(void)snprintf(why, sizeof(why), "Internal error: %s: %s", c->tool->name,
			       err_text(r));
		reply_error(s, &c->to, RPC_INTERNAL, why, NULL);
		return;
	}
	reply_tool(s, &c->to, out);
}

static int run_tool(struct tool_call *c, struct tool_result *out)
{
	int r;

	if (c->stop)
		return tool_error(out, "the server is ending");
	if (c->msg.has_nul)
		return tool_error(out,
				  "the arguments hold the character U+0000, which no path, "
				  "command or text can; write such bytes with a command, as in "
				  "printf '\\0'");
	r = compat_args(c->tool->name, c->args);
	if (r)
		return r;
	if (args_check(c->name, c->schema, c->args, out))
		return 0;
	return c->tool->run(c, c->args, out);
}

static void run_call(struct tool_call *c)
{
	struct server *s = c->srv;
	struct tool_result out = {.text.max = TEXT_MAX};
	struct checkpoint cp;
	bool state;
	int r;

	r = run_tool(c, &out);
	state = checkpoint_claim(c, &cp);
	/* Off the list first: the id may be used again as soon as its answer is out, and no progress
	 * follows the answer. */
	(void)pthread_mutex_lock(&s->lock);
	unlink_locked(s, c);
	(void)pthread_mutex_unlock(&s->lock);
	answer(c, r, &out);
	buf_release(&out.text);
	cJSON_Delete(out.meta);
	cJSON_Delete(out.structured);
	if (state)
		checkpoint_take(c, &cp);
}

/* What to count it as: as what may block for long, or as what may have to wait for such calls; NULL: as neither. */
static unsigned *class_of(struct server *s, const struct tool_call *c)
{
	if (c->tool->flags & TOOL_WAITS)
		return &s->nwaiters;
	if (c->tool->flags & TOOL_SITS && s->opts->sandbox == MCP_SANDBOX_INHERIT)
		return &s->nsitters;
	return NULL;
}

static bool may_run_locked(struct server *s, const struct tool_call *c)
{
	const unsigned *class;

	if (c->running || c->listening)
		return false;
	class = class_of(s, c);
	if (class == &s->nwaiters && s->nwaiters >= SERVER_MAX_WAITERS)
		return false;
	return !class || s->nwaiters + s->nsitters < SERVER_MAX_SITTERS;
}

static struct tool_call *pick_locked(struct server *s)
{
	for (struct tool_call *c = s->calls; c; c = c->next) {
		if (!may_run_locked(s, c))
			continue;
		c->running = true;
		s->nrunning++;
		if (class_of(s, c))
			++*class_of(s, c);
		return c;
	}
	return NULL;
}

static void *worker(void *arg)
{
	struct server *s = arg;

	(void)pthread_mutex_lock(&s->lock);
	while (!s->ending) {
		struct tool_call *c = pick_locked(s);
		unsigned *class;

		if (!c) {
			s->nfree++;
			(void)pthread_cond_wait(&s->work, &s->lock);
			s->nfree--;
			continue;
		}
		class = class_of(s, c);
		(void)pthread_mutex_unlock(&s->lock);
		run_call(c);
		call_free(c);
		(void)pthread_mutex_lock(&s->lock);
		s->nrunning--;
		if (class) {
			--*class;
			(void)pthread_cond_signal(&s->work);
		}
		(void)pthread_cond_broadcast(&s->idle);
	}
	s->nthreads--;
	(void)pthread_cond_broadcast(&s->idle);
	(void)pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int add_worker_locked(struct server *s)
{
	pthread_attr_t attr;
	pthread_t t;
	int r;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)pthread_attr_setstacksize(&attr, 512u << 10);
	r = pthread_create(&t, &attr, worker, s);
	(void)pthread_attr_destroy(&attr);
	if (!r)
		s->nthreads++;
	return -r;
}

static unsigned queued_locked(const struct server *s)
{
	unsigned n = 0;

	for (const struct tool_call *c = s->calls; c; c = c->next)
		n += !c->running && !c->listening;
	return n;
}

static void refuse(struct server *s, struct reply_to *to, const char *why)
{
	struct tool_result out = {0};

	(void)tool_error(&out, "%s", why);
	reply_tool(s, to, &out);
	buf_release(&out.text);
	reply_to_release(to);
}

void call_queue(struct server *s, const struct tool_entry *t, cJSON *args, struct msg *m,
		struct reply_to *to)
{
	struct tool_call *c;
	bool full;
	int r = 0;

	(void)pthread_mutex_lock(&s->lock);
	full = s->ncalls >= SERVER_MAX_CALLS;
	(void)pthread_mutex_unlock(&s->lock);
	if (full) {
		refuse(s, to, "too many calls are under way; wait for some to be answered");
		return;
	}
	c = call_new(s, m, to);
	if (!c) {
		reply_error(s, to, RPC_INTERNAL, "Internal error: out of memory", NULL);
		reply_to_release(to);
		return;
	}
	c->to.post = false;
	c->tool = t->tool;
	c->name = t->name;
	c->schema = t->schema;
	c->args = args;
	(void)pthread_mutex_lock(&s->lock);
	link_locked(s, c);
	if (queued_locked(s) > s->nfree && s->nthreads < SERVER_MAX_WORKERS)
		r = add_worker_locked(s);
	if (r && !s->nthreads)
		unlink_locked(s, c);
	else
		r = 0;
	(void)pthread_cond_signal(&s->work);
	(void)pthread_mutex_unlock(&s->lock);
	if (r) {
		reply_error(s, &c->to, RPC_INTERNAL, "Internal error: no thread", NULL);
		call_free(c);
	}
}

int call_listen(struct server *s, struct msg *m, struct reply_to *to)
{
	struct tool_call *c;
	unsigned n = 0;

	(void)pthread_mutex_lock(&s->lock);
	for (const struct tool_call *p = s->calls; p; p = p->next)
		n += p->listening;
	(void)pthread_mutex_unlock(&s->lock);
	if (n >= SERVER_MAX_LISTENS)
		return -ENOSPC;
	c = call_new(s, m, to);
	if (!c)
		return -ENOMEM;
	c->listening = true;
	(void)pthread_mutex_lock(&s->lock);
	link_locked(s, c);
	(void)pthread_mutex_unlock(&s->lock);
	return 0;
}

static struct tool_call *find_locked(struct server *s, const char *id)
{
	for (struct tool_call *c = s->calls; c; c = c->next)
		if (!strcmp(c->to.id, id))
			return c;
	return NULL;
}

bool call_in_flight(struct server *s, const char *id)
{
	bool yes;

	(void)pthread_mutex_lock(&s->lock);
	yes = find_locked(s, id) != NULL;
	(void)pthread_mutex_unlock(&s->lock);
	return yes;
}

void call_cancel(struct server *s, const char *id)
{
	struct tool_call *c;
	bool ours;

	(void)pthread_mutex_lock(&s->lock);
	c = find_locked(s, id);
	/* What a worker has is the worker's to free, as soon as we let go of the lock. */
	ours = c && c->listening;
	if (ours)
		unlink_locked(s, c);
	else if (c)
		stop_call(c, true);
	(void)pthread_mutex_unlock(&s->lock);
	if (ours)
		call_free(c);
}

/* ---- progress ---- */

static void send_progress(struct tool_call *c, double elapsed)
{
	cleanup_buf struct buf b = {0};
	char note[sizeof(c->note)];
	int r;

	(void)pthread_mutex_lock(&c->note_lock);
	memcpy(note, c->note, sizeof(note));
	(void)pthread_mutex_unlock(&c->note_lock);
	if (elapsed <= c->last_progress)
		elapsed = c->last_progress + 0.001;
	c->last_progress = elapsed;
	r = buf_printf(&b, "{\"progressToken\":%s,\"progress\":%.3f", c->token, elapsed);
	if (!r && note[0]) {
		r = buf_puts(&b, ",\"message\":");
		if (!r)
			r = json_put_cstr(&b, note);
	}
	if (!r)
		r = buf_puts(&b, "}");
	if (!r)
		reply_notify(c->srv, "notifications/progress", (const char *)b.data, true);
}

int call_tick(struct server *s)
{
	long long now = io_now_ms(), next = -1;

	(void)pthread_mutex_lock(&s->lock);
	for (struct tool_call *c = s->calls; c; c = c->next) {
		if (!c->token || c->listening || c->stop)
			continue;
		if (now >= c->next_progress_ms) {
			/* A client that does not read gets no more of them. */
			if (!rpc_pending(&s->out))
				send_progress(c, (double)(now - c->started_ms) / 1000);
			c->next_progress_ms = now + PROGRESS_NEXT_MS;
		}
		if (next < 0 || c->next_progress_ms - now < next)
			next = c->next_progress_ms - now;
	}
	(void)pthread_mutex_unlock(&s->lock);
	return (int)next;
}

/* ---- the end ---- */

static struct timespec at_ms(long long ms)
{
	return (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
}

bool call_stop_all(struct server *s, long long deadline_ms)
{
	struct timespec until = at_ms(deadline_ms);
	struct tool_call *dropped = NULL, **p = &s->calls;
	bool all;

	(void)pthread_mutex_lock(&s->lock);
	s->ending = true;
	while (*p) {
		struct tool_call *c = *p;

		if (c->running) {
			stop_call(c, false);
			p = &c->next;
			continue;
		}
		*p = c->next;
		c->next = dropped;
		dropped = c;
		s->ncalls--;
	}
	(void)pthread_cond_broadcast(&s->work);
	(void)pthread_mutex_unlock(&s->lock);
	while (dropped) {
		struct tool_call *c = dropped;

		dropped = c->next;
		c->to.post = true;
		if (c->listening || c->cancelled)
			reply_none(s, &c->to);
		else
			reply_error(s, &c->to, RPC_INTERNAL, "the server is ending", NULL);
		call_free(c);
	}
	(void)pthread_mutex_lock(&s->lock);
	while (s->nthreads)
		if (pthread_cond_timedwait(&s->idle, &s->lock, &until))
			break;
	all = !s->nthreads;
	(void)pthread_mutex_unlock(&s->lock);
	return all;
}

/* ---- what handlers call ---- */

struct mcp_session *tool_session(struct tool_call *call)
{
	return call->srv->session;
}

struct client *tool_client(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	struct diag diag = {0};
	const char *name = NULL;
	struct client *c;
	int r;

	if (arg_str(args, ARG("environment", "environment_id"), out, &name) < 0)
		return NULL;
	r = session_client(call->srv->session, name, &diag, &c);
	if (!r) {
		call->client = c;
		if (!(call->tool->flags & TOOL_READ_ONLY) || call->tool->flags & TOOL_HISTORY)
			checkpoint_wait(call->srv->session, c);
		return c;
	}
	if (r == -EINVAL || r == -ENOSPC)
		(void)tool_error(out, "%s", diag.text[0] ? diag.text : err_text(r));
	else if (r == -ENOENT && name)
		(void)tool_error(out,
				 "there is no environment '%s'; leave the argument out to use the "
				 "server's own",
				 name);
	else if (r == -EBUSY || r == -EEXIST)
		(void)tool_error(out, "the environment is not usable as this server was set up: %s",
				 diag.text[0] ? diag.text : err_text(r));
	else
		(void)tool_error(out,
				 "the sandbox could not be started: %s (%s); 'rattan --probe' on "
				 "the host says what is missing",
				 diag.text[0] ? diag.text : "no details", err_text(r));
	return NULL;
}

const cJSON *tool_meta(const struct tool_call *call, const char *key)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(call->msg.params, "_meta");

	return cJSON_GetObjectItemCaseSensitive(meta, key);
}

bool tool_cancelled(struct tool_call *call)
{
	return call->stop;
}

int tool_cancel_fd(struct tool_call *call)
{
	return call->cancel_fd;
}

void tool_progress(struct tool_call *call, double done, double total, const char *message)
{
	(void)pthread_mutex_lock(&call->note_lock);
	if (total > 0)
		(void)snprintf(call->note, sizeof(call->note), "%s (%.0f of %.0f)",
			       message ? message : "working", done, total);
	else
		(void)snprintf(call->note, sizeof(call->note), "%s", message ? message : "");
	(void)pthread_mutex_unlock(&call->note_lock);
}

int tool_error(struct tool_result *out, const char *fmt, ...)
{
	char text[4096];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	buf_clear(&out->text);
	out->is_error = true;
	cJSON_Delete(out->structured);
	out->structured = NULL;
	/* Some clients do not look at isError: the word is what they see. */
	return buf_printf(&out->text, "error: %s", text);
}
