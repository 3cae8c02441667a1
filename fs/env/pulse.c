#include "fs/env/pulse.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <unistd.h>

struct pulse {
	int fd, result;
	sem_t ready;
};

static int alone_with(int fd)
{
	if (unshare(CLONE_FILES) < 0)
		return ret_nerrno();
	if (fd > 0 && close_range(0, (unsigned)fd - 1, 0) < 0)
		return ret_nerrno();
	return close_range((unsigned)fd + 1, ~0u, 0) < 0 ? ret_nerrno() : 0;
}

static void *pulse_main(void *arg)
{
	struct pulse *p = arg;
	int r = alone_with(p->fd);

	p->result = r;
	(void)sem_post(&p->ready); /* *p is gone from here on */
	while (r == 0)
		(void)pause();
	return NULL;
}

int pulse_start(int fd)
{
	struct pulse p = {.fd = fd};
	pthread_t thread;
	int r;

	if (sem_init(&p.ready, 0, 0) < 0)
		return ret_nerrno();
	r = pthread_create(&thread, NULL, pulse_main, &p);
	if (r == 0) {
		(void)pthread_detach(thread);
		while (sem_wait(&p.ready) < 0)
			;
		r = -p.result;
	}
	(void)sem_destroy(&p.ready);
	if (r == 0)
		(void)close(fd);
	return -r;
}
