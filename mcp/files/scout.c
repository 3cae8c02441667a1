#include "mcp/files/scout.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/thread.h"
#include "mcp/files/search.h"
#include "mcp/files/text.h"

enum {
	SLOTS = 64,
	THREADS_MOST = 3,
	WAKE_FOR = 8, /* files that wait: to wake a thread takes longer than to search one */
	READ = 64 << 10,
	SNIFF = 8192,
};

/* In the order in which files were sent; a place is used again when its file was asked for. */
struct slot {
	enum {
		FREE,
		SENT,
		BEGUN,
		DONE
	} state;
	int dir_fd, fd;
	char name[256];
	enum scout_said said;
};

struct worker {
	struct scout *s;
	pthread_t thread;
	struct search *search;
	uint8_t *buf;
};

struct scout {
	struct worker workers[THREADS_MOST];
	unsigned nworkers;
	long long until;
	size_t ask;           /* of the user alone: the next slot */
	pthread_mutex_t lock; /* leaf; all below */
	pthread_cond_t work, done;
	struct slot slots[SLOTS];
	size_t put; /* the next slot */
	unsigned sent, idle;
	bool waited, stop;
};

/* ---- the threads ---- */

static int on_hit(void *arg, const struct search_hit *hit)
{
	(void)arg;
	(void)hit;
	return 1;
}

static enum scout_said look(struct worker *w, int fd)
{
	ssize_t n = io_pread_full(fd, w->buf, READ, 0);
	enum text_encoding e;
	size_t skip;

	if (n < 0)
		return SCOUT_UNKNOWN;
	e = text_bom(w->buf, (size_t)n);
	if (e >= TEXT_UTF16LE)
		return SCOUT_MAYBE;
	if (memchr(w->buf, 0, n < SNIFF ? (size_t)n : SNIFF))
		return SCOUT_BINARY;
	if (n == READ)
		return SCOUT_MAYBE;
	skip = e == TEXT_UTF8_BOM ? 3 : 0;
	return search_run(w->search, w->buf + skip, (size_t)n - skip, 1, w->s->until, on_hit,
			  NULL) == 0
		       ? SCOUT_NOTHING
		       : SCOUT_MAYBE;
}

/* s->lock. From the far end, so that the user and the threads seldom want the same one. NULL: there is none. */
static struct slot *next_sent(struct scout *s)
{
	for (size_t i = 0; s->sent && i < SLOTS; i++) {
		struct slot *x = &s->slots[(s->put + SLOTS - 1 - i) % SLOTS];

		if (x->state == SENT)
			return x;
	}
	return NULL;
}

static void *scout_main(void *arg)
{
	struct worker *w = arg;
	struct scout *s = w->s;

	pthread_mutex_lock(&s->lock);
	while (!s->stop) {
		struct slot *x = next_sent(s);
		enum scout_said said;

		if (!x) {
			s->idle++;
			pthread_cond_wait(&s->work, &s->lock);
			s->idle--;
			continue;
		}
		x->state = BEGUN;
		s->sent--;
		pthread_mutex_unlock(&s->lock);
		said = look(w, x->fd);
		(void)close(x->fd);
		pthread_mutex_lock(&s->lock);
		x->said = said;
		x->state = DONE;
		if (s->waited)
			pthread_cond_signal(&s->done);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- life ---- */

static void worker_release(struct worker *w)
{
	search_free(w->search);
	free(w->buf);
}

static int worker_start(struct scout *s, const char *pattern, unsigned flags)
{
	struct worker *w = &s->workers[s->nworkers];
	int r;

	w->s = s;
	w->buf = malloc(READ);
	r = w->buf ? search_new(pattern, flags, NULL, &w->search) : -ENOMEM;
	if (r >= 0)
		r = thread_start(&w->thread, scout_main, w);
	if (r < 0)
		worker_release(w);
	else
		s->nworkers++;
	return r;
}

int scout_new(const char *pattern, unsigned flags, long long until, struct scout **ret)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct scout *s = cpus > 1 ? calloc(1, sizeof(*s)) : NULL;
	int r = 0;

	if (!s)
		return cpus > 1 ? -ENOMEM : -EAGAIN;
	s->until = until;
	pthread_mutex_init(&s->lock, NULL);
	(void)thread_cond_init(&s->work);
	(void)thread_cond_init(&s->done);
	for (long i = 1; r >= 0 && i < cpus && i <= THREADS_MOST; i++)
		r = worker_start(s, pattern, flags);
	if (!s->nworkers) {
		scout_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void scout_free(struct scout *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->work);
	pthread_mutex_unlock(&s->lock);
	for (unsigned i = 0; i < s->nworkers; i++) {
		(void)pthread_join(s->workers[i].thread, NULL);
		worker_release(&s->workers[i]);
	}
	for (size_t i = 0; i < SLOTS; i++)
		if (s->slots[i].state == SENT)
			(void)close(s->slots[i].fd);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->done);
	free(s);
}

/* ---- the user ---- */

/* s->lock. Waits for who has begun. */
static enum scout_said take_back(struct scout *s, struct slot *x, int *ret_fd)
{
	enum scout_said said = SCOUT_UNKNOWN;

	while (x->state == BEGUN) {
		s->waited = true;
		pthread_cond_wait(&s->done, &s->lock);
		s->waited = false;
	}
	if (x->state == SENT) {
		*ret_fd = x->fd;
		s->sent--;
	} else if (x->state == DONE) {
		said = x->said;
	}
	x->state = FREE;
	return said;
}

void scout_send(struct scout *s, int dir_fd, const char *name, int fd)
{
	size_t n = strlen(name);
	struct slot *x;

	pthread_mutex_lock(&s->lock);
	x = &s->slots[s->put % SLOTS];
	if (x->state == FREE && n < sizeof(x->name)) {
		memcpy(x->name, name, n + 1);
		x->dir_fd = dir_fd;
		x->fd = fd;
		x->state = SENT;
		s->put++;
		if (++s->sent >= WAKE_FOR && s->idle)
			pthread_cond_signal(&s->work);
		fd = -1;
	}
	pthread_mutex_unlock(&s->lock);
	if (fd >= 0)
		(void)close(fd);
}

enum scout_said scout_ask(struct scout *s, int dir_fd, const char *name, int *ret_fd)
{
	enum scout_said said = SCOUT_UNKNOWN;

	*ret_fd = -1;
	pthread_mutex_lock(&s->lock);
	/* Mostly it is the one after the last. */
	for (size_t i = 0; i < SLOTS; i++) {
		struct slot *x = &s->slots[(s->ask + i) % SLOTS];

		if (x->state == FREE || x->dir_fd != dir_fd || strcmp(x->name, name) != 0)
			continue;
		said = take_back(s, x, ret_fd);
		s->ask = (s->ask + i + 1) % SLOTS;
		break;
	}
	pthread_mutex_unlock(&s->lock);
	return said;
}

void scout_leave(struct scout *s, int dir_fd)
{
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < SLOTS; i++) {
		int fd = -1;

		if (s->slots[i].state != FREE && s->slots[i].dir_fd == dir_fd)
			(void)take_back(s, &s->slots[i], &fd);
		if (fd >= 0)
			(void)close(fd);
	}
	pthread_mutex_unlock(&s->lock);
}
