#include "mcp/sandbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/jobs.h"
#include "mcp/server.h"
#include "mcp/session.h"
#include "policy/policy.h"

#define END_MS      3000
#define BUSY_TRIES  25
#define BUSY_PAUSE  40000
#define CLIENTS_MAX 4096

struct sandbox {
	const struct mcp_serve_opts *opts;
	pthread_mutex_t lock; /* held while somebody sits */
	/* under lock */
	struct profile *own;        /* of the last call, when it brought one */
	const struct profile *last; /* own, or the server's */
	char **vars;
	struct client *client;
	struct client **all; /* ended commands may still name an old one */
	size_t nall;
};

int sandbox_new(const struct mcp_serve_opts *o, struct sandbox **ret)
{
	struct sandbox *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->opts = o;
	(void)pthread_mutex_init(&s->lock, NULL);
	*ret = s;
	return 0;
}

void sandbox_free(struct sandbox *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->nall; i++)
		client_free(s->all[i]);
	free(s->all);
	profile_vars_free(s->vars);
	profile_free(s->own);
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}

/* ---- another profile ---- */

static int make_client(struct sandbox *s, const struct profile *p, struct client **ret)
{
	const struct mcp_serve_opts *o = s->opts;
	cleanup_buf struct buf policy = {0};
	struct ctl_env_opts eo = {.data_dir = o->data_dir,
				  .env = o->env,
				  .base = o->base,
				  .through = o->through,
				  .create = true,
				  .disk_max = o->disk_max,
				  .overlays = o->overlays,
				  .noverlays = o->noverlays};
	struct client **v;
	int r = policy_rules_encode(&p->rules, &policy);

	if (r < 0)
		return r;
	if (s->nall >= CLIENTS_MAX)
		return -EMFILE;
	v = realloc(s->all, (s->nall + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	s->all = v;
	eo.policy = (struct ctl_bytes){policy.data, policy.len};
	r = client_new(&eo, ret);
	if (r == 0)
		v[s->nall++] = *ret;
	return r;
}

/* The mount under it, and an empty directory for temporary files. A command that was just ended may not have given up its
 * lease yet. */
static int mount_under(struct client *c, const struct profile *p, struct diag *diag)
{
	int r = 0;

	for (int i = 0; i < BUSY_TRIES; i++) {
		struct diag d = {0};
		struct ctl *ctl;

		r = p->tmp ? client_scratch(c, p->tmp, &d) : client_ctl_get(c, &d, &ctl);
		if (r == 0 && !p->tmp)
			client_ctl_put(c, ctl, false);
		if (r != -EBUSY) {
			if (r < 0)
				diag_set(diag, r, "%s", d.text[0] ? d.text : err_text(r));
			return r;
		}
		(void)usleep(BUSY_PAUSE);
	}
	return diag_set(diag, r, "commands of another session run under another profile");
}

/* Takes @own. On failure nothing is left of the last one either: the next call starts anew. */
static int change(struct sandbox *s, struct jobs *jobs, const struct profile *p,
		  struct profile *own, struct diag *diag)
{
	struct client *c = NULL;
	int r = 0;

	profile_vars_free(s->vars);
	profile_free(s->own);
	s->vars = NULL;
	s->own = own;
	s->last = NULL;
	s->client = NULL;
	if (!jobs_end_running(jobs, io_now_ms() + END_MS))
		r = diag_set(diag, -EBUSY, "what runs under the last profile does not end");
	if (r == 0)
		r = make_client(s, p, &c);
	if (r == 0)
		r = mount_under(c, p, diag);
	if (r == 0)
		r = profile_vars(p, &s->vars);
	if (r < 0)
		return diag_set(diag, r, "%s", err_text(r));
	s->client = c;
	s->last = p;
	return 0;
}

static int enter_locked(struct sandbox *s, struct jobs *jobs, const cJSON *meta, struct seat *seat,
			struct diag *diag)
{
	const struct profile *p = s->opts->profile;
	struct profile *own = NULL;
	int r = 0;

	if (s->opts->sandbox == MCP_SANDBOX_INHERIT) {
		r = profile_from_meta(meta, s->opts->local, diag, &own);
		p = own;
	}
	if (r < 0)
		return r;
	if (s->last && profile_same(s->last, p)) {
		profile_free(own);
	} else {
		seat->changed = s->last != NULL;
		r = change(s, jobs, p, own, diag);
	}
	if (r < 0)
		return r;
	seat->client = s->client;
	seat->profile = s->last;
	seat->vars = (const char *const *)s->vars;
	return 0;
}

/* ---- for tools ---- */

int tool_sit(struct tool_call *call, const cJSON *args, struct tool_result *out, struct seat *ret)
{
	struct mcp_session *ses = tool_session(call);
	struct sandbox *s = session_sandbox(ses);
	struct diag diag = {0};
	const char *env = NULL;
	int r;

	*ret = (struct seat){0};
	ret->client = ret->base = tool_client(call, args, out);
	if (!ret->client || session_opts(ses)->sandbox == MCP_SANDBOX_NONE)
		return ret->client != NULL;
	if (arg_str(args, ARG("environment", "environment_id"), out, &env) < 0)
		return 0;
	if (env && strcmp(env, session_opts(ses)->env) != 0) {
		(void)tool_error(out, "this server runs commands under a profile, and in its own "
				      "environment alone; leave 'environment' out");
		return 0;
	}
	(void)pthread_mutex_lock(&s->lock);
	r = enter_locked(s, session_jobs(ses), tool_meta(call, PROFILE_META_KEY), ret, &diag);
	if (r == 0)
		return 1;
	(void)pthread_mutex_unlock(&s->lock);
	(void)tool_error(out, "nothing was run: %s", diag.text[0] ? diag.text : err_text(r));
	return 0;
}

void tool_rise(struct tool_call *call, struct seat *seat)
{
	if (seat->profile)
		(void)pthread_mutex_unlock(&session_sandbox(tool_session(call))->lock);
	seat->profile = NULL;
	seat->vars = NULL;
}

int tool_may_read(struct tool_call *call, const cJSON *args, const char *path,
		  struct tool_result *out)
{
	struct policy_why why = {.access = POLICY_DENY};
	struct policy *policy = NULL;
	struct seat seat;
	int r = 0;

	if (session_opts(tool_session(call))->sandbox == MCP_SANDBOX_NONE)
		return 1;
	if (!tool_sit(call, args, out, &seat))
		return 0;
	r = policy_new(&seat.profile->rules, NULL, &policy);
	if (r == 0)
		r = policy_explain(policy, path, &why);
	policy_free(policy);
	tool_rise(call, &seat);
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
