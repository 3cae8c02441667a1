#include "fs/ctl/ctl_server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fs/ctl/ctl_io.h"
#include "fs/ctl/ctl_ops.h"
#include "fs/env/env.h"

#define LOOK_MS 1000

struct conn {
	struct ctl_server *server;
	int sock;
	pthread_t thread;
	struct env_looks looks; /* kept from one request to the next, while they come */
	atomic_bool done;       /* the thread is at its end and may be joined */
	struct conn *next;
};

struct ctl_server {
	struct env *env;
	int listen_fd, event_fd;
	atomic_int end;     /* enum ctl_end */
	struct conn *conns; /* only the owner of the server */
	unsigned nconns;
};

static void wake(struct ctl_server *s)
{
	const uint64_t one = 1;

	(void)!write(s->event_fd, &one, sizeof(one));
}

/* What was kept for another request is given up when none comes. */
static void await(struct conn *c)
{
	struct pollfd p = {.fd = c->sock, .events = POLLIN};

	if ((c->looks.v[0] || c->looks.v[1]) && poll(&p, 1, LOOK_MS) == 0)
		env_looks_end(&c->looks);
}

static void *conn_main(void *arg)
{
	struct conn *c = arg;
	cleanup_buf struct buf msg = {0};
	enum ctl_end end = CTL_END_NOT;

	while (end == CTL_END_NOT) {
		int fds[IO_MAX_FDS];
		size_t nfds = 0;

		await(c);
		if (ctl_frame_recv(c->sock, &msg, fds, &nfds) <= 0)
			break;
		if (ctl_serve(c->server->env, c, &c->looks, c->sock, &msg, fds, nfds, &end) < 0)
			break;
	}
	env_looks_end(&c->looks);
	/* Whatever the client held ends with its connection. */
	env_unlease(c->server->env, c);
	env_unbind_all(c->server->env, c);
	if (end != CTL_END_NOT)
		atomic_store(&c->server->end, (int)end);
	/* Not closed yet: the number must not become another's before the owner of the server has
	 * seen that this thread is done (it may call shutdown on it). */
	(void)shutdown(c->sock, SHUT_RDWR);
	atomic_store(&c->done, true);
	wake(c->server);
	return NULL;
}

int ctl_server_new(struct env *env, int listen_fd, struct ctl_server **ret)
{
	struct ctl_server *s = calloc(1, sizeof(*s));

	if (!s) {
		(void)close(listen_fd);
		return -ENOMEM;
	}
	s->env = env;
	s->listen_fd = listen_fd;
	s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->event_fd < 0) {
		int r = ret_nerrno();

		ctl_server_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int ctl_server_fd(const struct ctl_server *s)
{
	return s->listen_fd;
}

int ctl_server_event_fd(const struct ctl_server *s)
{
	return s->event_fd;
}

unsigned ctl_server_connections(const struct ctl_server *s)
{
	return s->nconns;
}

static void reap(struct ctl_server *s, bool all)
{
	for (struct conn **p = &s->conns; *p;) {
		struct conn *c = *p;

		if (!all && !atomic_load(&c->done)) {
			p = &c->next;
			continue;
		}
		if (all)
			(void)shutdown(c->sock, SHUT_RDWR);
		(void)pthread_join(c->thread, NULL);
		(void)close(c->sock);
		*p = c->next;
		s->nconns--;
		free(c);
	}
}

/* A client that does not read its answer must not keep its thread for ever. */
static void limit_sending(int sock)
{
	const struct timeval tv = {.tv_sec = 60};

	(void)setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

void ctl_server_accept(struct ctl_server *s)
{
	cleanup_fd int sock = -1;
	struct conn *c;

	reap(s, false); /* first: what ended holds descriptors that this needs */
	sock = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (sock < 0) {
		/* Who asks stays in the queue: without a descriptor for it the caller would be back at once. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			(void)usleep(20000);
		return;
	}
	if (ctl_sock_check_peer(sock) < 0 || s->nconns >= CTL_SERVER_MAX)
		return;
	limit_sending(sock);
	c = calloc(1, sizeof(*c));
	if (!c)
		return;
	c->server = s;
	c->sock = sock;
	if (pthread_create(&c->thread, NULL, conn_main, c)) {
		free(c);
		return;
	}
	(void)steal_fd(&sock);
	c->next = s->conns;
	s->conns = c;
	s->nconns++;
}

bool ctl_server_event(struct ctl_server *s)
{
	uint64_t n;

	(void)!read(s->event_fd, &n, sizeof(n));
	reap(s, false);
	return atomic_load(&s->end) != CTL_END_NOT;
}

bool ctl_server_replace(const struct ctl_server *s)
{
	return atomic_load(&s->end) == CTL_END_REPLACE;
}

void ctl_server_free(struct ctl_server *s)
{
	if (!s)
		return;
	if (s->listen_fd >= 0)
		(void)close(s->listen_fd);
	/* First everybody, so that nobody waits for another one's 60 seconds. */
	for (struct conn *c = s->conns; c; c = c->next)
		(void)shutdown(c->sock, SHUT_RDWR);
	reap(s, true);
	if (s->event_fd >= 0)
		(void)close(s->event_fd);
	free(s);
}
