#include "mcp/sandbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/thread.h"
#include "mcp/jobs.h"
#include "mcp/server.h"
#include "mcp/session.h"
#include "policy/policy.h"

#define END_MS   3000
#define SLICE_MS 100 /* how late a cancellation may be noticed */

/* A call that wants to sit, in the order of asking. */
struct waiter {
	struct waiter *next;
};

struct sandbox {
	const struct mcp_serve_opts *opts;
	pthread_mutex_t lock;
	pthread_cond_t change; /* somebody rose, or waits no more */
	/* under lock */
	struct waiter *first;
	unsigned seated;
	/* all of one profile; replaced while nobody sits */
	struct profile *own;        /* of the last call, when it brought one */
	const struct profile *last; /* own, or the server's */
	char **vars;
	struct buf rules;
	struct client_terms terms;
	int scratch_fd; /* as long as it is open nobody empties the directory */
};

int sandbox_new(const struct mcp_serve_opts *o, struct sandbox **ret)
{
	struct sandbox *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->opts = o;
	s->scratch_fd = -1;
	(void)pthread_mutex_init(&s->lock, NULL);
	(void)thread_cond_init(&s->change);
	*ret = s;
	return 0;
}

/* Nothing of a profile is left. */
static void forget(struct sandbox *s)
{
	cleanup_fdp(&s->scratch_fd);
	buf_release(&s->rules);
	profile_vars_free(s->vars);
	profile_free(s->own);
	s->rules = (struct buf){0};
	s->terms = (struct client_terms){0};
	s->vars = NULL;
	s->own = NULL;
	s->last = NULL;
}

void sandbox_free(struct sandbox *s)
{
	if (!s)
		return;
	forget(s);
	(void)pthread_cond_destroy(&s->change);
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}

/* ---- another profile ---- */

/* Takes @own. On failure nothing is left of the last one either: the next call starts anew. */
static int change(struct sandbox *s, struct jobs *jobs, struct client *c, const struct profile *p,
		  struct profile *own, struct diag *diag)
{
	int r = 0;

	forget(s);
	s->own = own;
	if (!jobs_end_running(jobs, io_now_ms() + END_MS))
		r = diag_set(diag, -EBUSY, "what runs under the last profile does not end");
	if (r == 0)
		r = policy_rules_encode(&p->rules, &s->rules);
	if (r == 0)
		r = profile_vars(p, &s->vars);
	s->terms = (struct client_terms){.policy = {s->rules.data, s->rules.len}, .tmp = p->tmp};
	if (r == 0 && p->tmp)
		r = client_scratch(c, &s->terms, diag, &s->scratch_fd);
	if (r < 0) {
		diag_set(diag, r, "%s", err_text(r));
		forget(s);
		return r;
	}
	s->last = p;
	return 0;
}

/* The server's, or *ret_own, which the call brought. */
static int profile_of(struct tool_call *call, struct diag *diag, struct profile **ret_own,
		      const struct profile **ret)
{
	const struct mcp_serve_opts *o = session_opts(tool_session(call));
	int r = 0;

	*ret_own = NULL;
	*ret = o->profile;
	if (o->sandbox != MCP_SANDBOX_INHERIT)
		return 0;
	r = profile_from_meta(tool_meta(call, PROFILE_META_KEY), o->local, diag, ret_own);
	*ret = *ret_own;
	return r;
}

/* ---- taking turns ---- */

static void enqueue(struct sandbox *s, struct waiter *w)
{
	struct waiter **at = &s->first;

	while (*at)
		at = &(*at)->next;
	*at = w;
}

static void dequeue(struct sandbox *s, struct waiter *w)
{
	struct waiter **at = &s->first;

	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	(void)pthread_cond_broadcast(&s->change);
}

/* Until @p may sit: next to those who sit under the same, or when nobody sits. */
static int await_turn(struct sandbox *s, struct tool_call *call, const struct waiter *w,
		      const struct profile *p, struct diag *diag)
{
	long long end = io_now_ms() + (long long)(session_max_wait(tool_session(call)) * 1000);

	while (s->first != w || (s->seated && !profile_same(s->last, p))) {
		long long now = io_now_ms(), until = now + SLICE_MS;
		struct timespec ts = {.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000};

		if (tool_cancelled(call))
			return diag_set(diag, -ECANCELED, "the server is ending");
		if (now >= end)
			return diag_set(
				diag, -EBUSY,
				"calls under another profile are still under way, and one "
				"profile is in force at a time; wait for their answers, and "
				"try again");
		(void)pthread_cond_timedwait(&s->change, &s->lock, &ts);
	}
	return 0;
}

static int enter_locked(struct sandbox *s, struct tool_call *call, struct seat *seat,
			const struct profile *p, struct profile *own, struct diag *diag)
{
	struct waiter w = {NULL};
	int r;

	enqueue(s, &w);
	r = await_turn(s, call, &w, p, diag);
	if (r == 0 && s->last && profile_same(s->last, p)) {
		profile_free(own);
	} else if (r == 0) {
		seat->changed = s->last != NULL;
		r = change(s, session_jobs(tool_session(call)), seat->client, p, own, diag);
	} else {
		profile_free(own);
	}
	if (r == 0)
		s->seated++;
	dequeue(s, &w);
	return r;
}

/* ---- for tools ---- */

/* 1; 0: answered. Under a profile no call chooses the environment. */
static int check_env(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	const char *own = session_opts(tool_session(call))->env, *env = NULL;

	if (arg_str(args, ARG("environment", "environment_id"), out, &env) < 0)
		return 0;
	if (!env || !strcmp(env, own))
		return 1;
	(void)tool_error(out, "this server runs commands under a profile, and in its own "
			      "environment alone; leave 'environment' out");
	return 0;
}

int tool_sit(struct tool_call *call, const cJSON *args, struct tool_result *out, struct seat *ret)
{
	struct mcp_session *ses = tool_session(call);
	struct sandbox *s = session_sandbox(ses);
	long long start = io_now_ms();
	struct profile *own = NULL;
	const struct profile *p;
	struct diag diag = {0};
	int r;

	*ret = (struct seat){0};
	ret->client = tool_client(call, args, out);
	if (!ret->client || session_opts(ses)->sandbox == MCP_SANDBOX_NONE)
		return ret->client != NULL;
	if (!check_env(call, args, out))
		return 0;
	r = profile_of(call, &diag, &own, &p);
	if (r == 0) {
		(void)pthread_mutex_lock(&s->lock);
		r = enter_locked(s, call, ret, p, own, &diag);
		ret->terms = &s->terms;
		ret->profile = r == 0 ? s->last : NULL;
		ret->vars = (const char *const *)s->vars;
		(void)pthread_mutex_unlock(&s->lock);
	}
	ret->waited_s = (double)(io_now_ms() - start) / 1000;
	if (r == 0)
		return 1;
	(void)tool_error(out, "nothing was run: %s", diag.text[0] ? diag.text : err_text(r));
	return 0;
}

void tool_rise(struct tool_call *call, struct seat *seat)
{
	struct sandbox *s = session_sandbox(tool_session(call));

	if (seat->profile) {
		(void)pthread_mutex_lock(&s->lock);
		s->seated--;
		(void)pthread_cond_broadcast(&s->change);
		(void)pthread_mutex_unlock(&s->lock);
	}
	seat->profile = NULL;
	seat->terms = NULL;
	seat->vars = NULL;
}

int tool_may_read(struct tool_call *call, const cJSON *args, const char *path,
		  struct tool_result *out)
{
	struct policy_why why = {.access = POLICY_DENY};
	struct policy *policy = NULL;
	struct profile *own = NULL;
	const struct profile *p;
	struct diag diag = {0};
	int r;

	if (session_opts(tool_session(call))->sandbox == MCP_SANDBOX_NONE)
		return 1;
	if (!check_env(call, args, out))
		return 0;
	r = profile_of(call, &diag, &own, &p);
	if (r == 0)
		r = policy_new(&p->rules, &diag, &policy);
	if (r < 0) {
		profile_free(own);
		(void)tool_error(out, "nothing was read: %s",
				 diag.text[0] ? diag.text : err_text(r));
		return 0;
	}
	r = policy_explain(policy, path, &why);
	policy_free(policy);
	profile_free(own);
	if (r == 0 && why.access >= POLICY_READ)
		return 1;
	(void)tool_error(out, "the profile lets nobody read %s", path);
	return 0;
}

int seat_note(const struct seat *seat, struct buf *out)
{
	return seat->changed ? buf_puts(out, "[this call runs under another profile than the last; "
					     "what still ran was ended]\n")
			     : 0;
}
