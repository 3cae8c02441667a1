/*
 * tests/unit/net/proxy_rig.h - a proxy of the test's own, in a process beside it, between clients and servers that are the
 * test. Everything is on loopback, which its rules open for "localhost". One thread.
 */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "net/msg.h"
#include "net/proxy.h"
#include "tests/lib/tap.h"

#define WAIT_MS 10000

static int control = -1;
static pid_t pid;
static uint16_t port_http, port_socks, port_server, port_none;
static int server = -1;

/* How much later it is for the proxy, too, than the kernel says, in seconds. */
static atomic_long *later;

/* Stands before libc's. */
int clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = (int)syscall(SYS_clock_gettime, id, ret);

	if (r == 0 && later && id == CLOCK_MONOTONIC)
		ret->tv_sec += atomic_load(later);
	return r;
}

static inline int listen_at(uint16_t *ret_port)
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

static inline int dial(uint16_t port)
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

static inline void put(int fd, const char *text)
{
	if (send(fd, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text))
		printf("# a text was not sent\n");
}

/* Up to the end, or @n bytes: what came, as text; static. */
static inline const char *get(int fd, size_t n)
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
static inline bool ended(int fd)
{
	char c;

	return recv(fd, &c, 1, 0) == 0;
}

static inline const char *get_head(int fd)
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

static inline int accept_server(int ms)
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

static inline void proxy_start(void)
{
	struct net_rules rules = {.local = true};
	struct net_msg m = {.kind = NET_MSG_LISTEN};
	int sv[2], l[2];
	struct diag d = {0};

	(void)signal(SIGPIPE, SIG_IGN);
	later = mmap(NULL, sizeof(*later), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (later == MAP_FAILED)
		tap_fatal("mmap");
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
static inline void was_asked(enum net_verdict v, const char *host, unsigned port)
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

static inline int connect_through(void)
{
	char text[128];
	int c = dial(port_http);

	(void)snprintf(text, sizeof(text),
		       "CONNECT localhost:%u HTTP/1.1\r\nHost: localhost:%u\r\n\r\n", port_server,
		       port_server);
	put(c, text);
	return c;
}

/* All is well: bytes go both ways, and ends are led on. */
static inline void proxy_tunnel(void)
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
