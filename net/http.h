/*
 * net/http.h - the head of a request to a proxy: CONNECT, and the absolute form of everything else. Pure.
 *
 * Strict where readers differ: lines end with CR LF, nothing is folded, there is one Host and it says what the target
 * says, one length. Who asks is hostile, and what is sent on is written anew, so that the server reads what was judged.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "net/host.h"

#define NET_HEAD_MAX (64u << 10)

struct net_request {
	bool connect;
	struct net_host host;
	unsigned port;
	uint64_t body;   /* bytes that follow the head; not of CONNECT */
	struct buf head; /* for the server; not of CONNECT */
};
void net_request_release(struct net_request *q);

/* How long the head at @p is; 0: it is not all there; or negative: *ret_status is the code of the answer, *ret_why the
 * reason. @ret is the caller's to release whatever it gives; host and port stand in it when they were read before the fault. */
ssize_t net_request_parse(const char *p, size_t n, struct net_request *ret, unsigned *ret_status,
			  const char **ret_why) MUST_USE;
