/*
 * net/host.h - a host as a request names it, and which addresses of the Internet are public. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct sockaddr;

#define NET_HOST_MAX 254 /* 253 characters and a NUL */

enum net_host_kind {
	NET_HOST_NAME,
	NET_HOST_IPV4,
	NET_HOST_IPV6,
};

struct net_host {
	enum net_host_kind kind;
	/* Lower case, without dots at the end or brackets; an address as inet_ntop writes it, an IPv4 one that is mapped
	 * into IPv6 as IPv4. */
	char text[NET_HOST_MAX];
};

/* One spelling for each host: -EINVAL when it is empty or holds what no name of a host does. Names are ASCII: one of
 * another script is given in its xn-- form. What ends like an address must be one, in its usual spelling: 127.1, 0x7f.0.0.1
 * and 2130706433 are other names of an address to some readers, and are refused here. */
int net_host_parse(const char *text, size_t n, struct net_host *ret) MUST_USE;
/* Decimal, 1 to 65535. -EINVAL. */
int net_port_parse(const char *text, size_t n, unsigned *ret) MUST_USE;
/* "host:port", "[v6]:port"; without a port @def, unless that is 0. Nothing else, user names least of all. */
int net_authority_parse(const char *text, size_t n, unsigned def, struct net_host *ret,
			unsigned *ret_port) MUST_USE;

/* A name or address of this machine, or of a network that is not public, by its spelling alone. */
bool net_host_is_local(const struct net_host *h);

enum net_reach {
	NET_PUBLIC,
	NET_LOOPBACK,
	NET_PRIVATE, /* everything else: networks of one's own, links, groups, reserved blocks, a cloud's own services */
};
/* Of an AF_INET or AF_INET6 address; an IPv4 address within an IPv6 one counts. */
enum net_reach net_addr_reach(const struct sockaddr *sa);
/* The IPv4 address that it is, or has in it; false: it has none. */
bool net_addr_ipv4(const struct sockaddr *sa, struct net_host *ret) MUST_USE;
