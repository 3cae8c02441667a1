#include "net/resolve.h"

#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/host.h"

#define THREADS     8
#define SAME_NAME   2 /* of them: a name whose server is silent leaves the others to other names */
#define WAITING_MAX 256
#define STACK_SIZE  (512u << 10) /* getaddrinfo keeps answers of 64 KiB on it */

struct resolving {
	struct resolving *next;
	void *owner; /* under lock */
	char host[NET_HOST_MAX];
	char port[8];
	struct resolved out;
};

struct resolver {
	int done_fd; /* eventfd */
	pthread_mutex_t lock;
	pthread_cond_t work;
	/* under lock */
	struct resolving *waiting, **waiting_end, *done;
	const struct resolving *at[THREADS]; /* what each thread looks up, or NULL */
	size_t n;
};

static void look_up(struct resolving *x)
{
	const struct addrinfo hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *list = NULL;

	x->out.error = getaddrinfo(x->host, x->port, &hints, &list);
	for (const struct addrinfo *a = x->out.error ? NULL : list; a && x->out.n < RESOLVE_ADDRS;
	     a = a->ai_next) {
		if (a->ai_addrlen <= sizeof(x->out.addr[0]))
			memcpy(&x->out.addr[x->out.n++], a->ai_addr, a->ai_addrlen);
	}
	if (!x->out.error)
		freeaddrinfo(list);
}

static size_t looked_up_locked(const struct resolver *r, const char *host)
{
	size_t n = 0;

	for (size_t i = 0; i < THREADS; i++)
		n += r->at[i] && !strcmp(r->at[i]->host, host);
	return n;
}

static void unlink_locked(struct resolver *r, struct resolving **at)
{
	struct resolving *x = *at;

	*at = x->next;
	if (r->waiting_end == &x->next)
		r->waiting_end = at;
}

/* The first whose turn it is. Who ends a lookup comes here next, so that no other thread need be told. */
static struct resolving *next_locked(struct resolver *r)
{
	struct resolving *x;

	for (struct resolving **at = &r->waiting; (x = *at); at = &x->next) {
		if (looked_up_locked(r, x->host) < SAME_NAME) {
			unlink_locked(r, at);
			return x;
		}
	}
	return NULL;
}

static size_t place_locked(const struct resolver *r)
{
	size_t i = 0;

	while (r->at[i])
		i++;
	return i; /* this thread looks nothing up now: there is one */
}

static void *work(void *arg)
{
	const uint64_t one = 1;
	struct resolver *r = arg;
	struct resolving *x;
	size_t place;
	ssize_t n;

	for (;;) {
		(void)pthread_mutex_lock(&r->lock);
		while (!(x = next_locked(r)))
			(void)pthread_cond_wait(&r->work, &r->lock);
		place = place_locked(r);
		r->at[place] = x;
		(void)pthread_mutex_unlock(&r->lock);
		look_up(x);
		(void)pthread_mutex_lock(&r->lock);
		r->at[place] = NULL;
		x->next = r->done;
		r->done = x;
		(void)pthread_mutex_unlock(&r->lock);
		n = write(r->done_fd, &one, sizeof(one));
		(void)n; /* EAGAIN: it is awake */
	}
	return NULL;
}

static int start_threads(struct resolver *r)
{
	pthread_attr_t attr;
	pthread_t t;
	int e = 0;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)pthread_attr_setstacksize(&attr, STACK_SIZE);
	for (int i = 0; e == 0 && i < THREADS; i++)
		e = pthread_create(&t, &attr, work, r);
	(void)pthread_attr_destroy(&attr);
	return -e;
}

int resolver_new(struct resolver **ret)
{
	struct resolver *r = calloc(1, sizeof(*r));
	int e;

	if (!r)
		return -ENOMEM;
	r->waiting_end = &r->waiting;
	(void)pthread_mutex_init(&r->lock, NULL);
	(void)pthread_cond_init(&r->work, NULL);
	r->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	e = r->done_fd < 0 ? ret_nerrno() : start_threads(r);
	/* Threads that run hold it: it is left when not all could be started, which ends the program. */
	if (e < 0)
		return e;
	*ret = r;
	return 0;
}

int resolver_fd(const struct resolver *r)
{
	return r->done_fd;
}

int resolve_start(struct resolver *r, const char *host, unsigned port, void *owner,
		  struct resolving **ret)
{
	struct resolving *x = calloc(1, sizeof(*x));
	bool full;

	if (!x)
		return -ENOMEM;
	x->owner = owner;
	(void)snprintf(x->host, sizeof(x->host), "%s", host);
	(void)snprintf(x->port, sizeof(x->port), "%u", port);
	(void)pthread_mutex_lock(&r->lock);
	full = r->n >= WAITING_MAX;
	if (!full) {
		r->n++;
		*r->waiting_end = x;
		r->waiting_end = &x->next;
		(void)pthread_cond_signal(&r->work);
	}
	(void)pthread_mutex_unlock(&r->lock);
	if (full) {
		free(x);
		return -EAGAIN;
	}
	*ret = x;
	return 0;
}

void resolve_drop(struct resolver *r, struct resolving *x)
{
	struct resolving **at;

	(void)pthread_mutex_lock(&r->lock);
	for (at = &r->waiting; *at && *at != x; at = &(*at)->next)
		;
	if (*at) {
		unlink_locked(r, at);
		r->n--;
	} else {
		x->owner = NULL; /* under way, or done */
		x = NULL;
	}
	(void)pthread_mutex_unlock(&r->lock);
	free(x);
}

int resolve_next(struct resolver *r, struct resolved *ret)
{
	struct resolving *x;
	uint64_t count;
	ssize_t n = read(r->done_fd, &count, sizeof(count));

	(void)n;
	(void)pthread_mutex_lock(&r->lock);
	x = r->done;
	if (x) {
		r->done = x->next;
		r->n--;
		*ret = x->out;
		ret->owner = x->owner;
	}
	(void)pthread_mutex_unlock(&r->lock);
	free(x);
	return x != NULL;
}
