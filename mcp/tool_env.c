#include "mcp/tools.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "mcp/session.h"
#include "profile/profile.h"

#define ENV_ARG \
	"\"environment\":{\"type\":\"string\",\"description\":\"Environment; default: the server's\"}"
#define SCHEMA(props) \
	"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{" props ENV_ARG "}}"

/* A connection for one tool call; gives back what it got. */
struct env_call {
	struct client *client;
	struct ctl *ctl;
	struct diag diag;
};

/* False: answered. */
static bool env_begin(struct tool_call *call, const cJSON *args, struct tool_result *out,
		      struct env_call *ret)
{
	int r;

	*ret = (struct env_call){0};
	ret->client = tool_client(call, args, out);
	if (!ret->client)
		return false;
	r = client_ctl_get(ret->client, &ret->diag, &ret->ctl);
	if (!r)
		return true;
	(void)tool_error(out, "the environment cannot be reached: %s (%s)", ret->diag.text,
			 err_text(r));
	return false;
}

/* Gives the connection back and, for an error of the daemon, answers. Returns what a handler returns. */
static int env_end(struct env_call *e, int r, struct tool_result *out)
{
	client_ctl_put(e->client, e->ctl, r == -EPIPE || r == -EBADMSG);
	if (!r || out->is_error)
		return 0;
	if (r == -EBUSY)
		return tool_error(
			out,
			"refused while commands are running: %s (shell_job_list shows those of this session, force=true ends "
			"them)",
			e->diag.text[0] ? e->diag.text : "wait for them");
	if (r == -ENOENT)
		return tool_error(out, "%s; env_snapshot_list shows what there is",
				  e->diag.text[0] ? e->diag.text : "no such revision or path");
	if (r == -EPIPE)
		return tool_error(out,
				  "the environment's daemon went away during the call; try again");
	return tool_error(out, "%s%s%s%s", e->diag.text[0] ? e->diag.text : err_text(r),
			  e->diag.text[0] ? " (" : "", e->diag.text[0] ? err_text(r) : "",
			  e->diag.text[0] ? ")" : "");
}

static const char *short_id(const char *id, char room[static 16])
{
	if (!*id)
		return "base";
	(void)snprintf(room, 16, "%.12s", id);
	return room;
}

/* ---- status ---- */

/* Of commands in this environment: without a profile the same for each, else the profile's to say. */
static int put_network(struct buf *b, const struct mcp_serve_opts *o)
{
	cleanup_buf struct buf allow = {0}, deny = {0};
	const struct net_rules *rules = o->profile ? o->profile->net : o->net_rules;
	int r;

	if (o->sandbox == MCP_SANDBOX_INHERIT)
		return buf_puts(b, "network: as each call's profile says\n");
	if (!rules)
		return buf_printf(b, "network: %s\n",
				  o->profile && o->profile->network ? "the host's" : "none");
	r = net_list_text(&rules->allow, &allow);
	if (!r)
		r = net_list_text(&rules->deny, &deny);
	return r ? r
		 : buf_printf(b, "network: by a proxy alone; allowed: %s%s%s%s\n",
			      allow.len ? (const char *)allow.data : "nothing",
			      deny.len ? "; denied: " : "", deny.len ? (const char *)deny.data : "",
			      rules->local ? "; the host's loopback, too" : "");
}

static int put_status(struct buf *b, const struct ctl_status *st, const struct mcp_serve_opts *opts)
{
	const char *label_sep = st->head_label[0] ? " " : "";
	char id[16];
	int r;

	r = buf_printf(b, "environment %s  base %s  head %s%s%s  ", st->env, st->base,
		       short_id(st->head, id), label_sep, st->head_label);
	if (!r && !st->dirty)
		r = buf_puts(b, "clean\n");
	else if (!r)
		r = buf_printf(b,
			       "uncommitted: %" PRIu64 " added, %" PRIu64 " modified, %" PRIu64
			       " deleted, %" PRIu64 " renamed\n",
			       st->added, st->modified, st->deleted, st->renamed);
	if (!r)
		r = buf_printf(b, "running commands: %u\n", st->leases);
	if (!r)
		r = put_network(b, opts);
	for (size_t i = 0; !r && i < st->nbinds; i++)
		r = buf_printf(b, "bound: %s = %s (%s)\n", st->binds[i].mount, st->binds[i].host,
			       st->binds[i].rw ? "read-write: changes go to the host"
					       : "read-only");
	for (char **o = st->overlays; !r && o && *o; o++)
		r = buf_printf(b, "overlaid: %s (copy-on-write)\n", *o);
	if (!r)
		r = buf_puts(b, "disk free: ");
	if (!r)
		r = sh_size(b, st->disk_free);
	if (!r)
		r = buf_puts(b, "  store: ");
	if (!r)
		r = sh_size(b, st->store_bytes);
	return r ? r : buf_puts(b, "\n");
}

static cJSON *status_json(const struct ctl_status *st)
{
	cJSON *o = cJSON_CreateObject();

	if (!o)
		return NULL;
	(void)cJSON_AddStringToObject(o, "environment", st->env);
	(void)cJSON_AddStringToObject(o, "base", st->base);
	(void)cJSON_AddStringToObject(o, "head", st->head);
	(void)cJSON_AddBoolToObject(o, "dirty", st->dirty);
	(void)cJSON_AddNumberToObject(o, "added", (double)st->added);
	(void)cJSON_AddNumberToObject(o, "modified", (double)st->modified);
	(void)cJSON_AddNumberToObject(o, "deleted", (double)st->deleted);
	(void)cJSON_AddNumberToObject(o, "renamed", (double)st->renamed);
	(void)cJSON_AddNumberToObject(o, "bytes_dirty", (double)st->bytes_dirty);
	(void)cJSON_AddNumberToObject(o, "running", st->leases);
	return o;
}

static int run_status(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	struct ctl_status st = {0};
	struct env_call e;
	int r;

	if (!env_begin(call, args, out, &e))
		return 0;
	r = ctl_status(e.ctl, &e.diag, &st);
	if (!r) {
		r = put_status(&out->text, &st, session_opts(tool_session(call)));
		out->meta = status_json(&st);
		ctl_status_release(&st);
	}
	return env_end(&e, r, out);
}

/* ---- commit ---- */

static int run_commit(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	const char *message = "", *label = NULL, *expect = NULL;
	struct ctl_commit cm = {0};
	struct env_call e;
	char id[16];
	int r;

	if (arg_str(args, ARG("message"), out, &message) < 0 ||
	    arg_str(args, ARG("label"), out, &label) < 0 ||
	    arg_str(args, ARG("expect"), out, &expect) < 0)
		return 0;
	if (!env_begin(call, args, out, &e))
		return 0;
	r = ctl_commit(e.ctl, message, label, expect, &e.diag, &cm);
	if (r == -ENODATA)
		return env_end(&e,
			       buf_puts(&out->text, "nothing to commit: the tree is as it was at "
						    "head\n"),
			       out);
	if (r == -ESTALE && expect) {
		(void)env_end(&e, 0, out);
		return tool_error(out,
				  "head is not %.70s any more; look at env_snapshot_list, then "
				  "commit with the new head as expect, or without expect",
				  expect);
	}
	if (!r) {
		r = buf_printf(&out->text,
			       "committed %s  %" PRIu64 " added, %" PRIu64 " modified, %" PRIu64
			       " deleted\ncommit id %s\n",
			       short_id(cm.id, id), cm.added, cm.modified, cm.deleted, cm.id);
		out->meta = cJSON_CreateObject();
		if (out->meta) {
			(void)cJSON_AddStringToObject(out->meta, "commit_id", cm.id);
			(void)cJSON_AddStringToObject(out->meta, "parent", cm.parent);
		}
		ctl_commit_release(&cm);
	}
	return env_end(&e, r, out);
}

/* ---- list ---- */

struct log_page {
	struct buf *out;
	int64_t offset, limit, seen, shown;
	char head[65];
	int r;
};

static int log_line(void *arg, const struct ctl_commit *cm)
{
	struct log_page *p = arg;
	struct tm tm;
	char when[32] = "?", id[16];
	size_t len = cm->message ? strcspn(cm->message, "\n") : 0;

	if (p->seen++ < p->offset || p->shown >= p->limit)
		return 0;
	p->shown++;
	if (cm->damaged) {
		p->r = buf_printf(p->out, "%s  damaged\n", short_id(cm->id, id));
		return p->r;
	}
	if (gmtime_r(&cm->time.tv_sec, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%SZ", &tm);
	p->r = buf_printf(p->out,
			  "%s%s  %s  +%" PRIu64 " ~%" PRIu64 " -%" PRIu64 "  %s%s%s%s%.*s\n",
			  short_id(cm->id, id), strcmp(cm->id, p->head) ? "" : " (head)", when,
			  cm->added, cm->modified, cm->deleted, cm->automatic ? "[auto] " : "",
			  cm->label[0] ? "[" : "", cm->label,
			  !cm->label[0] ? ""
			  : len         ? "] "
					: "]",
			  (int)(len < 200 ? len : 200), cm->message ? cm->message : "");
	return p->r;
}

static int run_list(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	cleanup_buf struct buf lines = {0};
	struct log_page p = {.out = &lines, .limit = 50};
	struct ctl_status st = {0};
	bool all = false, automatic = true;
	struct env_call e;
	int r;

	if (arg_int(args, ARG("offset"), 0, 1 << 30, out, &p.offset) < 0 ||
	    arg_int(args, ARG("limit"), 1, 500, out, &p.limit) < 0 ||
	    arg_bool(args, ARG("all"), out, &all) < 0 ||
	    arg_bool(args, ARG("automatic"), out, &automatic) < 0)
		return 0;
	if (!env_begin(call, args, out, &e))
		return 0;
	r = ctl_status(e.ctl, &e.diag, &st);
	if (!r) {
		(void)snprintf(p.head, sizeof(p.head), "%s", st.head);
		r = ctl_log(e.ctl, all, automatic, &e.diag, log_line, &p);
		if (!r)
			r = buf_printf(&out->text,
				       "%" PRId64 " snapshot%s of %s, newest first; base %s%s\n",
				       p.seen, p.seen == 1 ? "" : "s",
				       all ? "all environments" : st.env, st.base,
				       st.head[0] ? "" : " (head)");
		ctl_status_release(&st);
	}
	if (!r && lines.len)
		r = buf_put(&out->text, lines.data, lines.len);
	if (!r && p.offset + p.shown < p.seen)
		r = buf_printf(&out->text, "[%" PRId64 " more: offset=%" PRId64 "]\n",
			       p.seen - p.offset - p.shown, p.offset + p.shown);
	return env_end(&e, r, out);
}

/* ---- moves ---- */

static int say_moved(struct tool_result *out, const struct ctl_moved *mv, const char *did)
{
	char to[16], from[16];
	int r;

	r = buf_printf(&out->text, "%s: the tree is now as at %s\n", did, short_id(mv->to, to));
	if (!r && mv->saved)
		r = buf_printf(
			&out->text,
			"[what was uncommitted is kept as %s: env_rollback rev=\"%s\" brings "
			"it back]\n",
			short_id(mv->from, from), short_id(mv->from, from));
	else if (!r)
		r = buf_printf(&out->text, "[before it was at %s]\n", short_id(mv->from, from));
	out->meta = cJSON_CreateObject();
	if (out->meta) {
		(void)cJSON_AddStringToObject(out->meta, "from", mv->from);
		(void)cJSON_AddStringToObject(out->meta, "to", mv->to);
		(void)cJSON_AddBoolToObject(out->meta, "saved", mv->saved);
	}
	return r;
}

static int run_rollback(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	struct ctl_moved mv = {0};
	const char *rev = NULL;
	bool force = false;
	struct env_call e;
	int r;

	r = arg_str(args, ARG("rev", "to_commit_id", "commit_id", "to"), out, &rev);
	if (r < 0 || arg_bool(args, ARG("force"), out, &force) < 0)
		return 0;
	if (!r || !*rev)
		return tool_error(out, "'rev' is missing: a commit id (or its first digits) from "
				       "env_snapshot_list, a name, or \"base\"");
	if (!env_begin(call, args, out, &e))
		return 0;
	r = ctl_rollback(e.ctl, rev, force, &e.diag, &mv);
	if (!r)
		r = say_moved(out, &mv, "rolled back");
	return env_end(&e, r, out);
}

static int say_forked(struct tool_result *out, const struct ctl_env_info *made,
		      const struct ctl_env_info *from)
{
	char id[16];
	int r = buf_printf(&out->text,
			   "forked %s from %s at %s: give environment=\"%s\" to work in it\n",
			   made->name, from->name, short_id(made->head, id), made->name);

	if (!r && from->dirty)
		r = buf_printf(&out->text,
			       "[what is uncommitted in %s is not in it: env_commit first, "
			       "then fork]\n",
			       from->name);
	out->meta = cJSON_CreateObject();
	if (out->meta) {
		(void)cJSON_AddStringToObject(out->meta, "environment", made->name);
		(void)cJSON_AddStringToObject(out->meta, "from", from->name);
		(void)cJSON_AddStringToObject(out->meta, "head", made->head);
		(void)cJSON_AddBoolToObject(out->meta, "from_dirty", from->dirty);
	}
	return r;
}

static int run_fork(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	const char *name = NULL, *rev = "head";
	struct ctl_env_info i[2];
	struct env_call e;
	int r = arg_str(args, ARG("name", "new_environment"), out, &name);

	if (r < 0 || arg_str(args, ARG("rev", "to_commit_id", "commit_id"), out, &rev) < 0)
		return 0;
	if (!r || !*name)
		return tool_error(out,
				  "'name' is missing: what the new environment is to be called");
	if (!env_begin(call, args, out, &e))
		return 0;
	r = ctl_env_fork(session_opts(tool_session(call))->data_dir, client_env(e.client), rev,
			 name, &e.diag, i);
	if (!r)
		r = say_forked(out, &i[0], &i[1]);
	return env_end(&e, r, out);
}

static int run_reset(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	struct ctl_moved mv = {0};
	bool force = false;
	struct env_call e;
	int r;

	if (arg_bool(args, ARG("force"), out, &force) < 0)
		return 0;
	if (!env_begin(call, args, out, &e))
		return 0;
	r = ctl_reset(e.ctl, force, &e.diag, &mv);
	if (!r && !mv.saved && !strcmp(mv.from, mv.to))
		r = buf_puts(&out->text, "nothing to discard: the tree is as it was at head\n");
	else if (!r)
		r = say_moved(out, &mv, "discarded");
	return env_end(&e, r, out);
}

const struct mcp_tool tool_env_status = {
	.name = "env_status",
	.title = "Environment status",
	.description =
		"The environment: base, head commit, uncommitted changes, running commands, bound "
		"host directories, network, space.",
	.input_schema = SCHEMA(""),
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
	.run = run_status,
};

const struct mcp_tool tool_env_commit = {
	.name = "env_commit",
	.title = "Commit",
	.description =
		"Seal the present state of the whole file system as a commit and return its id. Constant "
		"time. Commits survive the session; uncommitted changes do not.",
	.input_schema =
		SCHEMA("\"message\":{\"type\":\"string\",\"description\":\"What this state is\"},"
		       "\"label\":{\"type\":\"string\",\"description\":\"Short mark\"},"
		       "\"expect\":{\"type\":\"string\",\"description\":\"Only if head is this "
		       "commit\"},"),
	.flags = 0,
	.run = run_commit,
};

const struct mcp_tool tool_env_snapshot_list = {
	.name = "env_snapshot_list",
	.title = "List snapshots",
	.description =
		"History, newest first: id, time, files added ~modified -deleted, message. [auto] "
		"are states kept by rollback and discard.",
	.input_schema = SCHEMA(
		"\"limit\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":500,\"default\":50,"
		"\"description\":\"Most entries\"},"
		"\"offset\":{\"type\":\"integer\",\"minimum\":0,\"default\":0,"
		"\"description\":\"Entries to skip\"},"
		"\"automatic\":{\"type\":\"boolean\",\"default\":true,\"description\":\"Automatic "
		"states too\"},"
		"\"all\":{\"type\":\"boolean\",\"default\":false,\"description\":\"Of all "
		"environments\"},"),
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
	.run = run_list,
};

const struct mcp_tool tool_env_rollback = {
	.name = "env_rollback",
	.title = "Roll back",
	.description =
		"Put the whole file system into the state of any commit, backwards or forwards, or of the "
		"base. Constant time. What is left behind is kept and named in the answer. Refused while "
		"commands run, unless force.",
	.input_schema = SCHEMA(
		"\"rev\":{\"type\":\"string\",\"description\":\"Commit id or its first digits, a "
		"name, or base\"},"
		"\"force\":{\"type\":\"boolean\",\"default\":false,\"description\":\"End running "
		"commands\"},"),
	.flags = TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT,
	.run = run_rollback,
};

const struct mcp_tool tool_env_fork = {
	.name = "env_fork",
	.title = "Fork",
	.description =
		"Make a new environment from any commit of this one, to try something beside it. Constant time, "
		"nothing is copied; the two are independent from then on. Other tools work in it with "
		"environment=name.",
	.input_schema = SCHEMA(
		"\"name\":{\"type\":\"string\",\"description\":\"Of the new environment\"},"
		"\"rev\":{\"type\":\"string\",\"default\":\"head\",\"description\":\"Commit id or its first digits, a "
		"name, or base\"},"),
	.flags = 0,
	.run = run_fork,
};

#define RESET_SCHEMA                                                                              \
	SCHEMA("\"force\":{\"type\":\"boolean\",\"default\":false,\"description\":\"End running " \
	       "commands\"},")

const struct mcp_tool tool_env_reset = {
	.name = "env_reset",
	.title = "Drop uncommitted changes",
	.description =
		"Go back to head: everything since the last commit is dropped (and kept aside; the "
		"answer says as what).",
	.input_schema = RESET_SCHEMA,
	.flags = TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT,
	.run = run_reset,
};

const struct mcp_tool tool_env_discard = {
	.name = "env_discard",
	.title = "Drop uncommitted changes",
	.description = "The same as env_reset.",
	.input_schema = RESET_SCHEMA,
	.flags = TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT,
	.run = run_reset,
};
