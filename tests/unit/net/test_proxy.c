/* net/proxy.c with net/conn.c and net/flow.c: what it leads through and what it refuses. */
#include <sys/wait.h>

#include "tests/unit/net/proxy_rig.h"

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

int main(void)
{
	proxy_start();
	proxy_tunnel();
	test_much();
	test_kept_small();
	test_http();
	test_large();
	test_refused();
	test_refused_early();
	test_socks();
	return tap_done();
}
