/*
 * net/proxy.h - the loop of rattan-net: what is accepted on two listening sockets of a command's network namespace is
 * judged, and led on from ours.
 *
 * Everything that comes over those sockets is hostile. Connections, their buffers and their time are bounded; beyond
 * PROXY_CONNS a client waits in the listener's queue.
 */
#pragma once

#include "net/rules.h"

#define PROXY_CONNS 256

/* Serves until the other end of @control closes; negative errno when it cannot begin. @rules is lent. */
int proxy_run(const struct net_rules *rules, int control) MUST_USE;
