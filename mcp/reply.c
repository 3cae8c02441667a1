#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "mcp/json.h"
#include "mcp/server.h"

/* The client has closed its end: the reader ends the server. */
static void note_dead(struct server *s)
{
	uint64_t one = 1;

	(void)!write(s->wake_fd, &one, sizeof(one));
}

static void send_line(struct server *s, struct buf *line, bool post)
{
	int r = buf_put(line, "\n", 1);

	if (!r)
		r = post ? rpc_post(&s->out, line->data, line->len)
			 : rpc_write(&s->out, line->data, line->len);
	if (!r)
		return;
	if (r != -EPIPE)
		log_error("an answer could not be sent: %s", err_text(r));
	rpc_stop(&s->out);
	note_dead(s);
}

struct batch *batch_new(void)
{
	struct batch *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	(void)pthread_mutex_init(&b->lock, NULL);
	b->open = 1;
	return b;
}

/* What is collected, as a finished array for the caller to send after unlocking: the reader must
 * never wait for a lock that is held during a write. */
static struct buf batch_take_locked(struct batch *b)
{
	struct buf line = {0};

	if (b->line.len && !buf_puts(&b->line, "]")) {
		line = b->line;
		b->line = (struct buf){0};
	}
	return line;
}

static void send_taken(struct server *s, struct buf *line, bool post)
{
	if (line->len)
		send_line(s, line, post);
	buf_release(line);
}

/* @line: one answer, or NULL: the member needs none. An array that would be too long for one line
 * goes out in parts; what matters is that each request gets its answer. */
static void batch_add(struct server *s, struct batch *b, const struct buf *line, bool post)
{
	struct buf full = {0}, rest = {0};
	bool last;

	(void)pthread_mutex_lock(&b->lock);
	if (line && b->line.len + line->len + 3 > RPC_OUT_MAX)
		full = batch_take_locked(b);
	if (line && (buf_puts(&b->line, b->line.len ? "," : "[") ||
		     buf_put(&b->line, line->data, line->len)))
		log_error("an answer was lost: %s", err_text(-ENOMEM));
	last = --b->open == 0;
	if (last)
		rest = batch_take_locked(b);
	(void)pthread_mutex_unlock(&b->lock);
	send_taken(s, &full, post);
	send_taken(s, &rest, post);
	if (!last)
		return;
	(void)pthread_mutex_destroy(&b->lock);
	buf_release(&b->line);
	free(b);
}

void batch_done(struct server *s, struct batch *b)
{
	batch_add(s, b, NULL, true);
}

static void deliver(struct server *s, struct reply_to *to, struct buf *line)
{
	if (!to->batch) {
		send_line(s, line, to->post);
		return;
	}
	batch_add(s, to->batch, line, to->post);
	to->batch = NULL;
}

void reply_none(struct server *s, struct reply_to *to)
{
	if (!to->batch)
		return;
	batch_add(s, to->batch, NULL, to->post);
	to->batch = NULL;
}

void reply_to_release(struct reply_to *to)
{
	free(to->id);
	to->id = NULL;
}

static int open_line(struct buf *b, const struct reply_to *to)
{
	int r = buf_puts(b, "{\"jsonrpc\":\"2.0\"");

	if (!r && to->id)
		r = buf_printf(b, ",\"id\":%s", to->id);
	return r;
}

static int put_tail(struct server *s, struct buf *b, const struct reply_to *to, unsigned flags,
		    bool first, const struct buf *meta)
{
	const char *version = s->opts->version ? s->opts->version : RATTAN_VERSION;
	bool some = meta && meta->len;
	int r = 0;

	if (to->modern) {
		r = buf_printf(b, "%s\"resultType\":\"complete\"", first ? "" : ",");
		first = false;
		if (!r && (flags & REPLY_LIST))
			r = buf_puts(b, ",\"ttlMs\":0,\"cacheScope\":\"private\"");
	}
	if (!r && (to->modern || some))
		r = buf_printf(b, "%s\"_meta\":{", first ? "" : ",");
	if (!r && to->modern) {
		r = buf_puts(b, "\"" META_PREFIX "serverInfo\":{\"name\":\"rattan\",\"version\":");
		if (!r)
			r = json_put_cstr(b, version);
		if (!r)
			r = buf_printf(b, "}%s", some ? "," : "");
	}
	if (!r && some)
		r = buf_put(b, meta->data, meta->len);
	if (!r && (to->modern || some))
		r = buf_puts(b, "}");
	return r ? r : buf_puts(b, "}}");
}

void reply_result(struct server *s, struct reply_to *to, unsigned flags, const char *fields,
		  const struct buf *meta)
{
	cleanup_buf struct buf b = {0};
	int r = open_line(&b, to);

	if (!r)
		r = buf_puts(&b, ",\"result\":{");
	if (!r)
		r = buf_puts(&b, fields);
	if (!r)
		r = put_tail(s, &b, to, flags, !*fields, meta);
	if (r)
		reply_error(s, to, RPC_INTERNAL, "Internal error: out of memory", NULL);
	else
		deliver(s, to, &b);
}

void reply_error(struct server *s, struct reply_to *to, int code, const char *why, const char *data)
{
	cleanup_buf struct buf b = {0};
	int r = open_line(&b, to);

	if (!r)
		r = buf_printf(&b, ",\"error\":{\"code\":%d,\"message\":", code);
	if (!r)
		r = json_put_cstr(&b, why);
	if (!r && data)
		r = buf_printf(&b, ",\"data\":%s", data);
	if (!r)
		r = buf_puts(&b, "}}");
	if (!r) {
		deliver(s, to, &b);
		return;
	}
	log_error("an answer was lost: %s", err_text(r));
	reply_none(s, to);
}

void reply_notify(struct server *s, const char *method, const char *params, bool post)
{
	cleanup_buf struct buf b = {0};

	if (!buf_printf(&b, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\",\"params\":%s}", method,
			params))
		send_line(s, &b, post);
}

static int put_text(struct buf *b, const struct buf *text, size_t max)
{
	cleanup_buf struct buf note = {0};
	size_t used = 0;
	int r = json_put_str_max(b, text->data, text->len, max, &used);

	if (r || used == text->len)
		return r;
	/* Escaping has made it longer than a line may be: say so inside the text. */
	b->len--;
	return buf_printf(b, "\\n[cut here: %zu more bytes do not fit into one answer]\"",
			  text->len - used);
}

/* Members of the result; what is too big for a line is dropped from the least important on. */
static int put_tool(struct buf *b, const struct reply_to *to, const struct tool_result *res,
		    struct buf *meta)
{
	cleanup_buf struct buf st = {0};
	size_t room = RPC_OUT_MAX - 4096;
	int r = 0;

	if (res->meta) {
		r = buf_puts(meta, "\"" META_RESULT "\":");
		if (!r)
			r = json_put(meta, res->meta);
		if (meta->len > room / 4)
			buf_clear(meta);
	}
	/* Clients show structuredContent in the place of the text, and drop it on errors. */
	if (!r && res->structured && to->structured && !res->is_error)
		r = json_put(&st, res->structured);
	if (st.len > room / 2)
		buf_clear(&st);
	room -= meta->len + st.len;
	if (!r)
		r = buf_puts(b, "\"content\":[{\"type\":\"text\",\"text\":");
	if (!r)
		r = put_text(b, &res->text, room);
	if (!r)
		r = buf_puts(b, "}]");
	if (!r && st.len) {
		r = buf_puts(b, ",\"structuredContent\":");
		if (!r)
			r = buf_put(b, st.data, st.len);
	}
	if (!r && res->is_error)
		r = buf_puts(b, ",\"isError\":true");
	return r;
}

void reply_tool(struct server *s, struct reply_to *to, struct tool_result *res)
{
	cleanup_buf struct buf fields = {0};
	cleanup_buf struct buf meta = {0};

	if (put_tool(&fields, to, res, &meta))
		reply_error(s, to, RPC_INTERNAL, "Internal error: out of memory", NULL);
	else
		reply_result(s, to, 0, (const char *)fields.data, &meta);
}
