#include "mcp/files/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/brace.h"
#include "base/cleanup.h"

enum {
	STEPS_MAX = 20000,
	BRACES_MAX = 8,
	PATTERN_MAX = 1024,
	FILTERS_MAX = 32
};

/* "[...]" at @p; *ret_end is after it, NULL when it is not closed and so an ordinary "[". */
static bool in_class(const char *p, unsigned char c, const char **ret_end)
{
	bool negate = p[1] == '!' || p[1] == '^', hit = false;
	const char *q = p + 1 + negate;

	for (bool first = true; *q && (*q != ']' || first); first = false) {
		unsigned char lo = (unsigned char)(*q == '\\' && q[1] ? *++q : *q), hi = lo;

		q++;
		if (q[0] == '-' && q[1] && q[1] != ']') {
			q++;
			hi = (unsigned char)(*q == '\\' && q[1] ? *++q : *q);
			q++;
		}
		hit |= c >= lo && c <= hi;
	}
	*ret_end = *q ? q + 1 : NULL;
	return hit != negate && c != '/';
}

static bool match(const char *p, const char *s, bool start, unsigned *steps);

/* "**" with its "/": nothing, or any number of components. */
static bool match_span(const char *p, const char *s, unsigned *steps)
{
	const char *rest = p + 2;

	if (!*rest)
		return true;
	rest++; /* the "/" */
	for (;;) {
		if (match(rest, s, true, steps))
			return true;
		s = strchr(s, '/');
		if (!s)
			return false;
		s++;
	}
}

static bool match(const char *p, const char *s, bool start, unsigned *steps)
{
	const char *end;

	for (; *p; start = p[-1] == '/') {
		if (++*steps > STEPS_MAX)
			return false;
		if (start && p[0] == '*' && p[1] == '*' && (!p[2] || p[2] == '/'))
			return match_span(p, s, steps);
		if (*p == '*') {
			while (*p == '*')
				p++;
			for (;; s++) {
				if (match(p, s, false, steps))
					return true;
				if (!*s || *s == '/' || *steps > STEPS_MAX)
					return false;
			}
		}
		if (!*s)
			return false;
		if (*p == '?') {
			if (*s == '/')
				return false;
			p++;
		} else if (*p == '[' && (in_class(p, (unsigned char)*s, &end), end)) {
			if (!in_class(p, (unsigned char)*s, &end))
				return false;
			p = end;
		} else {
			if (*p == '\\' && p[1])
				p++;
			if (*p != *s)
				return false;
			p++;
		}
		s++;
	}
	return !*s;
}

static bool expand(const char *pattern, const char *path, int depth, unsigned *steps)
{
	const char *open = pattern, *close;

	for (; *open && *open != '{'; open++)
		open += *open == '\\' && open[1];
	close = *open ? brace_end(open) : NULL;
	if (!close || depth == BRACES_MAX || strlen(pattern) >= PATTERN_MAX)
		return match(pattern, path, true, steps);
	for (const char *part = open + 1;; part++) {
		const char *end = brace_alternative_end(part, close);
		char one[PATTERN_MAX];

		(void)snprintf(one, sizeof(one), "%.*s%.*s%s", (int)(open - pattern), pattern,
			       (int)(end - part), part, close + 1);
		if (expand(one, path, depth + 1, steps))
			return true;
		if (end == close)
			break;
		part = end;
	}
	return false;
}

bool pattern_match(const char *pattern, const char *path)
{
	unsigned steps = 0;

	return expand(pattern, path, 0, &steps);
}

bool pattern_match_anywhere(const char *pattern, const char *path)
{
	const char *name = strrchr(path, '/');

	if (!strncmp(pattern, "./", 2))
		pattern += 2;
	if (!strchr(pattern, '/'))
		return pattern_match(pattern, name ? name + 1 : path);
	return pattern_match(*pattern == '/' ? pattern + 1 : pattern, path);
}

bool pattern_filter(const char *patterns, const char *path)
{
	bool positive = false, hit = false;

	for (int i = 0; *patterns && i < FILTERS_MAX; i++) {
		char one[PATTERN_MAX];
		size_t n;

		patterns += strspn(patterns, " \t\n");
		n = strcspn(patterns, " \t\n");
		if (!n)
			break;
		(void)snprintf(one, sizeof(one), "%.*s", (int)n, patterns);
		patterns += n;
		if (one[0] == '!') {
			if (pattern_match_anywhere(one + 1, path))
				return false;
		} else {
			positive = true;
			hit |= pattern_match_anywhere(one, path);
		}
	}
	return hit || !positive;
}

/* ---- ignore files ---- */

struct ignore_rule {
	char *pattern;
	bool negated, dir_only, anchored;
};

/* One line; trailing blanks count only when escaped. */
static int parse_line(struct ignore_rules *rules, const char *s, size_t n)
{
	struct ignore_rule rule = {0}, *v;

	while (n && (s[n - 1] == '\r' || s[n - 1] == ' ' || s[n - 1] == '\t') &&
	       !(n > 1 && s[n - 2] == '\\'))
		n--;
	if (!n || *s == '#' || n >= PATTERN_MAX)
		return 0;
	if (*s == '!') {
		rule.negated = true;
		s++;
		n--;
	}
	if (n && s[n - 1] == '/') {
		rule.dir_only = true;
		n--;
	}
	rule.anchored = n && memchr(s, '/', n) != NULL;
	if (n && *s == '/') {
		s++;
		n--;
	}
	if (!n)
		return 0;
	v = realloc(rules->v, (rules->n + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	rules->v = v;
	rule.pattern = strndup(s, n);
	if (!rule.pattern)
		return -ENOMEM;
	v[rules->n++] = rule;
	return 0;
}

int ignore_parse(struct ignore_rules *rules, const char *text, size_t len)
{
	const char *end = text + len;

	if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		text += 3;
	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text));
		int r = parse_line(rules, text, (size_t)((nl ? nl : end) - text));

		if (r < 0)
			return r;
		text = nl ? nl + 1 : end;
	}
	return 0;
}

void ignore_release(struct ignore_rules *rules)
{
	for (size_t i = 0; i < rules->n; i++)
		free(rules->v[i].pattern);
	free(rules->v);
	*rules = (struct ignore_rules){0};
}

int ignore_verdict(const struct ignore_rules *rules, const char *path, bool is_dir)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	for (size_t i = rules->n; i--;) {
		const struct ignore_rule *rule = &rules->v[i];
		unsigned steps = 0;

		if (rule->dir_only && !is_dir)
			continue;
		if (match(rule->pattern, rule->anchored ? path : name, true, &steps))
			return rule->negated ? -1 : 1;
	}
	return 0;
}
