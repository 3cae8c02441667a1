/* stage3/landlock.h - the coarse second fence: rights on places of the tree. */
#pragma once

#include "stage3/plan.h"

/* The ABI in *ret_abi, 0 where the kernel has no Landlock (an error only if the plan requires it:
 * -EOPNOTSUPP). no_new_privs must be set. */
int landlock_apply(const struct plan *plan, int *ret_abi);
/* The rights that Landlock handles at @abi. */
uint32_t landlock_handled(int abi);
