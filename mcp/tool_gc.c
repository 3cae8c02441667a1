#include "mcp/tools.h"

#include <inttypes.h>

#include "base/cleanup.h"
#include "mcp/session.h"

static int on_progress(void *arg, const char *stage, uint64_t done, uint64_t total)
{
	struct tool_call *call = arg;

	tool_progress(call, (double)done, (double)total, stage);
	return tool_cancelled(call);
}

static int put_sum(struct buf *b, const struct ctl_gc_sum *s, bool dry)
{
	int r;

	if (s->layers || s->chunks)
		r = buf_printf(b,
			       "%s %" PRIu64 " trees (%" PRIu64 " records) and %" PRIu64
			       " pieces of content, ",
			       dry ? "would remove" : "removed", s->layers, s->records, s->chunks);
	else if (s->states)
		r = buf_printf(b, "%s %" PRIu64 " automatic states, ",
			       dry ? "would drop" : "dropped", s->states);
	else
		r = buf_puts(b, "nothing to remove, ");
	if (!r)
		r = sh_size(b, s->chunk_bytes);
	if (!r && s->given_back)
		r = buf_puts(b, "; gave back to the disk ");
	if (!r && s->given_back)
		r = sh_size(b, s->given_back);
	if (!r)
		r = buf_puts(b, "; free in the store's files ");
	if (!r)
		r = sh_size(b, s->free_bytes);
	if (!r && s->damaged)
		r = buf_printf(b,
			       "\n[%" PRIu64 " trees or pieces stay, because they are damaged: "
			       "'rattan fsck' on the host says more]",
			       s->damaged);
	return r ? r : buf_puts(b, "\n");
}

static cJSON *facts(const struct ctl_gc_sum *s, bool dry)
{
	cJSON *o = cJSON_CreateObject();

	if (!o)
		return NULL;
	(void)cJSON_AddBoolToObject(o, "dry_run", dry);
	(void)cJSON_AddNumberToObject(o, "trees", (double)s->layers);
	(void)cJSON_AddNumberToObject(o, "chunks", (double)s->chunks);
	(void)cJSON_AddNumberToObject(o, "chunk_bytes", (double)s->chunk_bytes);
	(void)cJSON_AddNumberToObject(o, "free_bytes", (double)s->free_bytes);
	(void)cJSON_AddNumberToObject(o, "given_back_bytes", (double)s->given_back);
	return o;
}

static int run_gc(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	struct ctl_gc_opts o = {.data_dir = session_opts(tool_session(call))->data_dir,
				.progress = on_progress,
				.arg = call};
	struct ctl_gc_sum sum = {0};
	struct diag diag = {0};
	int r;

	if (arg_bool(args, ARG("dry_run"), out, &o.dry_run) < 0 ||
	    arg_bool(args, ARG("shrink"), out, &o.shrink) < 0)
		return 0;
	if (o.dry_run && o.shrink)
		return tool_error(out, "dry_run gives nothing back; leave out one of the two");
	/* Reached first: where there is no store yet, this makes it. */
	if (!tool_client(call, args, out))
		return 0;
	r = ctl_gc(&o, &diag, &sum);
	if (r == -EBUSY)
		return tool_error(out, "another collection is at work; try again when it is done");
	if (r < 0 && tool_cancelled(call))
		return tool_error(out, "stopped; what was removed so far stays so");
	if (r < 0)
		return tool_error(out, "%s", diag.text[0] ? diag.text : err_text(r));
	out->meta = facts(&sum, o.dry_run);
	return put_sum(&out->text, &sum, o.dry_run);
}

const struct mcp_tool tool_env_gc = {
	.name = "env_gc",
	.title = "Give back space",
	.description =
		"Remove what no state can reach any more: old [auto] states, trees of removed environments, "
		"content that nothing names. Commits and named states stay.",
	.input_schema = "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
			"\"dry_run\":{\"type\":\"boolean\",\"description\":\"Only tell\"},"
			"\"shrink\":{\"type\":\"boolean\",\"description\":\"Give free room "
			"back to the disk, too\"},"
			"\"environment\":{\"type\":\"string\",\"description\":\"Name\"}}}",
	.flags = TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT | TOOL_WAITS,
	.run = run_gc,
};
