/* net/proxy.c with net/conn.c and net/flow.c: a proxy of the test's own, in a process beside it, between clients and servers
 * that are the test. Everything is on loopback, which its rules open for "localhost". */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "net/conn.h"
#include "net/msg.h"
#include "net/proxy.h"
#include "tests/lib/tap.h"

#define WAIT_MS 10000

static int control = -1;
static pid_t pid;
static uint16_t port_http, port_socks, port_server, port_none;
static int server = -1;

static int listen_at(uint16_t *ret_port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) < 0 || listen(fd, 512) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &n) < 0)
		tap_fatal("no listening socket");
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static int dial(uint16_t port)
{
	const struct sockaddr_in a = {.sin_family = AF_INET,
				      .sin_port = htons(port),
				      .sin_addr = {htonl(INADDR_LOOPBACK)}};
	const struct timeval t = {.tv_sec = WAIT_MS / 1000};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		tap_fatal("connect: %s", err_text(errno));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	return fd;
}

static void put(int fd, const char *text)
{
	if (send(fd, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text))
		printf("# a text was not sent\n");
}

/* Up to the end, or @n bytes: what came, as text; static. */
static const char *get(int fd, size_t n)
{
	static char text[70000];
	size_t at = 0;
	ssize_t k;

	if (n >= sizeof(text))
		n = sizeof(text) - 1;
	while (at < n && (k = recv(fd, text + at, n - at, 0)) > 0)
		at += (size_t)k;
	text[at] = 0;
	return text;
}

/* The end, and not only nothing for a while. */
static bool ended(int fd)
{
	char c;

	return recv(fd, &c, 1, 0) == 0;
}

static const char *get_head(int fd)
{
	static char text[70000];
	size_t at = 0;

	while (at < sizeof(text) - 1 && recv(fd, text + at, 1, 0) == 1) {
		text[++at] = 0;
		if (at >= 4 && !strcmp(text + at - 4, "\r\n\r\n"))
			break;
	}
	text[at] = 0;
	return text;
}

static int accept_server(int ms)
{
	struct pollfd p = {.fd = server, .events = POLLIN};
	const struct timeval t = {.tv_sec = WAIT_MS / 1000};
	int fd;

	if (poll(&p, 1, ms) != 1)
		return -1;
	fd = accept4(server, NULL, NULL, SOCK_CLOEXEC);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	return fd;
}

static void start(void)
{
	struct net_rules rules = {.local = true};
	struct net_msg m = {.kind = NET_MSG_LISTEN};
	int sv[2], l[2];
	struct diag d = {0};

	l[0] = listen_at(&port_http);
	l[1] = listen_at(&port_socks);
	server = listen_at(&port_server);
	close(listen_at(&port_none));
	if (net_allow(&rules, "localhost", &d) < 0 ||
	    net_allow(&rules, "nowhere.invalid", &d) < 0 || net_allow(&rules, "8.8.8.8", &d) < 0 ||
	    net_deny(&rules, "bad.localhost", &d) < 0)
		tap_fatal("%s", d.text);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		tap_fatal("socketpair");
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)close(sv[0]);
		(void)close(server);
		(void)close(l[0]);
		(void)close(l[1]);
		_exit(proxy_run(&rules, sv[1]) < 0);
	}
	net_rules_release(&rules);
	control = sv[0];
	(void)close(sv[1]);
	if (io_send_fds(control, &m, sizeof(m), l, 2) < 0 ||
	    recv(control, &m, sizeof(m), 0) != (ssize_t)sizeof(m))
		tap_fatal("it does not answer");
	eq_int(m.kind, NET_MSG_READY, "it is ready");
	(void)close(l[0]);
	(void)close(l[1]);
}

/* The one request that was asked for. It was told before the answer was sent: nothing is waited for. */
static void was_asked(enum net_verdict v, const char *host, unsigned port)
{
	struct net_msg m = {0};
	ssize_t n = recv(control, &m, sizeof(m), MSG_DONTWAIT);

	ok(n == (ssize_t)sizeof(m) && m.kind == NET_MSG_ASKED && m.verdict == v &&
		   !strcmp(m.host, host) && m.port == port,
	   "asked: %s:%u, %s", host, port, net_verdict_text(v));
	if (n == (ssize_t)sizeof(m))
		printf("# %s:%u %s\n", m.host, m.port,
		       net_verdict_text((enum net_verdict)m.verdict));
	ok(recv(control, &m, sizeof(m), MSG_DONTWAIT) < 0, "and nothing else");
}

static int connect_through(void)
{
	char text[128];
	int c = dial(port_http);

	(void)snprintf(text, sizeof(text),
		       "CONNECT localhost:%u HTTP/1.1\r\nHost: localhost:%u\r\n\r\n", port_server,
		       port_server);
	put(c, text);
	return c;
}

static void test_tunnel(void)
{
	int c = connect_through(), s = accept_server(WAIT_MS);

	ok(s >= 0, "the server is connected to");
	eq_str(get_head(c), "HTTP/1.1 200 Connection established\r\n\r\n", "CONNECT");
	was_asked(NET_OK, "localhost", port_server);
	put(c, "ping");
	eq_str(get(s, 4), "ping", "to the server");
	put(s, "pong");
	eq_str(get(c, 4), "pong", "and back");
	/* one way ends, the other goes on */
	(void)shutdown(c, SHUT_WR);
	ok(ended(s), "the server sees the end of what it is sent");
	put(s, "after");
	eq_str(get(c, 5), "after", "and still answers");
	(void)close(s);
	ok(ended(c), "its own end ends it");
	(void)close(c);
}

/* More than all buffers hold, to a reader that is late. */
static void test_much(void)
{
	enum {
		MUCH = 8 << 20
	};
	static uint8_t block[65536];
	int c = connect_through(), s = accept_server(WAIT_MS);
	size_t sent = 0, got = 0;
	bool same = true;
	pid_t writer;
	ssize_t n;

	(void)get_head(c);
	was_asked(NET_OK, "localhost", port_server);
	fflush(stdout);
	writer = fork();
	if (writer == 0) {
		for (; sent < MUCH; sent += sizeof(block)) {
			for (size_t i = 0; i < sizeof(block); i++)
				block[i] = (uint8_t)((sent + i) * 2654435761u >> 13);
			if (io_write_full(s, block, sizeof(block)) < 0)
				_exit(1);
		}
		_exit(0);
	}
	(void)close(s);
	(void)usleep(300000);
	while ((n = recv(c, block, sizeof(block), 0)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			same &= block[i] == (uint8_t)((got + (size_t)i) * 2654435761u >> 13);
		got += (size_t)n;
	}
	eq_int(got, MUCH, "all bytes come");
	ok(same, "as they were");
	(void)waitpid(writer, NULL, 0);
	(void)close(c);
}

/* What a tunnel takes of a client whose server does not read, after one that did: the kernel's buffers grow with who reads fast. */
static void test_kept_small(void)
{
	enum {
		FAST = 64 << 20,
		MOST = 1 << 20,
		SMALL = 32 << 10
	};
	static uint8_t block[65536];
	const int small = SMALL;
	int c = connect_through(), s = accept_server(WAIT_MS);
	struct pollfd p = {.fd = c, .events = POLLOUT};
	size_t sent = 0, taken = 0, got = 0;
	pid_t writer;
	ssize_t n;

	(void)setsockopt(s, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	(void)setsockopt(c, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	(void)get_head(c);
	was_asked(NET_OK, "localhost", port_server);
	fflush(stdout);
	writer = fork();
	if (writer == 0) {
		for (; sent < FAST; sent += sizeof(block))
			if (io_write_full(c, block, sizeof(block)) < 0)
				_exit(1);
		_exit(0);
	}
	while (got < FAST && (n = recv(s, block, sizeof(block), 0)) > 0)
		got += (size_t)n;
	(void)waitpid(writer, NULL, 0);
	eq_int(got, FAST, "all of it comes while the server reads");
	while (poll(&p, 1, 500) == 1 && taken < 4 * MOST) {
		n = send(c, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n <= 0 && errno != EAGAIN)
			break;
		taken += n > 0 ? (size_t)n : 0;
	}
	ok(taken < MOST, "and little of what it does not read: %zu bytes", taken);
	(void)close(c);
	(void)close(s);
}

static void test_http(void)
{
	char text[512], want[256];
	int c = dial(port_http), s;

	(void)snprintf(
		text, sizeof(text),
		"POST http://LOCALHOST:%u/x HTTP/1.1\r\nHost: localhost:%u\r\nProxy-"
		"Connection: keep-alive\r\nContent-Length: 5\r\n\r\n12345GET http://localhost:%u/"
		"second HTTP/1.1\r\nHost: localhost:%u\r\n\r\n",
		port_server, port_server, port_server, port_server);
	put(c, text);
	s = accept_server(WAIT_MS);
	(void)snprintf(
		want, sizeof(want),
		"POST /x HTTP/1.1\r\nHost: localhost:%u\r\nConnection: close\r\nContent-Length: "
		"5\r\n\r\n",
		port_server);
	eq_str(get_head(s), want, "the server's head");
	eq_str(get(s, 5), "12345", "and the body");
	put(c, "GET http://localhost/third HTTP/1.1\r\n\r\n");
	{
		struct pollfd p = {.fd = s, .events = POLLIN};

		eq_int(poll(&p, 1, 200), 0, "103: and nothing of a second request");
	}
	put(s, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
	(void)close(s);
	eq_str(get(c, 1000), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
	       "the answer as it is, then the end");
	was_asked(NET_OK, "localhost", port_server);
	eq_int(accept_server(100), -1, "one connection, one request");
	(void)close(c);

	/* one that ends its side at once is answered all the same */
	c = dial(port_http);
	(void)snprintf(text, sizeof(text),
		       "GET http://localhost:%u/ HTTP/1.1\r\nHost: localhost:%u\r\n\r\n",
		       port_server, port_server);
	put(c, text);
	(void)shutdown(c, SHUT_WR);
	s = accept_server(WAIT_MS);
	(void)get_head(s);
	put(s, "late");
	(void)close(s);
	eq_str(get(c, 100), "late", "a client that only listens");
	was_asked(NET_OK, "localhost", port_server);
	(void)close(c);
}

/* A head and a body that are each larger than the buffer. */
static void test_large(void)
{
	struct buf b = {0};
	char text[128];
	int c = dial(port_http), s;
	pid_t child;
	size_t body = 300000;
	int status = 1;

	(void)snprintf(
		text, sizeof(text),
		"POST http://localhost:%u/ HTTP/1.1\r\nHost: localhost:%u\r\nContent-Length: "
		"%zu\r\n",
		port_server, port_server, body);
	if (buf_puts(&b, text) < 0)
		tap_fatal("memory");
	for (int i = 0; i < 120; i++)
		if (buf_printf(&b, "X-%d: %0500d\r\n", i, i) < 0)
			tap_fatal("memory");
	if (buf_puts(&b, "\r\n") < 0)
		tap_fatal("memory");
	ok(b.len > 60000 && b.len < NET_HOST_MAX * 258u, "a head of %zu bytes", b.len);
	for (size_t i = 0; i < body; i++)
		if (buf_put(&b, i % 10 ? "b" : "a", 1) < 0)
			tap_fatal("memory");
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(io_write_full(c, b.data, b.len) < 0);
	s = accept_server(WAIT_MS);
	(void)usleep(200000);
	ok(strlen(get_head(s)) > 60000, "all of it comes");
	{
		static char got[300001];
		size_t at = 0;
		ssize_t n;

		while (at < body && (n = recv(s, got + at, body - at, 0)) > 0)
			at += (size_t)n;
		eq_int(at, body, "and all of the body");
		ok(!memcmp(got, b.data + b.len - body, at), "as it was");
	}
	(void)waitpid(child, &status, 0);
	(void)close(s);
	(void)get(c, 1);
	was_asked(NET_OK, "localhost", port_server);
	(void)close(c);
	buf_release(&b);
}

static void refused(const char *request, const char *status, enum net_verdict v, const char *host,
		    unsigned port)
{
	int c = dial(port_http);
	const char *got;

	put(c, request);
	got = get(c, 4000);
	ok(!strncmp(got, "HTTP/1.1 ", 9) && !strncmp(got + 9, status, strlen(status)), "%s: %.*s",
	   status, (int)strcspn(request, "\r"), request);
	ok(strstr(got, "\r\n\r\nrattan: "), "... with a sentence");
	was_asked(v, host, port);
	eq_int(accept_server(20), -1, "... and no connection");
	(void)close(c);
}

static void test_refused(void)
{
	char text[256];

	refused("CONNECT example.com:443 HTTP/1.1\r\n\r\n", "403", NET_NO_RULE, "example.com", 443);
	refused("CONNECT bad.localhost:443 HTTP/1.1\r\n\r\n", "403", NET_DENIED, "bad.localhost",
		443);
	(void)snprintf(text, sizeof(text), "CONNECT 127.0.0.1:%u HTTP/1.1\r\n\r\n", port_server);
	refused(text, "403", NET_NO_RULE, "127.0.0.1", port_server);
	(void)snprintf(text, sizeof(text),
		       "CONNECT localhost:%u HTTP/1.1\r\nHost: example.com\r\n\r\n", port_server);
	refused(text, "403", NET_BAD_REQUEST, "localhost", port_server);
	refused("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "400", NET_BAD_REQUEST, "", 0);
	refused("POST http://localhost/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
		"chunked\r\n\r\n",
		"411", NET_BAD_REQUEST, "localhost", 80);
	refused("CONNECT nowhere.invalid:443 HTTP/1.1\r\n\r\n", "502", NET_UNRESOLVED,
		"nowhere.invalid", 443);
	(void)snprintf(text, sizeof(text), "CONNECT localhost:%u HTTP/1.1\r\n\r\n", port_none);
	refused(text, "502", NET_UNREACHABLE, "localhost", port_none);
}

/* A refusal does not wait for a body. */
static void test_refused_early(void)
{
	static char body[200000];
	const struct timeval t = {.tv_sec = 1};
	const char *got;
	int c = dial(port_http);

	memset(body, 'b', sizeof(body));
	(void)setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
	put(c, "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: "
	       "200000\r\n\r\n");
	(void)!send(c, body, sizeof(body), MSG_NOSIGNAL);
	(void)usleep(200000);
	got = get(c, 4000);
	ok(!strncmp(got, "HTTP/1.1 403", 12) && strstr(got, "no rule allows"),
	   "a refusal reaches a client that still sends");
	was_asked(NET_NO_RULE, "example.com", 80);
	(void)close(c);
}

static void put_socks(int c, unsigned command, const char *host, uint16_t port)
{
	unsigned char q[300] = {5, (unsigned char)command, 0, 3, (unsigned char)strlen(host)};
	size_t n = strlen(host);

	memcpy(q + 5, host, n);
	q[5 + n] = (unsigned char)(port >> 8);
	q[6 + n] = (unsigned char)port;
	if (send(c, "\5\1\0", 3, 0) != 3 || send(c, q, 7 + n, 0) != (ssize_t)(7 + n))
		printf("# not sent\n");
}

static void test_socks(void)
{
	static const struct {
		const char *host;
		unsigned command;
		unsigned char reply;
		enum net_verdict v;
	} rows[] = {
		{"example.com", 1, 2, NET_NO_RULE},
		{"bad.localhost", 1, 2, NET_DENIED},
		{"nowhere.invalid", 1, 4, NET_UNRESOLVED},
	};
	unsigned char got[12];
	int c, s;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		c = dial(port_socks);
		put_socks(c, rows[i].command, rows[i].host, 443);
		ok(recv(c, got, 12, MSG_WAITALL) == 12 && got[1] == 0 && got[3] == rows[i].reply,
		   "SOCKS %s: reply %u", rows[i].host, got[3]);
		was_asked(rows[i].v, rows[i].host, 443);
		(void)close(c);
	}
	c = dial(port_socks);
	put_socks(c, 3, "localhost", 53);
	ok(recv(c, got, 12, MSG_WAITALL) == 12 && got[3] == 7, "SOCKS: no datagrams");
	was_asked(NET_BAD_REQUEST, "", 0);
	(void)close(c);
	c = dial(port_socks);
	put_socks(c, 1, "localhost", port_server);
	s = accept_server(WAIT_MS);
	ok(recv(c, got, 12, MSG_WAITALL) == 12 && got[3] == 0, "SOCKS: connected");
	was_asked(NET_OK, "localhost", port_server);
	put(c, "ping");
	eq_str(get(s, 4), "ping", "to the server");
	put(s, "pong");
	(void)close(s);
	eq_str(get(c, 10), "pong", "and back, and the end");
	(void)close(c);
}

static void drain(void)
{
	struct net_msg m;

	while (recv(control, &m, sizeof(m), MSG_DONTWAIT) > 0)
		;
}

/* Nobody can keep it from serving the others, or bring it to its end. */
static void test_hostile(void)
{
	static int idle[PROXY_CONNS + 60];
	unsigned seed = 1;
	int c, s;

	for (int i = 0; i < 600; i++) {
		unsigned char junk[64];

		c = dial(i % 2 ? port_http : port_socks);
		for (size_t k = 0; k < sizeof(junk); k++)
			junk[k] = (unsigned char)((seed = seed * 1103515245 + 12345) >> 16);
		if (i % 4 == 0)
			junk[0] = 5;
		if (i % 8 == 0)
			junk[1] = 1;
		(void)!send(c, junk, i % 65, MSG_NOSIGNAL);
		if (i % 3 == 0) {
			const struct linger l = {.l_onoff = 1};

			(void)setsockopt(c, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
		}
		(void)close(c);
		drain();
	}
	(void)usleep(200000);
	for (size_t i = 0; i < sizeof(idle) / sizeof(idle[0]); i++) {
		if (i == PROXY_CONNS - 1) {
			c = connect_through();
			s = accept_server(WAIT_MS);
			ok(s >= 0, "as many as there may be are served at once");
			(void)get_head(c);
			(void)close(s);
			(void)close(c);
		}
		idle[i] = dial(port_http);
	}
	c = connect_through();
	eq_int(accept_server(300), -1, "beyond its connections a client waits");
	for (size_t i = 0; i < sizeof(idle) / sizeof(idle[0]); i++)
		(void)close(idle[i]);
	s = accept_server(WAIT_MS);
	ok(s >= 0, "and is served when others are gone");
	put(s, "x");
	(void)close(s);
	(void)get_head(c);
	(void)close(c);
	drain();
	/* a reset in the middle */
	for (int i = 0; i < 20; i++) {
		const struct linger l = {.l_onoff = 1};

		c = connect_through();
		s = accept_server(WAIT_MS);
		put(s, "some");
		(void)setsockopt(i % 2 ? c : s, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
		(void)close(i % 2 ? c : s);
		(void)close(i % 2 ? s : c);
	}
	(void)usleep(100000);
	drain();
	test_tunnel();
}

static long long cpu_ms(void)
{
	struct timespec t = {0};
	clockid_t id;

	if (clock_getcpuclockid(pid, &id) == 0)
		(void)clock_gettime(id, &t);
	return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* It sleeps when nothing happens, also with ends that are half closed. */
static void test_idle(void)
{
	int c = connect_through(), s = accept_server(WAIT_MS), c2 = connect_through(),
	    s2 = accept_server(WAIT_MS), c3 = dial(port_http), s3;
	long long before;
	char text[128];
	int status;

	(void)snprintf(text, sizeof(text),
		       "GET http://localhost:%u/ HTTP/1.1\r\nHost: localhost:%u\r\n\r\n",
		       port_server, port_server);
	put(c3, text);
	s3 = accept_server(WAIT_MS);
	(void)shutdown(c3, SHUT_WR);
	(void)get_head(c);
	(void)shutdown(c, SHUT_WR);
	(void)get_head(c2);
	(void)shutdown(s2, SHUT_WR);
	/* and one whose reader never reads */
	for (int i = 0; i < 200; i++) {
		static const char block[65536];

		(void)!send(s, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	(void)usleep(100000);
	before = cpu_ms();
	(void)usleep(1500000);
	ok(cpu_ms() - before < 200, "it sleeps: %lld ms of 1500", cpu_ms() - before);
	drain();
	(void)close(control);
	ok(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
	   "the end of the runner is its end");
	(void)close(c);
	(void)close(s);
	(void)close(c2);
	(void)close(s2);
	(void)close(c3);
	(void)close(s3);
}

static void ignore(void *arg, enum net_verdict v, const char *host, unsigned port)
{
	(void)arg;
	(void)v;
	(void)host;
	(void)port;
}

/* One turn of what the loop of proxy.c does, for one connection; false: it is over, or nothing happened for a while. */
static bool turn(struct conn *c, struct resolver *r, int ms)
{
	struct pollfd p[3] = {[2] = {.fd = resolver_fd(r), .events = POLLIN}};
	struct resolved a;

	conn_poll(c, p);
	if (poll(p, 3, ms) <= 0)
		return false;
	if (p[2].revents && resolve_next(r, &a))
		return conn_resolved(c, &a);
	return conn_ready(c, p);
}

/* A client of a plain request that is gone while its server says nothing: its place is not kept for an hour. */
static void test_gone(void)
{
	struct net_rules rules = {.local = true};
	struct conn_env env = {.rules = &rules, .asked = ignore};
	struct resolver *r;
	struct conn *c;
	struct diag d = {0};
	uint16_t port;
	char text[128];
	int l = listen_at(&port), client = dial(port), s = -1;
	long long left;

	if (net_allow(&rules, "localhost", &d) < 0 || resolver_new(&r) < 0)
		tap_fatal("no resolver");
	env.resolver = r;
	if (conn_new(&env, accept4(l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), CONN_HTTP, &c) < 0)
		tap_fatal("memory");
	(void)snprintf(text, sizeof(text),
		       "GET http://localhost:%u/ HTTP/1.1\r\nHost: localhost:%u\r\n\r\n",
		       port_server, port_server);
	put(client, text);
	for (int i = 0; i < 100 && s < 0 && turn(c, r, WAIT_MS); i++)
		s = accept_server(0);
	while (turn(c, r, 200))
		;
	ok(*get_head(s), "the server has the request");
	left = conn_deadline(c) - io_now_ms();
	ok(left > 3000000 && left <= 3600000, "a server may think for an hour: %lld ms", left);
	(void)close(client);
	(void)turn(c, r, WAIT_MS);
	left = conn_deadline(c) - io_now_ms();
	ok(left > 200000 && left <= 300000, "and for five minutes when nobody listens: %lld ms",
	   left);
	ok(!turn(c, r, 200), "which is told once");
	put(s, "late");
	ok(turn(c, r, WAIT_MS), "what it says then is taken all the same");
	(void)close(s);
	conn_free(c);
	(void)close(l);
	net_rules_release(&rules);
}

int main(void)
{
	(void)signal(SIGPIPE, SIG_IGN);
	start();
	test_tunnel();
	test_much();
	test_kept_small();
	test_http();
	test_large();
	test_refused();
	test_refused_early();
	test_socks();
	test_hostile();
	test_idle();
	test_gone();
	return tap_done();
}
