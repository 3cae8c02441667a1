/* Lines of both sides of an edit, and how they are shown. */
#include "base/utf8.h"
#include "mcp/files/edit_internal.h"
#include "mcp/files/text.h"

struct span edit_line_from(const uint8_t *p, size_t n, size_t off)
{
	const uint8_t *nl = memchr(p + off, '\n', n - off);

	return (struct span){p + off, nl ? (size_t)(nl - (p + off)) : n - off};
}

size_t edit_line_start(const uint8_t *p, size_t off)
{
	const uint8_t *nl = off ? memrchr(p, '\n', off) : NULL;

	return nl ? (size_t)(nl - p) + 1 : 0;
}

size_t edit_indent_of(struct span l)
{
	size_t i = 0;

	while (i < l.n && edit_blank(l.p[i]))
		i++;
	return i;
}

bool edit_same_trimmed(struct span a, struct span b)
{
	size_t ia = edit_indent_of(a), ib = edit_indent_of(b);

	while (a.n > ia && (edit_blank(a.p[a.n - 1]) || a.p[a.n - 1] == '\r'))
		a.n--;
	while (b.n > ib && (edit_blank(b.p[b.n - 1]) || b.p[b.n - 1] == '\r'))
		b.n--;
	return a.n - ia == b.n - ib && !memcmp(a.p + ia, b.p + ib, a.n - ia);
}

unsigned long long edit_line_no(const uint8_t *p, size_t n, size_t off)
{
	return (unsigned long long)text_line_at(p, n, off);
}

static int put_visible(struct buf *b, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n && i < 200; i++) {
		size_t len = utf8_len(p + i, n - i);
		int r;

		if (p[i] == ' ')
			r = buf_puts(b, "·");
		else if (p[i] == '\t')
			r = buf_puts(b, "→");
		else if (p[i] == '\r')
			r = buf_puts(b, "␍");
		else
			r = text_put_escaped(b, p + i, len ? len : 1);
		if (r < 0)
			return r;
		i += len ? len - 1 : 0;
	}
	return n > 200 ? buf_puts(b, "…") : 0;
}

int edit_put_first_difference(struct buf *b, const uint8_t *p, size_t n, size_t at, const char *old,
			      size_t len)
{
	const uint8_t *o = (const uint8_t *)old;
	size_t i = 0, j = at;
	int r;

	while (i < len && j < n) {
		struct span want = edit_line_from(o, len, i), have = edit_line_from(p, n, j);
		bool last = i + want.n >= len;

		if (last && have.n > want.n && !memcmp(have.p, want.p, want.n))
			return 0;
		if (want.n != have.n || memcmp(want.p, have.p, want.n)) {
			r = buf_printf(b, "\nfirst difference, at line %llu:\n- ",
				       (unsigned long long)text_line_at(p, n, j));
			if (r >= 0)
				r = put_visible(b, want.p, want.n);
			if (r >= 0)
				r = buf_puts(b, "\n+ ");
			if (r >= 0)
				r = put_visible(b, have.p, have.n);
			return r < 0 ? r
				     : buf_puts(b,
						"\n(- old_string, + file; · blank, → tab, ␍ CR)");
		}
		i += want.n + 1;
		j += have.n + 1;
	}
	return 0;
}
