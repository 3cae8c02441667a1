/* What a command came to: as text for a model, and as JSON for programs. */
#include <string.h>

#include "base/cleanup.h"
#include "mcp/denials.h"
#include "mcp/files/text.h"
#include "mcp/json.h"
#include "mcp/shelltext.h"
#include "mcp/tools.h"

static int put_changes(struct buf *out, const struct changes *ch)
{
	const char *p = (const char *)ch->paths.data, *end = p + ch->paths.len;
	unsigned n = 0;
	int r;

	if (!ch->known || !ch->total)
		return 0;
	r = buf_puts(out, "[changed:");
	for (; !r && p < end && n < CHANGES_SHOWN; n++) {
		const char *from = p + (*p == '-');

		/* As the file tools name them: relative in the workspace. */
		if (!strncmp(from, TOOL_WORKSPACE "/", sizeof(TOOL_WORKSPACE)))
			from += sizeof(TOOL_WORKSPACE);
		r = buf_printf(out, "%s %s", n ? "," : "", *p == '-' ? "-" : "");
		if (!r)
			r = text_put_name(out, from, strlen(from));
		p += strlen(p) + 1;
	}
	if (!r && ch->total > n)
		r = buf_printf(out, ", and %u more; env_diff lists all", ch->total - n);
	return r ? r : buf_puts(out, "]\n");
}

static cJSON *changes_json(const struct changes *ch)
{
	cJSON *a = cJSON_CreateArray();
	const char *p = (const char *)ch->paths.data, *end = p + ch->paths.len;

	for (; a && p < end; p += strlen(p) + 1) {
		cJSON *item = cJSON_CreateString(p);

		if (!item)
			break;
		(void)cJSON_AddItemToArray(a, item);
	}
	return a;
}

/* ---- facts for programs ---- */

static void put_place(cJSON *o, const struct job_info *in)
{
	const char *dir = sh_ended_in(in);
	cleanup_buf struct buf b = {0};

	if (dir && text_put_name(&b, dir, strlen(dir)) >= 0)
		(void)cJSON_AddStringToObject(o, "ended_in", (const char *)b.data);
}

static void put_facts(cJSON *o, const struct job_info *in, const struct changes *ch)
{
	const struct run_result *res = &in->result;

	(void)cJSON_AddBoolToObject(o, "running", !in->ended);
	if (in->ended || in->command_ended) {
		(void)cJSON_AddNumberToObject(o, "rc", res->code);
		(void)cJSON_AddBoolToObject(o, "timed_out", res->timed_out);
		if (res->state == RUN_SIGNALED)
			(void)cJSON_AddNumberToObject(o, "signal", res->signal);
		else
			(void)cJSON_AddNullToObject(o, "signal");
		if (res->state == RUN_NOT_STARTED) {
			(void)cJSON_AddStringToObject(o, "step", res->step);
			(void)cJSON_AddStringToObject(o, "error", res->error);
		}
		(void)cJSON_AddNumberToObject(o, "seconds", res->wall_s);
		(void)cJSON_AddNumberToObject(o, "max_rss", (double)res->max_rss);
		if (res->pipe[0])
			(void)cJSON_AddStringToObject(o, "pipe", res->pipe);
		if (res->left)
			(void)cJSON_AddNumberToObject(o, "left_running", res->left);
		put_place(o, in);
		(void)cJSON_AddStringToObject(o, "enforced", res->enforced);
	}
	(void)cJSON_AddNumberToObject(o, "stdout_bytes", (double)in->size[0]);
	if (in->separate)
		(void)cJSON_AddNumberToObject(o, "stderr_bytes", (double)in->size[1]);
	if (ch->known) {
		(void)cJSON_AddNumberToObject(o, "changed_total", ch->total);
		(void)cJSON_AddItemToObject(o, "changed", changes_json(ch));
	}
	denials_facts(o, ch);
}

static int add_stream(cJSON *o, const char *name, struct job *j, int stream, size_t max,
		      const char *id, bool *ret_left)
{
	cleanup_buf struct buf b = {0};
	uint64_t left = 0;
	int r = sh_output(&b, j, stream, max, id, &left);

	if (r)
		return r;
	*ret_left |= left != 0;
	return cJSON_AddStringToObject(o, name, b.data ? (const char *)b.data : "") ? 0 : -ENOMEM;
}

/* The same as JSON text, for programs that parse it. */
int shell_answer_json(struct job *j, const struct job_info *in, const struct changes *ch,
		      size_t max, struct tool_result *out)
{
	cJSON *o = cJSON_CreateObject();
	bool left = false;
	int r;

	if (!o)
		return -ENOMEM;
	put_facts(o, in, ch);
	r = add_stream(o, "stdout", j, 0, max / 2, in->id, &left);
	if (!r)
		r = add_stream(o, "stderr", j, 1, max / 2, in->id, &left);
	if (!in->ended || left)
		(void)cJSON_AddStringToObject(o, "job_id", in->id);
	if (left)
		job_keep(j);
	if (!r)
		r = json_put(&out->text, o);
	cJSON_Delete(o);
	return r;
}

/* ---- text ---- */

static int put_streams(struct job *j, const struct job_info *in, size_t max, struct buf *out)
{
	size_t half = in->separate && in->size[1] ? max / 2 : max, from = out->len;
	uint64_t left = 0, left_err = 0;
	int r;

	r = sh_output(out, j, 0, half, in->id, &left);
	if (!r)
		r = sh_fold(out, from);
	if (!r && out->len && out->data[out->len - 1] != '\n')
		r = buf_puts(out, "\n");
	if (!r && in->separate && in->size[1]) {
		r = buf_puts(out, "--- stderr ---\n");
		from = out->len;
		if (!r)
			r = sh_output(out, j, 1, half, in->id, &left_err);
		if (!r)
			r = sh_fold(out, from);
		if (!r && out->data[out->len - 1] != '\n')
			r = buf_puts(out, "\n");
	}
	if (left || left_err)
		job_keep(j);
	return r;
}

/* Models that know other shells believe that it stays. */
static int put_where(const struct job_info *in, struct buf *out)
{
	const char *dir = sh_ended_in(in);
	int r;

	if (!dir)
		return 0;
	r = buf_puts(out, "[it ended in ");
	if (!r)
		r = text_put_name(out, dir, strlen(dir));
	return r ? r : buf_puts(out, ", which is not kept: pass cwd to stay there]\n");
}

static int put_left(const struct job_info *in, struct buf *out)
{
	const struct run_result *res = &in->result;
	cleanup_buf struct buf name = {0};
	int r;

	if (!in->ended || !res->left)
		return 0;
	r = text_put_name(&name, res->left_name, strlen(res->left_name));
	if (!r)
		r = buf_printf(out,
			       "[%u process%s left running (%s), killed: leave_running=true keeps ",
			       res->left, res->left == 1 ? " was" : "es were",
			       name.data ? (const char *)name.data : "?");
	return r ? r : buf_printf(out, "%s]\n", res->left == 1 ? "it" : "them");
}

static int put_notes(const struct job_info *in, struct buf *out)
{
	int r = put_left(in, out);

	if (!r)
		r = put_where(in, out);
	if (!r && in->ended && in->result.out_limited)
		r = sh_limited(out, in);
	if (!r && in->command_ended)
		r = buf_printf(
			out,
			"[what it left running is job %s: shell_job_output shows its output, "
			"shell_job_kill ends it]\n",
			in->id);
	else if (!r && !in->ended)
		r = buf_printf(out,
			       "[still running: shell_job_wait job_id=\"%s\" waits for it, "
			       "shell_job_output reads on, shell_job_kill ends it]\n",
			       in->id);
	if (!r && in->ended && in->result.timed_out)
		r = buf_puts(out, "[raise timeout, or start it with shell_job_start]\n");
	if (!r && in->ended && in->result.state == RUN_NOT_STARTED &&
	    !strcmp(in->result.step, "cwd"))
		r = buf_puts(out,
			     "[cwd is a directory in the sandbox; the workspace is " TOOL_WORKSPACE
			     ", and directories of the host are not there]\n");
	return r;
}

int shell_answer(struct job *j, const struct changes *ch, size_t max, struct tool_result *out)
{
	struct job_info in;
	int r;

	job_get_info(j, &in);
	r = sh_status(&out->text, &in, ch, sh_lines(j, 0));
	if (!r)
		r = buf_puts(&out->text, "\n");
	if (!r)
		r = put_streams(j, &in, max, &out->text);
	if (!r)
		r = put_notes(&in, &out->text);
	if (!r)
		r = denials_put(&out->text, &in, ch);
	if (!r)
		r = put_changes(&out->text, ch);
	/* A failing command is information; only what did not run, or was cut short, is an error. */
	out->is_error = in.ended && (in.result.state == RUN_NOT_STARTED || in.result.timed_out);
	out->meta = cJSON_CreateObject();
	if (out->meta) {
		put_facts(out->meta, &in, ch);
		if (!in.ended)
			(void)cJSON_AddStringToObject(out->meta, "job_id", in.id);
	}
	return r;
}
