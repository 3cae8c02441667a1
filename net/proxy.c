#include "net/proxy.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "net/conn.h"
#include "net/msg.h"

enum {
	FDS_OWN = 64,   /* of the program itself: a resolver's among them */
	PAUSE_MS = 200, /* without descriptors or memory: until it is tried again */
};

enum entry {
	CONTROL,
	DONE,
	LISTEN_HTTP,
	LISTEN_SOCKS,
	FIRST_CONN
};

struct proxy {
	int control, listen[2];
	struct conn_env env;
	struct resolver *resolver;
	struct conn *conns[PROXY_CONNS];
	size_t n, max;
	long long pause_until;
	uint64_t lost;
};

static void say(struct proxy *x, struct net_msg *m)
{
	m->lost = x->lost;
	if (send(x->control, m, sizeof(*m), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*m))
		x->lost = 0;
	else
		x->lost++;
}

static void asked(void *arg, enum net_verdict v, const char *host, unsigned port)
{
	struct net_msg m = {.kind = NET_MSG_ASKED, .verdict = v, .port = port};

	(void)snprintf(m.host, sizeof(m.host), "%s", host);
	say(arg, &m);
}

/* ---- the listening sockets ---- */

static int take_listeners(struct proxy *x)
{
	struct net_msg m;
	int fds[IO_MAX_FDS];
	size_t nfds = 0, i;
	ssize_t n = io_recv_fds(x->control, &m, sizeof(m), fds, &nfds);
	const bool right = n == (ssize_t)sizeof(m) && m.kind == NET_MSG_LISTEN && nfds == 2;

	for (i = 0; i < nfds; i++) {
		if (right)
			x->listen[i] = fds[i];
		else
			(void)close(fds[i]);
	}
	if (!right)
		return n == 0 ? -EPIPE : -EPROTO;
	for (i = 0; i < 2; i++) {
		if (fcntl(x->listen[i], F_SETFL, O_NONBLOCK) < 0)
			return ret_nerrno();
	}
	return 0;
}

/* Two for each connection, and what the program needs itself. */
static size_t conns_allowed(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		return 1;
	if (rl.rlim_cur < 2 * PROXY_CONNS + FDS_OWN) {
		rl.rlim_cur = rl.rlim_max < 2 * PROXY_CONNS + FDS_OWN ? rl.rlim_max
								      : 2 * PROXY_CONNS + FDS_OWN;
		if (setrlimit(RLIMIT_NOFILE, &rl) < 0 && getrlimit(RLIMIT_NOFILE, &rl) < 0)
			return 1;
	}
	if (rl.rlim_cur >= 2 * PROXY_CONNS + FDS_OWN)
		return PROXY_CONNS;
	return rl.rlim_cur > FDS_OWN + 2 ? (rl.rlim_cur - FDS_OWN) / 2 : 1;
}

/* false: nobody waits any more, or it is of no use now. */
static bool accept_one(struct proxy *x, enum conn_kind kind)
{
	struct conn *c;
	int fd = accept4(x->listen[kind], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			x->pause_until = io_now_ms() + PAUSE_MS;
		return false;
	}
	if (conn_new(&x->env, fd, kind, &c) < 0) {
		x->pause_until = io_now_ms() + PAUSE_MS;
		return false;
	}
	x->conns[x->n++] = c;
	return true;
}

static void accept_all(struct proxy *x, enum conn_kind kind)
{
	while (x->n < x->max && accept_one(x, kind))
		;
}

/* ---- the loop ---- */

static void drop(struct proxy *x, size_t i)
{
	conn_free(x->conns[i]);
	x->conns[i] = x->conns[--x->n];
}

static size_t index_of(const struct proxy *x, const struct conn *c)
{
	size_t i = 0;

	while (i < x->n && x->conns[i] != c)
		i++;
	return i;
}

static void take_resolved(struct proxy *x)
{
	struct resolved a;

	while (resolve_next(x->resolver, &a)) {
		struct conn *c = a.owner;

		if (c && !conn_resolved(c, &a))
			drop(x, index_of(x, c));
	}
}

static int timeout_of(const struct proxy *x, long long now)
{
	long long first = x->pause_until > now ? x->pause_until : now + 3600000;

	for (size_t i = 0; i < x->n; i++) {
		if (conn_deadline(x->conns[i]) < first)
			first = conn_deadline(x->conns[i]);
	}
	return first <= now ? 0 : (int)(first - now);
}

static void turn(struct proxy *x, const struct pollfd *p)
{
	size_t i;

	/* From the last on: one that is over is replaced by one that had its turn. */
	for (i = x->n; i-- > 0;) {
		if (!conn_ready(x->conns[i], &p[FIRST_CONN + 2 * i]))
			drop(x, i);
	}
	/* After them: their entries of @p are theirs no more. */
	if (p[DONE].revents)
		take_resolved(x);
	for (i = x->n; i-- > 0;) {
		if (conn_deadline(x->conns[i]) <= io_now_ms() && !conn_late(x->conns[i]))
			drop(x, i);
	}
	if (p[LISTEN_HTTP].revents)
		accept_all(x, CONN_HTTP);
	if (p[LISTEN_SOCKS].revents)
		accept_all(x, CONN_SOCKS);
}

static int serve(struct proxy *x)
{
	struct pollfd p[FIRST_CONN + 2 * PROXY_CONNS];

	for (;;) {
		const long long now = io_now_ms();
		const bool open = x->n < x->max && now >= x->pause_until;

		p[CONTROL] = (struct pollfd){.fd = x->control, .events = POLLIN};
		p[DONE] = (struct pollfd){.fd = resolver_fd(x->resolver), .events = POLLIN};
		for (size_t i = 0; i < 2; i++)
			p[LISTEN_HTTP + i] =
				(struct pollfd){.fd = open ? x->listen[i] : -1, .events = POLLIN};
		for (size_t i = 0; i < x->n; i++)
			conn_poll(x->conns[i], &p[FIRST_CONN + 2 * i]);
		if (poll(p, FIRST_CONN + 2 * x->n, timeout_of(x, now)) < 0) {
			if (errno != EINTR)
				return ret_nerrno();
			continue;
		}
		/* Whatever it says: the runner has no more to say than that it is gone. */
		if (p[CONTROL].revents)
			return 0;
		turn(x, p);
	}
}

int proxy_run(const struct net_rules *rules, int control)
{
	struct proxy *x = calloc(1, sizeof(*x));
	struct net_msg ready = {.kind = NET_MSG_READY};
	int r;

	if (!x)
		return -ENOMEM;
	x->control = control;
	x->listen[0] = x->listen[1] = -1;
	x->max = conns_allowed();
	r = resolver_new(&x->resolver);
	if (r == 0) {
		x->env = (struct conn_env){
			.rules = rules, .resolver = x->resolver, .asked = asked, .arg = x};
		r = take_listeners(x);
	}
	if (r == 0) {
		say(x, &ready);
		r = serve(x);
	}
	for (size_t i = 0; i < x->n; i++)
		conn_free(x->conns[i]);
	for (size_t i = 0; i < 2; i++)
		if (x->listen[i] >= 0)
			(void)close(x->listen[i]);
	/* The resolver's threads hold it until the process ends. */
	free(x);
	return r;
}
