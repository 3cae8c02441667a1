#define PCRE2_CODE_UNIT_WIDTH 8
#include "mcp/files/search.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"

enum {
	MATCH_LIMIT = 1000000,
	JIT_STACK = 1 << 20,
	CLOCK_EVERY = 512
};

struct search {
	pcre2_code *code;
	pcre2_match_data *data;
	pcre2_match_context *ctx;
	pcre2_jit_stack *stack;
	bool by_line; /* lookaround, anchors to the subject, atomic groups: only a line alone is right */
	bool multiline;
};

struct scan {
	struct search *s;
	const uint8_t *p;
	size_t n;
	uint64_t line; /* number of the line at @counted */
	size_t counted;
	long long until;
	unsigned ticks;
	bool gave_up;
	int (*fn)(void *arg, const struct search_hit *hit);
	void *arg;
};

bool search_smart_caseless(const char *pattern, bool literal)
{
	for (; *pattern; pattern++) {
		if (*pattern == '\\' && !literal) {
			/* \p{Lu} says what it means, \S is no capital */
			if (!*++pattern)
				break;
		} else if (isupper((unsigned char)*pattern)) {
			return false;
		}
	}
	return true;
}

static bool needs_lines(const char *p)
{
	static const char *const marks[] = {"(?=", "(?!", "(?<", "(?>", "(*", "\\A", "\\z",
					    "\\Z", "\\G", "\\K", "*+",  "++", "?+",  "}+"};

	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (strstr(p, marks[i]))
			return true;
	return false;
}

static int prepare(const char *pattern, unsigned flags, struct buf *out)
{
	int r = buf_puts(out, flags & SEARCH_WORD ? "\\b(?:" : "");

	if (r >= 0 && !(flags & SEARCH_LITERAL))
		r = buf_puts(out, pattern);
	for (const char *s = pattern; r >= 0 && (flags & SEARCH_LITERAL) && *s; s++) {
		unsigned char c = (unsigned char)*s;

		r = c < 0x80 && !isalnum(c) ? buf_printf(out, "\\%c", c) : buf_put(out, s, 1);
	}
	return r >= 0 && flags & SEARCH_WORD ? buf_puts(out, ")\\b") : r;
}

static int compile(struct search *s, const char *pattern, unsigned flags, struct diag *diag)
{
	pcre2_compile_context *cc = pcre2_compile_context_create(NULL);
	uint32_t opts = PCRE2_MULTILINE | PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF |
			PCRE2_NEVER_BACKSLASH_C;
	int code = 0;
	size_t at = 0;

	if (!cc)
		return -ENOMEM;
	if (flags & SEARCH_CASELESS)
		opts |= PCRE2_CASELESS;
	if (flags & SEARCH_MULTILINE)
		opts |= PCRE2_DOTALL;
	(void)pcre2_set_newline(cc, PCRE2_NEWLINE_ANYCRLF);
	(void)pcre2_set_parens_nest_limit(cc, 200);
	s->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, opts, &code, &at, cc);
	pcre2_compile_context_free(cc);
	if (!s->code) {
		uint8_t text[160] = "";

		(void)pcre2_get_error_message(code, text, sizeof(text));
		return diag_set(diag, -EINVAL, "%s at position %zu", (const char *)text, at);
	}
	/* Refused where memory must not be made executable: the interpreter does the same, slower. */
	(void)pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
	return 0;
}

int search_new(const char *pattern, unsigned flags, struct diag *diag, struct search **ret)
{
	cleanup_buf struct buf text = {0};
	struct search *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->multiline = flags & SEARCH_MULTILINE;
	s->by_line = !(flags & SEARCH_LITERAL) && needs_lines(pattern);
	r = prepare(pattern, flags, &text);
	if (r >= 0)
		r = compile(s, text.len ? (const char *)text.data : "", flags, diag);
	if (r >= 0) {
		s->data = pcre2_match_data_create(1, NULL);
		s->ctx = pcre2_match_context_create(NULL);
		s->stack = pcre2_jit_stack_create(32768, JIT_STACK, NULL);
		r = s->data && s->ctx && s->stack ? 0 : -ENOMEM;
	}
	if (r < 0) {
		search_free(s);
		return r;
	}
	pcre2_jit_stack_assign(s->ctx, NULL, s->stack);
	(void)pcre2_set_match_limit(s->ctx, MATCH_LIMIT);
	(void)pcre2_set_heap_limit(s->ctx, 65536);
	*ret = s;
	return 0;
}

void search_free(struct search *s)
{
	if (!s)
		return;
	pcre2_match_data_free(s->data);
	pcre2_match_context_free(s->ctx);
	pcre2_jit_stack_free(s->stack);
	pcre2_code_free(s->code);
	free(s);
}

/* 1 and the match, 0 none, -ERANGE too many steps. */
static int match_in(struct scan *sc, const uint8_t *p, size_t n, size_t from, size_t *ret_at,
		    size_t *ret_end)
{
	struct search *s = sc->s;
	int rc = pcre2_match(s->code, p, n, from, 0, s->data, s->ctx);
	const size_t *ov;

	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc < 0)
		return -ERANGE;
	ov = pcre2_get_ovector_pointer(s->data);
	*ret_at = ov[0];
	*ret_end = ov[1] < ov[0] ? ov[0] : ov[1];
	return 1;
}

static size_t start_of(const struct scan *sc, size_t off)
{
	const uint8_t *nl = off ? memrchr(sc->p, '\n', off) : NULL;

	return nl ? (size_t)(nl - sc->p) + 1 : 0;
}

static size_t end_of(const struct scan *sc, size_t off)
{
	const uint8_t *nl = off < sc->n ? memchr(sc->p + off, '\n', sc->n - off) : NULL;

	return nl ? (size_t)(nl - sc->p) : sc->n;
}

static int report(struct scan *sc, size_t start, size_t end, size_t match, size_t match_end)
{
	struct search_hit hit = {0, start, end, match, match_end};
	const uint8_t *q = sc->p + sc->counted, *stop = sc->p + start;

	while (q < stop && (q = memchr(q, '\n', (size_t)(stop - q)))) {
		sc->line++;
		q++;
	}
	sc->counted = start;
	hit.line = sc->line;
	return sc->fn(sc->arg, &hit);
}

static int check_clock(struct scan *sc)
{
	return ++sc->ticks % CLOCK_EVERY == 0 && io_now_ms() > sc->until ? -ETIMEDOUT : 0;
}

/* Each line a subject of its own. */
static int scan_lines(struct scan *sc, size_t from)
{
	while (from < sc->n) {
		size_t end = end_of(sc, from), at, match_end;
		int r = match_in(sc, sc->p + from, end - from, 0, &at, &match_end);

		if (r == -ERANGE)
			sc->gave_up = true;
		if (r > 0) {
			r = report(sc, from, end, from + at, from + match_end);
			if (r)
				return r;
		}
		r = r == -ERANGE && io_now_ms() > sc->until ? -ETIMEDOUT : check_clock(sc);
		if (r)
			return r;
		from = end + 1;
	}
	return 0;
}

/* All lines in one subject: the engine's start optimisations run over the whole text. A match that
 * crosses a line end shows a pattern for which that is not the same; it goes on by lines. */
static int scan_whole(struct scan *sc)
{
	size_t from = 0, at, match_end;

	while (from < sc->n) {
		int r = match_in(sc, sc->p, sc->n, from, &at, &match_end);
		size_t start, end;

		if (r < 0)
			return scan_lines(sc, from);
		if (!r || at >= sc->n)
			return 0;
		start = start_of(sc, at);
		end = end_of(sc, at);
		if (match_end > end)
			return scan_lines(sc, start);
		r = report(sc, start, end, at, match_end);
		if (!r)
			r = check_clock(sc);
		if (r)
			return r;
		from = end + 1;
	}
	return 0;
}

static int scan_multiline(struct scan *sc)
{
	size_t from = 0, at, match_end;

	while (from < sc->n) {
		int r = match_in(sc, sc->p, sc->n, from, &at, &match_end);
		size_t last;

		if (r < 0)
			sc->gave_up = true;
		if (r <= 0 || at >= sc->n)
			return 0;
		/* a match that ends with a "\n" does not reach into the next line */
		last = match_end > at ? match_end - 1 : match_end;
		r = report(sc, start_of(sc, at), end_of(sc, last), at, match_end);
		if (!r)
			r = check_clock(sc);
		if (r)
			return r;
		from = match_end + (match_end == at);
		while (from < sc->n && (sc->p[from] & 0xc0) == 0x80)
			from++;
	}
	return 0;
}

int search_run(struct search *s, const uint8_t *p, size_t n, uint64_t first_line, long long until,
	       int (*fn)(void *arg, const struct search_hit *hit), void *arg)
{
	struct scan sc = {
		.s = s, .p = p, .n = n, .line = first_line, .until = until, .fn = fn, .arg = arg};
	int r = s->multiline ? scan_multiline(&sc)
		: s->by_line ? scan_lines(&sc, 0)
			     : scan_whole(&sc);

	return r || !sc.gave_up ? r : -ERANGE;
}
