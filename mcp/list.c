#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "mcp/json.h"
#include "mcp/server.h"

static int wire_name(const struct server *s, const struct mcp_tool *t, char **ret)
{
	const char *prefix = s->opts->tool_prefix ? s->opts->tool_prefix : "rattan_";
	cleanup_buf struct buf b = {0};
	size_t len;
	int r;

	r = buf_printf(&b, "%s%s", t->flags & TOOL_PREFIXED ? prefix : "", t->name);
	return r ? r : buf_steal(&b, ret, &len);
}

static const char *yes(const struct mcp_tool *t, unsigned flag)
{
	return t->flags & flag ? "true" : "false";
}

static bool open_world(const struct server *s, const struct mcp_tool *t)
{
	/* With a profile of each call's own, one may come that opens a network. */
	bool network = s->opts->net_rules || s->opts->sandbox != MCP_SANDBOX_NONE;

	return t->flags & TOOL_OPEN_WORLD || (t->flags & TOOL_NETWORK && network);
}

static int put_entry(const struct server *s, struct buf *b, const struct tool_entry *e)
{
	const struct mcp_tool *t = e->tool;
	int r = buf_puts(b, "{\"name\":");

	if (!r)
		r = json_put_cstr(b, e->name);
	if (!r)
		r = buf_puts(b, ",\"title\":");
	if (!r)
		r = json_put_cstr(b, t->title);
	if (!r)
		r = buf_puts(b, ",\"description\":");
	if (!r)
		r = json_put_cstr(b, t->description);
	if (!r)
		r = buf_puts(b, ",\"inputSchema\":");
	if (!r)
		r = json_put(b, e->schema);
	/* All four, always: what is left out means "destructive, open world" to clients. */
	if (!r)
		r = buf_printf(b,
			       ",\"annotations\":{\"readOnlyHint\":%s,\"destructiveHint\":%s,"
			       "\"idempotentHint\":%s,\"openWorldHint\":%s}",
			       yes(t, TOOL_READ_ONLY), yes(t, TOOL_DESTRUCTIVE),
			       yes(t, TOOL_IDEMPOTENT), open_world(s, t) ? "true" : "false");
	/* Claude Code puts what is longer than its own limit into a file, unless a tool says how long it may be. */
	if (!r && t->flags & TOOL_LONG)
		r = buf_puts(b, ",\"_meta\":{\"anthropic/maxResultSizeChars\":300000}");
	return r ? r : buf_puts(b, "}");
}

static bool prefix_ok(const char *p)
{
	return !p ||
	       (strlen(p) <= 32 &&
		!p[strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")]);
}

/* Packages are root's work, which no profile speaks of. */
static bool manages(const struct server *s, const char *manager)
{
	return s->opts->sandbox == MCP_SANDBOX_NONE && s->opts->manager &&
	       !strcmp(s->opts->manager, manager);
}

/* Without commands there are no jobs to look at, and nobody asks pacman. */
static bool offered(const struct server *s, const struct mcp_tool *t)
{
	if ((t->flags & TOOL_APT && !manages(s, "apt")) ||
	    (t->flags & TOOL_PACMAN && !manages(s, "pacman")))
		return false;
	return !s->opts->read_only ||
	       (t->flags & TOOL_READ_ONLY && strncmp(t->name, "shell_", 6) != 0 &&
		strncmp(t->name, "pacman_", 7) != 0);
}

int server_load_tools(struct server *s)
{
	int r;

	if (!prefix_ok(s->opts->tool_prefix)) {
		log_error("the tool prefix may hold letters, digits, '_', '-' and '.', at most 32");
		return -EINVAL;
	}
	s->tools = calloc(mcp_tools_count, sizeof(*s->tools));
	if (!s->tools)
		return -ENOMEM;
	r = buf_puts(&s->tools_json, "[");
	for (size_t i = 0; !r && i < mcp_tools_count; i++) {
		struct tool_entry *e;

		if (!offered(s, mcp_tools[i]))
			continue;
		e = &s->tools[s->ntools++];
		e->tool = mcp_tools[i];
		r = wire_name(s, e->tool, &e->name);
		if (r)
			break;
		e->schema = cJSON_Parse(e->tool->input_schema);
		if (!e->schema) {
			log_error("the schema of tool %s is not JSON", e->name);
			return -EINVAL;
		}
		if (e != s->tools)
			r = buf_puts(&s->tools_json, ",");
		if (!r)
			r = put_entry(s, &s->tools_json, e);
	}
	return r ? r : buf_puts(&s->tools_json, "]");
}

void server_free_tools(struct server *s)
{
	for (size_t i = 0; i < s->ntools; i++) {
		free(s->tools[i].name);
		cJSON_Delete(s->tools[i].schema);
	}
	free(s->tools);
	s->tools = NULL;
	s->ntools = 0;
	buf_release(&s->tools_json);
}

const struct tool_entry *server_find_tool(const struct server *s, const char *name)
{
	for (size_t i = 0; i < s->ntools; i++)
		if (!strcmp(s->tools[i].name, name))
			return &s->tools[i];
	return NULL;
}
