/* A run that was started: waiting for it, its streams, its end. */
#include "runner/runner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "runner/runner_internal.h"

int run_pidfd(const struct run *r)
{
	return r->pidfd;
}

int run_stop_fd(const struct run *r)
{
	return r->stop_fd;
}

int run_stopped(struct run *r)
{
	uint64_t v;
	int sig;

	if (r->stop_fd < 0)
		return 0;
	if (read(r->stop_fd, &v, sizeof(v)) < 0 && errno != EAGAIN)
		return 0;
	(void)pthread_mutex_lock(&r->lock);
	sig = r->stopped;
	r->stopped = 0;
	(void)pthread_mutex_unlock(&r->lock);
	return sig;
}

void run_continue(struct run *r, bool front)
{
	(void)pthread_mutex_lock(&r->lock);
	r->continue_asked = true;
	r->continue_front = front;
	(void)pthread_mutex_unlock(&r->lock);
	run_wake(r);
}

void run_signal(struct run *r, int sig)
{
	(void)pthread_mutex_lock(&r->lock);
	r->signals |= 1ull << (sig & 63);
	(void)pthread_mutex_unlock(&r->lock);
	run_wake(r);
}

void run_wake(struct run *r)
{
	const uint64_t one = 1;
	ssize_t n = write(r->wake_fd, &one, sizeof(one));

	(void)n; /* EAGAIN: it is awake */
}

int run_kill(struct run *r, unsigned grace_ms)
{
	(void)pthread_mutex_lock(&r->lock);
	if (!r->done) {
		if (!r->kill_asked || grace_ms < r->kill_grace)
			r->kill_grace = grace_ms;
		r->kill_asked = true;
		r->killed = true;
	}
	(void)pthread_mutex_unlock(&r->lock);
	run_wake(r);
	return 0;
}

struct timespec run_after(uint64_t ms)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += (time_t)(ms / 1000);
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

int run_wait(struct run *r, uint64_t timeout_ms, struct run_result *ret)
{
	/* A year is for ever, and does not overflow. */
	const bool forever = timeout_ms > 366ull * 24 * 3600 * 1000;
	struct timespec end = run_after(forever ? 0 : timeout_ms);
	int done, e = 0;

	(void)pthread_mutex_lock(&r->lock);
	while (!r->done && e == 0)
		e = forever ? pthread_cond_wait(&r->cond, &r->lock)
			    : pthread_cond_timedwait(&r->cond, &r->lock, &end);
	done = r->done;
	if (done)
		*ret = r->result;
	(void)pthread_mutex_unlock(&r->lock);
	return done;
}

bool run_command(struct run *r, struct run_result *ret)
{
	bool ended;

	(void)pthread_mutex_lock(&r->lock);
	ended = r->command_ended;
	if (ended)
		*ret = r->command;
	(void)pthread_mutex_unlock(&r->lock);
	return ended;
}

int run_output(struct run *r, int stream, struct buf *head, struct buf *tail, uint64_t *ret_skipped)
{
	int e;

	if (stream != 0 && stream != 1)
		return -EINVAL;
	(void)pthread_mutex_lock(&r->lock);
	e = capture_copy(&r->capture[stream], head, tail, ret_skipped);
	(void)pthread_mutex_unlock(&r->lock);
	return e;
}

int run_asked(struct run *r, struct run_asked **ret, size_t *ret_n, uint64_t *ret_total)
{
	const struct way_out *w = &r->way_out;
	int e = 0;

	(void)pthread_mutex_lock(&r->lock);
	*ret_n = w->nasked;
	*ret_total = w->total;
	*ret = w->nasked ? malloc(w->nasked * sizeof(**ret)) : NULL;
	if (*ret)
		memcpy(*ret, w->asked, w->nasked * sizeof(**ret));
	else if (w->nasked)
		e = -ENOMEM;
	(void)pthread_mutex_unlock(&r->lock);
	return e;
}

static size_t input_room(const struct run *r)
{
	const size_t waits = r->input.len - r->input_at;

	return waits < RUN_INPUT_MAX ? RUN_INPUT_MAX - waits : 0;
}

ssize_t run_input(struct run *r, const void *p, size_t n)
{
	size_t part;
	int e = 0;

	(void)pthread_mutex_lock(&r->lock);
	part = input_room(r) < n ? input_room(r) : n;
	/* A keyboard has no end; what reads from it is told of one. */
	if (n == 0 && r->keyboard && !r->input_closed)
		e = buf_put(&r->input, "\4", 1);
	else if (n == 0)
		r->input_closed = true;
	else if (r->input_closed)
		e = -EPIPE;
	else if (part > 0)
		e = buf_put(&r->input, p, part);
	(void)pthread_mutex_unlock(&r->lock);
	run_wake(r);
	return e < 0 ? e : (ssize_t)part;
}

/* The numbers are looked at once the thread is gone, which closes some of them. */
static void close_all(const struct run *r)
{
	const int fds[] = {r->out_fd[0], r->out_fd[1],       r->err_fd,        r->status_fd,
			   r->in_fd,     r->init_fd,         r->pidfd,         r->wake_fd,
			   r->stop_fd,   r->tie_fd,          r->plan_fd,       r->tie_next,
			   r->tree_fd,   r->spawn.userns_fd, r->spawn.mntns_fd};

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			(void)close(fds[i]);
	for (size_t i = 0; i < ARRAY_SIZE(r->spawn.fd); i++)
		if (r->spawn.fd[i] >= 0)
			(void)close(r->spawn.fd[i]);
}

void run_free(struct run *r)
{
	struct run_spare *spare = r ? r->spare : NULL;

	if (!r)
		return;
	if (r->thread_made) {
		(void)run_kill(r, 0);
		(void)pthread_join(r->thread, NULL);
	}
	close_all(r);
	way_out_release(&r->way_out);
	for (size_t i = 0; i < 2; i++)
		capture_release(&r->capture[i]);
	cgroup_free(r->cgroup);
	buf_release(&r->input);
	buf_release(&r->bwrap_text);
	(void)pthread_cond_destroy(&r->cond);
	(void)pthread_mutex_destroy(&r->lock);
	free(r->bwrap);
	free(r->root);
	free(r);
	if (spare)
		run_spare_ended(spare);
}
