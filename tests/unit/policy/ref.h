/* The rules of a policy in the slowest and plainest way: a whole path against the whole list, each time. */
#pragma once

#include "policy/rules.h"

enum policy_access ref_access(const struct policy_rules *r, const char *path);
/* Does the pattern match this very path? */
bool ref_glob(const char *pattern, const char *path);
