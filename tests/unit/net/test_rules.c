/* net/rules.c: which patterns there are, and what each of them matches. */
#include "net/rules.h"

#include <arpa/inet.h>

#include "tests/lib/tap.h"

static bool allows(const char *pattern, const char *host)
{
	struct net_rules r = {0};
	struct net_host h;
	struct diag d = {0};
	bool yes = false;

	if (net_allow(&r, pattern, &d) < 0)
		tap_fatal("%s", d.text);
	if (net_host_parse(host, strlen(host), &h) == 0)
		yes = net_rules_host(&r, &h) == NET_OK;
	net_rules_release(&r);
	return yes;
}

static void test_table(void)
{
	static const struct {
		const char *pattern;
		const char *host;
		bool yes;
	} rows[] = {
		{"example.com", "example.com", true},
		{"example.com", "a.example.com", false},
		{"example.com", "a.b.example.com", false},
		{"example.com", "badexample.com", false},
		{"*.example.com", "example.com", false},
		{"*.example.com", "a.example.com", true},
		{"*.example.com", "a.b.example.com", true},
		{"*.example.com", "badexample.com", false},
		{"*.example.com", ".example.com", false},
		{"**.example.com", "example.com", true},
		{"**.example.com", "a.example.com", true},
		{"**.example.com", "a.b.example.com", true},
		{"**.example.com", "badexample.com", false},
		{"**.example.com", "example.com.evil.org", false},
		{"EXAMPLE.com", "example.COM", true},
		{"example.com", "EXAMPLE.com.", true},
		{"example.com", "example.com..", true},
		{"xn--bcher-kva.example", "XN--BCHER-KVA.example", true},
		{"xn--bcher-kva.example",
		 "b\xc3\xbc"
		 "cher.example",
		 false},
		{"8.8.8.8", "8.8.8.8", true},
		{"8.8.8.8", "8.8.8.9", false},
		{"8.8.8.8", "[::ffff:8.8.8.8]", true},
		{"8.8.8.8", "134744072", false},
		{"8.8.8.8", "010.8.8.8", false},
		{"localhost", "localhost", false}, /* local, which is not open */
		{"*.com", "example.com", true},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ok(allows(rows[i].pattern, rows[i].host) == rows[i].yes, "%s: %s is%s matched",
		   rows[i].pattern, rows[i].host, rows[i].yes ? "" : " not");
}

static void test_refused(void)
{
	static const char long_label[] =
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.org";
	static const char *const patterns[] = {"",
					       "https://a.b/c",
					       "a.b/c",
					       "a.b:443",
					       "[::1]",
					       "::1",
					       "*",
					       "**",
					       "*.",
					       "**.",
					       "*.*",
					       "a.*.b",
					       "a*.b",
					       "***.a.b",
					       "*a.b",
					       "nodot",
					       ".a.b",
					       "a.b.",
					       "a..b",
					       "-a.b",
					       "a-.b",
					       "a.-b",
					       "a_b.c",
					       "a b.c",
					       "a.b\n",
					       "a.b\t",
					       "b\xc3\xbc.de",
					       "user@a.b",
					       "*.1.2.3.4",
					       "1.2.3",
					       "01.2.3.4",
					       "1.2.3.256",
					       "0x7f.1",
					       "a.b,c.d",
					       "*.localhost:1",
					       "a.b?",
					       "a.b#",
					       "a.%62",
					       long_label};

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		struct net_rules r = {0};
		struct diag d = {0}, d2 = {0};

		eq_int(net_allow(&r, patterns[i], &d), -EINVAL, "refused: '%s'", patterns[i]);
		eq_int(net_deny(&r, patterns[i], &d2), -EINVAL, "denying refused: '%s'",
		       patterns[i]);
		ok(strstr(d.text, patterns[i]) && strlen(d.text) > strlen(patterns[i]) + 14,
		   "... and says why: %s", d.text);
		ok(!net_rules_any(&r), "... and nothing is kept");
		net_rules_release(&r);
	}
}

static enum net_verdict verdict(const struct net_rules *r, const char *host)
{
	struct net_host h;

	if (net_host_parse(host, strlen(host), &h) < 0)
		return NET_BAD_REQUEST;
	return net_rules_host(r, &h);
}

static void test_order(void)
{
	struct net_rules r = {0}, only = {0}, local = {.local = true}, none = {0};
	struct diag d = {0};

	if (net_allow(&r, "example.com", &d) < 0 || net_allow(&r, "*.pypi.org", &d) < 0 ||
	    net_allow(&r, "**.r.org", &d) < 0 || net_allow(&r, "10.0.0.1", &d) < 0 ||
	    net_deny(&r, "bad.r.org", &d) < 0 || net_deny(&only, "bad.r.org", &d) < 0 ||
	    net_allow(&local, "localhost", &d) < 0 || net_allow(&local, "127.0.0.1", &d) < 0 ||
	    net_deny(&local, "127.0.0.2", &d) < 0)
		tap_fatal("%s", d.text);
	eq_int(verdict(&r, "example.com"), NET_OK, "97");
	eq_int(verdict(&r, "a.example.com"), NET_NO_RULE, "97");
	eq_int(verdict(&r, "pypi.org"), NET_NO_RULE, "97");
	eq_int(verdict(&r, "x.pypi.org"), NET_OK, "97");
	eq_int(verdict(&r, "r.org"), NET_OK, "97");
	eq_int(verdict(&r, "a.b.r.org"), NET_OK, "97");
	eq_int(verdict(&r, "bad.r.org"), NET_DENIED, "97: denied first");
	eq_int(verdict(&r, "evilr.org"), NET_NO_RULE, "97");
	eq_int(verdict(&r, "10.0.0.1"), NET_LOCAL, "what is private is so though a rule names it");
	eq_int(verdict(&r, "localhost"), NET_LOCAL, "so is localhost");
	eq_int(verdict(&r, "a.localhost"), NET_LOCAL, "and what is below it");
	eq_int(verdict(&r, "[::1]"), NET_LOCAL, "and ::1");
	eq_int(verdict(&only, "example.com"), NET_NO_RULE, "100: only denying allows nothing");
	eq_int(verdict(&only, "bad.r.org"), NET_DENIED, "100");
	eq_int(verdict(&local, "localhost"), NET_OK, "local is open: where a rule allows it");
	eq_int(verdict(&local, "127.0.0.1"), NET_OK, "an address, too");
	eq_int(verdict(&local, "127.0.0.2"), NET_DENIED, "denied first");
	eq_int(verdict(&local, "[::1]"), NET_NO_RULE, "no rule names an IPv6 address");
	ok(!net_rules_any(&none) && net_rules_any(&only), "any");
	net_rules_release(&r);
	net_rules_release(&only);
	net_rules_release(&local);
}

static enum net_verdict addr(const struct net_rules *r, const char *text)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
		return net_rules_addr(r, (const struct sockaddr *)&in);
	if (inet_pton(AF_INET6, text, &in6.sin6_addr) != 1)
		tap_fatal("%s", text);
	return net_rules_addr(r, (const struct sockaddr *)&in6);
}

static void test_addresses(void)
{
	static const char *const public[] = {"1.1.1.1",
					     "9.255.255.255",
					     "11.0.0.0",
					     "100.63.255.255",
					     "100.128.0.0",
					     "126.255.255.255",
					     "128.0.0.1",
					     "169.253.255.255",
					     "172.15.255.255",
					     "172.32.0.0",
					     "192.0.1.0",
					     "192.167.255.255",
					     "198.17.255.255",
					     "198.20.0.0",
					     "223.255.255.255",
					     "2606:4700::1111",
					     "2001:4860:4860::8888",
					     "64:ff9b::808:808",
					     "168.63.129.15"};
	static const char *const private[] = {"0.0.0.0",
					      "0.1.2.3",
					      "10.0.0.1",
					      "10.255.255.255",
					      "100.64.0.1",
					      "100.127.255.255",
					      "169.254.169.254",
					      "172.16.0.1",
					      "172.31.255.255",
					      "192.0.0.1",
					      "192.0.2.1",
					      "192.88.99.1",
					      "192.168.1.1",
					      "198.18.0.1",
					      "198.19.255.255",
					      "198.51.100.7",
					      "203.0.113.9",
					      "224.0.0.1",
					      "239.255.255.255",
					      "240.0.0.1",
					      "255.255.255.255",
					      "168.63.129.16",
					      "::",
					      "::ffff:10.0.0.1",
					      "::ffff:169.254.169.254",
					      "::10.0.0.1",
					      "fe80::1",
					      "fec0::1",
					      "fc00::1",
					      "fd00:ec2::254",
					      "ff02::1",
					      "2001:db8::1",
					      "2001::1",
					      "2002:a00:1::1",
					      "64:ff9b::10.0.0.1",
					      "64:ff9b::127.0.0.1",
					      "64:ff9b:1::1",
					      "100::1",
					      "3fff::1",
					      "4000::1"};
	static const char *const loopback[] = {"127.0.0.1", "127.255.255.255", "::1",
					       "::ffff:127.0.0.1"};
	const struct net_rules closed = {0}, open = {.local = true};

	for (size_t i = 0; i < sizeof(public) / sizeof(public[0]); i++)
		eq_int(addr(&closed, public[i]), NET_OK, "public: %s", public[i]);
	for (size_t i = 0; i < sizeof(private) / sizeof(private[0]); i++) {
		eq_int(addr(&closed, private[i]), NET_NOT_PUBLIC, "not public: %s", private[i]);
		eq_int(addr(&open, private[i]), NET_NOT_PUBLIC, "... nor when local is open");
	}
	for (size_t i = 0; i < sizeof(loopback) / sizeof(loopback[0]); i++) {
		eq_int(addr(&closed, loopback[i]), NET_NOT_PUBLIC, "loopback: %s", loopback[i]);
		eq_int(addr(&open, loopback[i]), NET_OK, "... open");
	}
}

/* A denied address is not reached by another name for it. */
static void test_denied_address(void)
{
	static const char *const denied[] = {"93.184.216.34", "::ffff:93.184.216.34",
					     "64:ff9b::5db8:d822"},
				 *const others[] = {"93.184.216.35", "2606:4700::1111",
						    "2001:5db8:d822::5db8:d822"};
	struct net_rules r = {.local = true};
	struct diag d = {0};

	if (net_allow(&r, "**.a.b", &d) < 0 || net_deny(&r, "93.184.216.34", &d) < 0 ||
	    net_deny(&r, "127.0.0.1", &d) < 0 || net_deny(&r, "10.0.0.1", &d) < 0)
		tap_fatal("%s", d.text);
	for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++)
		eq_int(addr(&r, denied[i]), NET_DENIED, "denied: %s", denied[i]);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		eq_int(addr(&r, others[i]), NET_OK, "not denied: %s", others[i]);
	eq_int(addr(&r, "127.0.0.1"), NET_DENIED, "loopback that is open");
	eq_int(addr(&r, "127.0.0.2"), NET_OK, "another one");
	eq_int(addr(&r, "10.0.0.1"), NET_DENIED, "what is not public anyway");
	net_rules_release(&r);
}

static void test_bytes(void)
{
	static const char *const broken[] = {"",          "L",       "X\0", "L\0+a.b",
					     "L\0?a.b\0", "-\0+*\0", "-\0+"};
	static const size_t sizes[] = {0, 1, 2, 6, 7, 5, 3};
	struct net_rules r = {.local = true}, back = {0}, more = {0};
	struct buf b = {0}, text = {0};
	struct diag d = {0};

	if (net_allow(&r, "a.b", &d) < 0 || net_allow(&r, "A.B", &d) < 0 ||
	    net_allow(&r, "*.c.d", &d) < 0 || net_deny(&r, "x.c.d", &d) < 0 ||
	    net_rules_encode(&r, &b) < 0)
		tap_fatal("%s", d.text);
	eq_int(r.allow.n, 2, "the same twice is once");
	eq_int(net_rules_decode(b.data, b.len, &back), 0, "decoded");
	ok(net_rules_same(&r, &back) && back.local, "there and back");
	if (net_allow(&more, "e.f", &d) < 0 || net_rules_join(&back, &more) < 0 ||
	    net_list_text(&back.allow, &text) < 0)
		tap_fatal("memory");
	eq_str((const char *)text.data, "a.b,*.c.d,e.f", "joined");
	ok(!net_rules_same(&r, &back), "and others");
	net_rules_release(&back);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		eq_int(net_rules_decode(broken[i], sizes[i], &back), -EBADMSG, "broken %zu", i);
	buf_release(&b);
	buf_release(&text);
	net_rules_release(&more);
	net_rules_release(&r);
}

static void test_words(void)
{
	struct buf b = {0};

	for (int v = 0; v < NET_VERDICT_COUNT; v++)
		ok(*net_verdict_text((enum net_verdict)v), "%d: %s", v,
		   net_verdict_text((enum net_verdict)v));
	ok(*net_verdict_text((enum net_verdict)4711), "an unknown one has words too");
	if (net_verdict_remedy(NET_NO_RULE, "a.b", &b) < 0)
		tap_fatal("memory");
	eq_str((const char *)b.data, "--allow-domain a.b", "what to change");
	buf_release(&b);
	ok(net_verdict_refused(NET_NO_RULE) && !net_verdict_refused(NET_UNRESOLVED), "refused");
}

/* What is allowed in vain: nothing of it comes to the proxy, which could say so. */
static void test_shut(void)
{
	static const struct {
		const char *pattern, *closed, *open;
	} rows[] = {
		{"a.org", "", ""},
		{"8.8.8.8", "", ""},
		{"localhost", "--allow-local-binding", ""},
		{"x.localhost", "--allow-local-binding", ""},
		{"127.0.0.2", "--allow-local-binding", ""},
		{"10.0.0.1", "stays closed", "stays closed"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		for (int local = 0; local < 2; local++) {
			cleanup_net_rules struct net_rules r = {.local = local};
			cleanup_buf struct buf b = {0};
			const char *want = local ? rows[i].open : rows[i].closed, *got;

			if (net_allow(&r, "b.org", NULL) < 0 ||
			    net_allow(&r, rows[i].pattern, NULL) < 0 || net_rules_shut(&r, &b) < 0)
				tap_fatal("memory");
			got = b.len ? (const char *)b.data : "";
			ok(*want ? strstr(got, want) && strstr(got, rows[i].pattern) : !*got,
			   "%s: '%s'", rows[i].pattern, got);
		}
}

int main(void)
{
	test_shut();
	test_table();
	test_refused();
	test_order();
	test_addresses();
	test_denied_address();
	test_bytes();
	test_words();
	return tap_done();
}
