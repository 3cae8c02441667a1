/*
 * runner/cgroup.h - a cgroup (v2) of the command's own, where the user has a delegated subtree.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "runner/runner.h"

struct cgroup;

/* -EOPNOTSUPP when no writable subtree with the pids and memory controllers is there. */
int cgroup_new(const struct run_limits *l, struct cgroup **ret) MUST_USE;
/* The descriptor of cgroup.procs: whoever writes "0" to it is in. Owned by @c. */
int cgroup_procs_fd(const struct cgroup *c);
/* SIGKILL to all in it. */
void cgroup_kill(const struct cgroup *c);
/* Removes it; it must be empty. Accepts NULL. */
void cgroup_free(struct cgroup *c);
/* The directory in which cgroup_new would make one, for the probe; owned by the caller. */
int cgroup_parent(char **ret) MUST_USE;
