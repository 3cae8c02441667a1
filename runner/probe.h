/*
 * runner/probe.h - can this host run agents, and if not, why and what to do (sandbox.md 7).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum probe_need {
	PROBE_REQUIRED,
	PROBE_OPTIONAL
};
struct probe_item {
	const char *name;
	enum probe_need need;
	bool found;
	char detail[256]; /* what was found: version, ABI */
	char remedy[512]; /* what a person can do; "" when found */
};
/* By really doing it: a user namespace, a FUSE mount in one, bwrap, Landlock, seccomp, cgroup; and a
 * self-test, a sandbox in which something that must be denied is denied. Returns the number of
 * items; *ret_ok: agents can run. */
int probe_run(struct probe_item *items, size_t max, bool *ret_ok) MUST_USE;
