#include "net/host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

/* ---- addresses ---- */

struct block4 {
	uint32_t addr;
	unsigned bits;
};

/* IANA's special-purpose registry, groups, and what clouds serve to their machines at a public number. */
static const struct block4 private4[] = {
	{0x00000000, 8},  /* this network */
	{0x0a000000, 8},  /* private */
	{0x64400000, 10}, /* carriers' own */
	{0xa9fe0000, 16}, /* link-local, and most clouds' metadata */
	{0xac100000, 12}, /* private */
	{0xc0000000, 24}, /* protocol assignments */
	{0xc0000200, 24}, /* documentation */
	{0xc0586300, 24}, /* 6to4 relays */
	{0xc0a80000, 16}, /* private */
	{0xc6120000, 15}, /* measurements */
	{0xc6336400, 24}, /* documentation */
	{0xcb007100, 24}, /* documentation */
	{0xa83f8110, 32}, /* Azure's own services */
	{0xe0000000, 4},  /* groups */
	{0xf0000000, 4},  /* reserved, and broadcast */
};

static enum net_reach reach4(uint32_t a)
{
	size_t i;

	if (a >> 24 == 127)
		return NET_LOOPBACK;
	for (i = 0; i < sizeof(private4) / sizeof(private4[0]); i++) {
		if ((a ^ private4[i].addr) >> (32 - private4[i].bits) == 0)
			return NET_PRIVATE;
	}
	return NET_PUBLIC;
}

static uint32_t word(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool is_mapped(const uint8_t a[16])
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(a, prefix, sizeof(prefix));
}

static bool is_translated(const uint8_t a[16])
{
	static const uint8_t prefix[12] = {0x00, 0x64, 0xff, 0x9b};

	return !memcmp(a, prefix, sizeof(prefix));
}

/* Public is what is out of 2000::/3 and not set aside there, and what a translator makes of public IPv4. */
static enum net_reach reach6(const uint8_t a[16])
{
	static const uint8_t zeros[15];
	enum net_reach r;

	if (!memcmp(a, zeros, sizeof(zeros)) && a[15] == 1)
		return NET_LOOPBACK;
	if (is_mapped(a))
		return reach4(word(a + 12));
	/* The machine's own loopback it is not, whatever is in it. */
	if (is_translated(a)) {
		r = reach4(word(a + 12));
		return r == NET_PUBLIC ? r : NET_PRIVATE;
	}
	if (a[0] >> 5 != 1)
		return NET_PRIVATE;
	if (a[0] == 0x20 && a[1] == 0x01 && (a[2] < 2 || (a[2] == 0x0d && a[3] == 0xb8)))
		return NET_PRIVATE; /* 2001::/23, which tunnels and identifiers have; documentation */
	if (a[0] == 0x20 && a[1] == 0x02)
		return NET_PRIVATE; /* 6to4 */
	if (a[0] == 0x3f && a[1] == 0xff && a[2] >> 4 == 0)
		return NET_PRIVATE; /* documentation */
	return NET_PUBLIC;
}

enum net_reach net_addr_reach(const struct sockaddr *sa)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;

	if (sa->sa_family == AF_INET) {
		memcpy(&in, sa, sizeof(in));
		return reach4(ntohl(in.sin_addr.s_addr));
	}
	if (sa->sa_family == AF_INET6) {
		memcpy(&in6, sa, sizeof(in6));
		return reach6(in6.sin6_addr.s6_addr);
	}
	return NET_PRIVATE;
}

bool net_addr_ipv4(const struct sockaddr *sa, struct net_host *ret)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;

	if (sa->sa_family == AF_INET) {
		memcpy(&in, sa, sizeof(in));
	} else if (sa->sa_family == AF_INET6) {
		memcpy(&in6, sa, sizeof(in6));
		if (!is_mapped(in6.sin6_addr.s6_addr) && !is_translated(in6.sin6_addr.s6_addr))
			return false;
		memcpy(&in.sin_addr, in6.sin6_addr.s6_addr + 12, sizeof(in.sin_addr));
	} else {
		return false;
	}
	ret->kind = NET_HOST_IPV4;
	return inet_ntop(AF_INET, &in.sin_addr, ret->text, sizeof(ret->text)) != NULL;
}

/* ---- names ---- */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f');
}

/* As a browser decides it: the last label is a number in one of the spellings that inet_aton reads. */
static bool ends_in_number(const char *text)
{
	const char *last = strrchr(text, '.');
	size_t i;

	last = last ? last + 1 : text;
	if (last[0] == '0' && last[1] == 'x') {
		for (i = 2; is_hex(last[i]); i++)
			;
		return !last[i];
	}
	for (i = 0; is_digit(last[i]); i++)
		;
	return i > 0 && !last[i];
}

/* Labels of letters, digits, '-' and '_' (which hosts of names in use have). */
static bool name_valid(const char *text)
{
	size_t label = 0;

	for (;; text++) {
		if (*text == '.' || !*text) {
			if (label == 0 || label > 63)
				return false;
			label = 0;
			if (!*text)
				return true;
			continue;
		}
		if (!(is_digit(*text) || (*text >= 'a' && *text <= 'z') || *text == '-' ||
		      *text == '_'))
			return false;
		label++;
	}
}

static int parse_v6(const char *text, struct net_host *ret)
{
	struct in6_addr a;
	struct in_addr in;

	if (inet_pton(AF_INET6, text, &a) != 1)
		return -EINVAL;
	if (IN6_IS_ADDR_V4MAPPED(&a)) {
		memcpy(&in, &a.s6_addr[12], sizeof(in));
		ret->kind = NET_HOST_IPV4;
		return inet_ntop(AF_INET, &in, ret->text, sizeof(ret->text)) ? 0 : -EINVAL;
	}
	ret->kind = NET_HOST_IPV6;
	return inet_ntop(AF_INET6, &a, ret->text, sizeof(ret->text)) ? 0 : -EINVAL;
}

static int parse_v4(const char *text, struct net_host *ret)
{
	struct in_addr a;

	/* Four decimal numbers without zeros before them; it reads no other spelling. */
	if (inet_pton(AF_INET, text, &a) != 1)
		return -EINVAL;
	ret->kind = NET_HOST_IPV4;
	return inet_ntop(AF_INET, &a, ret->text, sizeof(ret->text)) ? 0 : -EINVAL;
}

int net_host_parse(const char *text, size_t n, struct net_host *ret)
{
	struct net_host h = {.kind = NET_HOST_NAME};
	char low[NET_HOST_MAX];
	bool brackets;
	size_t i;
	int r = 0;

	while (n > 0 && (*text == ' ' || *text == '\t')) {
		text++;
		n--;
	}
	while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
		n--;
	brackets = n > 2 && text[0] == '[' && text[n - 1] == ']';
	if (brackets) {
		text++;
		n -= 2;
	}
	while (!brackets && n > 0 && text[n - 1] == '.')
		n--;
	if (n == 0 || n >= sizeof(low))
		return -EINVAL;
	for (i = 0; i < n; i++) {
		low[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] + 32) : text[i];
		if (low[i] <= 0x20 || low[i] == 0x7f)
			return -EINVAL;
	}
	low[n] = 0;
	if (brackets || strchr(low, ':'))
		r = parse_v6(low, &h);
	else if (!name_valid(low))
		r = -EINVAL;
	else if (ends_in_number(low))
		r = parse_v4(low, &h);
	else
		memcpy(h.text, low, n + 1);
	if (r < 0)
		return r;
	*ret = h;
	return 0;
}

int net_port_parse(const char *text, size_t n, unsigned *ret)
{
	unsigned v = 0;
	size_t i;

	if (n == 0 || n > 5)
		return -EINVAL;
	for (i = 0; i < n; i++) {
		if (!is_digit(text[i]))
			return -EINVAL;
		v = v * 10 + (unsigned)(text[i] - '0');
	}
	if (v == 0 || v > 65535)
		return -EINVAL;
	*ret = v;
	return 0;
}

int net_authority_parse(const char *text, size_t n, unsigned def, struct net_host *ret,
			unsigned *ret_port)
{
	size_t host = 0;
	int r = 0;

	if (n > 0 && text[0] == '[') {
		while (host < n && text[host] != ']')
			host++;
		if (host == n)
			return -EINVAL;
		host++;
	} else {
		while (host < n && text[host] != ':')
			host++;
	}
	/* A blank would be taken off by net_host_parse: here it has no place. */
	if (host == 0 || memchr(text, ' ', n) || memchr(text, '\t', n))
		return -EINVAL;
	if (host < n && text[host] != ':')
		return -EINVAL;
	*ret_port = def;
	if (host < n)
		r = net_port_parse(text + host + 1, n - host - 1, ret_port);
	else if (def == 0)
		r = -EINVAL;
	return r < 0 ? r : net_host_parse(text, host, ret);
}

bool net_host_is_local(const struct net_host *h)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
	size_t n = strlen(h->text);

	switch (h->kind) {
	case NET_HOST_IPV4:
		return inet_pton(AF_INET, h->text, &in.sin_addr) != 1 ||
		       net_addr_reach((const struct sockaddr *)&in) != NET_PUBLIC;
	case NET_HOST_IPV6:
		return inet_pton(AF_INET6, h->text, &in6.sin6_addr) != 1 ||
		       net_addr_reach((const struct sockaddr *)&in6) != NET_PUBLIC;
	case NET_HOST_NAME:
		break;
	}
	return !strcmp(h->text, "localhost") || (n > 10 && !strcmp(h->text + n - 10, ".localhost"));
}
