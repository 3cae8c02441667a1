#include "mcp/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "mcp/server.h"
#include "mcp/session.h"

#define MESSAGE_MAX (sizeof(((struct checkpoint *)0)->message) - 1)

void checkpoint_wait(struct mcp_session *s, struct client *c)
{
	pthread_mutex_t *turn = session_turn(s, c);

	if (!turn)
		return;
	(void)pthread_mutex_lock(turn);
	(void)pthread_mutex_unlock(turn);
}

static void take(struct client *c, const char *label, const char *message)
{
	struct diag diag = {0};
	struct ctl_commit cm;
	struct ctl *ctl;
	int r = client_ctl_get(c, &diag, &ctl);

	if (r == 0) {
		r = ctl_checkpoint(ctl, message, label, &diag, &cm);
		client_ctl_put(c, ctl, r == -EPIPE || r == -EBADMSG);
	}
	if (r == 0)
		ctl_commit_release(&cm);
	else if (r != -ENODATA)
		log_warn("environment %s: no state was kept after %s: %s", client_env(c), label,
			 diag.text[0] ? diag.text : err_text(r));
}

/* @ret has room for MESSAGE_MAX and the end. What stands in a list: one line of it, and nothing that moves a cursor. */
static void one_line(const char *s, char *ret)
{
	size_t n = strnlen(s, MESSAGE_MAX);

	/* not in the middle of a character */
	while (n && s[n] && ((unsigned char)s[n] & 0xc0) == 0x80)
		n--;
	memcpy(ret, s, n);
	ret[n] = 0;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)ret[i] < 0x20 || ret[i] == 0x7f)
			ret[i] = ' ';
}

/* What a person knows the call by: its command, or the file. */
static const char *about(const struct tool_call *call)
{
	static const char *const names[] = {"command", "cmd",      "path",  "file_path",
					    "file",    "filename", "job_id"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const cJSON *v = cJSON_GetObjectItemCaseSensitive(call->args, names[i]);

		if (cJSON_IsString(v))
			return v->valuestring;
	}
	return "";
}

static bool wanted(const struct tool_call *call)
{
	return call->tool->flags & TOOL_CHANGES && call->client && !call->srv->opts->no_checkpoints;
}

static void describe(const struct tool_call *call, struct checkpoint *ret)
{
	const char *id = call->to.id ? call->to.id : "";
	bool quoted = id[0] == '"';
	size_t n = strlen(id + quoted);

	n -= quoted && n;
	one_line(about(call), ret->message);
	(void)snprintf(ret->label, sizeof(ret->label), "%.60s %.*s", call->name,
		       (int)(n < 40 ? n : 40), id + quoted);
}

bool checkpoint_claim(struct tool_call *call, struct checkpoint *ret)
{
	pthread_mutex_t *turn =
		wanted(call) ? session_turn(call->srv->session, call->client) : NULL;

	if (!turn)
		return false;
	describe(call, ret);
	(void)pthread_mutex_lock(turn);
	return true;
}

void checkpoint_take(struct tool_call *call, const struct checkpoint *cp)
{
	/* What is left when the server ends, the end itself keeps. */
	if (!call->stop || call->cancelled)
		take(call->client, cp->label, cp->message);
	(void)pthread_mutex_unlock(session_turn(call->srv->session, call->client));
}

void checkpoint_job(struct mcp_session *s, struct client *c, const char *id, const char *command)
{
	pthread_mutex_t *turn = session_opts(s)->no_checkpoints ? NULL : session_turn(s, c);
	struct checkpoint cp;

	if (!turn)
		return;
	one_line(command, cp.message);
	(void)snprintf(cp.label, sizeof(cp.label), "end of %s", id);
	(void)pthread_mutex_lock(turn);
	take(c, cp.label, cp.message);
	(void)pthread_mutex_unlock(turn);
}
