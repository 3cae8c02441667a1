/* What a sandbox sends to rattan-net, and the rules that the runner does: whatever the bytes, nothing outside of them is
 * read, and what is understood says one thing alone. The first byte chooses the reader. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/http.h"
#include "net/rules.h"
#include "net/socks.h"
#include "tests/fuzz/fuzz.h"

static void check(int holds)
{
	if (!holds)
		abort();
}

/* What was read of a host is read again as itself. */
static void check_host(const struct net_host *h)
{
	struct net_host again;

	check(h->text[0] && strlen(h->text) < NET_HOST_MAX);
	check(net_host_parse(h->text, strlen(h->text), &again) == 0);
	check(again.kind == h->kind && !strcmp(again.text, h->text));
	(void)net_host_is_local(h);
}

static bool http(const char *p, size_t n)
{
	struct net_request q, again;
	unsigned status = 0;
	const char *why = NULL, *head;
	ssize_t r = net_request_parse(p, n, &q, &status, &why);

	check(r <= (ssize_t)n);
	if (r < 0)
		check(status >= 400 && status < 600 && why);
	if (r > 0) {
		check_host(&q.host);
		check(q.port >= 1 && q.port <= 65535);
		check(q.connect == (q.head.len == 0));
	}
	if (r > 0 && !q.connect) {
		/* One head, ended by the one empty line; and no target that another proxy would follow. */
		head = (const char *)q.head.data;
		check(q.head.len >= 4 &&
		      memmem(head, q.head.len, "\r\n\r\n", 4) == head + q.head.len - 4);
		check(strchr(head, ' ') && (strchr(head, ' ')[1] == '/'));
		check(strstr(head, "\r\nHost: ") != NULL &&
		      strstr(head, "\r\nConnection: close\r\n") != NULL);
		check(net_request_parse(head, q.head.len, &again, &status, &why) < 0);
		net_request_release(&again);
	}
	net_request_release(&q);
	return r > 0;
}

static bool socks(const unsigned char *p, size_t n)
{
	enum net_socks_reply reply;
	struct net_host h;
	unsigned port;
	bool open;
	ssize_t hello = net_socks_hello(p, n, &open), r;

	check(hello <= (ssize_t)n);
	r = net_socks_request(p, n, &h, &port, &reply);
	check(r <= (ssize_t)n);
	if (r > 0) {
		check_host(&h);
		check(port >= 1 && port <= 65535);
	}
	return hello > 0 || r > 0;
}

static bool rules(const unsigned char *p, size_t n)
{
	struct net_rules r = {0}, again = {0};
	struct buf b = {0};
	bool taken = net_rules_decode(p, n, &r) == 0;

	if (taken) {
		if (net_rules_encode(&r, &b) == 0 && net_rules_decode(b.data, b.len, &again) == 0)
			check(net_rules_same(&r, &again));
		buf_release(&b);
	}
	net_rules_release(&r);
	net_rules_release(&again);
	return taken;
}

bool fuzz_one(const uint8_t *data, size_t size)
{
	uint8_t *copy;
	bool taken;

	if (size < 1)
		return false;
	copy = malloc(size);
	if (!copy)
		return false;
	memcpy(copy, data + 1, size - 1);
	switch (data[0] % 3) {
	case 0:
		taken = http((const char *)copy, size - 1);
		break;
	case 1:
		taken = socks(copy, size - 1);
		break;
	default:
		taken = rules(copy, size - 1);
		break;
	}
	free(copy);
	return taken;
}
