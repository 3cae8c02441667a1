/*
 * base/thread.h - what each thread and each condition of ours begins with.
 */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"

/* Timed waits are by CLOCK_MONOTONIC. With glibc, whose objects need no memory, it cannot fail. */
static inline int thread_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t a;
	int r = pthread_condattr_init(&a);

	if (r)
		return -r;
	r = pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	if (!r)
		r = pthread_cond_init(c, &a);
	(void)pthread_condattr_destroy(&a);
	return -r;
}

/* On a condition of thread_cond_init(): until it is signalled, but not longer than @ns. */
static inline void thread_cond_wait_ns(pthread_cond_t *c, pthread_mutex_t *lock, int64_t ns)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	ns += until.tv_nsec;
	until.tv_sec += ns / 1000000000;
	until.tv_nsec = ns % 1000000000;
	(void)pthread_cond_timedwait(c, lock, &until);
}

/* pthread_create(3), all signals blocked in it: they are for the program's own threads. */
static inline int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int r;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(ret, NULL, fn, arg);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}
