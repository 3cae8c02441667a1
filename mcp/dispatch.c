#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "mcp/json.h"
#include "mcp/server.h"
#include "profile/profile.h"

static const char *const legacy_names[] = {
	[LEGACY_2024_11] = "2024-11-05",
	[LEGACY_2025_03] = "2025-03-26",
	[LEGACY_2025_06] = "2025-06-18",
	[LEGACY_2025_11] = "2025-11-25",
};

static const char instructions[] =
	"rattan is a sandbox with a whole copy-on-write file system. Nothing done in it touches the "
	"host. The workspace is /workspace; /tmp, /var/tmp and /home/user are writable too. No network, unless env_status says which "
	"hosts can be reached. "
	"Run commands with shell_run (a real shell; long ones become jobs: shell_job_wait, "
	"shell_job_output). Read and change files with the file tools. env_diff shows what has changed, "
	"each call that changes something leaves a state, env_commit a lasting one, env_rollback goes back to any: trying something risky costs nothing. "
	"Uncommitted changes are dropped when the session ends, unless the user keeps them.";

/* Where the tree is the host's own, under rules that may change from call to call. */
static const char instructions_profile[] =
	"rattan is a sandbox whose file system shows the host's own tree, copy-on-write: paths are the host's, and "
	"nothing done here changes it. A profile says what may be read and written; what it refuses is told with the "
	"rule. Run commands with shell_run (a real shell; long ones become jobs: shell_job_wait, shell_job_output). "
	"Read and change files with the file tools. env_diff shows what has changed, env_commit keeps a state, "
	"env_rollback goes back to any. Uncommitted changes are dropped when the session ends, unless the user keeps "
	"them.";

static const char instructions_through[] =
	"rattan is a sandbox over the host's own tree: paths are the host's, and what is written goes to the host at "
	"once, and cannot be taken back here. A profile says what may be read and written; what it refuses is told with "
	"the rule. Run commands with shell_run (a real shell; long ones become jobs: shell_job_wait, shell_job_output). "
	"Read and change files with the file tools. env_diff, env_commit and env_rollback have nothing to work on.";

static const char *instructions_of(const struct mcp_serve_opts *o)
{
	if (o->through)
		return instructions_through;
	return o->sandbox != MCP_SANDBOX_NONE ? instructions_profile : instructions;
}

static int put_info(const struct server *s, struct buf *b)
{
	bool inherit = s->opts->sandbox == MCP_SANDBOX_INHERIT;
	int r = buf_puts(b, "\"capabilities\":{\"tools\":{}");

	if (!r && inherit)
		r = buf_puts(b, ",\"experimental\":{\"" PROFILE_META_KEY
				"\":{\"version\":\"" PROFILE_META_VERSION "\"}}");
	if (!r)
		r = buf_puts(b, "},\"instructions\":");
	return r ? r : json_put_cstr(b, instructions_of(s->opts));
}

static void do_initialize(struct server *s, const struct msg *m, struct reply_to *to)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(m->params, "protocolVersion");
	const char *version = s->opts->version ? s->opts->version : RATTAN_VERSION;
	cleanup_buf struct buf b = {0};
	int r;

	/* An unknown version gets our newest, never an error: the client decides. */
	s->legacy = LEGACY_2025_11;
	for (unsigned i = 0; cJSON_IsString(v) && i < ARRAY_SIZE(legacy_names); i++)
		if (!strcmp(v->valuestring, legacy_names[i]))
			s->legacy = (enum legacy)i;
	s->initialized = true;
	r = buf_printf(
		&b, "\"protocolVersion\":\"%s\",\"serverInfo\":{\"name\":\"rattan\",\"version\":",
		legacy_names[s->legacy]);
	if (!r)
		r = json_put_cstr(&b, version);
	if (!r)
		r = buf_puts(&b, "},");
	if (!r)
		r = put_info(s, &b);
	if (r)
		reply_error(s, to, RPC_INTERNAL, "Internal error: out of memory", NULL);
	else
		reply_result(s, to, 0, (const char *)b.data, NULL);
}

static void do_discover(struct server *s, struct reply_to *to)
{
	cleanup_buf struct buf b = {0};

	if (buf_puts(&b, "\"supportedVersions\":[\"" PROTO_MODERN "\"],") || put_info(s, &b))
		reply_error(s, to, RPC_INTERNAL, "Internal error: out of memory", NULL);
	else
		reply_result(s, to, REPLY_LIST, (const char *)b.data, NULL);
}

static void do_list(struct server *s, const struct msg *m, struct reply_to *to)
{
	const cJSON *cursor = cJSON_GetObjectItemCaseSensitive(m->params, "cursor");
	cleanup_buf struct buf b = {0};

	if (cursor && !cJSON_IsNull(cursor)) {
		reply_error(s, to, RPC_PARAMS, "Invalid cursor: all tools are on the first page",
			    NULL);
		return;
	}
	if (buf_puts(&b, "\"tools\":") || buf_put(&b, s->tools_json.data, s->tools_json.len))
		reply_error(s, to, RPC_INTERNAL, "Internal error: out of memory", NULL);
	else
		reply_result(s, to, REPLY_LIST, (const char *)b.data, NULL);
}

/* Takes @m and @to->id when the call is queued. */
static void do_call(struct server *s, struct msg *m, struct reply_to *to)
{
	const cJSON *name = cJSON_GetObjectItemCaseSensitive(m->params, "name");
	cJSON *args = cJSON_GetObjectItemCaseSensitive(m->params, "arguments");
	const struct tool_entry *t;
	char why[160];

	if (!cJSON_IsString(name)) {
		reply_error(s, to, RPC_PARAMS, "Invalid params: name must be a string", NULL);
		return;
	}
	if (args && !cJSON_IsNull(args) && !cJSON_IsObject(args)) {
		reply_error(s, to, RPC_PARAMS, "Invalid params: arguments must be an object", NULL);
		return;
	}
	t = server_find_tool(s, name->valuestring);
	if (!t) {
		(void)snprintf(why, sizeof(why), "Unknown tool: %.100s", name->valuestring);
		reply_error(s, to, RPC_PARAMS, why, NULL);
		return;
	}
	to->structured = to->modern || s->legacy >= LEGACY_2025_06;
	call_queue(s, t, cJSON_IsObject(args) ? args : NULL, m, to);
}

static void do_listen(struct server *s, struct msg *m, struct reply_to *to)
{
	cleanup_buf struct buf b = {0};
	int r;

	/* Nothing of ours ever changes: an empty filter is acknowledged, and the request held. */
	r = buf_printf(&b,
		       "{\"notifications\":{},\"_meta\":{\"" META_PREFIX "subscriptionId\":%s}}",
		       to->id);
	if (!r)
		r = call_listen(s, m, to);
	if (r)
		reply_error(s, to, RPC_INTERNAL,
			    r == -ENOSPC ? "too many subscriptions"
					 : "Internal error: out of memory",
			    NULL);
	else
		reply_notify(s, "notifications/subscriptions/acknowledged", (const char *)b.data,
			     true);
}

enum method {
	M_UNKNOWN,
	M_INITIALIZE,
	M_DISCOVER,
	M_PING,
	M_TOOLS_LIST,
	M_TOOLS_CALL,
	M_LISTEN,
};
enum eras {
	ERA_LEGACY = 1 << 0,
	ERA_MODERN = 1 << 1
};

static enum method method_of(const char *name, bool modern)
{
	static const struct {
		const char *name;
		enum method method;
		unsigned eras;
	} methods[] = {
		{"initialize", M_INITIALIZE, ERA_LEGACY},
		{"ping", M_PING, ERA_LEGACY},
		{"server/discover", M_DISCOVER, ERA_MODERN},
		{"subscriptions/listen", M_LISTEN, ERA_MODERN},
		{"tools/list", M_TOOLS_LIST, ERA_LEGACY | ERA_MODERN},
		{"tools/call", M_TOOLS_CALL, ERA_LEGACY | ERA_MODERN},
	};

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (!strcmp(methods[i].name, name))
			return methods[i].eras & (modern ? ERA_MODERN : ERA_LEGACY)
				       ? methods[i].method
				       : M_UNKNOWN;
	return M_UNKNOWN;
}

/* The envelope of a modern request. False: answered. */
static bool check_modern(struct server *s, const cJSON *version, const cJSON *caps,
			 struct reply_to *to)
{
	cleanup_buf struct buf data = {0};
	char why[128];

	if (!cJSON_IsString(version)) {
		reply_error(s, to, RPC_PARAMS,
			    "Invalid params: _meta protocolVersion must be a string", NULL);
		return false;
	}
	if (strcmp(version->valuestring, PROTO_MODERN) != 0) {
		(void)snprintf(why, sizeof(why), "Unsupported protocol version: %.60s",
			       version->valuestring);
		if (buf_puts(&data, "{\"supported\":[\"" PROTO_MODERN "\"],\"requested\":") ||
		    json_put_cstr(&data, version->valuestring) || buf_puts(&data, "}"))
			buf_clear(&data);
		reply_error(s, to, RPC_VERSION, why, data.len ? (const char *)data.data : NULL);
		return false;
	}
	if (!cJSON_IsObject(caps)) {
		reply_error(s, to, RPC_PARAMS,
			    "Invalid params: _meta lacks " META_PREFIX "clientCapabilities", NULL);
		return false;
	}
	return true;
}

/* The era is decided for each request, since clients probe with one and go on with the other. */
static bool check_era(struct server *s, const struct msg *m, struct reply_to *to)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(m->params, "_meta");
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(meta, META_PREFIX "protocolVersion");
	const cJSON *caps =
		cJSON_GetObjectItemCaseSensitive(meta, META_PREFIX "clientCapabilities");

	to->modern = v != NULL;
	if (v)
		return check_modern(s, v, caps, to);
	if (s->initialized || !strcmp(m->method, "initialize") || !strcmp(m->method, "ping"))
		return true;
	reply_error(s, to, RPC_PARAMS,
		    "Invalid params: no _meta with " META_PREFIX "protocolVersion; or send "
		    "initialize first",
		    NULL);
	return false;
}

static void run_request(struct server *s, struct msg *m, struct reply_to *to)
{
	char why[128];

	switch (method_of(m->method, to->modern)) {
	case M_INITIALIZE:
		do_initialize(s, m, to);
		break;
	case M_DISCOVER:
		do_discover(s, to);
		break;
	case M_PING:
		reply_result(s, to, 0, "", NULL);
		break;
	case M_TOOLS_LIST:
		do_list(s, m, to);
		break;
	case M_TOOLS_CALL:
		do_call(s, m, to);
		break;
	case M_LISTEN:
		do_listen(s, m, to);
		break;
	case M_UNKNOWN:
		(void)snprintf(why, sizeof(why), "Method not found: %.80s", m->method);
		reply_error(s, to, RPC_NO_METHOD, why, NULL);
		break;
	}
}

static void on_request(struct server *s, struct msg *m, struct batch *batch)
{
	struct reply_to to = {.id = steal_ptr(&m->id), .post = true, .batch = batch};

	if (call_in_flight(s, to.id))
		reply_error(s, &to, RPC_INVALID, "Invalid Request: this id is in use", NULL);
	else if (m->has_nul && strcmp(m->method, "tools/call") != 0)
		reply_error(s, &to, RPC_INVALID, "Invalid Request: a string holds U+0000", NULL);
	else if (batch && !strcmp(m->method, "initialize"))
		reply_error(s, &to, RPC_INVALID, "Invalid Request: initialize stands alone", NULL);
	else if (check_era(s, m, &to))
		run_request(s, m, &to);
	reply_to_release(&to);
}

void server_handle(struct server *s, struct msg *m, struct batch *batch)
{
	struct reply_to bad = {.post = true, .batch = batch};

	switch (m->kind) {
	case MSG_REQUEST:
		on_request(s, m, batch);
		break;
	case MSG_NOTIFICATION:
		if (!strcmp(m->method, "notifications/cancelled") && m->request_id)
			call_cancel(s, m->request_id);
		break;
	case MSG_BAD:
		bad.id = steal_ptr(&m->id);
		reply_error(s, &bad, m->code, m->why, NULL);
		reply_to_release(&bad);
		break;
	case MSG_BATCH: /* only inside another: lines are taken apart before */
		reply_error(s, &bad, RPC_INVALID, "Invalid Request: an array inside a batch", NULL);
		break;
	case MSG_NONE:
	case MSG_RESPONSE: /* to a question we never asked */
		break;
	}
	msg_release(m);
}

static void fail(struct server *s, int code, const char *why)
{
	struct reply_to to = {.post = true};

	reply_error(s, &to, code, why, NULL);
}

static void handle_batch(struct server *s, char *line, size_t n)
{
	struct batch *b;
	size_t pos = 0, len, count = 0;
	char *elem;

	if (!s->initialized || s->legacy > LEGACY_2025_03) {
		fail(s, RPC_INVALID, "Invalid Request: batches ended with revision 2025-03-26");
		return;
	}
	while (msg_batch_next(line, n, &pos, &elem, &len))
		count++;
	if (!count || count > SERVER_MAX_BATCH) {
		fail(s, RPC_INVALID, "Invalid Request: a batch holds 1 to 64 messages");
		return;
	}
	b = batch_new();
	if (!b) {
		fail(s, RPC_INTERNAL, "Internal error: out of memory");
		return;
	}
	for (pos = 0; msg_batch_next(line, n, &pos, &elem, &len);) {
		struct msg m;

		if (msg_parse(elem, len, &m)) {
			fail(s, RPC_INTERNAL, "Internal error: out of memory");
			continue;
		}
		if (m.kind == MSG_REQUEST || m.kind == MSG_BAD || m.kind == MSG_BATCH) {
			(void)pthread_mutex_lock(&b->lock);
			b->open++;
			(void)pthread_mutex_unlock(&b->lock);
			server_handle(s, &m, b);
		} else {
			server_handle(s, &m, NULL);
		}
	}
	batch_done(s, b);
}

void server_handle_line(struct server *s, char *line, size_t n)
{
	struct msg m;

	if (msg_parse(line, n, &m)) {
		fail(s, RPC_INTERNAL, "Internal error: out of memory");
		return;
	}
	if (m.kind != MSG_BATCH) {
		server_handle(s, &m, NULL);
		return;
	}
	msg_release(&m);
	handle_batch(s, line, n);
}
