/* shell_list: the commands that can be run, with the package that each comes from. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/files/commands.h"
#include "mcp/files/files.h"
#include "mcp/files/text.h"
#include "mcp/session.h"

enum {
	ANSWER_MOST = 24 << 10
};

struct page {
	struct buf lines;
	const char *pattern; /* NULL: all */
	bool wild;
	int64_t offset, limit, all, found, shown;
};

static bool fits(const struct page *p, const char *name)
{
	if (!p->pattern)
		return true;
	return p->wild ? !fnmatch(p->pattern, name, 0) : strstr(name, p->pattern) != NULL;
}

static int on_command(void *arg, const char *name, const char *package)
{
	struct page *p = arg;
	int r;

	p->all++;
	if (!fits(p, name) || p->found++ < p->offset || p->shown >= p->limit ||
	    p->lines.len > ANSWER_MOST)
		return 0;
	p->shown++;
	r = text_put_name(&p->lines, name, strlen(name));
	if (r >= 0 && package)
		r = buf_puts(&p->lines, "  ");
	if (r >= 0 && package)
		r = text_put_name(&p->lines, package, strlen(package));
	return r < 0 ? r : buf_puts(&p->lines, "\n");
}

static int put_page(struct files_call *fc, const struct page *p)
{
	struct buf *b = &fc->out->text;
	int r = buf_printf(b, "%lld commands", (long long)p->all);

	if (r >= 0 && p->pattern) {
		r = buf_printf(b, ", %lld with ", (long long)p->found);
		if (r >= 0)
			r = text_put_name(b, p->pattern, strlen(p->pattern));
	}
	if (r >= 0)
		r = buf_puts(b, "\n");
	if (r >= 0 && p->lines.len)
		r = buf_put(b, p->lines.data, p->lines.len);
	if (r >= 0 && p->offset + p->shown < p->found)
		r = buf_printf(b, "[%lld more: offset=%lld, or narrow it with pattern]\n",
			       (long long)(p->found - p->offset - p->shown),
			       (long long)(p->offset + p->shown));
	files_meta_num(fc, "commands", (uint64_t)p->all);
	files_meta_num(fc, "matches", (uint64_t)p->found);
	files_meta_num(fc, "shown", (uint64_t)p->shown);
	return r;
}

static int body(struct files_call *fc)
{
	struct page p = {.limit = 300};
	int r = arg_str(fc->args, ARG("pattern", "query", "filter"), fc->out, &p.pattern);

	if (r >= 0)
		r = arg_int(fc->args, ARG("offset"), 0, 1 << 20, fc->out, &p.offset);
	if (r >= 0)
		r = arg_int(fc->args, ARG("limit"), 1, 5000, fc->out, &p.limit);
	if (r < 0)
		return 0;
	if (p.pattern && !*p.pattern)
		p.pattern = NULL;
	p.wild = p.pattern && strpbrk(p.pattern, "*?[");
	r = commands_each(session_commands(tool_session(fc->call)), fc, on_command, &p);
	if (r >= 0)
		r = put_page(fc, &p);
	buf_release(&p.lines);
	return r;
}

static int run(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	return files_run(call, args, out, body);
}

const struct mcp_tool tool_shell_list = {
	.name = "shell_list",
	.title = "List commands",
	.description =
		"What can be run here: the commands on PATH, with the package each comes from where that is "
		"known.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
		"\"pattern\":{\"type\":\"string\",\"description\":\"Part of a name, or a glob such as gcc*\"},"
		"\"limit\":{\"type\":\"integer\",\"maximum\":5000,\"default\":300,\"description\":\"Most commands\"},"
		"\"offset\":{\"type\":\"integer\",\"description\":\"Commands to skip\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Name\"}}}",
	.flags = TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_SITS,
	.run = run,
};
