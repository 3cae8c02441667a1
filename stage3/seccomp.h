/* stage3/seccomp.h - load the filters of the plan; they were compiled by the runner. */
#pragma once

#include "stage3/plan.h"

/* In order; no_new_privs must be set. 0 or negative errno. */
int seccomp_apply(const struct plan *plan);
