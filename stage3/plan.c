#include "stage3/plan.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define INSN_SIZE 8u /* sizeof(struct sock_filter) */

/* All counts are bounded here, so that the arithmetic below cannot overflow. */
static bool header_valid(const struct stage3_plan_header *h, size_t n)
{
	size_t i;

	if (h->magic != STAGE3_MAGIC || h->version != STAGE3_VERSION || h->size != n)
		return false;
	if (h->flags & ~(uint32_t)STAGE3_PLAN_ALL)
		return false;
	if (h->handled & ~(uint32_t)STAGE3_RIGHTS_ALL || h->required & ~h->handled)
		return false;
	if (h->argc < 1 || h->argc > STAGE3_MAX_ARGS || h->envc > STAGE3_MAX_ENV)
		return false;
	if (h->nrules > STAGE3_MAX_RULES || h->nlimits > STAGE3_MAX_LIMITS)
		return false;
	if (h->nfilters > STAGE3_MAX_FILTERS || h->strings_len > STAGE3_PLAN_MAX)
		return false;
	if (h->oom_score_adj < 0 || h->oom_score_adj > 1000)
		return false;
	/* With no init before it there is nobody to hand a socket out. */
	if ((h->flags & STAGE3_PLAN_PID1) && (h->flags & STAGE3_PLAN_LISTEN))
		return false;
	if ((h->flags & STAGE3_PLAN_TTY_BACK) && !(h->flags & STAGE3_PLAN_TTY))
		return false;
	if ((h->flags & STAGE3_PLAN_NOTE) && !(h->flags & STAGE3_PLAN_SHELL))
		return false;
	/* A shell takes one text, and no other word. */
	if ((h->flags & STAGE3_PLAN_SHELL) && h->argc != 1)
		return false;
	for (i = 0; i < STAGE3_MAX_FILTERS; i++) {
		if (i < h->nfilters ? h->filter_len[i] < 1 || h->filter_len[i] > STAGE3_MAX_INSNS
				    : h->filter_len[i] != 0)
			return false;
	}
	return true;
}

static size_t fixed_size(const struct stage3_plan_header *h)
{
	size_t i, n = sizeof(*h);

	n += h->nlimits * sizeof(struct stage3_limit);
	n += h->nrules * sizeof(struct stage3_rule);
	for (i = 0; i < h->nfilters; i++)
		n += h->filter_len[i] * INSN_SIZE;
	return n;
}

static int header_read(const void *p, size_t n, struct stage3_plan_header *ret)
{
	if (n < sizeof(*ret) || n > STAGE3_PLAN_MAX)
		return -EBADMSG;
	memcpy(ret, p, sizeof(*ret));
	if (!header_valid(ret, n) || fixed_size(ret) + ret->strings_len != n)
		return -EBADMSG;
	return 0;
}

int plan_pointers(const void *p, size_t n, size_t *ret_count)
{
	struct stage3_plan_header h;
	int r;

	r = header_read(p, n, &h);
	if (r < 0)
		return r;
	*ret_count = (size_t)h.argc + 1 + h.envc + 1 + h.nrules;
	return 0;
}

struct strings {
	char *p;
	size_t left;
};

/* The next string; NULL when the rest holds no NUL. */
static char *strings_next(struct strings *s)
{
	char *str = s->p, *nul = s->left ? memchr(s->p, '\0', s->left) : NULL;

	if (!nul)
		return NULL;
	s->left -= (size_t)(nul - str) + 1;
	s->p = nul + 1;
	return str;
}

static bool strings_array(struct strings *s, char **ret, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		ret[i] = strings_next(s);
		if (!ret[i])
			return false;
	}
	return true;
}

static bool path_valid(const char *path)
{
	return path[0] == '/' && strlen(path) < STAGE3_PATH_MAX;
}

static bool tables_valid(const struct plan *plan)
{
	size_t i;

	for (i = 0; i < plan->nlimits; i++) {
		if (plan->limits[i].resource > 31 || plan->limits[i].reserved != 0)
			return false;
	}
	for (i = 0; i < plan->nrules; i++) {
		if (plan->rules[i].rights & ~(uint32_t)STAGE3_RIGHTS_FS ||
		    plan->rules[i].flags & ~(uint32_t)STAGE3_RULE_ALL ||
		    !path_valid(plan->rule_paths[i]))
			return false;
	}
	for (i = 0; i < plan->envc; i++) {
		if (!strchr(plan->envp[i], '='))
			return false;
	}
	return path_valid(plan->cwd);
}

int plan_decode(void *p, size_t n, char **room, size_t nroom, struct plan *ret)
{
	struct stage3_plan_header h;
	struct strings s;
	struct plan plan = {0};
	uint8_t *at = p;
	size_t need, i;
	int r;

	r = plan_pointers(p, n, &need);
	if (r < 0)
		return r;
	if (nroom < need || (uintptr_t)p % 8 != 0)
		return -EINVAL;
	memcpy(&h, p, sizeof(h));
	at += sizeof(h);
	plan.flags = h.flags;
	plan.oom_score_adj = h.oom_score_adj;
	plan.handled = h.handled;
	plan.required = h.required;
	plan.limits = (const struct stage3_limit *)(const void *)at;
	plan.nlimits = h.nlimits;
	at += h.nlimits * sizeof(struct stage3_limit);
	plan.rules = (const struct stage3_rule *)(const void *)at;
	plan.nrules = h.nrules;
	at += h.nrules * sizeof(struct stage3_rule);
	plan.nfilters = h.nfilters;
	for (i = 0; i < h.nfilters; i++) {
		plan.filter[i] = at;
		plan.filter_len[i] = h.filter_len[i];
		at += h.filter_len[i] * INSN_SIZE;
	}
	plan.argc = h.argc;
	plan.argv = room;
	plan.argv[h.argc] = NULL;
	plan.envc = h.envc;
	plan.envp = room + h.argc + 1;
	plan.envp[h.envc] = NULL;
	plan.rule_paths = plan.envp + h.envc + 1;

	s = (struct strings){.p = (char *)at, .left = h.strings_len};
	plan.cwd = strings_next(&s);
	if (!plan.cwd || !strings_array(&s, plan.argv, h.argc) ||
	    !strings_array(&s, plan.envp, h.envc) ||
	    !strings_array(&s, plan.rule_paths, h.nrules) || s.left != 0)
		return -EBADMSG;
	if (!tables_valid(&plan))
		return -EBADMSG;
	*ret = plan;
	return 0;
}
