#include "mcp/tool_env.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "mcp/session.h"
#include "profile/profile.h"

bool env_begin(struct tool_call *call, const cJSON *args, struct tool_result *out,
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

int env_end(struct env_call *e, int r, struct tool_result *out)
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
	/* What is wrong with the request, the sentence has said; else the kernel's words may tell more. */
	if (e->diag.text[0] && r != -EINVAL && r != -EEXIST)
		return tool_error(out, "%s (%s)", e->diag.text, err_text(r));
	return tool_error(out, "%s", e->diag.text[0] ? e->diag.text : err_text(r));
}

const char *env_short_id(const char *id, char room[static 16])
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
		       env_short_id(st->head, id), label_sep, st->head_label);
	if (!r && !st->dirty)
		r = buf_puts(b, "clean\n");
	else if (!r && st->added + st->modified + st->deleted + st->renamed == 0)
		r = buf_puts(b, "uncommitted: too much, or too deep, to be counted\n");
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

/* A label is for the state, and that is there. */
static int nothing_to_commit(struct env_call *e, const char *label, struct tool_result *out)
{
	struct ctl_ref ref = {0};
	char id[16];
	int r;

	if (!label || !*label)
		return buf_puts(&out->text, "nothing to commit: the tree is as it was at head\n");
	e->diag = (struct diag){0};
	r = ctl_tag(e->ctl, label, NULL, false, &e->diag, &ref);
	if (!r)
		r = buf_printf(&out->text,
			       "nothing to commit: the tree is as it was at head, %s, which is "
			       "named %s\n",
			       env_short_id(ref.id, id), ref.name);
	ctl_ref_release(&ref);
	return r;
}

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
		return env_end(&e, nothing_to_commit(&e, label, out), out);
	if (r == -ESTALE && expect) {
		(void)!env_end(&e, 0, out);
		return tool_error(out,
				  "head is not %.70s any more; look at env_snapshot_list, then "
				  "commit with the new head as expect, or without expect",
				  expect);
	}
	if (!r) {
		r = buf_printf(&out->text,
			       "committed %s  %" PRIu64 " added, %" PRIu64 " modified, %" PRIu64
			       " deleted\ncommit id %s\n",
			       env_short_id(cm.id, id), cm.added, cm.modified, cm.deleted, cm.id);
		out->meta = cJSON_CreateObject();
		if (out->meta) {
			(void)cJSON_AddStringToObject(out->meta, "commit_id", cm.id);
			(void)cJSON_AddStringToObject(out->meta, "parent", cm.parent);
		}
		ctl_commit_release(&cm);
	}
	return env_end(&e, r, out);
}

/* ---- moves ---- */

static int say_moved(struct tool_result *out, const struct ctl_moved *mv, const char *did)
{
	char to[16], from[16];
	int r;

	r = buf_printf(&out->text, "%s: the tree is now as at %s\n", did, env_short_id(mv->to, to));
	if (!r && mv->saved)
		r = buf_printf(
			&out->text,
			"[what was uncommitted is kept as %s: env_rollback rev=\"%s\" brings "
			"it back]\n",
			env_short_id(mv->from, from), env_short_id(mv->from, from));
	else if (!r)
		r = buf_printf(&out->text,
			       "[before it was at %s: env_rollback rev=\"%s\" brings it back]\n",
			       env_short_id(mv->from, from), env_short_id(mv->from, from));
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
			   made->name, from->name, env_short_id(made->head, id), made->name);

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
		"Base, head commit, uncommitted changes, running commands, bound host directories, network, "
		"space.",
	.input_schema = ENV_SCHEMA(""),
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
	.run = run_status,
};

const struct mcp_tool tool_env_commit = {
	.name = "env_commit",
	.title = "Commit",
	.description =
		"Seal the present state of the whole file system as a commit and return its id. Commits "
		"survive the session; uncommitted changes do not.",
	.input_schema = ENV_SCHEMA(
		"\"message\":{\"type\":\"string\",\"description\":\"What this state is\"},"
		"\"label\":{\"type\":\"string\",\"description\":\"Name for it, for use as rev\"},"
		"\"expect\":{\"type\":\"string\",\"description\":\"Only if head is this\"},"),
	.flags = 0,
	.run = run_commit,
};

const struct mcp_tool tool_env_rollback = {
	.name = "env_rollback",
	.title = "Roll back",
	.description =
		"Put the whole file system into any state, back or forward: a commit, an [auto] state (takes "
		"back one call), a name, the base. What is left behind is kept and named in the answer. "
		"Refused while commands run, unless force.",
	.input_schema = ENV_SCHEMA(
		"\"rev\":{\"type\":\"string\",\"description\":\"Commit id or its first digits, a "
		"name, or base\"},"
		"\"force\":{\"type\":\"boolean\",\"description\":\"End running "
		"commands\"},"),
	.flags = TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT,
	.run = run_rollback,
};

const struct mcp_tool tool_env_fork = {
	.name = "env_fork",
	.title = "Fork",
	.description =
		"Make a new environment from any state of this one, to try something beside it; the two are "
		"independent from then on. Other tools work in it with environment=name.",
	.input_schema = ENV_SCHEMA(
		"\"name\":{\"type\":\"string\",\"description\":\"Of the new environment\"},"
		"\"rev\":{\"type\":\"string\",\"default\":\"head\",\"description\":\"As for env_rollback\"},"),
	.flags = 0,
	.run = run_fork,
};

#define RESET_SCHEMA                                                                \
	ENV_SCHEMA("\"force\":{\"type\":\"boolean\",\"description\":\"End running " \
		   "commands\"},")

const struct mcp_tool tool_env_reset = {
	.name = "env_reset",
	.title = "Drop uncommitted changes",
	.description =
		"Go back to head: everything since the last commit is dropped, and kept aside as the answer "
		"says.",
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
