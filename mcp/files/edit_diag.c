/* Why an edit found nothing: cheap causes first, each tried by changing both sides alike. */
#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/files/edit_internal.h"

/* Length of "12→", "  12\t", "L12: ", "12| " at the start of a line; 0: none. */
static size_t number_prefix(const uint8_t *p, size_t n)
{
	static const char *const seps[] = {"→", "\t", ": ", "| ", "|", "-", ":"};
	size_t i = 0, digits;

	while (i < n && edit_blank(p[i]))
		i++;
	if (i < n && p[i] == 'L')
		i++;
	for (digits = 0; i < n && p[i] >= '0' && p[i] <= '9'; i++)
		digits++;
	for (size_t k = 0; digits && k < ARRAY_SIZE(seps); k++) {
		size_t len = strlen(seps[k]);

		if (i + len <= n && !memcmp(p + i, seps[k], len))
			return i + len;
	}
	return 0;
}

static int cause_numbers(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	const uint8_t *o = (const uint8_t *)op->old_text;
	cleanup_buf struct buf bare_text = {0};
	int r;

	for (size_t i = 0; i < op->old_len;) {
		struct span l = edit_line_from(o, op->old_len, i);
		size_t skip = number_prefix(l.p, l.n);

		if (!skip && l.n)
			return 0;
		r = buf_put(&bare_text, l.p + skip, l.n - skip);
		if (r >= 0 && i + l.n < op->old_len)
			r = buf_puts(&bare_text, "\n");
		if (r < 0)
			return r;
		i += l.n + 1;
	}
	if (!bare_text.len || !memmem(p, n, bare_text.data, bare_text.len)) {
		/* "3: x" may be text; "3→x" is only ever a prefix */
		if (!memmem(o, op->old_len, "→", strlen("→")))
			return 0;
	}
	r = buf_puts(out,
		     "old_string contains line-number prefixes from a read; remove them (N→ is not "
		     "part of the file)");
	return r < 0 ? r : 1;
}

static int cause_eol(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	size_t at, end;
	int r = edit_meets(edit_fold_eol, 1, p, n, op->old_text, op->old_len, &at, &end);

	if (r <= 0)
		return r;
	r = buf_printf(
		out,
		"the text is there at line %llu, but line endings are mixed in it: some lines "
		"end with CRLF, others with LF. Write \\r\\n for those in old_string, or edit "
		"line by line",
		edit_line_no(p, n, at));
	if (r >= 0)
		r = edit_put_first_difference(out, p, n, at, op->old_text, op->old_len);
	return r < 0 ? r : 1;
}

static int cause_indent(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	static const unsigned widths[] = {4, 8, 2};
	size_t at, end;

	for (size_t i = 0; i < ARRAY_SIZE(widths); i++) {
		int r = edit_meets(edit_fold_indent, widths[i], p, n, op->old_text, op->old_len,
				   &at, &end);

		if (r < 0)
			return r;
		if (!r)
			continue;

		size_t from = edit_line_start(p, at);
		bool tabs = memchr(p + from, '\t', end - from) != NULL;

		r = buf_printf(out,
			       "the text at line %llu matches but for its indentation: the file "
			       "indents with %s there, old_string with %s",
			       edit_line_no(p, n, at), tabs ? "tabs" : "blanks",
			       tabs ? "blanks" : "tabs");
		if (r >= 0)
			r = edit_put_first_difference(out, p, n, from, op->old_text, op->old_len);
		return r < 0 ? r : 1;
	}
	return 0;
}

static int cause_trailing(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	size_t at, end;
	int r = edit_meets(edit_fold_trailing, 1, p, n, op->old_text, op->old_len, &at, &end);

	if (r <= 0)
		return r;
	r = buf_printf(out, "the text at line %llu matches but for blanks at the end of a line",
		       edit_line_no(p, n, at));
	if (r >= 0)
		r = edit_put_first_difference(out, p, n, at, op->old_text, op->old_len);
	return r < 0 ? r : 1;
}

static int cause_lookalike(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	size_t at, end;
	int r = edit_meets(edit_fold_look, 1, p, n, op->old_text, op->old_len, &at, &end);

	if (r <= 0)
		return r;
	r = buf_printf(out, "the text at line %llu looks the same but has other characters",
		       edit_line_no(p, n, at));
	if (r >= 0)
		r = edit_put_code_points(out, p + at, end - at, "; in the file:");
	if (r >= 0)
		r = edit_put_code_points(out, (const uint8_t *)op->old_text, op->old_len,
					 "; in old_string:");
	if (r >= 0)
		r = edit_put_first_difference(out, p, n, at, op->old_text, op->old_len);
	return r < 0 ? r : 1;
}

static bool empty_line(struct span l)
{
	size_t i = edit_indent_of(l);

	return i == l.n || (i + 1 == l.n && l.p[i] == '\r');
}

/* All lines of @old from file offset @at on are the same but for indentation, and every indentation is
 * off by the same. */
static bool shifted_at(const uint8_t *p, size_t n, size_t at, const uint8_t *o, size_t len,
		       long *ret)
{
	bool have = false;
	size_t i = 0, j = at;

	while (i < len) {
		if (j > n || (j == n && i < len))
			return false;
		struct span a = edit_line_from(o, len, i), b = edit_line_from(p, n, j);

		if (!edit_same_trimmed(a, b))
			return false;
		if (!empty_line(a)) {
			long d = (long)edit_indent_of(b) - (long)edit_indent_of(a);

			if (have && d != *ret)
				return false;
			*ret = d;
			have = true;
		}
		i += a.n + 1;
		j += b.n + 1;
	}
	return have;
}

static int cause_shift(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	const uint8_t *o = (const uint8_t *)op->old_text;
	long shift = 0;

	for (size_t at = 0; at < n;) {
		struct span l = edit_line_from(p, n, at);

		if (shifted_at(p, n, at, o, op->old_len, &shift) && shift) {
			int r = buf_printf(
				out,
				"the text at line %llu matches with every line indented by "
				"%ld %s; add that to old_string and new_string",
				edit_line_no(p, n, at), shift < 0 ? -shift : shift,
				shift < 0 ? "less" : "more");

			if (r >= 0)
				r = edit_put_first_difference(out, p, n, at, op->old_text,
							      op->old_len);
			return r < 0 ? r : 1;
		}
		at += l.n + 1;
	}
	return 0;
}

struct escape {
	const char *from, *to;
};
static const struct escape escapes[] = {
	{"\\n", "\n"}, {"\\t", "\t"}, {"\\\"", "\""},   {"\\'", "'"},   {"\\\\", "\\"},
	{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"},
};

static int cause_escapes(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	cleanup_buf struct buf b = {0};
	const struct escape *first = NULL;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < op->old_len;) {
		const struct escape *e = NULL;

		for (size_t k = 0; !e && k < ARRAY_SIZE(escapes); k++) {
			size_t len = strlen(escapes[k].from);

			if (i + len <= op->old_len &&
			    !memcmp(op->old_text + i, escapes[k].from, len))
				e = &escapes[k];
		}
		r = e ? buf_puts(&b, e->to) : buf_put(&b, op->old_text + i, 1);
		i += e ? strlen(e->from) : 1;
		first = first ? first : e;
	}
	if (r < 0 || !first || !b.len || !memmem(p, n, b.data, b.len))
		return r < 0 ? r : 0;
	r = buf_printf(out,
		       "old_string is escaped once too often: it contains a literal %s where the "
		       "file has the character itself",
		       first->from);
	return r < 0 ? r : 1;
}

static int cause_applied(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	const uint8_t *hit = op->new_len ? memmem(p, n, op->new_text, op->new_len) : NULL;
	int r;

	if (!hit || memmem(hit + 1, n - (size_t)(hit + 1 - p), op->new_text, op->new_len))
		return 0;
	r = buf_printf(
		out,
		"already applied? new_string is in the file, at line %llu, and old_string is not",
		edit_line_no(p, n, (size_t)(hit - p)));
	return r < 0 ? r : 1;
}

int edit_diagnose(const uint8_t *p, size_t n, const struct edit_op *op, unsigned budget_ms,
		  struct buf *out)
{
	static int (*const causes[])(const uint8_t *, size_t, const struct edit_op *,
				     struct buf *) = {
		cause_numbers,   cause_eol,   cause_indent,  cause_trailing,
		cause_lookalike, cause_shift, cause_escapes, cause_applied,
	};
	long long until = io_now_ms() + budget_ms;

	for (size_t i = 0; i < ARRAY_SIZE(causes) && n <= 8u << 20; i++) {
		int r = io_now_ms() > until ? 0 : causes[i](p, n, op, out);

		if (r)
			return r < 0 ? r : 0;
	}
	return edit_closest(p, n, op, budget_ms, out);
}
