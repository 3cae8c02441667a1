#include "net/http.h"

#include <string.h>
#include <strings.h>

#define FIELDS_MAX 200u

void net_request_release(struct net_request *q)
{
	buf_release(&q->head);
}

/* A part of the head. */
struct text {
	const char *p;
	size_t n;
};

struct reader {
	struct net_request *q;
	struct text method, target, host, connection;
	bool old; /* HTTP/1.0 */
	bool has_host, has_length, has_coding;
	unsigned nfields;
	unsigned status;
	const char *why;
};

static int refuse(struct reader *r, unsigned status, const char *why)
{
	r->status = status;
	r->why = why;
	return -EINVAL;
}

static bool same(struct text t, const char *word)
{
	return t.n == strlen(word) && !strncasecmp(t.p, word, t.n);
}

static bool is_token(struct text t)
{
	for (size_t i = 0; i < t.n; i++) {
		char c = t.p[i];

		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		      (c && strchr("!#$%&'*+-.^_`|~", c))))
			return false;
	}
	return t.n > 0;
}

static struct text trim(struct text t)
{
	while (t.n > 0 && (*t.p == ' ' || *t.p == '\t')) {
		t.p++;
		t.n--;
	}
	while (t.n > 0 && (t.p[t.n - 1] == ' ' || t.p[t.n - 1] == '\t'))
		t.n--;
	return t;
}

/* ---- the first line ---- */

static int read_line(struct reader *r, struct text line)
{
	const char *a = memchr(line.p, ' ', line.n), *b;
	struct text version;

	if (!a)
		return refuse(r, 400, "the request line is not of HTTP");
	b = memchr(a + 1, ' ', line.n - (size_t)(a + 1 - line.p));
	if (!b)
		return refuse(r, 400, "the request line is not of HTTP");
	r->method = (struct text){line.p, (size_t)(a - line.p)};
	r->target = (struct text){a + 1, (size_t)(b - a - 1)};
	if (!is_token(r->method))
		return refuse(r, 400, "the method is no word");
	version = (struct text){b + 1, line.n - (size_t)(b + 1 - line.p)};
	r->old = version.n == 8 && !memcmp(version.p, "HTTP/1.0", 8);
	if (!r->old && !(version.n == 8 && !memcmp(version.p, "HTTP/1.1", 8)))
		return refuse(r, 505, "the version is neither HTTP/1.0 nor HTTP/1.1");
	if (r->target.n == 0 || memchr(r->target.p, '\t', r->target.n))
		return refuse(r, 400, "the target is not of HTTP");
	r->q->connect = r->method.n == 7 && !memcmp(r->method.p, "CONNECT", 7);
	return 0;
}

/* *ret_path: from the path on, as it is sent to the server; it may be empty, or begin with '?'. */
static int read_target(struct reader *r, struct text *ret_path)
{
	static const char scheme[] = "http://";
	struct text t = r->target;
	size_t n = 0;

	*ret_path = (struct text){t.p, 0};
	if (r->q->connect) {
		if (net_authority_parse(t.p, t.n, 0, &r->q->host, &r->q->port) < 0)
			return refuse(r, 400, "CONNECT needs a host and a port");
		return 0;
	}
	if (t.n < sizeof(scheme) - 1 || strncasecmp(t.p, scheme, sizeof(scheme) - 1) != 0)
		return refuse(r, 400, "a proxy takes CONNECT, and targets that begin with http://");
	t.p += sizeof(scheme) - 1;
	t.n -= sizeof(scheme) - 1;
	while (n < t.n && !strchr("/?#", t.p[n]))
		n++;
	/* A user's name before the host is another host to some readers: it is no part of one here. */
	if (net_authority_parse(t.p, n, 80, &r->q->host, &r->q->port) < 0)
		return refuse(r, 400, "the target names no host that can be read in one way alone");
	if (memchr(t.p, '#', t.n))
		return refuse(r, 400, "the target has a fragment");
	*ret_path = (struct text){t.p + n, t.n - n};
	return 0;
}

/* ---- fields ---- */

static int read_length(struct reader *r, struct text v)
{
	uint64_t n = 0;

	if (v.n == 0 || v.n > 18)
		return refuse(r, 400, "Content-Length is not a number");
	for (size_t i = 0; i < v.n; i++) {
		if (v.p[i] < '0' || v.p[i] > '9')
			return refuse(r, 400, "Content-Length is not a number");
		n = n * 10 + (uint64_t)(v.p[i] - '0');
	}
	if (r->has_length && r->q->body != n)
		return refuse(r, 400, "Content-Length is there twice, with two numbers");
	r->has_length = true;
	r->q->body = n;
	return 0;
}

static int split_field(struct reader *r, struct text line, struct text *name, struct text *value)
{
	const char *colon = memchr(line.p, ':', line.n);

	if (!colon)
		return refuse(r, 400, "a field has no colon");
	*name = (struct text){line.p, (size_t)(colon - line.p)};
	/* Also what is folded, and a blank before the colon. */
	if (!is_token(*name))
		return refuse(r, 400, "a field's name is no word");
	*value = trim((struct text){colon + 1, line.n - (size_t)(colon + 1 - line.p)});
	return 0;
}

static int read_field(struct reader *r, struct text line)
{
	struct text name, value;
	int e = split_field(r, line, &name, &value);

	if (e < 0)
		return e;
	if (++r->nfields > FIELDS_MAX)
		return refuse(r, 431, "there are more than 200 fields");
	if (same(name, "Host")) {
		if (r->has_host)
			return refuse(r, 400, "Host is there twice");
		r->has_host = true;
		r->host = value;
	} else if (same(name, "Content-Length")) {
		return read_length(r, value);
	} else if (same(name, "Transfer-Encoding")) {
		r->has_coding = true;
	} else if (same(name, "Connection")) {
		if (r->connection.p)
			return refuse(r, 400, "Connection is there twice");
		r->connection = value;
	}
	return 0;
}

static int check_fields(struct reader *r)
{
	struct net_request *q = r->q;
	struct net_host host;
	unsigned port;

	if (r->has_coding && r->has_length)
		return refuse(r, 400, "Content-Length and Transfer-Encoding are both there");
	if (r->has_coding)
		return refuse(r, 411, "a body without a length (Transfer-Encoding) is not sent on");
	if (!r->has_host)
		return q->connect ? 0 : refuse(r, 400, "Host is missing");
	if (net_authority_parse(r->host.p, r->host.n, q->connect ? q->port : 80, &host, &port) < 0)
		return refuse(r, 400, "Host is not a host");
	if (strcmp(host.text, q->host.text) != 0 || port != q->port)
		return refuse(r, 403, "Host is another one than the target's");
	return 0;
}

/* ---- what the server gets ---- */

static bool named_in(struct text list, struct text name)
{
	while (list.n > 0) {
		const char *comma = memchr(list.p, ',', list.n);
		struct text word = {list.p, comma ? (size_t)(comma - list.p) : list.n};

		list.n -= word.n + (comma != NULL);
		list.p += word.n + (comma != NULL);
		word = trim(word);
		if (word.n == name.n && !strncasecmp(word.p, name.p, name.n))
			return true;
	}
	return false;
}

/* What is between us and the client alone, and what is written anew. */
static bool is_ours(const struct reader *r, struct text name)
{
	static const char *const ours[] = {"Connection",
					   "Proxy-Connection",
					   "Keep-Alive",
					   "TE",
					   "Trailer",
					   "Upgrade",
					   "Host",
					   "Proxy-Authorization",
					   "Proxy-Authenticate",
					   "HTTP2-Settings"};

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (same(name, ours[i]))
			return true;
	/* The length cannot be wished away: the server would take the body for another request. */
	return !same(name, "Content-Length") && named_in(r->connection, name);
}

static int put(struct buf *b, struct text t)
{
	return buf_put(b, t.p, t.n);
}

static int write_head(const struct reader *r, struct text path, const char *fields, size_t n)
{
	const struct net_request *q = r->q;
	struct buf *b = &r->q->head;
	int e = put(b, r->method);

	if (e == 0)
		e = buf_puts(b, path.n == 0 || *path.p == '?' ? " /" : " ");
	if (e == 0)
		e = put(b, path);
	if (e == 0)
		e = buf_printf(b,
			       q->host.kind == NET_HOST_IPV6 ? " HTTP/1.%c\r\nHost: [%s]"
							     : " HTTP/1.%c\r\nHost: %s",
			       r->old ? '0' : '1', q->host.text);
	if (e == 0 && q->port != 80)
		e = buf_printf(b, ":%u", q->port);
	if (e == 0)
		e = buf_puts(b, "\r\nConnection: close\r\n");
	while (e == 0 && n > 0) {
		const char *end = memchr(fields, '\n', n);
		struct text line = {fields, (size_t)(end - fields) + 1};
		const char *colon = memchr(line.p, ':', line.n);

		if (!is_ours(r, (struct text){line.p, (size_t)(colon - line.p)}))
			e = put(b, line);
		fields += line.n;
		n -= line.n;
	}
	return e < 0 ? e : buf_puts(b, "\r\n");
}

/* ---- the whole ---- */

/* Every line ends with CR LF, and there is no other of the two, nor any other control character. */
static bool is_clean(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)p[i];

		if (c == '\r'   ? i + 1 == n || p[i + 1] != '\n'
		    : c == '\n' ? i == 0 || p[i - 1] != '\r'
				: (c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

static int parse(struct reader *r, const char *p, size_t n)
{
	const char *end = memmem(p, n, "\r\n", 2), *fields = end + 2, *at = fields;
	struct text path;
	int e = read_line(r, (struct text){p, (size_t)(end - p)});

	if (e == 0)
		e = read_target(r, &path);
	/* Up to the empty line. */
	while (e == 0 && at < p + n - 2) {
		const char *nl = memmem(at, (size_t)(p + n - at), "\r\n", 2);

		e = read_field(r, (struct text){at, (size_t)(nl - at)});
		at = nl + 2;
	}
	if (e == 0)
		e = check_fields(r);
	if (e == 0 && !r->q->connect)
		e = write_head(r, path, fields, (size_t)(at - fields));
	if (e == -ENOMEM)
		refuse(r, 500, "there is no memory");
	return e;
}

ssize_t net_request_parse(const char *p, size_t n, struct net_request *ret, unsigned *ret_status,
			  const char **ret_why)
{
	struct reader r = {.q = ret};
	const char *end;
	int e;

	*ret = (struct net_request){0};
	end = n ? memmem(p, n < NET_HEAD_MAX ? n : NET_HEAD_MAX, "\r\n\r\n", 4) : NULL;
	if (!end && n < NET_HEAD_MAX)
		return 0;
	if (!end)
		e = refuse(&r, 431, "the head has more than 64 KiB");
	else if (!is_clean(p, (size_t)(end + 4 - p)))
		e = refuse(&r, 400, "the head has a control character, or a line without CR LF");
	else
		e = parse(&r, p, (size_t)(end + 4 - p));
	*ret_status = r.status;
	*ret_why = r.why;
	return e < 0 ? e : end + 4 - p;
}
