#include "store/early.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"

enum {
	PAUSE_NS = 1000000 /* meanwhile a megabyte or two is copied */
};

struct early {
	pthread_mutex_t lock; /* a leaf; all below */
	pthread_cond_t cond;
	pthread_t thread;
	int fd;
	bool busy, stop;
};

/* e->lock. */
static void pause_a_bit(struct early *e)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += PAUSE_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	(void)pthread_cond_timedwait(&e->cond, &e->lock, &until);
}

static void *early_main(void *arg)
{
	struct early *e = arg;
	bool can = true;

	(void)pthread_mutex_lock(&e->lock);
	while (!e->stop && can) {
		if (!e->busy) {
			(void)pthread_cond_wait(&e->cond, &e->lock);
			continue;
		}
		(void)pthread_mutex_unlock(&e->lock);
		can = sync_file_range(e->fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0;
		(void)pthread_mutex_lock(&e->lock);
		if (!e->stop)
			pause_a_bit(e);
	}
	(void)pthread_mutex_unlock(&e->lock);
	return NULL;
}

/* Who commits may be bound to one CPU, as the process is not. */
static int start(struct early *e)
{
	pthread_attr_t attr;
	cpu_set_t set;
	int r = pthread_attr_init(&attr);

	if (r)
		return -r;
	if (sched_getaffinity(getpid(), sizeof(set), &set) == 0)
		(void)pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
	r = pthread_create(&e->thread, &attr, early_main, e);
	(void)pthread_attr_destroy(&attr);
	return -r;
}

struct early *early_new(int fd)
{
	struct early *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->fd = fd;
	(void)pthread_mutex_init(&e->lock, NULL);
	(void)thread_cond_init(&e->cond);
	if (start(e) < 0) {
		free(e);
		return NULL;
	}
	return e;
}

static void turn(struct early *e, bool busy, bool stop)
{
	(void)pthread_mutex_lock(&e->lock);
	e->busy = busy;
	e->stop = stop;
	if (busy || stop)
		(void)pthread_cond_signal(&e->cond);
	(void)pthread_mutex_unlock(&e->lock);
}

void early_on(struct early *e)
{
	turn(e, true, false);
}

void early_off(struct early *e)
{
	turn(e, false, false);
}

void early_free(struct early *e)
{
	if (!e)
		return;
	turn(e, false, true);
	(void)pthread_join(e->thread, NULL);
	(void)pthread_mutex_destroy(&e->lock);
	(void)pthread_cond_destroy(&e->cond);
	free(e);
}
