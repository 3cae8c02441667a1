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

static void *early_main(void *arg)
{
	struct early *e = arg;
	bool can = true;
	cpu_set_t set;

	/* Who commits may be bound to one CPU, as the process is not. */
	if (sched_getaffinity(getpid(), sizeof(set), &set) == 0)
		(void)sched_setaffinity(0, sizeof(set), &set);
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
			thread_cond_wait_ns(&e->cond, &e->lock, PAUSE_NS);
	}
	(void)pthread_mutex_unlock(&e->lock);
	return NULL;
}

struct early *early_new(int fd)
{
	struct early *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->fd = fd;
	(void)pthread_mutex_init(&e->lock, NULL);
	(void)thread_cond_init(&e->cond);
	if (thread_start(&e->thread, early_main, e) < 0) {
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
