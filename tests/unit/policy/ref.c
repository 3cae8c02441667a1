#include "tests/unit/policy/ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- patterns ---- */

static bool one(const char *p, const char *pe, const char *s, const char *se);

/* "[...]" at @p: 1 matches @c, 0 does not, -1 it is not closed. @after: behind it. */
static int set(const char *p, const char *pe, unsigned char c, const char **after)
{
	bool not = p + 1 < pe && (p[1] == '!' || p[1] == '^'), in = false;
	const char *q = p + 1 + not ;

	for (const char *first = q; q < pe && (*q != ']' || q == first); q++) {
		unsigned char lo, hi;

		if (*q == '\\' && q + 1 < pe)
			q++;
		lo = hi = (unsigned char)*q;
		if (q + 2 < pe && q[1] == '-' && q[2] != ']') {
			q += 2;
			if (*q == '\\' && q + 1 < pe)
				q++;
			hi = (unsigned char)*q;
		}
		in = in || (c >= lo && c <= hi);
	}
	if (q >= pe)
		return -1;
	*after = q + 1;
	return in != not ;
}

static bool one(const char *p, const char *pe, const char *s, const char *se)
{
	const char *after;
	int k;

	if (p == pe)
		return s == se;
	if (*p == '*')
		return one(p + 1, pe, s, se) || (s < se && one(p, pe, s + 1, se));
	if (s == se)
		return false;
	if (*p == '?')
		return one(p + 1, pe, s + 1, se);
	if (*p == '[') {
		k = set(p, pe, (unsigned char)*s, &after);
		if (k >= 0)
			return k && one(after, pe, s + 1, se);
	}
	if (*p == '\\' && p + 1 < pe)
		p++;
	return *p == *s && one(p + 1, pe, s + 1, se);
}

static const char *skip(const char *p)
{
	for (;;) {
		p += strspn(p, "/");
		if (p[0] == '.' && (p[1] == '/' || !p[1]))
			p++;
		else
			return p;
	}
}

static bool parts(const char *p, const char *s)
{
	const char *pe, *se;

	p = skip(p);
	s = skip(s);
	if (!*p)
		return !*s;
	pe = p + strcspn(p, "/");
	se = s + strcspn(s, "/");
	if (pe - p == 2 && !memcmp(p, "**", 2)) {
		if (!*skip(pe)) /* at the end: at least one */
			return *s;
		return parts(pe, s) || (*s && parts(p, se));
	}
	return *s && one(p, pe, s, se) && parts(pe, se);
}

/* The first '{' that is one, or NULL. */
static const char *brace(const char *p)
{
	for (; *p; p++) {
		const char *after;

		if (*p == '\\' && p[1])
			p++;
		else if (*p == '[' && set(p, p + strcspn(p, "/"), 0, &after) >= 0)
			p = after - 1;
		else if (*p == '{')
			return p;
	}
	return NULL;
}

bool ref_glob(const char *pattern, const char *path)
{
	const char *open = brace(pattern), *at, *end;
	int depth = 0;
	bool yes = false;

	if (!open)
		return parts(pattern, path);
	for (end = open; *end && (*end != '}' || depth != 1); end++) {
		depth += *end == '{' ? 1 : *end == '}' ? -1 : 0;
		if (*end == '\\')
			end++;
	}
	at = open + 1;
	depth = 0;
	for (const char *q = at; q <= end; q++) {
		char whole[POLICY_TEXT_MAX + 1];

		if (*q == '\\' && q < end) {
			q++;
			continue;
		}
		if (q < end && *q == '{')
			depth++;
		if (q < end && *q == '}')
			depth--;
		if (q != end && (*q != ',' || depth))
			continue;
		(void)snprintf(whole, sizeof(whole), "%.*s%.*s%s", (int)(open - pattern), pattern,
			       (int)(q - at), at, end + 1);
		yes = yes || ref_glob(whole, path);
		at = q + 1;
	}
	return yes;
}

/* ---- places ---- */

#define DEPTH_MAX 64

struct path {
	char *prefix[DEPTH_MAX + 1]; /* of n components; "" is the root */
	const char *name[DEPTH_MAX + 1];
	int n;
};

static void split(const char *path, struct path *ret)
{
	char *buf = calloc(1, strlen(path) + 2);
	const char *part;
	size_t len;

	*ret = (struct path){0};
	ret->prefix[0] = strdup("/");
	while (policy_component(&path, &part, &len) && ret->n < DEPTH_MAX) {
		strcat(buf, "/");
		strncat(buf, part, len);
		ret->prefix[++ret->n] = strdup(buf);
		ret->name[ret->n] = strrchr(ret->prefix[ret->n], '/') + 1;
	}
	free(buf);
}

static void unsplit(struct path *p)
{
	for (int i = 0; i <= p->n; i++)
		free(p->prefix[i]);
}

static bool has_meta(const char *s)
{
	return strpbrk(s, "*?[{}\\") != NULL;
}

/* What the rules that name @path itself come to: deny before write before read. */
static enum policy_access named(const struct policy_rules *r, const char *path, bool *bare)
{
	bool deny = false, write = false, read = false;

	*bare = true;
	for (size_t i = 0; i < r->n; i++) {
		const struct policy_rule *x = &r->v[i];

		if (x->kind == POLICY_GLOB && has_meta(x->text))
			continue;
		if (strcmp(x->text, path) != 0)
			continue;
		deny = deny || x->access == POLICY_DENY;
		read = read || x->access == POLICY_READ;
		if (x->access == POLICY_WRITE) {
			write = true;
			*bare = *bare && x->bare;
		}
	}
	if (!deny && !write && !read && !strcmp(path, "/"))
		return r->otherwise;
	return deny ? POLICY_DENY : write ? POLICY_WRITE : read ? POLICY_READ : POLICY_NONE;
}

static bool matched(const struct policy_rules *r, const char *path)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].kind == POLICY_GLOB && has_meta(r->v[i].text) &&
		    ref_glob(r->v[i].text, path))
			return true;
	return false;
}

static bool is_name(const struct policy_rules *r, const char *name)
{
	for (size_t i = 0; r->names && r->names[i]; i++)
		if (!strcasecmp(r->names[i], name))
			return true;
	return false;
}

/* The whole disk is writable and nothing takes anything away. */
static bool full(const struct policy_rules *r)
{
	bool bare;

	if (named(r, "/", &bare) != POLICY_WRITE)
		return false;
	for (size_t i = 0; i < r->n; i++) {
		if (r->v[i].kind == POLICY_GLOB)
			return false;
		if (strcmp(r->v[i].text, "/") != 0 && named(r, r->v[i].text, &bare) != POLICY_WRITE)
			return false;
	}
	return true;
}

/* Without protected names: the depth of what decides in @by. */
static enum policy_access plain(const struct policy_rules *r, const struct path *p, int n, int *by)
{
	enum policy_access got = POLICY_NONE;
	int glob = -1, from = 0;
	bool bare;

	for (int i = 1; i <= n; i++)
		if (matched(r, p->prefix[i]))
			glob = i;
	*by = glob;
	if (glob >= 0) {
		for (from = glob + 1; from <= n; from++)
			if (named(r, p->prefix[from], &bare) == POLICY_WRITE)
				break;
		if (from > n)
			return POLICY_DENY;
	}
	for (int i = from; i <= n; i++) {
		enum policy_access a = named(r, p->prefix[i], &bare);

		if (a != POLICY_NONE) {
			got = a;
			*by = i;
		}
	}
	return got;
}

/* Is component @i protected, and opened by no rule there or below, down to @n? */
static bool guarded(const struct policy_rules *r, const struct path *p, int i, int n)
{
	bool bare, root = named(r, p->prefix[i - 1], &bare) == POLICY_WRITE && !bare;

	if (!is_name(r, p->name[i]))
		return false;
	if (!root && r->deep) {
		int by;

		root = plain(r, p, i - 1, &by) == POLICY_WRITE;
		if (root)
			(void)named(r, p->prefix[by], &bare);
		root = root && !bare;
	}
	if (!root)
		return false;
	for (int k = i; k <= n; k++)
		if (named(r, p->prefix[k], &bare) == POLICY_WRITE)
			return false;
	return true;
}

enum policy_access ref_access(const struct policy_rules *r, const char *path)
{
	struct path p;
	enum policy_access got;
	int by;

	split(path, &p);
	got = plain(r, &p, p.n, &by);
	for (int i = 1; got == POLICY_WRITE && !full(r) && i <= p.n; i++)
		if (guarded(r, &p, i, p.n))
			got = POLICY_READ;
	unsplit(&p);
	return got;
}
