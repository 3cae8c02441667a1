/* See making.h. */
#include "store/making.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANY  16u /* chunks that are worth a thread */
/* Chunks: more than two transactions. So many of those that are made are in memory at once. */
#define AHEAD 144u

static int make(struct making *k, size_t i)
{
	struct store_chunk *c = &k->c[i];
	int r = k->m ? k->m->make(k->m->arg, i, c) : 0;

	if (r < 0 || (k->m && c->len == 0))
		return r;
	return c->len == 0 || c->len > STORE_BLOCK
		       ? -EINVAL
		       : store_chunk_digest(k->s, c->data, c->len, &c->digest);
}

/* k->lock, which is free meanwhile. */
static void make_next(struct making *k)
{
	size_t i = k->next++;
	int r;

	(void)pthread_mutex_unlock(&k->lock);
	r = make(k, i);
	(void)pthread_mutex_lock(&k->lock);
	k->made[i] = 1;
	if (r < 0 && k->r == 0)
		k->r = r;
	(void)pthread_cond_broadcast(&k->cond);
}

static void *helper_main(void *arg)
{
	struct making *k = arg;

	(void)pthread_mutex_lock(&k->lock);
	while (!k->stop && k->r == 0 && k->next < k->n) {
		if (k->next < k->written + AHEAD)
			make_next(k);
		else
			(void)pthread_cond_wait(&k->cond, &k->lock);
	}
	(void)pthread_mutex_unlock(&k->lock);
	return NULL;
}

/* The CPUs of the process, which are its first thread's: the one that puts may be bound to one of them. */
static unsigned cpus_of_process(cpu_set_t *ret)
{
	return sched_getaffinity(getpid(), sizeof(*ret), ret) == 0 ? (unsigned)CPU_COUNT(ret) : 0;
}

/* As many as there are other CPUs. Where there is only one the disk is waited for all the same. */
static unsigned helpers_for(size_t n, unsigned cpus)
{
	if (n < MANY)
		return 0;
	return cpus <= 2 ? 1 : cpus - 1 < MAKING_HELPERS ? cpus - 1 : MAKING_HELPERS;
}

/* Without any it only takes longer. */
static void start_helpers(struct making *k)
{
	cpu_set_t set;
	unsigned cpus = cpus_of_process(&set), helpers = helpers_for(k->n, cpus);
	pthread_attr_t attr;

	if (pthread_attr_init(&attr) != 0)
		return;
	if (cpus)
		(void)pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
	while (k->helpers < helpers &&
	       pthread_create(&k->helper[k->helpers], &attr, helper_main, k) == 0)
		k->helpers++;
	(void)pthread_attr_destroy(&attr);
}

int making_begin(struct making *k, struct store *s, struct store_chunk *c, size_t n,
		 const struct store_making *m, bool hashed)
{
	*k = (struct making){.s = s, .m = m, .c = c, .n = n, .made = calloc(n ? n : 1, 1)};
	if (!k->made)
		return -ENOMEM;
	if (hashed) {
		memset(k->made, 1, n);
		k->next = n;
	}
	(void)pthread_mutex_init(&k->lock, NULL);
	(void)pthread_cond_init(&k->cond, NULL);
	if (!hashed)
		start_helpers(k);
	return 0;
}

int making_want(struct making *k, size_t i)
{
	int r;

	(void)pthread_mutex_lock(&k->lock);
	while (k->r == 0 && !k->made[i]) {
		if (k->next <= i)
			make_next(k);
		else
			(void)pthread_cond_wait(&k->cond, &k->lock);
	}
	r = k->r;
	(void)pthread_mutex_unlock(&k->lock);
	return r;
}

static void give_back(struct making *k, size_t from, size_t to)
{
	for (size_t i = from; k->m && i < to; i++)
		if (k->made[i])
			k->m->drop(k->m->arg, i);
}

void making_written(struct making *k, size_t i)
{
	give_back(k, k->written, i);
	(void)pthread_mutex_lock(&k->lock);
	k->written = i;
	(void)pthread_cond_broadcast(&k->cond);
	(void)pthread_mutex_unlock(&k->lock);
}

void making_commits(struct making *k)
{
	int fd;

	if (k->n < MANY)
		return;
	if (!k->early && mdb_env_get_fd(k->s->chunks.env, &fd) == 0)
		k->early = early_new(fd);
	if (k->early)
		early_on(k->early);
}

void making_committed(struct making *k)
{
	if (k->early)
		early_off(k->early);
}

void making_end(struct making *k)
{
	early_free(k->early);
	(void)pthread_mutex_lock(&k->lock);
	k->stop = true;
	(void)pthread_cond_broadcast(&k->cond);
	(void)pthread_mutex_unlock(&k->lock);
	for (unsigned i = 0; i < k->helpers; i++)
		(void)pthread_join(k->helper[i], NULL);
	give_back(k, k->written, k->n);
	free(k->made);
	(void)pthread_cond_destroy(&k->cond);
	(void)pthread_mutex_destroy(&k->lock);
}
