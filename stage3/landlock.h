/* stage3/landlock.h - the coarse second fence: rights on places of the tree. */
#pragma once

#include "stage3/plan.h"

struct landlock {
	int abi;          /* 0 where the kernel has no Landlock */
	uint32_t handled; /* enum stage3_right: of the plan's, those that the kernel has */
};
/* -EOPNOTSUPP when the kernel lacks one that the plan requires. no_new_privs must be set. */
int landlock_apply(const struct plan *plan, struct landlock *ret);
/* The rights that Landlock has at @abi. */
uint32_t landlock_handled(int abi);
