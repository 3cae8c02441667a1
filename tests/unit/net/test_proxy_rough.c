/* net/proxy.c under who is rough with it, goes away, or says nothing for long: its limits of time by a clock that the test moves. */
#include <sys/wait.h>

#include "net/conn.h"
#include "tests/unit/net/proxy_rig.h"

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
	proxy_tunnel();
}

/* Somebody else is served, and all that came before has been. */
static bool serves(void)
{
	int c = connect_through(), s = accept_server(WAIT_MS);
	bool served = strstr(get_head(c), " 200 ") != NULL;

	(void)close(c);
	(void)close(s);
	return served;
}

static void pass(long seconds)
{
	bool before = serves();

	atomic_fetch_add(later, seconds);
	ok(before && serves(), "%ld seconds later others are served", seconds);
}

static bool is_open(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

/* In whatever way: what was sent last may not have been read. */
static bool is_over(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, 0);

	return n == 0 || (n < 0 && errno == ECONNRESET);
}

static void test_limits(void)
{
	int a = dial(port_http), k = dial(port_socks), c, s;

	put(a, "GET http://local");
	put(k, "\5");
	pass(0);
	pass(28);
	ok(is_open(a) && is_open(k), "a head may take half a minute");
	put(a, "host");
	pass(3);
	ok(is_over(a) && is_over(k), "all of it, however it comes");
	(void)close(a);
	(void)close(k);

	c = connect_through();
	s = accept_server(WAIT_MS);
	(void)get_head(c);
	pass(3590);
	put(s, "a");
	eq_str(get(c, 1), "a", "a tunnel may be silent for an hour");
	pass(3590);
	ok(is_open(c) && is_open(s), "and again");
	pass(20);
	ok(is_over(c) && is_over(s), "not longer");
	(void)close(c);
	(void)close(s);

	c = connect_through();
	s = accept_server(WAIT_MS);
	(void)get_head(c);
	(void)shutdown(c, SHUT_WR);
	ok(ended(s), "one end of it is closed");
	pass(290);
	put(s, "b");
	eq_str(get(c, 1), "b", "the other may be silent for five minutes");
	pass(310);
	ok(is_over(c), "not longer");
	(void)close(c);
	(void)close(s);
	drain();
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
	proxy_start();
	test_hostile();
	test_limits();
	test_idle();
	test_gone();
	return tap_done();
}
