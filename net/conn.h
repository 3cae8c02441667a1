/*
 * net/conn.h - one connection of a command's: its request, what is judged of it, and the bytes in both ways.
 *
 * Driven by the loop of proxy.c, which polls what conn_poll asks for. One thread.
 */
#pragma once

#include <poll.h>
#include <stdbool.h>

#include "net/resolve.h"
#include "net/rules.h"

enum conn_kind {
	CONN_HTTP,
	CONN_SOCKS,
};

struct conn;

/* What a connection needs of its surroundings. */
struct conn_env {
	const struct net_rules *rules;
	struct resolver *resolver;
	/* One request, before it is answered; @host is "" and @port 0 where it was not understood. */
	void (*asked)(void *arg, enum net_verdict v, const char *host, unsigned port);
	void *arg;
};

/* Takes @fd. -ENOMEM. */
int conn_new(const struct conn_env *env, int fd, enum conn_kind kind, struct conn **ret) MUST_USE;
void conn_free(struct conn *c);
/* Fills two entries: the command's end, and the host's; with fd -1 where nothing is awaited. */
void conn_poll(const struct conn *c, struct pollfd p[static 2]);
/* false: it is over. */
bool conn_ready(struct conn *c, const struct pollfd p[static 2]) MUST_USE;
/* The name was looked up. */
bool conn_resolved(struct conn *c, const struct resolved *a) MUST_USE;
/* io_now_ms() at which conn_late is to be called. */
long long conn_deadline(const struct conn *c);
bool conn_late(struct conn *c) MUST_USE;
