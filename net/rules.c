#include "net/rules.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* ---- lists ---- */

static void list_release(struct net_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = (struct net_list){0};
}

void net_rules_release(struct net_rules *r)
{
	list_release(&r->allow);
	list_release(&r->deny);
	r->local = false;
}

static bool list_has(const struct net_list *l, const char *pattern)
{
	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->v[i], pattern))
			return true;
	return false;
}

static int list_add(struct net_list *l, const char *pattern)
{
	char **v;

	if (list_has(l, pattern))
		return 0;
	if (l->n == NET_RULES_MAX)
		return -E2BIG;
	v = realloc(l->v, (l->n + 2) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	l->v = v;
	v[l->n] = strdup(pattern);
	if (!v[l->n])
		return -ENOMEM;
	v[++l->n] = NULL;
	return 0;
}

/* ---- patterns ---- */

static size_t wildcard(const char *p)
{
	return !strncmp(p, "**.", 3) ? 3 : !strncmp(p, "*.", 2) ? 2 : 0;
}

static const char *label_fault(const char *p, size_t n)
{
	if (n == 0)
		return "has an empty part: a dot at an end, or two of them";
	if (n > 63)
		return "has a part of more than 63 characters";
	if (p[0] == '-' || p[n - 1] == '-')
		return "has a part that begins or ends with '-'";
	for (size_t i = 0; i < n; i++) {
		char c = p[i];

		if ((unsigned char)c >= 0x80)
			return "is not ASCII; give the name's xn-- form";
		if (c == '*')
			return "has a '*' that is not the whole first part";
		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'))
			return "has a character other than letters, digits, '-' and '.'";
	}
	return NULL;
}

/* What is wrong with @p, which is in lower case; NULL: nothing. */
static const char *pattern_fault(const char *p)
{
	size_t skip = wildcard(p), n;
	struct net_host h;
	const char *at, *why;

	if (!*p)
		return "is empty";
	if (strlen(p) >= NET_HOST_MAX)
		return "is longer than a name can be";
	if (strstr(p, "://") || strchr(p, '/'))
		return "is an address of a page: a rule is about a host, without scheme and path";
	if (strchr(p, ':'))
		return "has a port or is an IPv6 address: a rule is about a host by name";
	if (!strcmp(p, "*") || !strcmp(p, "**"))
		return "would be every host";
	for (at = p + skip;; at += n + 1) {
		n = strcspn(at, ".");
		why = label_fault(at, n);
		if (why || !at[n])
			break;
	}
	if (why)
		return why;
	if (!strchr(p, '.') && strcmp(p, "localhost") != 0)
		return "has no dot";
	/* As a request would be read: an address in one of its odd spellings would never match. */
	if (net_host_parse(p + skip, strlen(p + skip), &h) < 0)
		return "is no name, and no IPv4 address in its usual spelling";
	if (skip && h.kind != NET_HOST_NAME)
		return "has a '*' before an address";
	return NULL;
}

static int add(struct net_list *l, const char *pattern, struct diag *diag)
{
	char low[NET_HOST_MAX + 1];
	const char *why;
	size_t i;
	int r;

	for (i = 0; pattern[i] && i < NET_HOST_MAX; i++)
		low[i] = pattern[i] >= 'A' && pattern[i] <= 'Z' ? (char)(pattern[i] + 32)
								: pattern[i];
	low[i] = 0;
	why = pattern_fault(low);
	if (why)
		return diag_set(diag, -EINVAL, "the domain '%s' %s", pattern, why);
	r = list_add(l, low);
	return r == -E2BIG ? diag_set(diag, -EINVAL, "more than %d domains", NET_RULES_MAX) : r;
}

int net_allow(struct net_rules *r, const char *pattern, struct diag *diag)
{
	return add(&r->allow, pattern, diag);
}

int net_deny(struct net_rules *r, const char *pattern, struct diag *diag)
{
	return add(&r->deny, pattern, diag);
}

static int join(struct net_list *l, const struct net_list *from)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < from->n; i++)
		r = list_add(l, from->v[i]);
	return r;
}

int net_rules_join(struct net_rules *r, const struct net_rules *from)
{
	int e = join(&r->allow, &from->allow);

	if (e == 0)
		e = join(&r->deny, &from->deny);
	r->local = r->local || from->local;
	return e;
}

bool net_rules_any(const struct net_rules *r)
{
	return r->allow.n || r->deny.n;
}

static bool list_in(const struct net_list *a, const struct net_list *b)
{
	for (size_t i = 0; i < a->n; i++)
		if (!list_has(b, a->v[i]))
			return false;
	return true;
}

/* Their order is of no matter, and none is there twice. */
bool net_rules_same(const struct net_rules *a, const struct net_rules *b)
{
	return a->local == b->local && a->allow.n == b->allow.n && a->deny.n == b->deny.n &&
	       list_in(&a->allow, &b->allow) && list_in(&a->deny, &b->deny);
}

/* ---- verdicts ---- */

static bool matches(const char *pattern, const char *host)
{
	size_t skip = wildcard(pattern), n, k;

	pattern += skip;
	if (skip != 2 && !strcmp(pattern, host))
		return true;
	n = strlen(host);
	k = strlen(pattern);
	return skip && n > k + 1 && host[n - k - 1] == '.' && !strcmp(host + n - k, pattern);
}

static bool list_matches(const struct net_list *l, const char *host)
{
	for (size_t i = 0; i < l->n; i++)
		if (matches(l->v[i], host))
			return true;
	return false;
}

enum net_verdict net_rules_host(const struct net_rules *r, const struct net_host *h)
{
	if (list_matches(&r->deny, h->text))
		return NET_DENIED;
	if (!r->local && net_host_is_local(h))
		return NET_LOCAL;
	return list_matches(&r->allow, h->text) ? NET_OK : NET_NO_RULE;
}

enum net_verdict net_rules_addr(const struct net_rules *r, const struct sockaddr *sa)
{
	struct net_host in;

	if (net_addr_ipv4(sa, &in) && list_matches(&r->deny, in.text))
		return NET_DENIED;
	switch (net_addr_reach(sa)) {
	case NET_PUBLIC:
		return NET_OK;
	case NET_LOOPBACK:
		return r->local ? NET_OK : NET_NOT_PUBLIC;
	case NET_PRIVATE:
		break;
	}
	return NET_NOT_PUBLIC;
}

static const struct {
	const char *text;
	bool refused;
} verdicts[] = {
	[NET_OK] = {"allowed", false},
	[NET_DENIED] = {"a rule denies this host", true},
	[NET_LOCAL] = {"this host is local or private", true},
	[NET_NO_RULE] = {"no rule allows this host", true},
	[NET_NOT_PUBLIC] = {"the host's address is not public", true},
	[NET_BAD_REQUEST] = {"the request was not understood", true},
	[NET_UNRESOLVED] = {"the host's name was not found", false},
	[NET_UNREACHABLE] = {"the host could not be reached", false},
	[NET_TOO_LONG] = {"the host did not answer in time", false},
};
_Static_assert(ARRAY_SIZE(verdicts) == NET_VERDICT_COUNT, "a row for each");

static enum net_verdict known(enum net_verdict v)
{
	return (unsigned)v < NET_VERDICT_COUNT ? v : NET_BAD_REQUEST;
}

bool net_verdict_refused(enum net_verdict v)
{
	return verdicts[known(v)].refused;
}

const char *net_verdict_text(enum net_verdict v)
{
	return verdicts[known(v)].text;
}

int net_verdict_remedy(enum net_verdict v, const char *host, struct buf *ret)
{
	switch (known(v)) {
	case NET_NO_RULE:
		return strchr(host, ':') ? buf_puts(ret, "no rule can name it: use its name")
					 : buf_printf(ret, "--allow-domain %s", host);
	case NET_DENIED:
		return buf_puts(ret, "take the pattern out of the denied domains");
	case NET_LOCAL:
	case NET_NOT_PUBLIC:
		return buf_puts(ret, "--allow-local-binding opens loopback; other private "
				     "networks stay closed");
	case NET_OK:
	case NET_BAD_REQUEST:
	case NET_UNRESOLVED:
	case NET_UNREACHABLE:
	case NET_TOO_LONG:
	case NET_VERDICT_COUNT:
		break;
	}
	return 0;
}

static enum net_reach reach(const struct net_host *h)
{
	struct sockaddr_in in = {.sin_family = AF_INET};

	if (!net_host_is_local(h))
		return NET_PUBLIC;
	if (h->kind != NET_HOST_IPV4 || inet_pton(AF_INET, h->text, &in.sin_addr) != 1)
		return NET_LOOPBACK;
	return net_addr_reach((const struct sockaddr *)&in);
}

int net_rules_shut(const struct net_rules *r, struct buf *ret)
{
	for (size_t i = 0; i < r->allow.n; i++) {
		const char *p = r->allow.v[i];
		struct net_host h;

		if (net_host_parse(p + wildcard(p), strlen(p + wildcard(p)), &h) < 0)
			continue;
		switch (reach(&h)) {
		case NET_PUBLIC:
			break;
		case NET_LOOPBACK:
			if (r->local)
				break;
			return buf_printf(
				ret,
				"%s is allowed, but this machine's own addresses need "
				"--allow-local-binding as well: without it a command finds "
				"the sandbox's own there",
				p);
		case NET_PRIVATE:
			return buf_printf(ret,
					  "%s is allowed, but is of a network that is not public, "
					  "which stays closed",
					  p);
		}
	}
	return 0;
}

/* ---- bytes ---- */

static int encode_list(const struct net_list *l, char kind, struct buf *ret)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->n; i++) {
		r = buf_put(ret, &kind, 1);
		if (r == 0)
			r = buf_put(ret, l->v[i], strlen(l->v[i]) + 1);
	}
	return r;
}

int net_rules_encode(const struct net_rules *r, struct buf *ret)
{
	int e = buf_put(ret, r->local ? "L" : "-", 2);

	if (e == 0)
		e = encode_list(&r->allow, '+', ret);
	return e < 0 ? e : encode_list(&r->deny, '!', ret);
}

int net_rules_decode(const void *p, size_t n, struct net_rules *ret)
{
	const char *at = p, *end = at + n;
	struct net_rules r = {0};
	int e = n >= 2 && !at[1] && (*at == 'L' || *at == '-') ? 0 : -EBADMSG;

	if (e == 0) {
		r.local = *at == 'L';
		at += 2;
	}
	while (e == 0 && at < end) {
		char kind = *at++;
		const char *nul = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;

		if (!nul || (kind != '+' && kind != '!')) {
			e = -EBADMSG;
			break;
		}
		e = add(kind == '+' ? &r.allow : &r.deny, at, NULL);
		at = nul + 1;
	}
	if (e < 0) {
		net_rules_release(&r);
		return e == -ENOMEM ? e : -EBADMSG;
	}
	*ret = r;
	return 0;
}

int net_list_text(const struct net_list *l, struct buf *ret)
{
	int r = buf_puts(ret, "");

	for (size_t i = 0; r == 0 && i < l->n; i++)
		r = buf_printf(ret, "%s%s", i ? "," : "", l->v[i]);
	return r;
}
