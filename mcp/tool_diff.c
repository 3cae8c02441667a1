#include "mcp/tools.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "mcp/files/text.h"
#include "mcp/hostdiff.h"
#include "mcp/sandbox.h"
#include "mcp/shellargs.h"

#define DIFF_MAX 65536

struct diff_req {
	const char *from, *to; /* revisions; NULL from: head, NULL to: the working tree */
	const char *path;
	int64_t offset, limit, max;
};

struct diff_page {
	struct buf lines;
	const struct diff_req *req;
	const char *under; /* only paths at or below it; NULL: all */
	size_t under_len;
	int64_t seen, shown;
	uint64_t counts[256];
	char *old; /* where the one path that is exactly @under was, if that is elsewhere */
};

static bool below(const struct diff_page *p, const char *path)
{
	if (!p->under)
		return true;
	return !strncmp(path, p->under, p->under_len) &&
	       (!path[p->under_len] || path[p->under_len] == '/' || p->under_len == 1);
}

static int add_change(void *arg, const struct ctl_change *ch)
{
	struct diff_page *p = arg;
	bool dir = S_ISDIR(ch->mode) && ch->path[strlen(ch->path) - 1] != '/';
	int r;

	if (!below(p, ch->path) && !(ch->old_path && below(p, ch->old_path)))
		return 0;
	if (p->under && ch->old_path && !p->old && !strcmp(p->under, ch->path)) {
		p->old = strdup(ch->old_path);
		if (!p->old)
			return -ENOMEM;
	}
	p->counts[(unsigned char)ch->kind]++;
	if (p->seen++ < p->req->offset || p->shown >= p->req->limit)
		return 0;
	p->shown++;
	r = buf_printf(&p->lines, "%c ", ch->kind);
	if (!r && ch->kind == 'R' && ch->old_path) {
		r = text_put_name(&p->lines, ch->old_path, strlen(ch->old_path));
		if (!r)
			r = buf_puts(&p->lines, " -> ");
		dir = false;
	}
	if (!r)
		r = text_put_name(&p->lines, ch->path, strlen(ch->path));
	return r ? r : buf_puts(&p->lines, dir ? "/\n" : "\n");
}

static int put_head(struct buf *out, const struct diff_req *q, const struct diff_page *p)
{
	return buf_printf(out,
			  "%s to %s: %" PRId64 " change%s  A %" PRIu64 "  M %" PRIu64 "  D %" PRIu64
			  "  R %" PRIu64 "  T %" PRIu64 "\n",
			  q->from ? q->from : "head", q->to ? q->to : "working tree", p->seen,
			  p->seen == 1 ? "" : "s", p->counts['A'], p->counts['M'], p->counts['D'],
			  p->counts['R'], p->counts['T']);
}

/* *ret_old: where @under was, if it is a name and that is elsewhere; else NULL. *ret_any: there is a change. */
static int list_changes(struct ctl *ctl, const struct diff_req *q, const char *under,
			struct diag *diag, struct tool_result *out, char **ret_old, bool *ret_any)
{
	struct diff_page p = {.req = q, .under = under, .under_len = under ? strlen(under) : 0};
	int r = ctl_diff(ctl, q->from, q->to, diag, add_change, &p);

	*ret_old = p.old;
	*ret_any = p.seen > 0;
	if (!r)
		r = put_head(&out->text, q, &p);
	if (!r && p.lines.len)
		r = buf_put(&out->text, p.lines.data, p.lines.len);
	if (!r && q->offset + p.shown < p.seen)
		r = buf_printf(&out->text, "[%" PRId64 " more: offset=%" PRId64 "]\n",
			       p.seen - q->offset - p.shown, q->offset + p.shown);
	buf_release(&p.lines);
	return r;
}

/* Content of one side; fd -1 when it is not there (or a directory). */
static int side(struct ctl *ctl, const char *rev, const char *path, struct diag *diag, int *ret_fd,
		uint32_t *ret_mode)
{
	struct diag mine = {0};
	int r = ctl_cat(ctl, rev, path, &mine, ret_fd, ret_mode);

	if (r == -ENOENT || r == -EISDIR || r == -ENOTDIR) {
		*ret_fd = -1;
		*ret_mode = r == -EISDIR ? S_IFDIR : 0;
		return 0;
	}
	return r ? diag_set(diag, r, "%s", mine.text) : 0;
}

static int put_content(const struct diff_req *q, const char *old, const char *path, int a, int b,
		       uint32_t am, uint32_t bm, struct tool_result *out)
{
	cleanup_buf struct buf raw = {0};
	cleanup_buf struct buf an = {0};
	cleanup_buf struct buf bn = {0};
	bool cut = false;
	int r = 0;

	if (am && bm && am != bm)
		r = buf_printf(&out->text, "mode %o -> %o\n", am, bm);
	if (!r && (hostdiff_binary(a) || hostdiff_binary(b)))
		return buf_puts(&out->text, "binary files differ\n");
	if (!r)
		r = a < 0 ? buf_puts(&an, "/dev/null") : buf_printf(&an, "a%s", old);
	if (!r)
		r = b < 0 ? buf_puts(&bn, "/dev/null") : buf_printf(&bn, "b%s", path);
	if (r)
		return r;
	r = hostdiff_unified(a, b, (const char *)an.data, (const char *)bn.data, (size_t)q->max,
			     &raw, &cut);
	if (r == -ENOENT)
		return tool_error(out, "the host has no /usr/bin/diff, so the content cannot be "
				       "compared; read both sides instead");
	if (r == -EFBIG)
		return buf_puts(&out->text, "[over 16 MiB: not compared line by line]\n");
	if (r == -E2BIG)
		return buf_puts(&out->text, "[too many lines: not compared one by one]\n");
	if (r == -ETIMEDOUT)
		return tool_error(out, "comparing the two sides took too long");
	if (r < 0)
		return r;
	r = r ? sh_clean(&out->text, raw.data, raw.len) : buf_puts(&out->text, "same content\n");
	if (!r && cut)
		r = buf_puts(&out->text, "\n[cut: raise max_output for more]\n");
	return r;
}

/* @any: something at or below @path has changed. */
static int diff_content(struct ctl *ctl, const struct diff_req *q, const char *old,
			const char *path, bool any, struct diag *diag, struct tool_result *out)
{
	cleanup_fd int a = -1;
	cleanup_fd int b = -1;
	uint32_t am = 0, bm = 0;
	int r;

	/* No revision means the working tree to ctl_cat, but head as the left side of a diff. */
	r = side(ctl, q->from ? q->from : "head", old, diag, &a, &am);
	if (!r)
		r = side(ctl, q->to, path, diag, &b, &bm);
	if (!r && !any && !am && !bm && a < 0 && b < 0)
		return tool_error(out,
				  "there is neither a change nor a file at %s (of what is bound "
				  "there are no states); without path all changes are listed",
				  path);
	if (r || (a < 0 && b < 0))
		return r;
	return put_content(q, old, path, a, b, am, bm, out);
}

static int parse(const cJSON *args, struct tool_result *out, struct diff_req *q)
{
	*q = (struct diff_req){.limit = 200, .max = 24576};
	if (arg_str(args, ARG("from", "rev", "a"), out, &q->from) < 0 ||
	    arg_str(args, ARG("to", "b", "rev"), out, &q->to) < 0 ||
	    arg_str(args, ARG("path"), out, &q->path) < 0 ||
	    arg_int(args, ARG("offset"), 0, 1 << 30, out, &q->offset) < 0 ||
	    arg_int(args, ARG("limit"), 1, 2000, out, &q->limit) < 0 ||
	    arg_int(args, ARG("max_output"), 1024, DIFF_MAX * 3, out, &q->max) < 0)
		return -EINVAL;
	if (q->from && !*q->from)
		q->from = NULL;
	if (q->to && !*q->to)
		q->to = NULL;
	if (q->to && !q->from) {
		(void)tool_error(out, "'to' needs 'from'; without both, head is compared with the "
				      "working tree");
		return -EINVAL;
	}
	return 0;
}

static int run_diff(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	cleanup_free char *path = NULL, *old = NULL;
	struct diff_req q;
	struct diag diag = {0};
	struct client *c;
	struct ctl *ctl;
	bool any;
	int r;

	if (parse(args, out, &q))
		return 0;
	if (q.path && *q.path) {
		r = shell_path(q.path, &path);
		if (r)
			return r;
		for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
			path[n - 1] = 0;
	}
	/* Content comes from the store, and not through the mount. */
	if (path && !tool_may_read(call, args, path, out))
		return 0;
	c = tool_client(call, args, out);
	if (!c)
		return 0;
	r = client_ctl_get(c, &diag, &ctl);
	if (r)
		return tool_error(out, "the environment cannot be reached: %s (%s)", diag.text,
				  err_text(r));
	r = list_changes(ctl, &q, path, &diag, out, &old, &any);
	if (!r && path && (!old || tool_may_read(call, args, old, out)))
		r = diff_content(ctl, &q, old ? old : path, path, any, &diag, out);
	client_ctl_put(c, ctl, r == -EPIPE || r == -EBADMSG);
	if (r && !out->is_error)
		return tool_error(out, "%s (%s); env_snapshot_list shows the revisions",
				  diag.text[0] ? diag.text : "no difference could be made",
				  err_text(r));
	return 0;
}

const struct mcp_tool tool_env_diff = {
	.name = "env_diff",
	.title = "What changed",
	.description =
		"What differs between head and the working tree, or between two states: a header, then a "
		"line per path: A added, M modified, D deleted, R renamed, T type changed. With path: only "
		"what is at or below it, and the unified diff of a file.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
		"\"path\":{\"type\":\"string\",\"description\":\"File (gives its content diff) or "
		"directory\"},"
		"\"from\":{\"type\":\"string\",\"description\":\"Snapshot; default head\"},"
		"\"to\":{\"type\":\"string\",\"description\":\"Snapshot; default the working tree\"},"
		"\"offset\":{\"type\":\"integer\",\"description\":\"Lines to "
		"skip\"},"
		"\"limit\":{\"type\":\"integer\",\"maximum\":2000,\"default\":200,"
		"\"description\":\"Most lines\"},"
		"\"max_output\":{\"type\":\"integer\",\"minimum\":1024,\"maximum\":196608,"
		"\"default\":24576,\"description\":\"Bytes of content diff\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Name\"}}}",
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
	.run = run_diff,
};
