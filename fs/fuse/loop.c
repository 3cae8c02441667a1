/*
 * Leader and follower: one worker, the leader, reads from /dev/fuse; the rest sleep on a condition.
 *
 * Why not all in read(): the kernel wakes a parked reader, and that wakeup across CPUs is what costs
 * most (spin.h); with one reader, short requests are read and served by a thread that is awake, and
 * at most one spins, or keeps the other CPU occupied (company.h). The leader hands leadership on before
 * it serves when another request is waiting already or the one it has is known to be slow. A leader that
 * turns out to be slow (a cold disk, a writer that waits for a flush) is relieved by the pacer, which looks
 * every few milliseconds while there is work and sleeps otherwise.
 */
#include "base/thread.h"
#include "fs/fuse/session_internal.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
	PACE_NS = 4 * 1000 * 1000, /* how long a leader may serve before it is relieved */
	QUIET_TICKS = 25,          /* of the pacer without a request before it sleeps */
	LARGE_WRITE = 64 * 1024,
	BRIEF_FORGETS = 64,
	/* A READ from memory takes 5-50 us, one from a cold disk 130 us and more (measured). */
	SLOW_READ_NS = 120 * 1000,
	PINNED_MS = 10, /* how long a leader waits on one CPU */
};

int loop_init(struct loop *l)
{
	int r;

	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->wake_fd < 0)
		return ret_nerrno();
	/* None of these can fail with glibc, whose objects need no memory. */
	r = pthread_mutex_init(&l->lock, NULL);
	r = r ? r : pthread_cond_init(&l->follower, NULL);
	return r ? -r : thread_cond_init(&l->pacer);
}

void loop_release(struct loop *l)
{
	if (l->wake_fd < 0)
		return;
	(void)close(l->wake_fd);
	(void)pthread_cond_destroy(&l->pacer);
	(void)pthread_cond_destroy(&l->follower);
	(void)pthread_mutex_destroy(&l->lock);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- leadership ---- */

static unsigned reading(const struct worker *w)
{
	return w->id << 1;
}

static unsigned serving(const struct worker *w)
{
	return w->id << 1 | LOOP_SERVING;
}

/* False: workers have to go. */
static bool become_leader(struct worker *w)
{
	struct loop *l = &w->se->loop;
	bool leads;

	(void)pthread_mutex_lock(&l->lock);
	while (atomic_load(&l->leader) && !atomic_load(&l->stop)) {
		atomic_fetch_add(&l->idle, 1);
		(void)pthread_cond_wait(&l->follower, &l->lock);
		atomic_fetch_sub(&l->idle, 1);
	}
	leads = !atomic_load(&l->stop);
	if (leads)
		atomic_store(&l->leader, reading(w));
	(void)pthread_mutex_unlock(&l->lock);
	return leads;
}

/* Take leadership from whoever holds it as @from. */
static void vacate(struct loop *l, unsigned from)
{
	bool mine;

	(void)pthread_mutex_lock(&l->lock);
	mine = atomic_compare_exchange_strong(&l->leader, &from, 0);
	(void)pthread_mutex_unlock(&l->lock);
	/* Not under the lock, on which whoever wakes would go to sleep again. */
	if (mine)
		(void)pthread_cond_signal(&l->follower);
}

/* Known to take long, or to wait for the disk. */
static bool is_slow(const struct worker *w)
{
	switch (w->req->opcode) {
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
	case PROTO_COPY_FILE_RANGE_64:
		return true;
	case FUSE_WRITE:
		return w->req_len > LARGE_WRITE;
	case FUSE_READ:
		return atomic_load_explicit(&w->se->loop.read_ns, memory_order_relaxed) >
		       SLOW_READ_NS;
	default:
		return false;
	}
}

/* Nobody waits for it, and it takes less than to wake another worker: to hand leadership on for it would make
 * the request behind it wait for that. */
static bool is_brief(const struct worker *w)
{
	const struct fuse_batch_forget_in *in = (const void *)(w->req + 1);

	return w->req->opcode == FUSE_FORGET ||
	       (w->req->opcode == FUSE_BATCH_FORGET &&
		w->req_len >= sizeof(*w->req) + sizeof(*in) && in->count <= BRIEF_FORGETS);
}

static bool is_removal(const struct worker *w)
{
	return w->req->opcode == FUSE_UNLINK || w->req->opcode == FUSE_RMDIR ||
	       w->req->opcode == FUSE_RENAME || w->req->opcode == FUSE_RENAME2;
}

static bool more_waiting(const struct loop *l)
{
	struct pollfd p = {.fd = l->fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* Is another to read while this one is served? What waits after a removal is most likely its FORGET, which is no
 * reason; who else waits does so for one request. */
static bool hands_on(const struct worker *w, bool forget_due)
{
	if (is_slow(w))
		return true;
	return !is_brief(w) && !forget_due && more_waiting(&w->se->loop);
}

static void unpin(struct worker *w)
{
	if (w->pinned && company_pin(&w->se->loop.company, false))
		w->pinned = false;
}

/* The leader is about to serve: let another one read if that is worth it, and let the pacer watch. */
static void before_serving(struct worker *w)
{
	struct loop *l = &w->se->loop;
	bool forget_due = l->forget_due;

	l->forget_due = is_removal(w); /* ours no more from the next line on */
	atomic_store(&l->leader, serving(w));
	/* Sequentially consistent with the pacer, which falls asleep and then looks at it again. */
	atomic_fetch_add(&l->served, 1);
	if (atomic_load(&l->pacer_asleep)) {
		(void)pthread_mutex_lock(&l->lock);
		(void)pthread_cond_signal(&l->pacer);
		(void)pthread_mutex_unlock(&l->lock);
	}
	if (atomic_load(&l->idle) && hands_on(w, forget_due)) {
		unpin(w);
		vacate(l, serving(w));
	}
}

/* Is the worker still leader after it has served? */
static bool leads_again(struct worker *w)
{
	unsigned was = serving(w);

	return atomic_compare_exchange_strong(&w->se->loop.leader, &was, reading(w));
}

/* ---- reading ---- */

/* Block until there is something to read, or workers have to go. Who waits for long may be woken anywhere. */
static void block(struct worker *w)
{
	struct loop *l = &w->se->loop;
	struct pollfd p[2] = {
		{.fd = l->fd, .events = POLLIN},
		{.fd = l->wake_fd, .events = POLLIN},
	};

	if (w->pinned && poll(p, 2, PINNED_MS) != 0)
		return;
	unpin(w);
	(void)poll(p, 2, -1);
}

/* Keep the other CPU occupied, and be where the last caller is. */
static void keep_company(struct worker *w)
{
	struct loop *l = &w->se->loop;
	bool moved = true;

	if (l->beside && company_awake(&l->company))
		moved = company_follow(&l->company, (pid_t)l->caller);
	else
		l->beside = company_begin(&l->company, (pid_t)l->caller, now_ns());
	if (l->beside && (moved || !w->pinned))
		w->pinned = company_pin(&l->company, true);
	if (!l->beside)
		spin_expired(&l->spin);
	if (!l->company.usable)
		spin_refuse_beside(&l->spin);
}

static void leave_company(struct worker *w)
{
	struct loop *l = &w->se->loop;

	if (l->beside)
		company_end(&l->company);
	l->beside = false;
	unpin(w);
}

/* Wait in the way that is measured to be worth it. @until: 0 before the first try. */
static void await(struct worker *w, uint64_t *until, bool *spun)
{
	struct loop *l = &w->se->loop;
	enum spin_way way = spin_wanted(&l->spin);
	uint64_t now;

	*spun = way == SPIN_READ;
	if (l->spin.now != SPIN_BESIDE)
		leave_company(w);
	if (way == SPIN_BESIDE)
		keep_company(w);
	if (*spun) {
		now = now_ns();
		if (!*until)
			*until = now + l->spin.max_ns;
		if (now < *until)
			return;
		spin_expired(&l->spin);
		*spun = false;
	}
	block(w);
}

static void arrived(struct worker *w, bool spun)
{
	const struct fuse_in_header *head = (const void *)w->in;
	struct loop *l = &w->se->loop;
	uint64_t now = now_ns();

	if (head->pid) /* a FORGET is nobody's */
		l->caller = head->pid;
	if (l->beside) {
		company_message(&l->company, now);
		spun = company_awake(&l->company);
		if (!spun)
			spin_expired(&l->spin);
		l->beside = spun;
	}
	spin_arrived(&l->spin, now, spun);
}

/* The next request into @w->in: its length, or negative when the worker has to go. */
static ssize_t next_request(struct worker *w)
{
	struct loop *l = &w->se->loop;
	uint64_t until = 0;
	bool spun = false;
	ssize_t n;

	/* Who was answered runs when this CPU is given up, and not before. */
	if (w->pinned && l->beside && spin_wanted(&l->spin) == SPIN_BESIDE)
		await(w, &until, &spun);
	while (!atomic_load_explicit(&l->stop, memory_order_relaxed)) {
		n = read(l->fd, w->in, SESSION_IN_SIZE);
		if (n >= 0) {
			arrived(w, spun);
			return n;
		}
		if (errno == EAGAIN)
			await(w, &until, &spun);
		else if (errno != EINTR && errno != ENOENT) /* ENOENT: aborted while being read */
			return ret_nerrno();
	}
	return -ECANCELED;
}

static void serve_timed(struct worker *w)
{
	struct loop *l = &w->se->loop;
	uint64_t start = now_ns(), took;
	uint32_t mean;

	session_serve(w);
	took = now_ns() - start;
	if (took > UINT32_MAX)
		took = UINT32_MAX;
	mean = atomic_load_explicit(&l->read_ns, memory_order_relaxed);
	mean = (uint32_t)(((uint64_t)mean * 7 + took) / 8);
	atomic_store_explicit(&l->read_ns, mean, memory_order_relaxed);
}

static void serve(struct worker *w)
{
	if (w->req->opcode == FUSE_READ)
		serve_timed(w);
	else
		session_serve(w);
}

/* Lead until leadership has gone; false: the worker has to go. */
static bool lead(struct worker *w)
{
	ssize_t n;

	do {
		n = next_request(w);
		if (n < 0) {
			if (n != -ECANCELED)
				session_ended(w->se);
			return false;
		}
		w->req = (const void *)w->in;
		w->req_len = (size_t)n;
		before_serving(w);
		serve(w);
	} while (leads_again(w));
	unpin(w);
	return true;
}

void *loop_worker(void *worker)
{
	struct worker *w = worker;

	(void)pthread_setspecific(w->se->worker_key, w);
	while (become_leader(w) && lead(w))
		;
	return NULL;
}

void loop_stop(struct loop *l)
{
	uint64_t one = 1;

	(void)pthread_mutex_lock(&l->lock);
	atomic_store(&l->stop, true);
	(void)pthread_cond_broadcast(&l->follower);
	(void)pthread_cond_signal(&l->pacer);
	(void)pthread_mutex_unlock(&l->lock);
	(void)!write(l->wake_fd, &one, sizeof(one));
}

/* ---- the pacer ---- */

static void tick_locked(struct loop *l)
{
	thread_cond_wait_ns(&l->pacer, &l->lock, PACE_NS);
}

static void sleep_locked(struct loop *l, uint64_t seen)
{
	atomic_store(&l->pacer_asleep, true);
	while (atomic_load(&l->served) == seen && !atomic_load(&l->stop))
		(void)pthread_cond_wait(&l->pacer, &l->lock);
	atomic_store(&l->pacer_asleep, false);
}

static void *pacer_main(void *arg)
{
	struct loop *l = arg;
	unsigned leader, quiet = 0;
	uint64_t served, seen = 0;

	(void)pthread_mutex_lock(&l->lock);
	while (!atomic_load(&l->stop)) {
		if (quiet > QUIET_TICKS) {
			sleep_locked(l, seen);
			quiet = 0;
		}
		tick_locked(l);
		leader = atomic_load(&l->leader);
		served = atomic_load(&l->served);
		if (served != seen) {
			quiet = 0;
		} else if (!(leader & LOOP_SERVING)) {
			quiet++;
		} else if (atomic_load(&l->idle) &&
			   atomic_compare_exchange_strong(&l->leader, &leader, 0)) {
			/* Still the request it had a tick ago. */
			(void)pthread_cond_signal(&l->follower);
		}
		seen = served;
	}
	(void)pthread_mutex_unlock(&l->lock);
	return NULL;
}

int loop_start_pacer(struct loop *l)
{
	int r = pthread_create(&l->pacer_thread, NULL, pacer_main, l);

	if (r)
		return -r;
	(void)pthread_setname_np(l->pacer_thread, "fuse-pacer");
	l->pacer_runs = true;
	return 0;
}
