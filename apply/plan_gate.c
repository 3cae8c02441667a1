/* What the policy says of a place on the host: it is asked by the place's name in the tree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apply/plan.h"

int plan_state(struct plan *p, const char *path)
{
	struct policy *policy = p->j->policy;
	int state = policy_root(policy);
	const char *parts[] = {p->j->mount, path};

	for (size_t i = 0; i < 2; i++) {
		const char *at = parts[i], *name;
		size_t len;

		while (policy_component(&at, &name, &len))
			state = policy_child(policy, state, name, len);
	}
	return state;
}

/* How much of @path is the first place on the way that may not be written to. */
static size_t closed_at(struct plan *p, const char *path)
{
	struct policy *policy = p->j->policy;
	int state = plan_state(p, "");
	const char *at = path, *name;
	size_t len;

	while (policy_component(&at, &name, &len)) {
		state = policy_child(policy, state, name, len);
		if (!(policy_may(policy, state) & POLICY_MAY_WRITE))
			return (size_t)(name + len - path);
	}
	return 0;
}

static int refused(struct plan *p, struct decision *d, const char *path)
{
	char full[8192];
	struct policy_why why;
	struct buf text = {.max = 160};

	/* The time of a directory in which something is kept back is not worth a word. */
	if (d->c->kind == 'M' && d->c->what == APPLY_TIMES) {
		plan_say(d, APPLY_NOTHING, "%s", "");
		return 0;
	}
	(void)snprintf(full, sizeof(full), "%s/%s", p->j->mount, path);
	if (policy_explain(p->j->policy, full, &why) < 0 ||
	    policy_why_text(p->j->policy, &why, &text) < 0)
		buf_clear(&text);
	plan_say(d, APPLY_REFUSED, "the policy says no%s%s", text.len ? ": " : "",
		 text.len ? (const char *)text.data : "");
	d->closed = strcmp(path, d->c->path) == 0 ? closed_at(p, path) : 0;
	buf_release(&text);
	return 0;
}

/* The directory and the name in it. */
static int split(struct plan *p, const char *path, struct judge_name *ret)
{
	const char *slash = strrchr(path, '/');
	char *dir = plan_parent(path);

	if (!dir)
		return -ENOMEM;
	ret->name = slash ? slash + 1 : path;
	ret->len = strlen(ret->name);
	ret->where = dir;
	ret->dir = plan_state(p, dir);
	return 0;
}

int plan_gate(struct plan *p, struct decision *d, const char *path, enum gate_what what, bool isdir)
{
	static const unsigned need[] = {POLICY_MAY_WRITE | POLICY_MAY_READ,
					POLICY_MAY_WRITE | POLICY_MAY_READ, POLICY_MAY_WRITE};
	unsigned may = need[what];
	struct judge_name n;
	int r;

	if (what == GATE_MAKE)
		may |= isdir ? POLICY_MAY_MKDIR : POLICY_MAY_PUT;
	if (!*path) {
		r = policy_may(p->j->policy, plan_state(p, "")) & POLICY_MAY_WRITE ? 0 : -EACCES;
		return r < 0 ? refused(p, d, path) : 1;
	}
	r = split(p, path, &n);
	if (r < 0)
		return r;
	r = judge_name(&p->judge, &n, may, "apply");
	if (r == 0 && what == GATE_GO)
		r = judge_go(&p->judge, &n, "apply");
	free(n.where);
	return r == -EACCES ? refused(p, d, path) : r < 0 ? r : 1;
}

int plan_gate_rename(struct plan *p, struct decision *d)
{
	struct judge_node node = {.isdir = S_ISDIR(d->c->mode)};
	struct judge_name from = {0}, to = {0};
	int r = split(p, d->c->old, &from);

	if (r == 0)
		r = split(p, d->c->path, &to);
	if (r == 0) {
		node.where = d->c->old;
		node.state = plan_state(p, d->c->old);
		r = judge_rename(&p->judge, &from, &node, &to, NULL, false);
	}
	free(from.where);
	free(to.where);
	if (r == -EACCES)
		return refused(p, d, d->c->path);
	if (r != -EXDEV)
		return r < 0 ? r : 1;
	plan_say(d, APPLY_REFUSED, "other rules of the policy hold at its new place");
	return 0;
}
