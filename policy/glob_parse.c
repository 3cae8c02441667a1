/* Patterns to positions. */
#include <stdlib.h>
#include <string.h>

#include "base/brace.h"
#include "base/cleanup.h"
#include "policy/glob_internal.h"
#include "policy/rules.h"

static int put(struct glob_set *g, const struct tok *t, struct diag *diag)
{
	if (g->ntoks == GLOB_POSITIONS_MAX)
		return diag_set(diag, -E2BIG, "the patterns are too long together");
	if (g->ntoks == g->cap) {
		size_t cap = g->cap ? g->cap * 2 : 64;
		struct tok *more = realloc(g->toks, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		g->toks = more;
		g->cap = cap;
	}
	g->toks[g->ntoks++] = *t;
	return 0;
}

static int put_kind(struct glob_set *g, enum tok_kind kind, struct diag *diag)
{
	return put(g, &(struct tok){.kind = (uint8_t)kind}, diag);
}

static void set_add(uint64_t set[4], unsigned from, unsigned to)
{
	for (unsigned b = from; b <= to; b++)
		set[b >> 6] |= UINT64_C(1) << (b & 63);
}

/* After '['. The bytes used, with the ']'; 0: it is not closed; -1: a range that is none. */
static int parse_set(const uint8_t *p, size_t n, struct tok *t)
{
	bool negate = n > 0 && (p[0] == '!' || p[0] == '^');
	size_t i = negate, first = i;

	*t = (struct tok){.kind = TOK_SET};
	for (; i < n && (p[i] != ']' || i == first); i++) {
		uint8_t lo = p[i], hi = lo;

		if (lo == '\\' && i + 1 < n)
			lo = hi = p[++i];
		if (i + 2 < n && p[i + 1] == '-' && p[i + 2] != ']') {
			hi = p[i + 2];
			i += 2;
			if (hi == '\\' && i + 1 < n)
				hi = p[++i];
			if (lo > hi)
				return -1;
		}
		set_add(t->set, lo, hi);
	}
	if (i >= n)
		return 0;
	for (size_t w = 0; negate && w < 4; w++)
		t->set[w] = ~t->set[w];
	return (int)i + 1;
}

/* One token of a component; the bytes used in @used. */
static int parse_one(const uint8_t *p, size_t n, struct tok *t, size_t *used, const char *whole,
		     struct diag *diag)
{
	int k;

	*used = 1;
	*t = (struct tok){.kind = TOK_BYTE, .byte = p[0]};
	switch (p[0]) {
	case '*':
		t->kind = TOK_STAR;
		while (*used < n && p[*used] == '*')
			++*used;
		return 0;
	case '?':
		t->kind = TOK_ANY;
		return 0;
	case '\\':
		if (n < 2)
			return diag_set(diag, -EINVAL,
					"the pattern \"%s\" has a '\\' with nothing behind it",
					whole);
		t->byte = p[1];
		*used = 2;
		return 0;
	case '[':
		k = parse_set(p + 1, n - 1, t);
		if (k < 0)
			return diag_set(diag, -EINVAL,
					"the pattern \"%s\" has a range that ends before it begins",
					whole);
		if (k == 0)
			*t = (struct tok){.kind = TOK_BYTE, .byte = '['};
		*used += (size_t)k;
		return 0;
	default:
		return 0;
	}
}

static int parse_component(struct glob_set *g, const char *p, size_t n, const char *whole,
			   struct diag *diag)
{
	size_t used;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i += used) {
		struct tok t;

		r = parse_one((const uint8_t *)p + i, n - i, &t, &used, whole, diag);
		if (r == 0)
			r = put(g, &t, diag);
	}
	return r < 0 ? r : put_kind(g, TOK_SEP, diag);
}

int glob_parse(struct glob_set *g, const char *pattern, int rule, const char *whole,
	       struct diag *diag)
{
	const char *at = pattern, *part;
	size_t n, parts = 0;
	bool spans = false; /* after "**" */
	int r = 0;

	while (r == 0 && policy_component(&at, &part, &n)) {
		parts++;
		if (n == 2 && !memcmp(part, "**", 2)) {
			if (!spans)
				r = put_kind(g, TOK_COMPS, diag);
			if (r == 0 && !spans)
				r = put_kind(g, TOK_COMP, diag);
			spans = true;
			continue;
		}
		spans = false;
		r = parse_component(g, part, n, whole, diag);
	}
	if (r == 0 && parts == 0)
		return diag_set(diag, -EINVAL,
				"the pattern \"%s\" names the root: use a path for that", whole);
	if (r == 0 && spans)
		r = parse_component(g, "*", 1, whole, diag);
	return r < 0 ? r : put(g, &(struct tok){.kind = TOK_END, .rule = rule}, diag);
}

/* ---- braces ---- */

/* The end of a set that begins at @p, which is '['; @p when it is no set. */
static const char *skip_set(const char *p)
{
	struct tok t;
	int k = parse_set((const uint8_t *)p + 1, strcspn(p + 1, "/"), &t);

	return k > 0 ? p + k : p;
}

static int expand(struct glob_set *g, const char *pattern, int rule, const char *whole,
		  struct diag *diag)
{
	const char *open = pattern, *end;
	int r = 0;

	for (; *open && *open != '{' && *open != '}'; open++) {
		if (*open == '\\' && open[1])
			open++;
		else if (*open == '[')
			open = skip_set(open);
	}
	if (!*open) {
		if (++g->alternatives > GLOB_ALTERNATIVES_MAX)
			return diag_set(diag, -E2BIG, "the patterns have more than %d alternatives",
					GLOB_ALTERNATIVES_MAX);
		return glob_parse(g, pattern, rule, whole, diag);
	}
	end = *open == '{' ? brace_end(open) : NULL;
	if (!end)
		return diag_set(diag, -EINVAL,
				"the pattern \"%s\" has a brace without its other one", whole);
	for (const char *p = open + 1; r == 0; p++) {
		const char *stop = brace_alternative_end(p, end);
		cleanup_buf struct buf b = {.max = POLICY_TEXT_MAX};

		r = buf_put(&b, pattern, (size_t)(open - pattern));
		if (r == 0)
			r = buf_put(&b, p, (size_t)(stop - p));
		if (r == 0)
			r = buf_puts(&b, end + 1);
		if (r == 0)
			r = expand(g, (const char *)b.data, rule, whole, diag);
		p = stop;
		if (p == end)
			break;
	}
	return r;
}

int glob_add(struct glob_set *g, const char *pattern, int rule, struct diag *diag)
{
	return expand(g, pattern, rule, pattern, diag);
}

bool glob_special(const char *pattern)
{
	return strpbrk(pattern, "*?[{}\\") != NULL;
}

char *glob_literal(const char *pattern)
{
	char *s = malloc(strlen(pattern) + 1);
	size_t n = 0;

	for (const char *p = pattern; s && *p; p++) {
		bool set = *p == '[' && skip_set(p) != p;

		if (set || strchr("*?{}", *p) || (*p == '\\' && (!p[1] || p[1] == '/'))) {
			free(s);
			return NULL;
		}
		if (*p == '\\')
			p++;
		s[n++] = *p;
	}
	if (s)
		s[n] = 0;
	return s;
}
