#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "profile/place.h"
#include "profile/resolve.h"

static bool is_there(const struct policy_rules *r, enum policy_access access, const char *text)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].access == access && r->v[i].kind == POLICY_PATH &&
		    !strcmp(r->v[i].text, text))
			return true;
	return false;
}

int rules_add(struct profile *p, struct diag *diag, enum policy_access access, const char *text,
	      const char *reason, ...)
{
	char why[600];
	va_list ap;

	if (is_there(&p->rules, access, text))
		return 0;
	va_start(ap, reason);
	(void)vsnprintf(why, sizeof(why), reason, ap);
	va_end(ap);
	return policy_rules_add(&p->rules, access, POLICY_PATH, text, why, diag);
}

/* Clean paths have as many components as slashes, but the root, which has none. */
static size_t depth(const char *path)
{
	size_t n = 0;

	for (; *path; path++)
		n += path[0] == '/' && path[1];
	return n;
}

/* Of two accesses to one place: deny, then write, then read. */
static int rank(enum policy_access a)
{
	return a == POLICY_DENY ? POLICY_WRITE + 1 : (int)a;
}

enum policy_access rules_verdict(const struct policy_rules *list, const char *path)
{
	const struct policy_rule *best = NULL;

	for (size_t i = 0; i < list->n; i++) {
		const struct policy_rule *r = &list->v[i];
		size_t a, b;

		if (r->kind == POLICY_GLOB || !place_in(path, r->text))
			continue;
		a = depth(r->text);
		b = best ? depth(best->text) : 0;
		if (!best || a > b || (a == b && rank(r->access) > rank(best->access)))
			best = r;
	}
	return best ? best->access : list->otherwise;
}

int rules_note(struct profile *p, const char *fmt, ...)
{
	char **v = realloc(p->notes, (p->nnotes + 2) * sizeof(*v));
	va_list ap;
	int n;

	if (!v)
		return -ENOMEM;
	p->notes = v;
	v[p->nnotes] = NULL;
	va_start(ap, fmt);
	n = vasprintf(&v[p->nnotes], fmt, ap);
	va_end(ap);
	if (n < 0) {
		v[p->nnotes] = NULL;
		return -ENOMEM;
	}
	v[++p->nnotes] = NULL;
	return 0;
}
