/* rattan_edit: replace exact text in a file, one place or several, all or none. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/files/edit.h"
#include "mcp/files/files.h"
#include "mcp/files/text.h"
#include "mcp/files/write.h"

enum {
	EDITS_MAX = 100,
	DIAG_MS = 200,
	DIFF_LINES = 60,
	CONTEXT_SHOWN = 120
};

struct edit_args {
	const char *path, *expect;
	struct edit_op ops[EDITS_MAX];
	size_t nops;
	bool dry_run, diff;
};

/* ---- arguments ---- */

static int parse_op(struct files_call *fc, const cJSON *o, struct edit_op *op)
{
	const char *old = NULL, *new_text = NULL;
	int64_t occurrence = 0;
	int r = arg_str(o, ARG("old_string", "old_str", "oldText", "old_text"), fc->out, &old);

	if (r >= 0)
		r = arg_str(o, ARG("new_string", "new_str", "newText", "new_text"), fc->out,
			    &new_text);
	if (r >= 0)
		r = arg_bool(o, ARG("replace_all"), fc->out, &op->all);
	if (r >= 0)
		r = arg_int(o, ARG("occurrence"), 1, INT32_MAX, fc->out, &occurrence);
	if (r < 0)
		return r;
	if (!old || !new_text)
		return tool_error(fc->out, "%s is missing; give old_string and new_string",
				  old ? "new_string" : "old_string"),
		       -EINVAL;
	if (!*old)
		return tool_error(fc->out,
				  "old_string is empty; to make a file use the write_file tool, "
				  "to append the same with mode:\"append\""),
		       -EINVAL;
	if (!strcmp(old, new_text))
		return tool_error(fc->out, "old_string and new_string are the same; nothing would "
					   "change"),
		       -EINVAL;
	op->old_text = old;
	op->old_len = strlen(old);
	op->new_text = new_text;
	op->new_len = strlen(new_text);
	op->occurrence = op->all ? 0 : (uint64_t)occurrence;
	return 0;
}

static int parse_ops(struct files_call *fc, struct edit_args *a)
{
	const cJSON *edits = cJSON_GetObjectItemCaseSensitive(fc->args, "edits"), *e;

	if (!edits || cJSON_IsNull(edits)) {
		a->nops = 1;
		return parse_op(fc, fc->args, &a->ops[0]);
	}
	if (!cJSON_IsArray(edits) || !edits->child)
		return tool_error(fc->out, "edits must be a list of {old_string, new_string}"),
		       -EINVAL;
	cJSON_ArrayForEach(e, edits)
	{
		int r;

		if (!cJSON_IsObject(e))
			return tool_error(fc->out, "edits[%zu] must be an object", a->nops),
			       -EINVAL;
		if (a->nops == EDITS_MAX)
			return tool_error(fc->out, "more than %d edits in one call", EDITS_MAX),
			       -EINVAL;
		r = parse_op(fc, e, &a->ops[a->nops]);
		if (r < 0)
			return r;
		a->nops++;
	}
	return 0;
}

static int parse(struct files_call *fc, struct edit_args *a)
{
	int r = arg_str(fc->args, ARG("path", "file_path", "filename", "file"), fc->out, &a->path);

	if (r == 0)
		return tool_error(fc->out, "path is missing; say which file to edit"), -EINVAL;
	if (r >= 0)
		r = arg_str(fc->args, ARG("expect_version"), fc->out, &a->expect);
	if (r >= 0)
		r = arg_bool(fc->args, ARG("dry_run"), fc->out, &a->dry_run);
	if (r >= 0)
		r = arg_bool(fc->args, ARG("diff"), fc->out, &a->diff);
	return r < 0 ? r : parse_ops(fc, a);
}

/* ---- answers ---- */

static int put_match_line(struct buf *b, const struct buf *file, size_t off)
{
	const uint8_t *p = file->data;
	const uint8_t *nl = off ? memrchr(p, '\n', off) : NULL;
	size_t from = nl ? (size_t)(nl - p) + 1 : 0;
	const uint8_t *end = memchr(p + off, '\n', file->len - off);
	size_t len = (end ? (size_t)(end - p) : file->len) - from;
	int r = buf_printf(b, "\n%llu: ", (unsigned long long)text_line_at(p, file->len, off));

	if (r >= 0)
		r = text_put_escaped(b, p + from, text_cut(p + from, len, CONTEXT_SHOWN));
	return r >= 0 && len > CONTEXT_SHOWN ? buf_puts(b, "…") : r;
}

static int explain(struct files_call *fc, const char *path, const struct edit_args *a, size_t i,
		   const struct buf *file, const struct edit_report *rep, int err)
{
	cleanup_buf struct buf b = {0};
	int r = files_put_path(&b, path);

	if (r >= 0 && a->nops > 1)
		r = buf_printf(&b, ": edits[%zu]", i);
	if (r >= 0)
		r = buf_puts(&b, ": ");
	if (r >= 0 && err == -ENOENT)
		r = edit_diagnose(file->data, file->len, &a->ops[i], DIAG_MS, &b);
	if (r >= 0 && err == -ERANGE)
		r = buf_printf(
			&b, "occurrence %llu was asked for, but old_string occurs %llu times",
			(unsigned long long)a->ops[i].occurrence, (unsigned long long)rep->found);
	if (r >= 0 && err == -EEXIST)
		r = buf_printf(&b,
			       "old_string occurs %llu times; give more context, occurrence:N, or "
			       "replace_all:true",
			       (unsigned long long)rep->found);
	for (size_t k = 0; r >= 0 && err != -ENOENT && k < rep->found && k < EDIT_SHOWN; k++)
		r = put_match_line(&b, file, rep->at[k]);
	if (r >= 0 && a->nops > 1)
		r = buf_puts(&b, "\nnothing was changed");
	return r < 0 ? r : tool_error(fc->out, "%s", (char *)b.data);
}

struct outcome {
	uint64_t total, line;
	bool adapted;
	char was[11];
};

/* Apply all. 1 fine, 0 answered. */
static int apply_all(struct files_call *fc, const char *path, const struct edit_args *a,
		     const struct buf *old, struct buf *now, struct outcome *oc)
{
	int r = buf_put(now, old->data, old->len);

	for (size_t i = 0; r >= 0 && i < a->nops; i++) {
		cleanup_buf struct buf next = {.max = FILES_EDIT_MAX};
		struct edit_report rep;

		r = edit_apply(now->data, now->len, &a->ops[i], &next, &rep);
		if (r == -ENOENT || r == -EEXIST || r == -ERANGE)
			return explain(fc, path, a, i, now, &rep, r);
		if (r == -E2BIG)
			return -EFBIG;
		if (r < 0)
			return r;
		oc->total += rep.replaced;
		oc->adapted |= rep.adapted;
		if (!i || rep.first_line < oc->line)
			oc->line = rep.first_line;

		struct buf t = *now;

		*now = next;
		next = t;
	}
	return r < 0 ? r : 1;
}

static int put_result(struct files_call *fc, const char *path, const struct edit_args *a,
		      const struct fs_where *w, const struct fs_written *done,
		      const struct buf *old, const struct buf *now, const struct outcome *oc)
{
	cleanup_buf struct buf diff = {0};
	struct buf *b = &fc->out->text;
	struct udiff_stat d;
	int r = udiff(old->data, old->len, now->data, now->len, 2, DIFF_LINES,
		      a->diff ? &diff : NULL, &d);

	if (r < 0)
		return r;
	files_meta_path(fc, path);
	files_meta_num(fc, "replacements", oc->total);
	files_meta_num(fc, "first_line", oc->line);
	files_meta_num(fc, "added", d.added);
	files_meta_num(fc, "removed", d.removed);
	r = buf_puts(b, a->dry_run ? "would edit " : "edited ");
	if (r >= 0)
		r = files_put_path(b, path);
	if (r >= 0)
		r = buf_printf(b, "  %llu replacement%s %s line %llu  +%llu −%llu",
			       (unsigned long long)oc->total, oc->total == 1 ? "" : "s",
			       oc->total == 1 ? "at" : "from", (unsigned long long)oc->line,
			       (unsigned long long)d.added, (unsigned long long)d.removed);
	if (r >= 0)
		r = files_put_written(fc, path, w, done, now, oc->was);
	if (r >= 0)
		r = files_put_before(fc, oc->was);
	if (r >= 0 && oc->adapted)
		r = buf_puts(b, "note: line endings were adapted to the file's\n");
	return r < 0 ? r : buf_put(b, diff.data, diff.len);
}

/* What cannot be edited as bytes. 1 fine, 0 answered. */
static int refuse_kind(struct files_call *fc, const char *path, const struct buf *old)
{
	cleanup_buf struct buf b = {0};
	enum text_encoding e = text_bom(old->data, old->len);
	int r;

	if (e == TEXT_UTF8 || e == TEXT_UTF8_BOM)
		return 1;
	r = files_put_path(&b, path);
	return r < 0 ? r
		     : tool_error(
			       fc->out,
			       "%s is %s and is not edited; convert it first: shell_run iconv -f "
			       "%s -t utf-8",
			       (char *)b.data, text_encoding_name(e), text_encoding_name(e));
}

static int change(struct files_call *fc, const char *path, const struct edit_args *a,
		  const struct fs_where *w)
{
	cleanup_buf struct buf old = {0}, now = {0};
	cleanup_fd int fd = -1;
	struct fs_written done = {0};
	struct outcome oc = {0};
	int r = fsio_at_read(w, &fd, &done.st);

	if (r >= 0)
		r = fsio_read_all(fd,
				  done.st.st_size > FILES_EDIT_MAX ? 0 : (size_t)done.st.st_size,
				  FILES_EDIT_MAX, &old);
	if (r < 0)
		return r;
	r = refuse_kind(fc, path, &old);
	files_version(&done.st, old.len <= FILES_VERSION_MAX ? &old : NULL, oc.was);
	files_look_before(fc, path, oc.was);
	if (r > 0 && a->expect)
		r = files_expect(fc, path, a->expect, oc.was);
	if (r > 0)
		r = apply_all(fc, path, a, &old, &now, &oc);
	if (r <= 0)
		return r;
	if (!a->dry_run)
		r = fsio_replace(w, now.data, now.len, -1, &done);
	if (r >= 0)
		r = put_result(fc, path, a, w, &done, &old, &now, &oc);
	if (r >= 0 && a->dry_run)
		files_seen(fc, path, oc.was);
	return r;
}

static int body(struct files_call *fc)
{
	struct fs_where __attribute__((cleanup(cleanup_wherep)))
	w = {.dir_fd = -1, .watch = &fc->watch};
	cleanup_free struct edit_args *a = calloc(1, sizeof(*a));
	cleanup_free char *path = NULL;
	int r;

	if (!a)
		return -ENOMEM;
	a->diff = true;
	if (parse(fc, a) < 0)
		return 0;
	r = files_path_to_change(fc, a->path, &path);
	if (r <= 0)
		return r;
	r = fsio_locate(fc->at.root_fd, path, false, &w);
	if (r >= 0)
		r = fsio_lock_dir(&w, FILES_LOCK_MS);
	if (r >= 0)
		r = change(fc, path, a, &w);
	return r < 0 ? files_fail(fc, path, r, r != -ENOENT) : 0;
}

static int run(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	return files_run(call, args, out, body);
}

#define EDIT_PROPERTIES \
	"\"old_string\":{\"type\":\"string\",\"description\":\"Exact text to find\"},\"new_string\":{\"type\":\"string\",\"description\":\"Text in its place\"},"

const struct mcp_tool tool_edit = {
	.name = "edit",
	.title = "Edit file",
	.description =
		"Replace exact text in a file. old_string must match byte for byte (indentation included, "
		"without the N→ prefixes) and occur once, or set replace_all. Line endings adapt. Several "
		"changes in one file: edits; all apply or none. On no match the error shows the closest text.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"path\"],"
		"\"properties\":{"
		"\"path\":{\"type\":\"string\",\"description\":\"File path; relative to the workspace\"}," EDIT_PROPERTIES
		"\"replace_all\":{\"type\":\"boolean\",\"description\":\"Every occurrence\"},"
		"\"occurrence\":{\"type\":\"integer\",\"description\":\"Which match to "
		"replace if there are several\"},"
		"\"edits\":{\"type\":\"array\",\"maxItems\":100,\"description\":\"Instead of "
		"old_string/new_string\",\"items\":{\"type\":\"object\",\"additionalProperties\":false,"
		"\"required\":[\"old_string\",\"new_string\"],\"properties\":{"
		"\"old_string\":{\"type\":\"string\"},\"new_string\":{\"type\":\"string\"},"
		"\"replace_all\":{\"type\":\"boolean\"},"
		"\"occurrence\":{\"type\":\"integer\"}}}},"
		"\"expect_version\":{\"type\":\"string\",\"description\":\"Only if the file still has this version\"},"
		"\"dry_run\":{\"type\":\"boolean\",\"description\":\"Only show the diff\"},"
		"\"diff\":{\"type\":\"boolean\",\"default\":true,\"description\":\"Answer with the diff\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Name\"}}}",
	.flags = TOOL_PREFIXED | TOOL_DESTRUCTIVE | TOOL_SITS | TOOL_CHANGES,
	.run = run,
};
