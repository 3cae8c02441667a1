/* tests/bench/bench.h - what the measuring programs have in common: they end at the first thing that fails. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline void die(const char *what)
{
	(void)fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
		      strerrordesc_np(errno));
	exit(1);
}

static inline void check(long r, const char *what)
{
	if (r < 0)
		die(what);
}

static inline double now(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
