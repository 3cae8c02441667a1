/* fs/env/keeper_internal.h - between keeper.c and keeper_state.c; nobody else includes it. */
#pragma once

#include <sys/types.h>

#include "fs/env/keeper.h"

/* Is any thread of @pid running or ready to? Not when all are dead or wait in the kernel for what no signal ends. */
bool keeper_runs(pid_t pid);
