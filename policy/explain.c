/* Which rule decides about a path: the states' work once more, with the names of those who did it. */
#include <string.h>

#include "policy/policy_internal.h"

static struct policy_why by(enum policy_by how, int rule, int access)
{
	if (how == POLICY_BY_RULE && rule < 0)
		how = POLICY_BY_NONE; /* policy_rules.otherwise */
	return (struct policy_why){.access = (enum policy_access)access,
				   .by = how,
				   .rule = rule < 0 ? 0 : (size_t)rule};
}

/* One step with its reason; @why is the directory's before. @node and @glob go along. */
static void step(struct policy *p, const struct pstate *from, int *state, int *node, int *glob,
		 const char *name, size_t len, struct policy_why *why)
{
	int prot = policy_protected(p, from, name, len), hit = GLOB_NO_HIT;
	const struct pnode *n;

	*node = policy_node_child(p, *node, name, len);
	if (p->globs) {
		*glob = glob_step(p->globs, *glob, name, len);
		hit = glob_hit(p->globs, *glob);
	}
	*state = policy_child(p, *state, name, len);
	n = *node == NO_NODE ? NULL : &p->nodes[*node];
	if (hit != GLOB_NO_HIT)
		*why = by(hit == GLOB_FULL_HIT ? POLICY_BY_LIMIT : POLICY_BY_GLOB, hit,
			  POLICY_DENY);
	else if (n && n->access != POLICY_NONE && (!from->closed || n->access == POLICY_WRITE))
		*why = by(POLICY_BY_RULE, n->rule, n->access);
	else if (prot >= 0)
		*why = by(POLICY_BY_NAME, prot, POLICY_READ);
	else if (*state == STATE_FULL && why->access > POLICY_DENY)
		*why = by(POLICY_BY_LIMIT, -1, POLICY_DENY);
}

int policy_explain(struct policy *p, const char *path, struct policy_why *ret)
{
	struct policy_why why = by(POLICY_BY_RULE, p->nodes[0].rule, p->nodes[0].access);
	int state = p->root, node = 0, glob = p->globs ? glob_start(p->globs) : GLOB_DEAD;
	const char *at = path, *part;
	size_t len;

	if (path[0] != '/')
		return -EINVAL;
	while (policy_component(&at, &part, &len)) {
		if (len == 2 && !memcmp(part, "..", 2))
			return -EINVAL;
		step(p, policy_state(p, state), &state, &node, &glob, part, len, &why);
	}
	*ret = why;
	return 0;
}

int policy_why_text(const struct policy *p, const struct policy_why *why, struct buf *out)
{
	const struct policy_rule *x = why->rule < p->rules.n ? &p->rules.v[why->rule] : NULL;

	switch (why->by) {
	case POLICY_BY_NONE:
		return p->rules.otherwise == POLICY_NONE
			       ? buf_puts(out, "no rule names it")
			       : buf_printf(out, "%s, as no rule names it",
					    policy_access_name(p->rules.otherwise));
	case POLICY_BY_LIMIT:
		return buf_puts(out,
				"denied, as the policy's patterns come to too many states here");
	case POLICY_BY_NAME:
		return buf_printf(out, "the protected name %s", p->rules.names[why->rule]);
	case POLICY_BY_RULE:
	case POLICY_BY_GLOB:
		break;
	}
	if (!x)
		return -EINVAL;
	return buf_printf(out, "%s %s%s%s%s", policy_access_name(x->access), x->text,
			  x->reason ? " (" : "", x->reason ? x->reason : "", x->reason ? ")" : "");
}
