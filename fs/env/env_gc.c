/* Garbage, now and then, by a daemon that has little to do. */
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "fs/env/env_internal.h"

#define LOOK_S     60
#define KEEP_MAX   1000000
#define MEMORY     ((size_t)32 << 20)
#define BUSY_MS    20 /* of a pause at each step while commands run */
#define NICE       10
#define IO_IDLE    (3 << 13)
#define IO_PROCESS 1

long env_setting(const char *name, long unset, long max)
{
	const char *s = getenv(name);
	char *end;
	long v;

	if (!s || !*s)
		return unset;
	errno = 0;
	v = strtol(s, &end, 10);
	return errno || *end || v < 0 || v > max ? unset : v;
}

static long look_s(void)
{
	return env_setting("RATTAN_GC_S", LOOK_S, 1000000);
}

void env_gc_keep(struct store_gc_opts *o)
{
	if (!o->keep_moves)
		o->keep_moves = (unsigned)env_setting("RATTAN_KEEP_STATES", 0, KEEP_MAX);
	if (!o->keep_days)
		o->keep_days = (unsigned)env_setting("RATTAN_KEEP_DAYS", 0, KEEP_MAX);
}

static bool stopped(struct env_gc *g)
{
	return atomic_load(&g->stop);
}

/* Beside commands it takes what they leave. */
static bool go_on(void *arg, enum store_gc_phase phase, uint64_t done, uint64_t total)
{
	struct env *e = arg;

	(void)phase;
	(void)done;
	(void)total;
	if (env_leases(e))
		(void)nanosleep(&(struct timespec){.tv_nsec = BUSY_MS * 1000000L}, NULL);
	return !stopped(&e->gc);
}

static void collect(struct env *e)
{
	struct store_gc_opts o = {.memory = MEMORY, .pack = true, .go_on = go_on, .arg = e};
	struct store_gc_result res;
	struct diag diag = {0};
	int r;

	env_gc_keep(&o);
	r = store_gc(e->store, &o, &diag, &res);
	if (r == 0)
		log_info(
			"collected %llu layers and %llu chunks of %llu bytes, compressed %llu of %llu to %llu",
			(unsigned long long)res.layers, (unsigned long long)res.chunks,
			(unsigned long long)res.chunk_bytes, (unsigned long long)res.packed,
			(unsigned long long)res.packed_from, (unsigned long long)res.packed_to);
	else if (r == -EBUSY || r == -ECANCELED)
		log_debug("%s", diag.text);
	else
		log_warn("%s", diag.text);
}

static void *gc_main(void *arg)
{
	struct env *e = arg;
	struct env_gc *g = &e->gc;
	long every = look_s();

	/* Threads have priorities of their own. */
	(void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
	(void)syscall(SYS_ioprio_set, IO_PROCESS, 0, IO_IDLE);
	(void)pthread_mutex_lock(&g->lock);
	while (!stopped(g)) {
		struct timespec until;

		(void)clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += every;
		while (!stopped(g) &&
		       pthread_cond_timedwait(&g->cond, &g->lock, &until) != ETIMEDOUT)
			;
		(void)pthread_mutex_unlock(&g->lock);
		if (!stopped(g) && store_gc_wanted(e->store))
			collect(e);
		(void)pthread_mutex_lock(&g->lock);
	}
	(void)pthread_mutex_unlock(&g->lock);
	return NULL;
}

int env_gc_start(struct env *e)
{
	struct env_gc *g = &e->gc;
	int r;

	if (look_s() == 0)
		return 0;
	(void)pthread_mutex_init(&g->lock, NULL);
	(void)thread_cond_init(&g->cond);
	r = pthread_create(&g->thread, NULL, gc_main, e);
	g->running = r == 0;
	return -r;
}

void env_gc_stop(struct env *e)
{
	struct env_gc *g = &e->gc;

	if (!g->running)
		return;
	(void)pthread_mutex_lock(&g->lock);
	atomic_store(&g->stop, true);
	(void)pthread_cond_broadcast(&g->cond);
	(void)pthread_mutex_unlock(&g->lock);
	(void)pthread_join(g->thread, NULL);
	g->running = false;
}
