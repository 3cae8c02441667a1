/* stage3/limits.h - resource limits and the order in which the kernel's memory killer chooses. */
#pragma once

#include "stage3/plan.h"

/* Of the calling process and those it starts. Its /proc files must be its own (PR_SET_DUMPABLE). */
int limits_oom(const struct plan *plan);
/* 0 or negative errno. A limit above the hard limit in force becomes that hard limit. */
int limits_apply(const struct plan *plan);
