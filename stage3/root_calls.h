/* stage3/root_calls.h - what a caught call comes to (root.h). */
#pragma once

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>

struct root_answer {
	bool mine;     /* false: the kernel is to do it */
	int error;     /* negative errno; 0 */
	int64_t value; /* what the call returns without one */
};

/* Called in the order in which calls are caught, by one thread. */
struct root_caller;
struct root_answer root_call(const struct seccomp_data *call, const struct root_caller *caller);
