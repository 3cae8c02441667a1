#include "stage3/seccomp.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(struct sock_filter) == 8, "the plan's instruction size");

int seccomp_apply(const struct plan *plan)
{
	size_t i;

	for (i = 0; i < plan->nfilters; i++) {
		struct sock_fprog prog = {
			.len = (unsigned short)plan->filter_len[i],
			.filter = (struct sock_filter *)(uintptr_t)plan->filter[i],
		};

		if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
			return -errno;
	}
	return 0;
}
