#include "stage3/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int limit_one(const struct stage3_limit *l)
{
	struct rlimit rl;
	rlim_t v = l->value;

	if (getrlimit((__rlimit_resource_t)l->resource, &rl) < 0)
		return -errno;
	if (rl.rlim_max != RLIM_INFINITY && (v == RLIM_INFINITY || v > rl.rlim_max))
		v = rl.rlim_max;
	rl.rlim_cur = v;
	rl.rlim_max = v;
	if (setrlimit((__rlimit_resource_t)l->resource, &rl) < 0)
		return -errno;
	return 0;
}

/* Raising one's own score needs no privilege. Where /proc lacks the file there is nothing to do. */
static int oom_adjust(int score)
{
	char text[16];
	int fd, n, r = 0;

	n = snprintf(text, sizeof(text), "%d", score);
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	/* EACCES: the score is already higher and may not be lowered. */
	if (write(fd, text, (size_t)n) != n && errno != EACCES)
		r = -errno;
	(void)close(fd);
	return r;
}

int limits_oom(const struct plan *plan)
{
	return plan->oom_score_adj > 0 ? oom_adjust(plan->oom_score_adj) : 0;
}

int limits_apply(const struct plan *plan)
{
	size_t i;
	int r;

	for (i = 0; i < plan->nlimits; i++) {
		r = limit_one(&plan->limits[i]);
		if (r < 0)
			return r;
	}
	return 0;
}
