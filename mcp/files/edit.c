#include "mcp/files/edit.h"

#include <string.h>

#include "base/cleanup.h"
#include "mcp/files/text.h"

static bool has(const char *s, size_t n, const char *what)
{
	return memmem(s, n, what, strlen(what)) != NULL;
}

/* Every "\n" with the ending @crlf says; "\r\n" counts as one ending. */
static int with_eol(const char *s, size_t n, bool crlf, struct buf *out)
{
	int r = buf_reserve(out, n);

	for (size_t i = 0; r >= 0 && i < n; i++) {
		if (s[i] == '\r' && i + 1 < n && s[i + 1] == '\n')
			continue;
		r = s[i] == '\n' && crlf ? buf_puts(out, "\r\n") : buf_put(out, s + i, 1);
	}
	return r;
}

static void find(const uint8_t *p, size_t n, const char *old, size_t len, bool overlap,
		 struct edit_report *rep)
{
	const uint8_t *q = p, *end = p + n;

	rep->found = 0;
	while ((q = memmem(q, (size_t)(end - q), old, len))) {
		if (rep->found < EDIT_SHOWN)
			rep->at[rep->found] = (size_t)(q - p);
		rep->found++;
		q += overlap ? 1 : len;
	}
}

/* Whether the line around @off ends with "\r\n"; of the last line, whether the one before does. */
static bool crlf_at(const uint8_t *p, size_t n, size_t off)
{
	const uint8_t *nl = off < n ? memchr(p + off, '\n', n - off) : NULL;

	if (!nl)
		nl = memrchr(p, '\n', off);
	return nl && nl > p && nl[-1] == '\r';
}

struct splice {
	const uint8_t *p;
	size_t n;
	const char *old, *new_text;
	size_t old_len, new_len;
	bool eol_free; /* the new text's newlines follow the line where it goes */
};

static int put_new(const struct splice *s, size_t off, struct buf *out)
{
	if (s->eol_free && crlf_at(s->p, s->n, off + s->old_len))
		return with_eol(s->new_text, s->new_len, true, out);
	return buf_put(out, s->new_text, s->new_len);
}

static int splice(const struct splice *s, const struct edit_op *op, struct edit_report *rep,
		  struct buf *out)
{
	const uint8_t *q = s->p, *end = s->p + s->n, *copied = s->p;
	bool each = op->all;
	uint64_t k = 0;
	int r = 0;

	rep->replaced = 0;
	while (r >= 0 && (q = memmem(q, (size_t)(end - q), s->old, s->old_len))) {
		k++;
		if (!each && op->occurrence && k != op->occurrence) {
			q++;
			continue;
		}
		if (!rep->replaced++)
			rep->first_line = text_line_at(s->p, s->n, (size_t)(q - s->p));
		r = buf_put(out, copied, (size_t)(q - copied));
		if (r >= 0)
			r = put_new(s, (size_t)(q - s->p), out);
		q += s->old_len;
		copied = q;
		if (!each)
			break;
	}
	return r < 0 ? r : buf_put(out, copied, (size_t)(end - copied));
}

int edit_apply(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out,
	       struct edit_report *rep)
{
	cleanup_buf struct buf old = {0}, new_text = {0};
	struct splice s = {p, n, op->old_text, op->new_text, op->old_len, op->new_len, false};

	*rep = (struct edit_report){0};
	if (!op->old_len)
		return -EINVAL;
	find(p, n, s.old, s.old_len, !op->all, rep);
	if (!rep->found && has(op->old_text, op->old_len, "\n")) {
		bool crlf = !has(op->old_text, op->old_len, "\r\n");
		int r = with_eol(op->old_text, op->old_len, crlf, &old);

		if (r >= 0)
			r = with_eol(op->new_text, op->new_len, crlf, &new_text);
		if (r < 0)
			return r;
		s = (struct splice){p,
				    n,
				    (char *)old.data,
				    new_text.len ? (char *)new_text.data : "",
				    old.len,
				    new_text.len,
				    false};
		find(p, n, s.old, s.old_len, !op->all, rep);
		rep->adapted = rep->found > 0;
	} else {
		/* one line became several: they end as their neighbours do */
		s.eol_free = !has(op->old_text, op->old_len, "\n") &&
			     has(op->new_text, op->new_len, "\n") &&
			     !has(op->new_text, op->new_len, "\r\n");
	}
	if (!rep->found)
		return -ENOENT;
	if (op->occurrence > rep->found)
		return -ERANGE;
	if (rep->found > 1 && !op->all && !op->occurrence)
		return -EEXIST;
	return splice(&s, op, rep, out);
}
