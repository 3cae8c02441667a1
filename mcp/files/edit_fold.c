/* Changes after which a text that was not found may be. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/utf8.h"
#include "mcp/files/edit_internal.h"
#include "mcp/files/text.h"

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

/* ---- the changes ---- */

int edit_fold_eol(const uint8_t *p, size_t n, unsigned width, struct folded *f)
{
	int r = folded_init(f, n, 1);

	(void)width;
	for (size_t i = 0; r >= 0 && i < n; i++)
		if (p[i] != '\r' || i + 1 >= n || p[i + 1] != '\n')
			put(f, p[i], i);
	return r;
}

int edit_fold_indent(const uint8_t *p, size_t n, unsigned width, struct folded *f)
{
	bool leading = true;
	int r = folded_init(f, n, width);

	for (size_t i = 0; r >= 0 && i < n; i++) {
		if (leading && p[i] == '\t')
			for (unsigned k = 0; k < width; k++)
				put(f, ' ', i);
		else
			put(f, p[i], i);
		leading = p[i] == '\n' || (leading && edit_blank(p[i]));
	}
	return r;
}

int edit_fold_trailing(const uint8_t *p, size_t n, unsigned width, struct folded *f)
{
	int r = folded_init(f, n, 1);

	(void)width;
	for (size_t i = 0; r >= 0 && i < n; i++) {
		if (p[i] == '\n' || i + 1 == n) {
			if (p[i] != '\n')
				put(f, p[i], i);
			while (f->n && (edit_blank(f->p[f->n - 1]) || f->p[f->n - 1] == '\r'))
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
	{0x00a0, 0x00a0, " "},  {0x00ad, 0x00ad, ""},   {0x0300, 0x036f, ""},
	{0x2000, 0x200a, " "},  {0x200b, 0x200d, ""},   {0x2010, 0x2015, "-"},
	{0x2018, 0x201b, "'"},  {0x201c, 0x201f, "\""}, {0x2026, 0x2026, "..."},
	{0x202f, 0x202f, " "},  {0x205f, 0x205f, " "},  {0x2060, 0x2060, ""},
	{0x2212, 0x2212, "-"},  {0x3000, 0x3000, " "},  {0xfeff, 0xfeff, ""},
	{0x2192, 0x2192, "->"}, {0x00d7, 0x00d7, "x"},  {0x00ab, 0x00ab, "\""},
	{0x00bb, 0x00bb, "\""},
};
/* U+00C0 to U+017F without their accents, so that composed and decomposed spellings meet. */
static const char bare[] = "AAAAAA.CEEEEIIII.NOOOOO..UUUUY..aaaaaa.ceeeeiiii.nooooo..uuuuy.y"
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

int edit_fold_look(const uint8_t *p, size_t n, unsigned width, struct folded *f)
{
	int r = folded_init(f, n, 2);

	(void)width;
	for (size_t i = 0; r >= 0 && i < n;) {
		size_t len = utf8_len(p + i, n - i);
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

int edit_meets(edit_fold fold, unsigned width, const uint8_t *p, size_t n, const char *old,
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

int edit_put_code_points(struct buf *out, const uint8_t *p, size_t n, const char *where)
{
	unsigned shown = 0;

	for (size_t i = 0; i < n && shown < 4;) {
		size_t len = utf8_len(p + i, n - i);
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
