#include "mcp/files/readwin.h"

#include <string.h>

#include "mcp/files/text.h"

static size_t line_max(const struct readwin *w)
{
	size_t most = w->column ? w->max_bytes : READWIN_LINE_MAX;

	return most < w->max_bytes ? most : w->max_bytes;
}

/* Whether the line that begins now is shown; closes the window when it is past it. */
static bool begin_line(struct readwin *w, size_t len, const struct buf *out)
{
	size_t most = line_max(w);
	size_t cost = (len < most ? len : most) + (w->numbers ? 8 : 1);

	if (w->full || w->line < w->first)
		return false;
	if (w->line - w->first >= w->limit) {
		w->full = true;
		return false;
	}
	if (w->last && out->len - w->start + cost > w->max_bytes) {
		w->full = true;
		w->cut = true;
		return false;
	}
	return true;
}

/* The part of @p (a piece of the current line) that lies between column and the line's limit. */
static int show_piece(struct readwin *w, const uint8_t *p, size_t n, struct buf *out)
{
	uint64_t skip = w->column ? w->column - 1 : 0;
	size_t room = line_max(w) - w->shown, take;
	uint64_t at = w->seen;

	w->seen += n;
	if (at < skip) {
		uint64_t drop = skip - at < n ? skip - at : n;

		p += drop;
		n -= drop;
	}
	take = text_cut(p, n, room);
	w->shown += take;
	return text_put_escaped(out, p, take);
}

static int end_line(struct readwin *w, struct buf *out)
{
	uint64_t skip = w->column ? w->column - 1 : 0;
	uint64_t done = skip + w->shown;

	w->last = w->line;
	if (w->seen > done) {
		int r = buf_printf(out, "…[+%llu bytes; column=%llu continues]",
				   (unsigned long long)(w->seen - done),
				   (unsigned long long)(done + 1));

		if (r < 0)
			return r;
	}
	return buf_puts(out, "\n");
}

static int show(struct readwin *w, const uint8_t *p, size_t n, bool ended, struct buf *out)
{
	int r = 0;

	if (!w->mid) {
		w->shown = 0;
		w->seen = 0;
		if (w->numbers)
			r = buf_printf(out, "%llu→", (unsigned long long)w->line);
	}
	if (r >= 0 && ended && w->numbers && n && p[n - 1] == '\r')
		n--;
	if (r >= 0)
		r = show_piece(w, p, n, out);
	if (r >= 0 && ended)
		r = end_line(w, out);
	return r;
}

int readwin_feed(struct readwin *w, const uint8_t *p, size_t n, bool eof, struct buf *out)
{
	const uint8_t *end = p + n;
	bool showing = w->mid && w->line >= w->first && !w->full;

	if (!w->line && !w->mid)
		w->start = out->len;
	while (p < end || (eof && w->mid)) {
		const uint8_t *nl = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
		size_t len = (size_t)((nl ? nl : end) - p);
		bool ended = nl || eof;
		int r = 0;

		if (!w->mid) {
			w->line++;
			showing = begin_line(w, len, out);
		}
		if (showing)
			r = show(w, p, len, ended, out);
		if (r < 0)
			return r;
		w->mid = !ended;
		w->no_newline = !nl;
		p += len + (nl ? 1 : 0);
	}
	return 0;
}
