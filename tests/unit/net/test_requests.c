/* net/host.c, net/http.c and net/socks.c: what a client may send, and what it may not. */
#include "net/http.h"
#include "net/socks.h"

#include "tests/lib/tap.h"

static void test_hosts(void)
{
	static const struct {
		const char *text, *host; /* NULL: refused */
		bool local;
	} rows[] = {
		{"example.com", "example.com", false},
		{"EXAMPLE.com.", "example.com", false},
		{" example.com ", "example.com", false},
		{"_dmarc.example.com", "_dmarc.example.com", false},
		{"localhost", "localhost", true},
		{"x.localhost", "x.localhost", true},
		{"notlocalhost", "notlocalhost", false},
		{"1.2.3.4", "1.2.3.4", false},
		{"127.0.0.1", "127.0.0.1", true},
		{"169.254.169.254", "169.254.169.254", true},
		{"[::1]", "::1", true},
		{"::1", "::1", true},
		{"[2606:4700:0::1111]", "2606:4700::1111", false},
		{"[::ffff:127.0.0.1]", "127.0.0.1", true},
		{"::ffff:1.2.3.4", "1.2.3.4", false},
		{"", NULL, 0},
		{".", NULL, 0},
		{"..", NULL, 0},
		{".a.b", NULL, 0},
		{"a..b", NULL, 0},
		{"[]", NULL, 0},
		{"[example.com]", NULL, 0},
		{"[1.2.3.4]", NULL, 0},
		{"[fe80::1%eth0]", NULL, 0},
		{"127.1", NULL, 0},
		{"2130706433", NULL, 0},
		{"0x7f.0.0.1", NULL, 0},
		{"0x7f000001", NULL, 0},
		{"0177.0.0.1", NULL, 0},
		{"1.2.3.4.5", NULL, 0},
		{"1.2.3.256", NULL, 0},
		{"a.0x", NULL, 0},
		{"a b", NULL, 0},
		{"a%2eb", NULL, 0},
		{"a\nb", NULL, 0},
		{"a@b.c", NULL, 0},
		{"a/b", NULL, 0},
		{"b\xc3\xbc.de", NULL, 0},
		{"a\x7f.b", NULL, 0},
	};
	char lbl[300];
	struct net_host h;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int r = net_host_parse(rows[i].text, strlen(rows[i].text), &h);

		if (!rows[i].host) {
			eq_int(r, -EINVAL, "no host: '%s'", rows[i].text);
			continue;
		}
		ok(r == 0 && !strcmp(h.text, rows[i].host), "'%s' is %s", rows[i].text,
		   rows[i].host);
		ok(net_host_is_local(&h) == rows[i].local, "... local: %d", rows[i].local);
	}
	eq_int(net_host_parse("a\0b", 3, &h), -EINVAL, "no host: with a NUL");
	memset(lbl, 'a', sizeof(lbl));
	eq_int(net_host_parse(lbl, 64, &h), -EINVAL, "no host: a label of 64");
	eq_int(net_host_parse(lbl, 63, &h), 0, "a label of 63");
	for (size_t i = 60; i < sizeof(lbl); i += 61)
		lbl[i] = '.';
	eq_int(net_host_parse(lbl, 253, &h), 0, "a name of 253");
	eq_int(net_host_parse(lbl, 254, &h), -EINVAL, "no host: 254");
}

static void test_authorities(void)
{
	static const struct {
		const char *text, *host;
		unsigned port;
	} rows[] = {
		{"a.b:443", "a.b", 443}, {"a.b:65535", "a.b", 65535},
		{"[::1]:80", "::1", 80}, {"A.B.:080", "a.b", 80},
		{"a.b", NULL, 0},        {"a.b:", NULL, 0},
		{"a.b:0", NULL, 0},      {"a.b:65536", NULL, 0},
		{"a.b:99999", NULL, 0},  {"a.b:123456", NULL, 0},
		{"a.b:+80", NULL, 0},    {"a.b: 80", NULL, 0},
		{"a.b:80x", NULL, 0},    {":80", NULL, 0},
		{"u@a.b:80", NULL, 0},   {"u:p@a.b:80", NULL, 0},
		{"[::1]80", NULL, 0},    {"[::1:80", NULL, 0},
		{"::1:80", NULL, 0},     {"a.b:80:90", NULL, 0},
		{" a.b:80", NULL, 0},
	};
	struct net_host h;
	unsigned port;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int r = net_authority_parse(rows[i].text, strlen(rows[i].text), 0, &h, &port);

		if (rows[i].host)
			ok(r == 0 && !strcmp(h.text, rows[i].host) && port == rows[i].port,
			   "'%s' is %s and %u", rows[i].text, rows[i].host, rows[i].port);
		else
			eq_int(r, -EINVAL, "neither: '%s'", rows[i].text);
	}
	ok(net_authority_parse("a.b", 3, 80, &h, &port) == 0 && port == 80, "a port by default");
}

struct parsed {
	struct net_request q;
	ssize_t n;
	unsigned status;
	const char *why;
};

static void parse(const char *text, struct parsed *ret)
{
	*ret = (struct parsed){.why = ""};
	ret->n = net_request_parse(text, strlen(text), &ret->q, &ret->status, &ret->why);
}

static void test_heads(void)
{
	static const struct {
		const char *text;
		const char *head;
		const char *host;
		unsigned port;
		unsigned body;
	} rows[] = {
		{"CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:443\r\n\r\n", "", "a.b", 443, 0},
		{"CONNECT a.b:443 HTTP/1.0\r\n\r\n", "", "a.b", 443, 0},
		{"CONNECT A.B.:443 HTTP/1.1\r\nHost: a.b\r\n\r\n", "", "a.b", 443, 0},
		{"GET http://a.b/x?y HTTP/1.1\r\nHost: a.b\r\nX: 1\r\n\r\n",
		 "GET /x?y HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\nX: 1\r\n\r\n", "a.b", 80,
		 0},
		{"GET HTTP://A.b:80 HTTP/1.0\r\nhost: a.b:80\r\n\r\n",
		 "GET / HTTP/1.0\r\nHost: a.b\r\nConnection: close\r\n\r\n", "a.b", 80, 0},
		{"GET http://a.b:8080?q HTTP/1.1\r\nHost:a.b:8080\r\n\r\n",
		 "GET /?q HTTP/1.1\r\nHost: a.b:8080\r\nConnection: close\r\n\r\n", "a.b", 8080, 0},
		{"PUT http://[2606:4700::1111]/ HTTP/1.1\r\nHost: [2606:4700::1111]\r\nContent-Length: "
		 "7\r\n\r\n",
		 "PUT / HTTP/1.1\r\nHost: [2606:4700::1111]\r\nConnection: close\r\nContent-Length: "
		 "7\r\n\r\n",
		 "2606:4700::1111", 80, 7},
		/* what is the proxy's alone goes no further, nor what Connection names */
		{"GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\nProxy-Authorization: Basic "
		 "eA==\r\nProxy-Connection: keep-alive\r\nConnection: x-hop, Content-Length , "
		 "close\r\nX-Hop: 1\r\nUpgrade: h2c\r\nTE: trailers\r\nContent-Length: 3\r\nY: "
		 "2\r\n\r\n",
		 "GET / HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\nContent-Length: 3\r\nY: "
		 "2\r\n\r\n",
		 "a.b", 80, 3},
	};
	struct parsed p;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		parse(rows[i].text, &p);
		ok(p.n == (ssize_t)strlen(rows[i].text), "taken: %.40s", rows[i].text);
		if (p.n <= 0) {
			printf("# %u %s\n", p.status, p.why);
			continue;
		}
		eq_str(p.q.host.text, rows[i].host, "host");
		eq_int(p.q.port, rows[i].port, "port");
		eq_int(p.q.body, rows[i].body, "body");
		eq_str(p.q.head.len ? (const char *)p.q.head.data : "", rows[i].head,
		       "what the server gets");
		net_request_release(&p.q);
	}
}

static void test_refused(void)
{
	static const struct {
		unsigned status;
		const char *text;
	} rows[] = {
		/* 103: the target's host and Host are one */
		{403, "GET http://a.b/ HTTP/1.1\r\nHost: c.d\r\n\r\n"},
		{403, "GET http://a.b/ HTTP/1.1\r\nHost: a.b:81\r\n\r\n"},
		{403, "CONNECT a.b:443 HTTP/1.1\r\nHost: c.d:443\r\n\r\n"},
		{400, "GET http://a.b/ HTTP/1.1\r\n\r\n"},
		{400, "GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\nHost: a.b\r\n\r\n"},
		{400, "GET http://a.b/ HTTP/1.1\r\nHost: a.b, c.d\r\n\r\n"},
		{400, "GET http://a.b/ HTTP/1.1\r\nHost:\r\n\r\n"},
		{400, "GET http://u@a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, "GET http://a.b@c.d/ HTTP/1.1\r\nHost: c.d\r\n\r\n"},
		{400, "GET http://a.b\\@c.d/ HTTP/1.1\r\nHost: c.d\r\n\r\n"},
		{400, "GET http:///x HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, "GET http://a.b:0/ HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, "GET http://a.b/#f HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, "GET https://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, "GET ftp://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, "GET / HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, "OPTIONS * HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, "CONNECT a.b HTTP/1.1\r\n\r\n"},
		{400, "CONNECT http://a.b:443/ HTTP/1.1\r\n\r\n"},
		{400, "connect a.b:443 HTTP/1.1\r\n\r\n"},
		/* one length, and a number */
		{411,
		 "POST http://a.b/ HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{411,
		 "POST http://a.b/ HTTP/1.1\r\nHost: a.b\r\ntransfer-encoding: identity\r\n\r\n"},
		{400, "POST http://a.b/ HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n"
		      "Content-Length: 3\r\n\r\n"},
		{400, "POST http://a.b/ HTTP/1.1\r\nHost: a.b\r\nContent-Length: 3\r\n"
		      "Content-Length: 4\r\n\r\n"},
		{400, "POST http://a.b/ HTTP/1.1\r\nHost: a.b\r\nContent-Length: 3, 3\r\n\r\n"},
		{400, "POST http://a.b/ HTTP/1.1\r\nHost: a.b\r\nContent-Length: +3\r\n\r\n"},
		{400, "POST http://a.b/ HTTP/1.1\r\nHost: a.b\r\nContent-Length: 0x3\r\n\r\n"},
		{400, "POST http://a.b/ HTTP/1.1\r\nHost: a.b\r\nContent-Length:\r\n\r\n"},
		{400, "POST http://a.b/ HTTP/1.1\r\nHost: a.b\r\nContent-Length: "
		      "9999999999999999999\r\n\r\n"},
		/* readers differ about these */
		{400, "GET http://a.b/ HTTP/1.1\r\nHost : a.b\r\n\r\n"},
		{400, "GET http://a.b/ HTTP/1.1\r\n Host: a.b\r\n\r\n"},
		{400, "GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\nX: 1\r\n y: 2\r\n\r\n"},
		{400, "GET http://a.b/ HTTP/1.1\nHost: a.b\r\n\r\n"},
		{400, "GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\nX: 1\nY: 2\r\n\r\n"},
		{400, "GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\nX: 1\rY: 2\r\n\r\n"},
		{400, "GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\nX: \x01\r\n\r\n"},
		{400, "GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\nnocolon\r\n\r\n"},
		{400, "GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\n: x\r\n\r\n"},
		{400,
		 "GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\nConnection: x\r\nConnection: y\r\n\r\n"},
		{400, "G\x80T http://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, " GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, "GET\thttp://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, "\r\nGET http://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, "\r\n\r\n"},
		{505, "GET http://a.b/ HTTP/2.0\r\nHost: a.b\r\n\r\n"},
		{505, "GET http://a.b/ http/1.1\r\nHost: a.b\r\n\r\n"},
		{505, "GET http://a.b/ x HTTP/1.1\r\nHost: a.b\r\n\r\n"},
		{400, "GET http://a.b/\r\n\r\n"},
	};
	struct parsed p;
	struct buf b = {0};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		parse(rows[i].text, &p);
		ok(p.n < 0 && p.status == rows[i].status && p.why, "%u: %s", rows[i].status,
		   p.why ? p.why : "?");
		if (p.n >= 0 || p.status != rows[i].status)
			printf("# %zd %u for %s\n", p.n, p.status, rows[i].text);
		net_request_release(&p.q);
	}
	parse("GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\n", &p);
	eq_int(p.n, 0, "not all there");
	if (buf_puts(&b, "GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\n") < 0)
		tap_fatal("memory");
	for (int i = 0; i < 300; i++)
		if (buf_puts(&b, "X: 1\r\n") < 0)
			tap_fatal("memory");
	if (buf_puts(&b, "\r\n") < 0)
		tap_fatal("memory");
	parse((const char *)b.data, &p);
	ok(p.n < 0 && p.status == 431, "431: too many fields");
	net_request_release(&p.q);
	while (b.len < NET_HEAD_MAX)
		if (buf_puts(&b, "aaaaaaaa") < 0)
			tap_fatal("memory");
	b.data[strcspn((const char *)b.data, "X") - 2] = 'Y';
	for (size_t i = 0; i + 1 < b.len; i++)
		if (b.data[i] == '\r' && b.data[i + 1] == '\n' && b.data[i + 2] == '\r')
			b.data[i + 2] = 'z';
	parse((const char *)b.data, &p);
	ok(p.n < 0 && p.status == 431, "431: 64 KiB without an end");
	net_request_release(&p.q);
	buf_release(&b);
}

static void test_socks(void)
{
	static const struct {
		const char *bytes;
		size_t n;
		const char *host;
		unsigned port;
		enum net_socks_reply reply;
	} rows[] = {
		{"\5\1\0\3\3a.b\1\273", 10, "a.b", 443, 0},
		{"\5\1\0\1\1\2\3\4\0\120", 10, "1.2.3.4", 80, 0},
		{"\5\1\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\120", 22, "::1", 80, 0},
		{"\5\1\0\4\0\0\0\0\0\0\0\0\0\0\377\377\12\0\0\1\0\120", 22, "10.0.0.1", 80, 0},
		{"\5\1\0\3\3a.b\0\0", 10, NULL, 0, NET_SOCKS_FAILED},
		{"\5\1\0\3\3a b\0\120", 10, NULL, 0, NET_SOCKS_FAILED},
		{"\5\1\0\3\3a\0b\0\120", 10, NULL, 0, NET_SOCKS_FAILED},
		{"\5\1\0\3\0\0\120", 7, NULL, 0, NET_SOCKS_FAILED},
		{"\5\2\0\3\3a.b\1\273", 10, NULL, 0, NET_SOCKS_NO_COMMAND},
		{"\5\3\0\3\3a.b\1\273", 10, NULL, 0, NET_SOCKS_NO_COMMAND},
		{"\5\1\0\2\3a.b\1\273", 10, NULL, 0, NET_SOCKS_NO_ADDRESS},
		{"\5\1\1\3\3a.b\1\273", 10, NULL, 0, NET_SOCKS_FAILED},
		{"\4\1\0\3\3a.b\1\273", 10, NULL, 0, NET_SOCKS_FAILED},
	};
	enum net_socks_reply reply;
	struct net_host h;
	unsigned port;
	bool open = true;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const unsigned char *p = (const unsigned char *)rows[i].bytes;
		ssize_t n = net_socks_request(p, rows[i].n, &h, &port, &reply);

		if (rows[i].host) {
			ok(n == (ssize_t)rows[i].n && !strcmp(h.text, rows[i].host) &&
				   port == rows[i].port,
			   "SOCKS: %s %u", rows[i].host, rows[i].port);
			for (size_t k = 0; k < rows[i].n; k++)
				if (net_socks_request(p, k, &h, &port, &reply) != 0)
					ok(false, "%zu bytes of it are not all", k);
		} else {
			ok(n < 0 && reply == rows[i].reply, "SOCKS: refused with %u",
			   rows[i].reply);
		}
	}
	eq_int(net_socks_hello((const unsigned char *)"\5\2\2\0", 4, &open), 4, "hello");
	ok(open, "without a password");
	eq_int(net_socks_hello((const unsigned char *)"\5\1\2", 3, &open), 3, "hello");
	ok(!open, "only with one");
	eq_int(net_socks_hello((const unsigned char *)"\5\0", 2, &open), 2, "no method");
	ok(!open, "none");
	eq_int(net_socks_hello((const unsigned char *)"\5\2\0", 3, &open), 0, "not all there");
	eq_int(net_socks_hello((const unsigned char *)"\4\1", 2, &open), -EINVAL, "SOCKS 4");
	eq_int(net_socks_hello((const unsigned char *)"GET", 3, &open), -EINVAL, "HTTP");
}

int main(void)
{
	test_hosts();
	test_authorities();
	test_heads();
	test_refused();
	test_socks();
	return tap_done();
}
