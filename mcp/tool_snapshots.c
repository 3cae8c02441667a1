/* env_snapshot_list: the states there are, and their names. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "mcp/tool_env.h"

struct name {
	char name[256], id[65];
	bool at_base, told;
};

struct log_page {
	struct buf *out;
	int64_t offset, limit, seen, shown;
	char head[65];
	struct name *names;
	size_t nnames;
};

static int add_name(void *arg, const struct ctl_ref *r)
{
	struct log_page *p = arg;
	struct name *v;

	/* What every store has, and is the base where it is one. */
	if (!strcmp(r->name, "base/host"))
		return 0;
	v = reallocarray(p->names, p->nnames + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	p->names = v;
	v = &v[p->nnames++];
	*v = (struct name){.at_base = r->at_base};
	memcpy(v->name, r->name, sizeof(v->name));
	memcpy(v->id, r->id, sizeof(v->id));
	return 0;
}

/* "[v1] [stable] ": its tags; the label, where it is none of them: of a state that is not automatic it names nothing any more. */
static int put_names(struct log_page *p, const struct ctl_commit *cm)
{
	bool label = cm->label[0];
	int r = 0;

	for (size_t i = 0; !r && i < p->nnames; i++) {
		if (!p->names[i].told || strcmp(p->names[i].id, cm->id) != 0)
			continue;
		label &= strcmp(p->names[i].name, cm->label) != 0;
		r = buf_printf(p->out, "[%s] ", p->names[i].name);
	}
	return r || !label
		       ? r
		       : buf_printf(p->out, "[%s%s] ", cm->automatic ? "" : "labelled ", cm->label);
}

static int put_line(struct log_page *p, const struct ctl_commit *cm)
{
	size_t len = cm->message ? strcspn(cm->message, "\n") : 0;
	char when[32] = "?", id[16];
	struct tm tm;
	int r;

	if (gmtime_r(&cm->time.tv_sec, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%SZ", &tm);
	r = buf_printf(p->out, "%s%s  %s  ", env_short_id(cm->id, id),
		       strcmp(cm->id, p->head) ? "" : " (head)", when);
	/* Of a checkpoint nothing was counted. */
	if (!r && (!cm->automatic || cm->added || cm->modified || cm->deleted))
		r = buf_printf(p->out, "+%" PRIu64 " ~%" PRIu64 " -%" PRIu64 "  ", cm->added,
			       cm->modified, cm->deleted);
	if (!r && cm->automatic)
		r = buf_puts(p->out, "[auto] ");
	if (!r)
		r = put_names(p, cm);
	if (!r && len)
		r = buf_printf(p->out, "%.*s", (int)(len < 200 ? len : 200), cm->message);
	while (!r && p->out->len && p->out->data[p->out->len - 1] == ' ')
		p->out->data[--p->out->len] = 0;
	return r ? r : buf_puts(p->out, "\n");
}

static int log_line(void *arg, const struct ctl_commit *cm)
{
	struct log_page *p = arg;
	char id[16];

	for (size_t i = 0; !cm->damaged && i < p->nnames; i++)
		p->names[i].told |= !strcmp(p->names[i].id, cm->id);
	if (p->seen++ < p->offset || p->shown >= p->limit)
		return 0;
	p->shown++;
	return cm->damaged ? buf_printf(p->out, "%s  damaged\n", env_short_id(cm->id, id))
			   : put_line(p, cm);
}

/* What no line of this page or another tells: the names of bases, and of states that are not listed. */
static int put_others(struct log_page *p)
{
	bool some = false;
	int r = 0;

	for (size_t i = 0; !r && i < p->nnames; i++) {
		const struct name *n = &p->names[i];
		char id[16];

		if (n->told)
			continue;
		r = buf_printf(p->out, "%s%s", some ? ", " : "[other names: ", n->name);
		if (!r && (n->at_base || n->id[0]))
			r = buf_printf(p->out, " = %s", env_short_id(n->id, id));
		some = true;
	}
	return r || !some ? r : buf_puts(p->out, "]\n");
}

static int list(struct env_call *e, struct log_page *p, bool all, bool automatic, struct buf *out)
{
	struct ctl_status st = {0};
	int r = ctl_status(e->ctl, &e->diag, &st);

	if (r)
		return r;
	(void)snprintf(p->head, sizeof(p->head), "%s", st.head);
	r = ctl_refs(e->ctl, all, &e->diag, add_name, p);
	if (!r)
		r = ctl_log(e->ctl, all, automatic, &e->diag, log_line, p);
	if (!r)
		r = buf_printf(out, "%" PRId64 " snapshot%s of %s, newest first; base %s%s\n",
			       p->seen, p->seen == 1 ? "" : "s", all ? "all environments" : st.env,
			       st.base, st.head[0] ? "" : " (head)");
	if (!r && p->offset + p->shown < p->seen)
		r = buf_printf(p->out, "[%" PRId64 " more: offset=%" PRId64 "]\n",
			       p->seen - p->offset - p->shown, p->offset + p->shown);
	else if (!r)
		r = put_others(p);
	ctl_status_release(&st);
	return r || !p->out->len ? r : buf_put(out, p->out->data, p->out->len);
}

static int run_list(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	cleanup_buf struct buf lines = {0};
	struct log_page p = {.out = &lines, .limit = 50};
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
	r = list(&e, &p, all, automatic, &out->text);
	free(p.names);
	return env_end(&e, r, out);
}

const struct mcp_tool tool_env_snapshot_list = {
	.name = "env_snapshot_list",
	.title = "List snapshots",
	.description =
		"History, newest first: id, time, files +added ~modified -deleted, [names], message. [auto]: "
		"what each call that changes something leaves, and what rollback and discard kept.",
	.input_schema = ENV_SCHEMA(
		"\"limit\":{\"type\":\"integer\",\"maximum\":500,\"default\":50,"
		"\"description\":\"Most entries\"},"
		"\"offset\":{\"type\":\"integer\","
		"\"description\":\"Entries to skip\"},"
		"\"automatic\":{\"type\":\"boolean\",\"default\":true,\"description\":\"Automatic "
		"states too\"},"
		"\"all\":{\"type\":\"boolean\",\"description\":\"Of all "
		"environments\"},"),
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_HISTORY,
	.run = run_list,
};
