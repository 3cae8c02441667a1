/*
 * net/socks.h - what a client of SOCKS 5 sends (RFC 1928): the methods that it offers, and a request. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "net/host.h"

#define NET_SOCKS_MAX 512u /* more than either can be */

enum net_socks_reply {
	NET_SOCKS_OK = 0,
	NET_SOCKS_FAILED = 1,
	NET_SOCKS_REFUSED = 2, /* not allowed by the ruleset */
	NET_SOCKS_UNREACHABLE = 4,
	NET_SOCKS_NO_COMMAND = 7,
	NET_SOCKS_NO_ADDRESS = 8,
};

/* How long it is; 0: it is not all there; -EINVAL: it is not SOCKS 5. *ret_open: it may be without a password. */
ssize_t net_socks_hello(const unsigned char *p, size_t n, bool *ret_open) MUST_USE;
/* The same of a request. -EINVAL with the reply to give; @ret_host is what was asked for, where that could be read. */
ssize_t net_socks_request(const unsigned char *p, size_t n, struct net_host *ret_host,
			  unsigned *ret_port, enum net_socks_reply *ret_reply) MUST_USE;
