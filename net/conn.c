#include "net/conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "net/flow.h"
#include "net/http.h"
#include "net/socks.h"

enum {
	HEAD_MS = 30000,    /* for the whole head */
	RESOLVE_MS = 20000, /* a resolver gives up after ten by itself, most often */
	ADDRESS_MS = 8000,  /* for one address */
	IDLE_MS = 3600000,  /* without a byte in either way */
	HALF_MS = 300000,   /* the same, when one end of it is closed */
	LINGER_MS = 2000,   /* for a refused client to read why */
	KERNEL_SIZE = 128 << 10,
};

enum state {
	HEAD,    /* HTTP's head, or SOCKS' methods */
	REQUEST, /* SOCKS' request */
	RESOLVE,
	CONNECT,
	FLOW,
	LINGER, /* a refusal is written; what still comes is thrown away, lest it be lost to a reset */
};

struct conn {
	const struct conn_env *env;
	enum conn_kind kind;
	enum state state;
	int in, out;
	long long deadline;
	struct buf read;         /* HEAD, REQUEST: what has come */
	struct net_request http; /* host and port of both kinds */
	struct resolving *resolving;
	struct sockaddr_storage
		addr[RESOLVE_ADDRS]; /* judged: these, and no others, are connected to */
	size_t naddr, at;
	struct flow up, down;
	bool half; /* a plain request's client sends nothing more: it listens, or is gone */
};

/*
 * What the kernel keeps of a connection is nobody's: neither the command's limits count it nor ours, and it lets a buffer
 * grow to megabytes for who reads fast, and then stops. Loopback needs little. To the host only what is not sent yet is
 * bounded, and what comes from it is not: far hosts need a window.
 */
static void keep_small(int in, int out)
{
	const int size = KERNEL_SIZE;

	if (in >= 0) {
		(void)setsockopt(in, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
		(void)setsockopt(in, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	}
	if (out >= 0)
		(void)setsockopt(out, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &size, sizeof(size));
}

int conn_new(const struct conn_env *env, int fd, enum conn_kind kind, struct conn **ret)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c) {
		(void)close(fd);
		return -ENOMEM;
	}
	c->env = env;
	c->kind = kind;
	c->in = fd;
	c->out = -1;
	c->read.max = NET_HEAD_MAX;
	c->deadline = io_now_ms() + HEAD_MS;
	keep_small(fd, -1);
	*ret = c;
	return 0;
}

void conn_free(struct conn *c)
{
	if (c->resolving)
		resolve_drop(c->env->resolver, c->resolving);
	if (c->in >= 0)
		(void)close(c->in);
	if (c->out >= 0)
		(void)close(c->out);
	buf_release(&c->read);
	net_request_release(&c->http);
	flow_release(&c->up);
	flow_release(&c->down);
	free(c);
}

long long conn_deadline(const struct conn *c)
{
	return c->deadline;
}

static void asked(const struct conn *c, enum net_verdict v)
{
	c->env->asked(c->env->arg, v, c->http.host.text, c->http.port);
}

/* ---- answers ---- */

static void send_all(int fd, const void *p, size_t n)
{
	/* A few bytes to a client that has sent its request: they fit, or it is gone. */
	ssize_t k = send(fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	(void)k;
}

static bool linger(struct conn *c)
{
	(void)shutdown(c->in, SHUT_WR);
	if (c->out >= 0)
		(void)close(c->out);
	c->out = -1;
	c->state = LINGER;
	c->deadline = io_now_ms() + LINGER_MS;
	return true;
}

static const char *status_text(unsigned status)
{
	switch (status) {
	case 400:
		return "Bad Request";
	case 403:
		return "Forbidden";
	case 411:
		return "Length Required";
	case 431:
		return "Request Header Fields Too Large";
	case 502:
		return "Bad Gateway";
	case 504:
		return "Gateway Timeout";
	case 505:
		return "HTTP Version Not Supported";
	default:
		return "Internal Server Error";
	}
}

static bool answer_http(struct conn *c, unsigned status, const char *why, const char *remedy)
{
	cleanup_buf struct buf body = {0};
	cleanup_buf struct buf b = {0};
	int r = buf_puts(&body, "rattan: ");

	if (r == 0 && c->http.host.text[0])
		r = buf_printf(&body, "%s:%u: ", c->http.host.text, c->http.port);
	if (r == 0)
		r = buf_printf(&body, "%s%s%s%s\n", why, *remedy ? " (" : "", remedy,
			       *remedy ? ")" : "");
	if (r == 0)
		r = buf_printf(&b,
			       "HTTP/1.1 %u %s\r\nContent-Type: text/plain; charset=utf-8\r\n"
			       "Content-Length: %zu\r\nProxy-Agent: rattan\r\nConnection: "
			       "close\r\n\r\n%s",
			       status, status_text(status), body.len, (const char *)body.data);
	if (r < 0)
		return false;
	send_all(c->in, b.data, b.len);
	return linger(c);
}

static bool answer_socks(struct conn *c, enum net_socks_reply code)
{
	const unsigned char reply[10] = {5, (unsigned char)code, 0, 1};

	send_all(c->in, reply, sizeof(reply));
	return linger(c);
}

static unsigned status_of(enum net_verdict v)
{
	if (net_verdict_refused(v))
		return 403;
	return v == NET_TOO_LONG ? 504 : 502;
}

/* What was asked for is not to be had. */
static bool refuse(struct conn *c, enum net_verdict v)
{
	cleanup_buf struct buf remedy = {0};

	asked(c, v);
	if (c->kind == CONN_SOCKS)
		return answer_socks(c, net_verdict_refused(v) ? NET_SOCKS_REFUSED
							      : NET_SOCKS_UNREACHABLE);
	if (net_verdict_remedy(v, c->http.host.text, &remedy) < 0)
		return false;
	return answer_http(c, status_of(v), net_verdict_text(v),
			   remedy.len ? (const char *)remedy.data : "");
}

/* ---- to the host ---- */

static bool established(struct conn *c)
{
	static const char ok_http[] = "HTTP/1.1 200 Connection established\r\n\r\n";
	static const unsigned char ok_socks[10] = {5, NET_SOCKS_OK, 0, 1};
	const bool tunnel = c->kind == CONN_SOCKS || c->http.connect;
	const int one = 1;
	int r;

	asked(c, NET_OK);
	(void)setsockopt(c->out, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(c->in, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/* A server may take half a connection's end for all of it: it is told of a tunnel's alone. */
	r = flow_start(&c->up, tunnel ? UINT64_MAX : c->http.body, tunnel);
	if (r == 0)
		r = flow_start(&c->down, UINT64_MAX, true);
	if (r == 0 && c->kind == CONN_SOCKS)
		r = flow_put(&c->down, ok_socks, sizeof(ok_socks));
	else if (r == 0 && c->http.connect)
		r = flow_put(&c->down, ok_http, sizeof(ok_http) - 1);
	if (r < 0)
		return false;
	c->state = FLOW;
	c->deadline = io_now_ms() + IDLE_MS;
	return true;
}

static enum net_verdict why_not(int error)
{
	return error == ETIMEDOUT ? NET_TOO_LONG : NET_UNREACHABLE;
}

/* The next of the judged addresses; refused when there is none. */
static bool connect_next(struct conn *c, int error)
{
	for (; c->at < c->naddr; c->at++) {
		const struct sockaddr *sa = (const struct sockaddr *)&c->addr[c->at];
		const socklen_t n = sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
							      : sizeof(struct sockaddr_in);

		if (c->out >= 0)
			(void)close(c->out);
		c->out = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (c->out < 0) {
			error = errno;
			continue;
		}
		keep_small(-1, c->out);
		if (connect(c->out, sa, n) == 0)
			return established(c);
		error = errno;
		if (error == EINPROGRESS) {
			c->state = CONNECT;
			c->deadline = io_now_ms() + ADDRESS_MS;
			return true;
		}
	}
	return refuse(c, why_not(error));
}

bool conn_resolved(struct conn *c, const struct resolved *a)
{
	enum net_verdict why = NET_NOT_PUBLIC, v;

	c->resolving = NULL;
	if (a->error)
		return refuse(c, NET_UNRESOLVED);
	for (size_t i = 0; i < a->n; i++) {
		const struct sockaddr *sa = (const struct sockaddr *)&a->addr[i];

		if (sa->sa_family != AF_INET && sa->sa_family != AF_INET6)
			continue;
		v = net_rules_addr(c->env->rules, sa);
		if (v == NET_OK)
			c->addr[c->naddr++] = a->addr[i];
		else if (v == NET_DENIED)
			why = v;
	}
	return c->naddr ? connect_next(c, 0) : refuse(c, why);
}

static bool judge(struct conn *c)
{
	enum net_verdict v = net_rules_host(c->env->rules, &c->http.host);

	if (v != NET_OK)
		return refuse(c, v);
	if (resolve_start(c->env->resolver, c->http.host.text, c->http.port, c, &c->resolving) < 0)
		return refuse(c, NET_UNREACHABLE);
	c->state = RESOLVE;
	c->deadline = io_now_ms() + RESOLVE_MS;
	return true;
}

static bool connected(struct conn *c)
{
	socklen_t n = sizeof(int);
	int error = 0;

	if (getsockopt(c->out, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
		error = errno;
	if (error == 0)
		return established(c);
	c->at++;
	return connect_next(c, error);
}

/* ---- requests ---- */

/* What came behind the head is for the host; of HTTP no more than the body that it announced. */
static void keep_rest(struct conn *c, size_t used)
{
	size_t left = c->read.len - used;

	memmove(c->read.data, c->read.data + used, left);
	c->read.len = left;
}

static bool take_http(struct conn *c)
{
	unsigned status;
	const char *why;
	ssize_t n;

	net_request_release(&c->http);
	n = net_request_parse((const char *)c->read.data, c->read.len, &c->http, &status, &why);
	if (n == 0)
		return true;
	if (n < 0) {
		asked(c, NET_BAD_REQUEST);
		return answer_http(c, status, why, "");
	}
	keep_rest(c, (size_t)n);
	return judge(c);
}

static bool take_hello(struct conn *c)
{
	bool open = false;
	ssize_t n = net_socks_hello(c->read.data, c->read.len, &open);
	const unsigned char reply[2] = {5, open ? 0 : 0xff};

	if (n == 0)
		return true;
	if (n < 0) {
		asked(c, NET_BAD_REQUEST);
		return false;
	}
	send_all(c->in, reply, sizeof(reply));
	if (!open)
		return linger(c);
	keep_rest(c, (size_t)n);
	c->state = REQUEST;
	return true;
}

static bool take_socks(struct conn *c)
{
	enum net_socks_reply reply;
	ssize_t n =
		net_socks_request(c->read.data, c->read.len, &c->http.host, &c->http.port, &reply);

	if (n == 0)
		return true;
	if (n < 0) {
		asked(c, NET_BAD_REQUEST);
		return answer_socks(c, reply);
	}
	keep_rest(c, (size_t)n);
	return judge(c);
}

static bool read_request(struct conn *c)
{
	uint8_t p[4096];
	size_t room = NET_HEAD_MAX - c->read.len;
	ssize_t n = recv(c->in, p, room < sizeof(p) ? room : sizeof(p), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0 || buf_put(&c->read, p, (size_t)n) < 0)
		return false;
	if (c->kind == CONN_HTTP)
		return take_http(c);
	if (c->state == HEAD && !take_hello(c))
		return false;
	return c->state == REQUEST && c->read.len > 0 ? take_socks(c) : true;
}

/* ---- bytes ---- */

/* The head and what came with it go first. They are more than a flow's buffer holds, perhaps: in parts. */
static int feed(struct conn *c)
{
	struct buf *const from[] = {&c->http.head, &c->read};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(from); i++) {
		size_t room = FLOW_SIZE - c->up.end, n = from[i]->len;

		if (i == 1 && n > c->up.left)
			n = (size_t)c->up.left; /* the rest would be a second request */
		if (n > room)
			n = room;
		if (n == 0) {
			if (from[i]->len && room == 0)
				break;
			if (i == 1)
				buf_clear(from[i]);
			continue;
		}
		r = flow_put(&c->up, from[i]->data, n);
		memmove(from[i]->data, from[i]->data + n, from[i]->len - n);
		from[i]->len -= n;
		if (i == 1) {
			c->up.left -= n;
			c->up.eof = c->up.left == 0;
		}
	}
	return r;
}

static bool fed(const struct conn *c)
{
	return !c->http.head.len && !c->read.len;
}

static bool flow(struct conn *c, const struct pollfd p[static 2])
{
	int r = fed(c) ? 0 : feed(c);

	if (r == 0 && (p[0].revents & POLLIN) && fed(c) && flow_wants(&c->up))
		r = flow_read(&c->up, c->in);
	if (r == 0 && (p[1].revents & (POLLIN | POLLHUP | POLLERR)) && flow_wants(&c->down)) {
		/* The host is gone: what came before is still the client's. */
		if (flow_read(&c->down, c->out) < 0)
			c->down.eof = true;
	}
	if (r == 0 && flow_write(&c->up, c->out) < 0)
		/* Who takes no more may still have an answer under way. */
		c->up = (struct flow){.data = c->up.data, .eof = true, .shut = true};
	if (r == 0)
		r = flow_write(&c->down, c->in);
	/* Of a request that is answered in full nothing more is to come, and a tunnel is open in both ways. */
	if (r < 0 || (flow_over(&c->down) && (!c->up.tell || flow_over(&c->up))))
		return false;
	/* Nothing is read of it any more, and it is gone. */
	if ((p[0].revents & (POLLERR | POLLHUP)) && !flow_wants(&c->up) && !c->down.shut)
		return false;
	c->half = c->half || (p[0].revents & POLLRDHUP);
	c->deadline = io_now_ms() +
		      ((c->up.eof && c->up.tell) || c->half || c->down.eof ? HALF_MS : IDLE_MS);
	return true;
}

static bool linger_on(struct conn *c)
{
	char p[4096];
	ssize_t n = recv(c->in, p, sizeof(p), MSG_DONTWAIT);

	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* ---- for the loop ---- */

void conn_poll(const struct conn *c, struct pollfd p[static 2])
{
	p[0] = (struct pollfd){.fd = c->in};
	p[1] = (struct pollfd){.fd = -1};
	switch (c->state) {
	case HEAD:
	case REQUEST:
	case LINGER:
		p[0].events = POLLIN;
		break;
	case RESOLVE:
		break;
	case CONNECT:
		p[1] = (struct pollfd){.fd = c->out, .events = POLLOUT};
		break;
	case FLOW:
		if (fed(c) && flow_wants(&c->up))
			p[0].events |= POLLIN;
		if (flow_has(&c->down))
			p[0].events |= POLLOUT;
		if (flow_wants(&c->down))
			p[1].events |= POLLIN;
		if (flow_has(&c->up) || !fed(c))
			p[1].events |= POLLOUT;
		/* An end that is there already would be told of again and again. */
		if (p[0].events == 0 && c->up.tell)
			p[0].fd = -1;
		if (c->up.eof && !c->up.tell && !c->half)
			p[0].events |= POLLRDHUP;
		if (p[1].events)
			p[1].fd = c->out;
		break;
	}
}

bool conn_ready(struct conn *c, const struct pollfd p[static 2])
{
	if (!p[0].revents && !p[1].revents)
		return true;
	switch (c->state) {
	case HEAD:
	case REQUEST:
		return read_request(c);
	case LINGER:
		return linger_on(c);
	case RESOLVE:
		return !(p[0].revents & (POLLERR | POLLHUP));
	case CONNECT:
		if (p[0].revents & (POLLERR | POLLHUP))
			return false;
		return !p[1].revents || connected(c);
	case FLOW:
		return flow(c, p);
	}
	return false;
}

bool conn_late(struct conn *c)
{
	switch (c->state) {
	case RESOLVE:
		resolve_drop(c->env->resolver, c->resolving);
		c->resolving = NULL;
		return refuse(c, NET_TOO_LONG);
	case CONNECT:
		c->at++;
		return connect_next(c, ETIMEDOUT);
	case HEAD:
	case REQUEST:
	case FLOW:
	case LINGER:
		break;
	}
	return false;
}
