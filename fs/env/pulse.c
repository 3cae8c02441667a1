#include "fs/env/pulse.h"

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "base/io.h"

struct pulse {
	int fd, result;
	sem_t ready;
};

static void *pulse_main(void *arg)
{
	struct pulse *p = arg;
	int r = io_only(p->fd);

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
