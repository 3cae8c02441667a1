/* The text in a file that is most like one that is not in it. */
#include "base/io.h"
#include "mcp/files/edit_internal.h"

enum {
	CLOSE_LINES = 64,
	CLOSE_GRAMS = 256
};

/* How alike two lines are, 0 to 100, by the pairs of bytes they share. */
static unsigned alike(struct span a, struct span b)
{
	uint8_t count[CLOSE_GRAMS] = {0};
	unsigned shared = 0;
	size_t ia = edit_indent_of(a), ib = edit_indent_of(b), an, bn;

	an = a.n - ia > 200 ? 200 : a.n - ia;
	bn = b.n - ib > 200 ? 200 : b.n - ib;
	if (an < 2 || bn < 2)
		return an == bn && edit_same_trimmed(a, b) ? 100 : 0;
	for (size_t i = 0; i + 1 < an; i++)
		count[(uint8_t)(a.p[ia + i] * 31 + a.p[ia + i + 1])]++;
	for (size_t i = 0; i + 1 < bn; i++) {
		uint8_t *c = &count[(uint8_t)(b.p[ib + i] * 31 + b.p[ib + i + 1])];

		if (*c) {
			(*c)--;
			shared++;
		}
	}
	return (unsigned)(200 * shared / (an + bn - 2));
}

struct closest {
	size_t at;
	unsigned score;
};

/* The file line most like @want. Lines equal but for blanks win at once. */
static struct closest best_line(const uint8_t *p, size_t n, struct span want, long long until)
{
	struct closest best = {0, 0};
	unsigned i = 0;

	for (size_t at = 0; at < n;) {
		struct span l = edit_line_from(p, n, at);
		unsigned score = edit_same_trimmed(want, l) ? 101 : 0;

		if (!score && l.n < 4 * want.n + 40 && 4 * l.n + 40 > want.n)
			score = alike(want, l);
		if (score > best.score)
			best = (struct closest){at, score};
		if (score > 100 || (++i % 1024 == 0 && io_now_ms() > until))
			break;
		at += l.n + 1;
	}
	return best;
}

/* Up by @lines lines from offset @at. */
static size_t back_lines(const uint8_t *p, size_t at, size_t lines)
{
	while (lines-- && at)
		at = edit_line_start(p, at - 1);
	return at;
}

/* Longest common subsequence of old's lines and as many of the file's, in percent. */
static unsigned likeness(const uint8_t *p, size_t n, size_t at, const uint8_t *o, size_t len,
			 size_t *ret_end)
{
	struct span a[CLOSE_LINES], b[CLOSE_LINES];
	unsigned row[CLOSE_LINES + 1] = {0};
	size_t na = 0, nb = 0, end = at;

	for (size_t i = 0; i < len && na < CLOSE_LINES; na++) {
		a[na] = edit_line_from(o, len, i);
		i += a[na].n + 1;
	}
	for (; end < n && nb < na; nb++) {
		b[nb] = edit_line_from(p, n, end);
		end += b[nb].n + 1;
	}
	for (size_t i = 0; i < na; i++) {
		unsigned diag = 0;

		for (size_t j = 0; j < nb; j++) {
			unsigned up = row[j + 1];
			unsigned hit = diag + alike(a[i], b[j]);

			row[j + 1] = hit > up ? hit : up;
			if (row[j] > row[j + 1])
				row[j + 1] = row[j];
			diag = up;
		}
	}
	*ret_end = end < n ? end : n;
	return na ? row[nb] / (unsigned)na : 0;
}

int edit_closest(const uint8_t *p, size_t n, const struct edit_op *op, unsigned budget_ms,
		 struct buf *out)
{
	const uint8_t *o = (const uint8_t *)op->old_text;
	long long until = io_now_ms() + budget_ms;
	struct span anchor = {o, 0};
	size_t anchor_row = 0, row = 0, at, end;
	struct closest best;
	unsigned percent;
	int r;

	for (size_t i = 0; i < op->old_len; row++) {
		struct span l = edit_line_from(o, op->old_len, i);

		if (l.n - edit_indent_of(l) > anchor.n - edit_indent_of(anchor) &&
		    row < CLOSE_LINES) {
			anchor = l;
			anchor_row = row;
		}
		i += l.n + 1;
	}
	best = best_line(p, n, anchor, until);
	if (best.score < 40)
		return buf_puts(
			out, "old_string is not in the file, and nothing in it is alike; read the "
			     "file again");
	at = back_lines(p, best.at, anchor_row);
	percent = likeness(p, n, at, o, op->old_len, &end);
	r = buf_printf(
		out, "old_string is not in the file; closest is lines %llu-%llu, %u %% alike",
		edit_line_no(p, n, at), edit_line_no(p, n, end > at ? end - 1 : at), percent);
	return r < 0 ? r : edit_put_first_difference(out, p, n, at, op->old_text, op->old_len);
}
