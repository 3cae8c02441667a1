#include "mcp/files/udiff.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/files/text.h"

struct lines {
	const uint8_t *p;
	size_t n;
	size_t *at; /* offsets of count + 1 line starts */
	size_t count;
};

struct run { /* a[a0..a1) became b[b0..b1) */
	size_t a0, a1, b0, b1;
};
struct runs {
	struct run *v;
	size_t n, cap;
};

static int split(const uint8_t *p, size_t n, struct lines *ret)
{
	size_t count = (size_t)text_count_lines(p, n), i = 0;
	const uint8_t *q = p, *end = p + n;

	ret->at = malloc((count + 1) * sizeof(*ret->at));
	if (!ret->at)
		return -ENOMEM;
	ret->p = p;
	ret->n = n;
	ret->count = count;
	while (i < count) {
		const uint8_t *nl = memchr(q, '\n', (size_t)(end - q));

		ret->at[i++] = (size_t)(q - p);
		q = nl ? nl + 1 : end;
	}
	ret->at[count] = n;
	return 0;
}

static bool same(const struct lines *a, size_t i, const struct lines *b, size_t j)
{
	size_t n = a->at[i + 1] - a->at[i];

	return n == b->at[j + 1] - b->at[j] && !memcmp(a->p + a->at[i], b->p + b->at[j], n);
}

static int put_run(struct runs *rs, size_t a0, size_t a1, size_t b0, size_t b1)
{
	struct run *last = rs->n ? &rs->v[rs->n - 1] : NULL;

	if (last && last->a1 == a0 && last->b1 == b0) {
		last->a1 = a1;
		last->b1 = b1;
		return 0;
	}
	if (rs->n == rs->cap) {
		size_t cap = rs->cap ? rs->cap * 2 : 16;
		struct run *v = realloc(rs->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		rs->v = v;
		rs->cap = cap;
	}
	rs->v[rs->n++] = (struct run){a0, a1, b0, b1};
	return 0;
}

/* Myers' greedy search on the middle [a0,a1) x [b0,b1), remembering the furthest points of every
 * round: row d of @trace holds diagonals -d..d. */
struct myers {
	const struct lines *a, *b;
	long a0, b0, n, m;
	int *trace;
	long rounds; /* the answer's d */
};

static int *row(const struct myers *my, long d)
{
	return my->trace + d * d + d; /* rows 0..d-1 hold 1 + 3 + ... = d * d entries */
}

/* Where diagonal @k continues from round d - 1: the further of one step right (an "a" line removed) and
 * one down (a "b" line added), within the grid; -1 for neither. */
static long step(const struct myers *my, long d, long k, bool *ret_down)
{
	const int *prev = row(my, d - 1);
	long right = k > -d && k - 1 > -d && prev[k - 1] >= 0 ? prev[k - 1] + 1 : -1;
	long down = k < d && k + 1 < d ? prev[k + 1] : -1;

	if (right > my->n)
		right = -1;
	if (down >= 0 && down - k > my->m)
		down = -1;
	*ret_down = down >= right;
	return *ret_down ? down : right;
}

static bool search_round(struct myers *my, long d)
{
	int *cur = row(my, d);
	bool down;

	for (long k = -d; k <= d; k++)
		cur[k] = -1;
	for (long k = -d; k <= d; k += 2) {
		long x = d ? step(my, d, k, &down) : 0;

		if (x < 0)
			continue;
		while (x < my->n && x - k < my->m &&
		       same(my->a, (size_t)(my->a0 + x), my->b, (size_t)(my->b0 + x - k)))
			x++;
		cur[k] = (int)x;
		if (x == my->n && x - k == my->m)
			return true;
	}
	return false;
}

/* Walk back from the end; the steps come out in reverse. */
static int walk_back(const struct myers *my, struct runs *rs)
{
	cleanup_free struct run *steps = malloc((size_t)(my->rounds + 1) * sizeof(*steps));
	long x = my->n, y = my->m;
	size_t n = 0;

	if (!steps)
		return -ENOMEM;
	for (long d = my->rounds; d > 0; d--) {
		long k = x - y, px, py;
		bool down;

		px = step(my, d, k, &down) - !down;
		py = px - (down ? k + 1 : k - 1);

		steps[n++] = (struct run){(size_t)(my->a0 + px), (size_t)(my->a0 + px + !down),
					  (size_t)(my->b0 + py), (size_t)(my->b0 + py + down)};
		x = px;
		y = py;
	}
	while (n) {
		const struct run *s = &steps[--n];
		int r = put_run(rs, s->a0, s->a1, s->b0, s->b1);

		if (r < 0)
			return r;
	}
	return 0;
}

static int compare(const struct lines *a, const struct lines *b, struct runs *rs)
{
	size_t lo = 0, ea = a->count, eb = b->count;
	cleanup_free int *trace = NULL;

	while (lo < ea && lo < eb && same(a, lo, b, lo))
		lo++;
	while (ea > lo && eb > lo && same(a, ea - 1, b, eb - 1)) {
		ea--;
		eb--;
	}
	if (ea == lo && eb == lo)
		return 0;

	struct myers my = {a, b, (long)lo, (long)lo, (long)(ea - lo), (long)(eb - lo), NULL, 0};
	long most = my.n + my.m < UDIFF_MAX ? my.n + my.m : UDIFF_MAX;

	if (my.n && my.m) {
		/* rows are made as the search needs them: most edits need a few */
		for (long d = 0, have = 0; d <= most; d++) {
			if (d >= have) {
				have = have ? have * 2 : 16;
				if (have > most + 1)
					have = most + 1;
				int *t = realloc(trace, (size_t)(have * have) * sizeof(*t));

				if (!t)
					return -ENOMEM;
				trace = my.trace = t;
			}
			if (search_round(&my, d)) {
				my.rounds = d;
				return walk_back(&my, rs);
			}
		}
	}
	return put_run(rs, lo, ea, lo, eb);
}

/* ---- printing ---- */

struct printer {
	struct buf *out;
	unsigned left;
	uint64_t dropped;
};

static int put_line(struct printer *pr, char sign, const struct lines *l, size_t i)
{
	const uint8_t *p = l->p + l->at[i];
	size_t n = l->at[i + 1] - l->at[i];
	bool ended = n && p[n - 1] == '\n';
	int r;

	if (!pr->left) {
		pr->dropped++;
		return 0;
	}
	pr->left--;
	n -= ended;
	r = buf_put(pr->out, &sign, 1);
	if (r >= 0 && n > 400) {
		r = text_put_escaped(pr->out, p, text_cut(p, n, 400));
		if (r >= 0)
			r = buf_printf(pr->out, "…[+%zu bytes]", n - 400);
	} else if (r >= 0) {
		r = text_put_escaped(pr->out, p, n);
	}
	if (r >= 0)
		r = buf_puts(pr->out, ended ? "\n" : "\n\\ No newline at end of file\n");
	return r;
}

static int put_range(struct printer *pr, char sign, const struct lines *l, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		int r = put_line(pr, sign, l, i);

		if (r < 0)
			return r;
	}
	return 0;
}

/* One hunk of the runs [first, last]. */
static int put_hunk(struct printer *pr, const struct lines *a, const struct lines *b,
		    const struct run *first, const struct run *last, unsigned context)
{
	size_t lead = first->a0 < context ? first->a0 : context;
	size_t tail = a->count - last->a1 < context ? a->count - last->a1 : context;
	size_t a0 = first->a0 - lead, an = last->a1 + tail - a0;
	size_t b0 = first->b0 - lead, bn = last->b1 + tail - b0;
	int r = 0;

	if (pr->left)
		r = buf_printf(pr->out, "@@ -%zu,%zu +%zu,%zu @@\n", a0 + (an != 0), an,
			       b0 + (bn != 0), bn);
	if (r >= 0)
		r = put_range(pr, ' ', a, a0, first->a0);
	for (const struct run *u = first; r >= 0 && u <= last; u++) {
		r = put_range(pr, '-', a, u->a0, u->a1);
		if (r >= 0)
			r = put_range(pr, '+', b, u->b0, u->b1);
		if (r >= 0 && u < last)
			r = put_range(pr, ' ', a, u->a1, u[1].a0);
	}
	return r < 0 ? r : put_range(pr, ' ', a, last->a1, last->a1 + tail);
}

static int print(const struct lines *a, const struct lines *b, const struct runs *rs,
		 unsigned context, unsigned max_lines, struct buf *out)
{
	struct printer pr = {out, max_lines, 0};

	for (size_t i = 0; i < rs->n;) {
		size_t j = i;
		int r;

		while (j + 1 < rs->n && rs->v[j + 1].a0 - rs->v[j].a1 <= (size_t)context * 2)
			j++;
		r = put_hunk(&pr, a, b, &rs->v[i], &rs->v[j], context);
		if (r < 0)
			return r;
		i = j + 1;
	}
	return pr.dropped
		       ? buf_printf(out, "[%llu more diff lines]\n", (unsigned long long)pr.dropped)
		       : 0;
}

int udiff(const uint8_t *a, size_t an, const uint8_t *b, size_t bn, unsigned context,
	  unsigned max_lines, struct buf *out, struct udiff_stat *ret)
{
	cleanup_free size_t *ka = NULL, *kb = NULL;
	cleanup_free struct run *kr = NULL;
	struct lines la = {0}, lb = {0};
	struct runs rs = {0};
	int r = split(a, an, &la);

	ka = la.at;
	if (r >= 0)
		r = split(b, bn, &lb);
	kb = lb.at;
	if (r >= 0)
		r = compare(&la, &lb, &rs);
	kr = rs.v;
	if (r < 0)
		return r;
	*ret = (struct udiff_stat){0};
	for (size_t i = 0; i < rs.n; i++) {
		ret->removed += rs.v[i].a1 - rs.v[i].a0;
		ret->added += rs.v[i].b1 - rs.v[i].b0;
	}
	return out ? print(&la, &lb, &rs, context, max_lines, out) : 0;
}
