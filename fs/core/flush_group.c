/* Who flushes, and when: one at a time, for all who wait for it, and a thread of its own that does so after a while. */
#include "base/io.h"
#include "base/thread.h"
#include "fs/core/journal.h"
#include "fs/core/ovl_internal.h"

#define OWED_WAIT  (8u << 20) /* bytes of blocks that are there in part for which a flush may wait */
#define WAIT_TIMES 8
#define LOG_IDLE   (1u << 20) /* bytes of the journal that are cut although nothing is dirty */

/* ---- who flushes ---- */

/* Counted from what the last flush left: bytes of files without a name stay in memory up to a bound,
 * and must not make every change start a flush. */
static void flush_set_kick(struct ovl *o)
{
	size_t left = content_env_whole(o->cenv) + o->dirty_max / 8;
	size_t most = orphans_max(o);

	atomic_store(&o->fl.kick_at, left < most ? left : most);
	atomic_store(&o->fl.inodes_left, atomic_load(&o->ndirty));
}

/* g->lock. Of one who wants a flush; several of them wait, and frames with them. */
static void wait_turn(struct flush_group *g)
{
	g->waiting++;
	pthread_cond_wait(&g->cond, &g->lock);
	if (--g->waiting == 0)
		pthread_cond_broadcast(&g->cond);
}

void flush_acquire(struct ovl *o)
{
	struct flush_group *g = &o->fl;

	pthread_mutex_lock(&g->lock);
	while (g->running)
		wait_turn(g);
	g->running = true;
	g->started++;
	pthread_mutex_unlock(&g->lock);
}

void flush_release(struct ovl *o, int result)
{
	struct flush_group *g = &o->fl;

	if (result < 0)
		atomic_store(&g->failed, io_now_ms());
	atomic_store(&g->error, result);
	flush_set_kick(o);
	pthread_mutex_lock(&g->lock);
	g->running = false;
	g->done = g->started;
	g->result = result;
	pthread_cond_broadcast(&g->cond);
	pthread_mutex_unlock(&g->lock);
}

int flush_join(struct ovl *o)
{
	struct flush_group *g = &o->fl;
	uint64_t want;
	int r = 0;

	pthread_mutex_lock(&g->lock);
	/* One that has begun may have missed our change: the next one holds it. */
	want = g->started + 1;
	while (g->done < want) {
		if (g->running) {
			wait_turn(g);
			continue;
		}
		g->running = true;
		g->started++;
		pthread_mutex_unlock(&g->lock);
		r = flush_now(o, false);
		flush_release(o, r);
		return r;
	}
	r = g->result;
	pthread_mutex_unlock(&g->lock);
	return r;
}

/* g->lock. May a frame be written now? One at a time. */
static bool frame_may(const struct flush_group *g)
{
	return g->running ? g->open && !g->framing : g->waiting == 0;
}

static void frame_begin(struct flush_group *g)
{
	if (g->running)
		g->framing = true;
	else
		g->running = true;
}

static void frame_end(struct flush_group *g)
{
	if (g->framing)
		g->framing = false;
	else
		g->running = false;
	pthread_cond_broadcast(&g->cond);
}

int sync_join(struct ovl *o)
{
	struct flush_group *g = &o->fl;
	uint64_t upto, want;
	int r;

	if (!o->slog.log || !o->journal)
		return flush_join(o);
	upto = journal_end(o->journal);
	pthread_mutex_lock(&g->lock);
	want = g->started + 1;
	while (g->done < want && !frame_may(g))
		pthread_cond_wait(&g->cond, &g->lock);
	if (g->done >= want) {
		r = g->result;
		pthread_mutex_unlock(&g->lock);
		return r;
	}
	frame_begin(g);
	pthread_mutex_unlock(&g->lock);
	r = synclog_write(o, upto);
	pthread_mutex_lock(&g->lock);
	frame_end(g);
	pthread_mutex_unlock(&g->lock);
	return r == 0 ? 0 : flush_join(o);
}

int flush_relief(struct ovl *o)
{
	struct flush_group *g = &o->fl;
	uint64_t want;
	int r;

	pthread_mutex_lock(&g->lock);
	want = g->done + 1;
	while (g->done < want && g->running)
		pthread_cond_wait(&g->cond, &g->lock);
	r = g->done < want ? 1 : g->result;
	pthread_mutex_unlock(&g->lock);
	return r > 0 ? flush_join(o) : r;
}

/* ---- the background ---- */

bool flush_wanted(struct ovl *o)
{
	bool yes;

	lock_shared(o);
	pthread_mutex_lock(&o->dirty_lock);
	yes = o->ndirty > 0 || o->nnames > 0 || o->dead.t.n > 0;
	pthread_mutex_unlock(&o->dirty_lock);
	unlock(o);
	/* Files that came and went leave only records behind. */
	if (o->journal && journal_size(o->journal, JOURNAL_CHANGES) > LOG_IDLE)
		yes = true;
	return yes || atomic_load(&o->fl.error) < 0;
}

void flush_kick(struct ovl *o)
{
	struct flush_group *g = &o->fl;

	if (atomic_exchange(&g->kicked, true))
		return;
	pthread_mutex_lock(&g->lock);
	pthread_cond_broadcast(&g->cond);
	pthread_mutex_unlock(&g->lock);
}

/*
 * Blocks that are there in part cost a flush many times what was written, and programs that write at random places come back to the
 * same blocks: while they do, the log takes what came since the last time, which is as safe, and the flush waits until nothing comes
 * for a while or the log has had its turns.
 */
static bool may_wait(struct ovl *o, uint64_t *last, unsigned *waited)
{
	uint64_t end = o->journal && o->slog.log ? journal_end(o->journal) : *last;
	bool yes = end != *last && content_env_owed(o->cenv) >= OWED_WAIT &&
		   content_env_owed(o->cenv) > content_env_whole(o->cenv) &&
		   !atomic_load(&o->fl.kicked) && *waited < WAIT_TIMES;

	*last = end;
	*waited = yes ? *waited + 1 : 0;
	return yes;
}

static void *flush_main(void *arg)
{
	struct ovl *o = arg;
	uint64_t last = 0;
	unsigned waited = 0;
	struct flush_group *g = &o->fl;

	pthread_mutex_lock(&g->lock);
	while (!g->stop) {
		struct timespec until;
		bool wanted;
		int r = 0;

		(void)clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += o->flush_ms / 1000;
		until.tv_nsec += (long)(o->flush_ms % 1000) * 1000000;
		if (until.tv_nsec >= 1000000000) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000;
		}
		while (!g->stop && !atomic_load(&g->kicked) && r != ETIMEDOUT)
			r = pthread_cond_timedwait(&g->cond, &g->lock, &until);
		if (g->stop)
			break;
		pthread_mutex_unlock(&g->lock);
		wanted = flush_wanted(o);
		if (wanted)
			r = may_wait(o, &last, &waited)
				    ? sync_join(o)
				    : flush_join(o); /* kept in fl.error; everything stays dirty */
		else
			content_env_idle(o->cenv);
		/* In this order: who wrote meanwhile and found it kicked already is seen here, and who did not kicks again. */
		atomic_store(&g->kicked, false);
		if (wanted && flush_presses(o))
			atomic_store(&g->kicked, true);
		pthread_mutex_lock(&g->lock);
		/* A full disk must not be asked without pause. */
		if (atomic_load(&g->error) < 0 && !g->stop) {
			(void)clock_gettime(CLOCK_MONOTONIC, &until);
			until.tv_sec += 1;
			while (!g->stop && r != ETIMEDOUT)
				r = pthread_cond_timedwait(&g->cond, &g->lock, &until);
		}
	}
	pthread_mutex_unlock(&g->lock);
	return NULL;
}

int flush_start(struct ovl *o)
{
	struct flush_group *g = &o->fl;
	int r;

	pthread_mutex_init(&g->lock, NULL);
	(void)thread_cond_init(&g->cond);
	flush_set_kick(o);
	if (o->flags & OVL_RDONLY)
		return 0;
	r = pthread_create(&g->thread, NULL, flush_main, o);
	g->thread_running = r == 0;
	return -r;
}

void flush_stop(struct ovl *o)
{
	struct flush_group *g = &o->fl;

	if (!g->thread_running)
		return;
	pthread_mutex_lock(&g->lock);
	g->stop = true;
	pthread_cond_broadcast(&g->cond);
	pthread_mutex_unlock(&g->lock);
	(void)pthread_join(g->thread, NULL);
	g->thread_running = false;
}
