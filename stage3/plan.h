/*
 * stage3/plan.h - the decoded plan. A pure function over bytes; the pointers go into them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "stage3/stage3_abi.h"

struct plan {
	uint32_t flags;
	int32_t oom_score_adj;
	uint32_t handled, required; /* enum stage3_right */
	const struct stage3_limit *limits;
	size_t nlimits;
	const struct stage3_rule *rules;
	char **rule_paths; /* nrules of them */
	size_t nrules;
	const void *filter[STAGE3_MAX_FILTERS]; /* struct sock_filter */
	size_t filter_len[STAGE3_MAX_FILTERS];
	size_t nfilters;
	const char *cwd;
	char **argv; /* NULL-terminated */
	size_t argc;
	char **envp; /* NULL-terminated */
	size_t envc;
};

/* How many pointers plan_decode needs room for. -EBADMSG when the header alone is wrong. */
int plan_pointers(const void *p, size_t n, size_t *ret_count);
/* @room: at least plan_pointers() pointers. The plan's strings stay in @p, which must outlive the
 * result and be aligned to 8 bytes. -EBADMSG for anything that is not exactly one valid plan. */
int plan_decode(void *p, size_t n, char **room, size_t nroom, struct plan *ret);
