/* tests/unit/fuse/real_env.h - a store with an environment "t" whose root belongs to the caller, for mounts over a real
 * core. */
#pragma once

#include "store/store.h"

/* Made when it is not there. A sentence goes to stderr when that fails. */
int real_env_open(const char *dir, struct store **ret, struct store_env *ret_env);
