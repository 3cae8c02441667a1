/* Why an edit found nothing: cheap causes first, each tried by changing both sides alike. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/files/edit.h"
#include "mcp/files/text.h"

/* Bytes after a change that keeps, for each byte, where it came from. */
struct folded {
	uint8_t *p;
	uint32_t *from;
	size_t n;
};

static void folded_release(struct folded *f)
{
	free(f->p);
	free(f->from);
}
#define cleanup_folded __attribute__((cleanup(folded_release)))

/* Room for @n bytes that may grow by @factor. */
static int folded_init(struct folded *f, size_t n, size_t factor)
{
	f->p = malloc(n * factor + 1);
	f->from = malloc((n * factor + 1) * sizeof(*f->from));
	f->n = 0;
	return f->p && f->from ? 0 : -ENOMEM;
}

static void put(struct folded *f, uint8_t c, size_t from)
{
	f->from[f->n] = (uint32_t)from;
	f->p[f->n++] = c;
}

static bool blank(uint8_t c)
{
	return c == ' ' || c == '\t';
}

/* ---- the changes ---- */

static int fold_eol(const uint8_t *p, size_t n, unsigned width, struct folded *f)
{
	int r = folded_init(f, n, 1);

	(void)width;
	for (size_t i = 0; r >= 0 && i < n; i++)
		if (p[i] != '\r' || i + 1 >= n || p[i + 1] != '\n')
			put(f, p[i], i);
	return r;
}

/* Tabs in indentation become @width blanks, so that the two spellings are one. */
static int fold_indent(const uint8_t *p, size_t n, unsigned width, struct folded *f)
{
	bool leading = true;
	int r = folded_init(f, n, width);

	for (size_t i = 0; r >= 0 && i < n; i++) {
		if (leading && p[i] == '\t')
			for (unsigned k = 0; k < width; k++)
				put(f, ' ', i);
		else
			put(f, p[i], i);
		leading = p[i] == '\n' || (leading && blank(p[i]));
	}
	return r;
}

static int fold_trailing(const uint8_t *p, size_t n, unsigned width, struct folded *f)
{
	int r = folded_init(f, n, 1);

	(void)width;
	for (size_t i = 0; r >= 0 && i < n; i++) {
		if (p[i] == '\n' || i + 1 == n) {
			if (p[i] != '\n')
				put(f, p[i], i);
			while (f->n && (blank(f->p[f->n - 1]) || f->p[f->n - 1] == '\r'))
				f->n--;
			if (p[i] == '\n')
				put(f, '\n', i);
		} else {
			put(f, p[i], i);
		}
	}
	return r;
}

struct lookalike {
	uint32_t from, to;
	const char *as;
};
static const struct lookalike lookalikes[] = {
	{0x00a0, 0x00a0, " "},	 {0x00ad, 0x00ad, ""},	  {0x0300, 0x036f, ""},
	{0x2000, 0x200a, " "},	 {0x200b, 0x200d, ""},	  {0x2010, 0x2015, "-"},
	{0x2018, 0x201b, "'"},	 {0x201c, 0x201f, "\""},  {0x2026, 0x2026, "..."},
	{0x202f, 0x202f, " "},	 {0x205f, 0x205f, " "},	  {0x2060, 0x2060, ""},
	{0x2212, 0x2212, "-"},	 {0x3000, 0x3000, " "},	  {0xfeff, 0xfeff, ""},
	{0x2192, 0x2192, "->"},	 {0x00d7, 0x00d7, "x"},	  {0x00ab, 0x00ab, "\""},
	{0x00bb, 0x00bb, "\""},
};
/* U+00C0 to U+017F without their accents, so that composed and decomposed spellings meet. */
static const char bare[] =
	"AAAAAA.CEEEEIIII.NOOOOO..UUUUY..aaaaaa.ceeeeiiii.nooooo..uuuuy.y"
	"AaAaAaCcCcCcCcDd..EeEeEeEeEeGgGgGgGgHh..IiIiIiIiI...JjKk.LlLlLl."
	"...NnNnNn...OoOoOo..RrRrRrSsSsSsSsTtTt..UuUuUuUuUuUuWwYyYZzZzZz.";

static uint32_t rune(const uint8_t *p, size_t len)
{
	if (len == 2)
		return (uint32_t)(p[0] & 31) << 6 | (p[1] & 63);
	if (len == 3)
		return (uint32_t)(p[0] & 15) << 12 | (uint32_t)(p[1] & 63) << 6 | (p[2] & 63);
	return 0x10000;
}

static const char *plain(uint32_t c, char room[static 2])
{
	if (c >= 0xc0 && c < 0xc0 + sizeof(bare) - 1 && bare[c - 0xc0] != '.') {
		room[0] = bare[c - 0xc0];
		room[1] = 0;
		return room;
	}
	for (size_t i = 0; i < ARRAY_SIZE(lookalikes); i++)
		if (c >= lookalikes[i].from && c <= lookalikes[i].to)
			return lookalikes[i].as;
	return NULL;
}

static int fold_look(const uint8_t *p, size_t n, unsigned width, struct folded *f)
{
	int r = folded_init(f, n, 2);

	(void)width;
	for (size_t i = 0; r >= 0 && i < n;) {
		size_t len = text_utf8_len(p + i, n - i);
		char room[2];
		const char *as = len > 1 ? plain(rune(p + i, len), room) : NULL;

		for (const char *s = as; s && *s; s++)
			put(f, (uint8_t)*s, i);
		for (size_t k = 0; !as && k < (len ? len : 1); k++)
			put(f, p[i + k], i + k);
		i += len ? len : 1;
	}
	return r;
}

typedef int (*fold_fn)(const uint8_t *p, size_t n, unsigned width, struct folded *f);

/* Whether the sides meet after @fold: 1 and the range in the file, 0, or negative errno. */
static int meets(fold_fn fold, unsigned width, const uint8_t *p, size_t n, const char *old,
		 size_t len, size_t *ret_at, size_t *ret_end)
{
	cleanup_folded struct folded a = {0}, b = {0};
	const uint8_t *hit;
	int r = fold(p, n, width, &a);

	if (r >= 0)
		r = fold((const uint8_t *)old, len, width, &b);
	if (r < 0)
		return r;
	if (!b.n || !(hit = memmem(a.p, a.n, b.p, b.n)))
		return 0;

	size_t at = (size_t)(hit - a.p);

	*ret_at = a.from[at];
	*ret_end = at + b.n < a.n ? a.from[at + b.n] : n;
	return 1;
}

/* ---- showing ---- */

static int put_visible(struct buf *b, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n && i < 200; i++) {
		size_t len = text_utf8_len(p + i, n - i);
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

struct span {
	const uint8_t *p;
	size_t n;
};

static struct span line_from(const uint8_t *p, size_t n, size_t off)
{
	const uint8_t *nl = memchr(p + off, '\n', n - off);

	return (struct span){p + off, nl ? (size_t)(nl - (p + off)) : n - off};
}

static size_t line_start(const uint8_t *p, size_t off)
{
	const uint8_t *nl = off ? memrchr(p, '\n', off) : NULL;

	return nl ? (size_t)(nl - p) + 1 : 0;
}

/* The first pair of lines that differs between old text and the file from @at on. */
static int put_first_difference(struct buf *b, const uint8_t *p, size_t n, size_t at,
				const char *old, size_t len)
{
	const uint8_t *o = (const uint8_t *)old;
	size_t i = 0, j = at;
	int r;

	while (i < len && j < n) {
		struct span want = line_from(o, len, i), have = line_from(p, n, j);
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
				     : buf_puts(b, "\n(- old_string, + file; · blank, → tab, ␍ CR)");
		}
		i += want.n + 1;
		j += have.n + 1;
	}
	return 0;
}

static unsigned long long line_no(const uint8_t *p, size_t n, size_t off)
{
	return (unsigned long long)text_line_at(p, n, off);
}

/* ---- causes, in order; each answers 1 when it is the one ---- */

/* Length of "12→", "  12\t", "L12: ", "12| " at the start of a line; 0: none. */
static size_t number_prefix(const uint8_t *p, size_t n)
{
	static const char *const seps[] = {"→", "\t", ": ", "| ", "|", "-", ":"};
	size_t i = 0, digits;

	while (i < n && blank(p[i]))
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
		struct span l = line_from(o, op->old_len, i);
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
	r = buf_puts(out, "old_string contains line-number prefixes from a read; remove them (N→ is not "
			  "part of the file)");
	return r < 0 ? r : 1;
}

static int cause_eol(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	size_t at, end;
	int r = meets(fold_eol, 1, p, n, op->old_text, op->old_len, &at, &end);

	if (r <= 0)
		return r;
	r = buf_printf(out, "the text is there at line %llu, but line endings are mixed in it: some lines "
			    "end with CRLF, others with LF. Write \\r\\n for those in old_string, or edit "
			    "line by line", line_no(p, n, at));
	if (r >= 0)
		r = put_first_difference(out, p, n, at, op->old_text, op->old_len);
	return r < 0 ? r : 1;
}

static int cause_indent(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	static const unsigned widths[] = {4, 8, 2};
	size_t at, end;

	for (size_t i = 0; i < ARRAY_SIZE(widths); i++) {
		int r = meets(fold_indent, widths[i], p, n, op->old_text, op->old_len, &at, &end);

		if (r < 0)
			return r;
		if (!r)
			continue;

		size_t from = line_start(p, at);
		bool tabs = memchr(p + from, '\t', end - from) != NULL;

		r = buf_printf(out, "the text at line %llu matches but for its indentation: the file "
				    "indents with %s there, old_string with %s", line_no(p, n, at),
			       tabs ? "tabs" : "blanks", tabs ? "blanks" : "tabs");
		if (r >= 0)
			r = put_first_difference(out, p, n, from, op->old_text, op->old_len);
		return r < 0 ? r : 1;
	}
	return 0;
}

static int cause_trailing(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	size_t at, end;
	int r = meets(fold_trailing, 1, p, n, op->old_text, op->old_len, &at, &end);

	if (r <= 0)
		return r;
	r = buf_printf(out, "the text at line %llu matches but for blanks at the end of a line",
		       line_no(p, n, at));
	if (r >= 0)
		r = put_first_difference(out, p, n, at, op->old_text, op->old_len);
	return r < 0 ? r : 1;
}

/* "U+2019 for '" for the first few characters that stand on one side only. */
static int put_code_points(struct buf *out, const uint8_t *p, size_t n, const char *where)
{
	unsigned shown = 0;

	for (size_t i = 0; i < n && shown < 4;) {
		size_t len = text_utf8_len(p + i, n - i);
		char room[2];

		if (len > 1 && plain(rune(p + i, len), room)) {
			int r = buf_printf(out, "%s U+%04X (%.*s)", shown ? "," : where,
					   rune(p + i, len), (int)len, (const char *)p + i);

			if (r < 0)
				return r;
			shown++;
		}
		i += len ? len : 1;
	}
	return 0;
}

static int cause_lookalike(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	size_t at, end;
	int r = meets(fold_look, 1, p, n, op->old_text, op->old_len, &at, &end);

	if (r <= 0)
		return r;
	r = buf_printf(out, "the text at line %llu looks the same but has other characters", line_no(p, n, at));
	if (r >= 0)
		r = put_code_points(out, p + at, end - at, "; in the file:");
	if (r >= 0)
		r = put_code_points(out, (const uint8_t *)op->old_text, op->old_len, "; in old_string:");
	if (r >= 0)
		r = put_first_difference(out, p, n, at, op->old_text, op->old_len);
	return r < 0 ? r : 1;
}

static size_t indent_of(struct span l)
{
	size_t i = 0;

	while (i < l.n && blank(l.p[i]))
		i++;
	return i;
}

static bool same_trimmed(struct span a, struct span b)
{
	size_t ia = indent_of(a), ib = indent_of(b);

	while (a.n > ia && (blank(a.p[a.n - 1]) || a.p[a.n - 1] == '\r'))
		a.n--;
	while (b.n > ib && (blank(b.p[b.n - 1]) || b.p[b.n - 1] == '\r'))
		b.n--;
	return a.n - ia == b.n - ib && !memcmp(a.p + ia, b.p + ib, a.n - ia);
}

static bool empty_line(struct span l)
{
	size_t i = indent_of(l);

	return i == l.n || (i + 1 == l.n && l.p[i] == '\r');
}

/* All lines of @old from file offset @at on are the same but for indentation, and every indentation is
 * off by the same. */
static bool shifted_at(const uint8_t *p, size_t n, size_t at, const uint8_t *o, size_t len, long *ret)
{
	bool have = false;
	size_t i = 0, j = at;

	while (i < len) {
		if (j > n || (j == n && i < len))
			return false;
		struct span a = line_from(o, len, i), b = line_from(p, n, j);

		if (!same_trimmed(a, b))
			return false;
		if (!empty_line(a)) {
			long d = (long)indent_of(b) - (long)indent_of(a);

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
		struct span l = line_from(p, n, at);

		if (shifted_at(p, n, at, o, op->old_len, &shift) && shift) {
			int r = buf_printf(out, "the text at line %llu matches with every line indented by "
						"%ld %s; add that to old_string and new_string",
					   line_no(p, n, at), shift < 0 ? -shift : shift,
					   shift < 0 ? "less" : "more");

			if (r >= 0)
				r = put_first_difference(out, p, n, at, op->old_text, op->old_len);
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
	{"\\n", "\n"},	{"\\t", "\t"}, {"\\\"", "\""}, {"\\'", "'"},	{"\\\\", "\\"},
	{"&lt;", "<"},	{"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"},
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

			if (i + len <= op->old_len && !memcmp(op->old_text + i, escapes[k].from, len))
				e = &escapes[k];
		}
		r = e ? buf_puts(&b, e->to) : buf_put(&b, op->old_text + i, 1);
		i += e ? strlen(e->from) : 1;
		first = first ? first : e;
	}
	if (r < 0 || !first || !b.len || !memmem(p, n, b.data, b.len))
		return r < 0 ? r : 0;
	r = buf_printf(out, "old_string is escaped once too often: it contains a literal %s where the "
			    "file has the character itself", first->from);
	return r < 0 ? r : 1;
}

static int cause_applied(const uint8_t *p, size_t n, const struct edit_op *op, struct buf *out)
{
	const uint8_t *hit = op->new_len ? memmem(p, n, op->new_text, op->new_len) : NULL;
	int r;

	if (!hit || memmem(hit + 1, n - (size_t)(hit + 1 - p), op->new_text, op->new_len))
		return 0;
	r = buf_printf(out, "already applied? new_string is in the file, at line %llu, and old_string is not",
		       line_no(p, n, (size_t)(hit - p)));
	return r < 0 ? r : 1;
}

/* ---- the closest text ---- */

enum { CLOSE_LINES = 64, CLOSE_GRAMS = 256 };

/* How alike two lines are, 0 to 100, by the pairs of bytes they share. */
static unsigned alike(struct span a, struct span b)
{
	uint8_t count[CLOSE_GRAMS] = {0};
	unsigned shared = 0;
	size_t ia = indent_of(a), ib = indent_of(b), an, bn;

	an = a.n - ia > 200 ? 200 : a.n - ia;
	bn = b.n - ib > 200 ? 200 : b.n - ib;
	if (an < 2 || bn < 2)
		return an == bn && same_trimmed(a, b) ? 100 : 0;
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
		struct span l = line_from(p, n, at);
		unsigned score = same_trimmed(want, l) ? 101 : 0;

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
		at = line_start(p, at - 1);
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
		a[na] = line_from(o, len, i);
		i += a[na].n + 1;
	}
	for (; end < n && nb < na; nb++) {
		b[nb] = line_from(p, n, end);
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

static int cause_closest(const uint8_t *p, size_t n, const struct edit_op *op, unsigned budget_ms,
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
		struct span l = line_from(o, op->old_len, i);

		if (l.n - indent_of(l) > anchor.n - indent_of(anchor) && row < CLOSE_LINES) {
			anchor = l;
			anchor_row = row;
		}
		i += l.n + 1;
	}
	best = best_line(p, n, anchor, until);
	if (best.score < 40)
		return buf_puts(out, "old_string is not in the file, and nothing in it is alike; read the "
				     "file again");
	at = back_lines(p, best.at, anchor_row);
	percent = likeness(p, n, at, o, op->old_len, &end);
	r = buf_printf(out, "old_string is not in the file; closest is lines %llu-%llu, %u %% alike",
		       line_no(p, n, at), line_no(p, n, end > at ? end - 1 : at), percent);
	return r < 0 ? r : put_first_difference(out, p, n, at, op->old_text, op->old_len);
}

int edit_diagnose(const uint8_t *p, size_t n, const struct edit_op *op, unsigned budget_ms,
		  struct buf *out)
{
	static int (*const causes[])(const uint8_t *, size_t, const struct edit_op *, struct buf *) = {
		cause_numbers, cause_eol,   cause_indent,  cause_trailing,
		cause_lookalike, cause_shift, cause_escapes, cause_applied,
	};
	long long until = io_now_ms() + budget_ms;

	for (size_t i = 0; i < ARRAY_SIZE(causes) && n <= 8u << 20; i++) {
		int r = io_now_ms() > until ? 0 : causes[i](p, n, op, out);

		if (r)
			return r < 0 ? r : 0;
	}
	return cause_closest(p, n, op, budget_ms, out);
}
