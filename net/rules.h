/*
 * net/rules.h - which hosts a command may reach: patterns that allow, patterns that deny, and whether this
 * machine's own services count. Pure; docs/network.md says what a person needs to know of it.
 *
 *	example.com      that name
 *	*.example.com    every name below it, and not itself
 *	**.example.com   both
 *
 * There are neither paths nor ports. What is denied is refused first; then what is local, unless that is open; then
 * what no pattern allows. A name that passes is resolved, and every address judged again (net_rules_addr).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "net/host.h"

#define NET_RULES_MAX 1024 /* patterns in each list */

struct net_list {
	char **v; /* NULL-terminated, or NULL */
	size_t n;
};

/* A zeroed one is empty. */
struct net_rules {
	struct net_list allow, deny;
	bool local; /* loopback may be reached, where a pattern allows it */
};
void net_rules_release(struct net_rules *r);
#define cleanup_net_rules __attribute__((cleanup(net_rules_release)))

/* -EINVAL with a sentence that has the pattern and what is wrong with it. Once is enough. */
int net_allow(struct net_rules *r, const char *pattern, struct diag *diag) MUST_USE;
int net_deny(struct net_rules *r, const char *pattern, struct diag *diag) MUST_USE;
/* All of @from as well; local is open when it is in one of them. */
int net_rules_join(struct net_rules *r, const struct net_rules *from) MUST_USE;
/* Is there a pattern at all? Without one nothing is narrowed. */
bool net_rules_any(const struct net_rules *r);
bool net_rules_same(const struct net_rules *a, const struct net_rules *b);

enum net_verdict {
	NET_OK,
	/* by the name */
	NET_DENIED,  /* a pattern denies it */
	NET_LOCAL,   /* local, which is not open */
	NET_NO_RULE, /* no pattern allows it */
	/* by the address */
	NET_NOT_PUBLIC, /* it leads to no public address */
	/* not by a rule */
	NET_BAD_REQUEST,
	NET_UNRESOLVED,
	NET_UNREACHABLE,
	NET_TOO_LONG, /* a time limit */
	NET_VERDICT_COUNT,
};
enum net_verdict net_rules_host(const struct net_rules *r, const struct net_host *h);
/* Of one address that the name leads to: NET_OK, NET_DENIED (a pattern denies the IPv4 address) or NET_NOT_PUBLIC. */
enum net_verdict net_rules_addr(const struct net_rules *r, const struct sockaddr *sa);
/* Was it refused, rather than tried and not reached? */
bool net_verdict_refused(enum net_verdict v);
/* A few words, and what a person could change; "" where there is nothing. */
const char *net_verdict_text(enum net_verdict v);
int net_verdict_remedy(enum net_verdict v, const char *host, struct buf *ret) MUST_USE;

/* What is allowed and is closed all the same, being local or private; a sentence without its end, or "". Programs try such a
 * host without the proxy (NO_PROXY), which then has no verdict to give. */
int net_rules_shut(const struct net_rules *r, struct buf *ret) MUST_USE;

/* For the proxy: bytes that net_rules_decode reads, and judges as net_allow does. -EBADMSG. */
int net_rules_encode(const struct net_rules *r, struct buf *ret) MUST_USE;
int net_rules_decode(const void *p, size_t n, struct net_rules *ret) MUST_USE;
/* Patterns with commas between, for people and variables. */
int net_list_text(const struct net_list *l, struct buf *ret) MUST_USE;
