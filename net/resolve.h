/*
 * net/resolve.h - names to addresses, by the host's own resolver (files, DNS, whatever it is set to use), on threads of
 * their own: getaddrinfo blocks.
 *
 * One thread uses it, which polls the descriptor.
 */
#pragma once

#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/err.h"

#define RESOLVE_ADDRS 8

struct resolver;
struct resolving;

struct resolved {
	void *owner; /* of resolve_start; NULL: was given up */
	int error;   /* of getaddrinfo */
	struct sockaddr_storage addr[RESOLVE_ADDRS];
	size_t n;
};

int resolver_new(struct resolver **ret) MUST_USE;
/* Readable when something is done. */
int resolver_fd(const struct resolver *r);
/* -EAGAIN: too many wait already. The name is taken as it is, without the search list. */
int resolve_start(struct resolver *r, const char *host, unsigned port, void *owner,
		  struct resolving **ret) MUST_USE;
/* It is not looked up if that has not begun, and its answer has no owner. @x is gone for the caller. */
void resolve_drop(struct resolver *r, struct resolving *x);
/* 1: *ret is filled, and what was started for it is gone; 0: nothing is done. */
int resolve_next(struct resolver *r, struct resolved *ret) MUST_USE;
