/*
 * net/msg.h - what the runner and rattan-net say to each other, over a SOCK_SEQPACKET socket; both come from one build.
 */
#pragma once

#include <stdint.h>

#include "net/host.h"

/* Descriptors of rattan-net at its start; 0 to 2 are /dev/null. */
enum net_fd {
	NET_FD_RULES = 3,   /* sealed memfd: net_rules_encode */
	NET_FD_CONTROL = 4, /* when its other end closes, rattan-net ends */
};

enum net_msg_kind {
	NET_MSG_LISTEN =
		1, /* to the proxy: two listening sockets (SCM_RIGHTS), HTTP's and SOCKS' */
	NET_MSG_READY = 200, /* to the runner: they are served */
	NET_MSG_FAILED,      /* it could not start: error is an errno */
	NET_MSG_ASKED,       /* one request, before it is answered */
};

struct net_msg {
	uint32_t kind;
	uint32_t verdict; /* enum net_verdict */
	uint32_t port;    /* 0: could not be read */
	int32_t error;
	uint64_t lost; /* messages that were not sent before this one, nobody reading them */
	char host[NET_HOST_MAX + 2];
};
_Static_assert(sizeof(struct net_msg) == 24 + 256, "message");
