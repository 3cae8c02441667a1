#include "fs/core/policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* One component on the way to a writable place. State numbers are index + 2. */
struct rule {
	int parent;    /* index; -1: the root */
	bool writable; /* a place itself: all below is POLICY_ALL */
	size_t len;
	char *name;
};
struct policy {
	struct rule *rules;
	size_t n;
	int root;
};

static int find_rule(const struct policy *p, int parent, const char *name, size_t len)
{
	for (size_t i = 1; i < p->n; i++) {
		const struct rule *r = &p->rules[i];

		if (r->parent == parent && r->len == len && !memcmp(r->name, name, len))
			return (int)i;
	}
	return -1;
}

static int add_rule(struct policy *p, int parent, const char *name, size_t len)
{
	struct rule *more = realloc(p->rules, (p->n + 1) * sizeof(*more));
	char *copy;

	if (!more)
		return -ENOMEM;
	p->rules = more;
	copy = strndup(name, len);
	if (!copy)
		return -ENOMEM;
	p->rules[p->n] = (struct rule){.parent = parent, .len = len, .name = copy};
	return (int)p->n++;
}

static int add_path(struct policy *p, const char *path)
{
	int at = 0;

	if (path[0] != '/')
		return -EINVAL;
	while (*path) {
		size_t len;

		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (len == 2 && !memcmp(path, "..", 2))
			return -EINVAL;
		if (len > 0 && !(len == 1 && path[0] == '.')) {
			int next = find_rule(p, at, path, len);

			if (next < 0)
				next = add_rule(p, at, path, len);
			if (next < 0)
				return next;
			at = next;
		}
		path += len;
	}
	p->rules[at].writable = true;
	return 0;
}

int policy_new(const char *const *writable, struct policy **ret)
{
	struct policy *p = calloc(1, sizeof(*p));
	int r = p ? 0 : -ENOMEM;

	if (r == 0)
		r = add_rule(p, -1, "", 0);
	for (size_t i = 0; r >= 0 && writable && writable[i]; i++)
		r = add_path(p, writable[i]);
	if (r < 0) {
		policy_free(p);
		return r;
	}
	p->root = !writable || p->rules[0].writable ? POLICY_ALL : 2;
	*ret = p;
	return 0;
}

void policy_free(struct policy *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n; i++)
		free(p->rules[i].name);
	free(p->rules);
	free(p);
}

bool policy_trivial(const struct policy *p)
{
	return p->root == POLICY_ALL;
}

int policy_root(const struct policy *p)
{
	return p->root;
}

int policy_child(const struct policy *p, int state, const char *name, size_t len)
{
	int i;

	if (state < 2)
		return state;
	i = find_rule(p, state - 2, name, len);
	if (i < 0)
		return POLICY_NONE;
	return p->rules[i].writable ? POLICY_ALL : i + 2;
}

bool policy_may(const struct policy *p, int state, unsigned what)
{
	(void)p;
	return !(what & POLICY_WRITE) || state == POLICY_ALL;
}

bool policy_pinned(const struct policy *p, int state, const char *name, size_t len)
{
	int i = state < 2 ? -1 : find_rule(p, state - 2, name, len);

	return i >= 0;
}

int policy_meet(const struct policy *p, int a, int b)
{
	(void)p;
	return a == b ? a : a == POLICY_ALL ? b : b == POLICY_ALL ? a : POLICY_NONE;
}
