#include "mcp/msg.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/json.h"

struct span {
	size_t at, len; /* len 0: not there */
};

/* Where in the message a value stands, as far as it matters. */
enum where {
	W_ROOT,
	W_PARAMS,
	W_META,
	W_OTHER
};

struct scan {
	char *p;
	size_t n, at;
	bool nul, too_deep;
	struct span id, request_id, progress;
};

static void skip_ws(struct scan *s)
{
	while (s->at < s->n && (s->p[s->at] == ' ' || s->p[s->at] == '\t' || s->p[s->at] == '\r' ||
				s->p[s->at] == '\n'))
		s->at++;
}

static bool eat(struct scan *s, char c)
{
	skip_ws(s);
	if (s->at >= s->n || s->p[s->at] != c)
		return false;
	s->at++;
	return true;
}

static int hex4(const struct scan *s, size_t at)
{
	int v = 0;

	if (s->n - at < 4)
		return -1;
	for (size_t i = 0; i < 4; i++) {
		char c = s->p[at + i];

		v <<= 4;
		if (c >= '0' && c <= '9')
			v |= c - '0';
		else if (c >= 'a' && c <= 'f')
			v |= c - 'a' + 10;
		else if (c >= 'A' && c <= 'F')
			v |= c - 'A' + 10;
		else
			return -1;
	}
	return v;
}

/* Behind "\u". JavaScript can send half a pair; the whole message must not fail for it. */
static bool scan_unicode(struct scan *s)
{
	int v = hex4(s, s->at), low = -1;

	if (v < 0)
		return false;
	if (!v)
		s->nul = true;
	if (v >= 0xd800 && v < 0xdc00 && s->n - s->at >= 10 && s->p[s->at + 4] == '\\' &&
	    s->p[s->at + 5] == 'u')
		low = hex4(s, s->at + 6);
	if (low >= 0xdc00 && low < 0xe000) {
		s->at += 10;
		return true;
	}
	if (v >= 0xd800 && v < 0xe000)
		memcpy(s->p + s->at, "fffd", 4);
	s->at += 4;
	return true;
}

static bool scan_string(struct scan *s)
{
	if (!eat(s, '"'))
		return false;
	while (s->at < s->n) {
		unsigned char c = (unsigned char)s->p[s->at++];

		if (c == '"')
			return true;
		if (c < 0x20)
			return false;
		if (c != '\\')
			continue;
		if (s->at >= s->n)
			return false;
		c = (unsigned char)s->p[s->at++];
		if (c == 'u') {
			if (!scan_unicode(s))
				return false;
		} else if (!strchr("\"\\/bfnrt", c) || !c) {
			return false;
		}
	}
	return false;
}

static size_t digits(struct scan *s)
{
	size_t from = s->at;

	while (s->at < s->n && s->p[s->at] >= '0' && s->p[s->at] <= '9')
		s->at++;
	return s->at - from;
}

static bool scan_number(struct scan *s)
{
	size_t from;

	if (s->p[s->at] == '-')
		s->at++;
	from = s->at;
	if (!digits(s) || (s->p[from] == '0' && s->at - from > 1))
		return false;
	if (s->at < s->n && s->p[s->at] == '.') {
		s->at++;
		if (!digits(s))
			return false;
	}
	if (s->at < s->n && (s->p[s->at] == 'e' || s->p[s->at] == 'E')) {
		s->at++;
		if (s->at < s->n && (s->p[s->at] == '+' || s->p[s->at] == '-'))
			s->at++;
		if (!digits(s))
			return false;
	}
	return true;
}

static bool scan_word(struct scan *s, const char *w)
{
	size_t k = strlen(w);

	if (s->n - s->at < k || memcmp(s->p + s->at, w, k) != 0)
		return false;
	s->at += k;
	return true;
}

static bool scan_value(struct scan *s, int depth, enum where where);

static bool key_is(const struct scan *s, struct span key, const char *name)
{
	return key.len == strlen(name) + 2 && !memcmp(s->p + key.at + 1, name, key.len - 2);
}

/* What to keep of the member @key, and where its value stands. First of equal keys wins, as in
 * cJSON's look-up. */
static struct span *member(struct scan *s, struct span key, enum where where, enum where *ret_where)
{
	*ret_where = W_OTHER;
	switch (where) {
	case W_ROOT:
		if (key_is(s, key, "params"))
			*ret_where = W_PARAMS;
		return key_is(s, key, "id") && !s->id.len ? &s->id : NULL;
	case W_PARAMS:
		if (key_is(s, key, "_meta"))
			*ret_where = W_META;
		return key_is(s, key, "requestId") && !s->request_id.len ? &s->request_id : NULL;
	case W_META:
		return key_is(s, key, "progressToken") && !s->progress.len ? &s->progress : NULL;
	case W_OTHER:
		break;
	}
	return NULL;
}

static bool scan_object(struct scan *s, int depth, enum where where)
{
	s->at++;
	if (eat(s, '}'))
		return true;
	do {
		struct span key, *keep;
		enum where in;
		size_t from;

		skip_ws(s);
		key.at = s->at;
		if (!scan_string(s))
			return false;
		key.len = s->at - key.at;
		keep = member(s, key, where, &in);
		if (!eat(s, ':'))
			return false;
		skip_ws(s);
		from = s->at;
		if (!scan_value(s, depth + 1, in))
			return false;
		if (keep)
			*keep = (struct span){from, s->at - from};
	} while (eat(s, ','));
	return eat(s, '}');
}

static bool scan_array(struct scan *s, int depth)
{
	s->at++;
	if (eat(s, ']'))
		return true;
	do {
		if (!scan_value(s, depth + 1, W_OTHER))
			return false;
	} while (eat(s, ','));
	return eat(s, ']');
}

static bool scan_value(struct scan *s, int depth, enum where where)
{
	if (depth > MSG_MAX_DEPTH) {
		s->too_deep = true;
		return false;
	}
	skip_ws(s);
	if (s->at >= s->n)
		return false;
	switch (s->p[s->at]) {
	case '{':
		return scan_object(s, depth, where);
	case '[':
		return scan_array(s, depth);
	case '"':
		return scan_string(s);
	case 't':
		return scan_word(s, "true");
	case 'f':
		return scan_word(s, "false");
	case 'n':
		return scan_word(s, "null");
	default:
		return (s->p[s->at] == '-' || (s->p[s->at] >= '0' && s->p[s->at] <= '9')) &&
		       scan_number(s);
	}
}

/* A copy of the raw string or number at @sp; NULL result when it is neither or too long. */
static int keep_scalar(const struct scan *s, struct span sp, char **ret)
{
	*ret = NULL;
	if (!sp.len || sp.len > MSG_MAX_ID)
		return 0;
	if (s->p[sp.at] != '"' && s->p[sp.at] != '-' && (s->p[sp.at] < '0' || s->p[sp.at] > '9'))
		return 0;
	if (!utf8_valid(s->p + sp.at, sp.len))
		return 0;
	*ret = strndup(s->p + sp.at, sp.len);
	return *ret ? 0 : -ENOMEM;
}

static int bad(struct msg *m, int code, const char *why)
{
	m->kind = MSG_BAD;
	m->code = code;
	m->why = why;
	return 0;
}

static int classify(struct msg *m, bool has_id)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(m->root, "jsonrpc");
	const cJSON *method = cJSON_GetObjectItemCaseSensitive(m->root, "method");

	if (!cJSON_IsString(v) || strcmp(v->valuestring, "2.0") != 0)
		return bad(m, RPC_INVALID, "Invalid Request: \"jsonrpc\" must be \"2.0\"");
	if (!method) {
		if (!cJSON_GetObjectItemCaseSensitive(m->root, "result") &&
		    !cJSON_GetObjectItemCaseSensitive(m->root, "error"))
			return bad(m, RPC_INVALID, "Invalid Request: no method");
		m->kind = MSG_RESPONSE;
		return 0;
	}
	if (!cJSON_IsString(method))
		return bad(m, RPC_INVALID, "Invalid Request: method must be a string");
	if (has_id && !m->id)
		return bad(m, RPC_INVALID,
			   "Invalid Request: id must be a string or a number, at most 1024 bytes");
	m->params = cJSON_GetObjectItemCaseSensitive(m->root, "params");
	if (m->params && !cJSON_IsObject(m->params))
		return bad(m, RPC_INVALID, "Invalid Request: params must be an object");
	m->method = method->valuestring;
	m->kind = m->id ? MSG_REQUEST : MSG_NOTIFICATION;
	return 0;
}

static int keep_scalars(const struct scan *s, struct msg *m)
{
	int r = keep_scalar(s, s->id, &m->id);

	if (!r)
		r = keep_scalar(s, s->request_id, &m->request_id);
	if (!r)
		r = keep_scalar(s, s->progress, &m->progress);
	return r;
}

static int parse(char *line, size_t n, struct msg *m)
{
	struct scan s = {.p = line, .n = n};
	bool whole;
	int r;

	if (n >= 3 && !memcmp(line, "\xef\xbb\xbf", 3))
		s.at = 3;
	skip_ws(&s);
	if (s.at == n)
		return 0;
	line += s.at;
	n -= s.at;
	s = (struct scan){.p = line, .n = n};
	whole = scan_value(&s, 1, W_ROOT);
	skip_ws(&s);
	r = keep_scalars(&s, m);
	if (r)
		return r;
	if (s.too_deep)
		return bad(m, RPC_PARSE, "Parse error: nested more than 64 levels deep");
	if (!whole || s.at != n)
		return bad(m, RPC_PARSE, "Parse error: not one JSON value");
	if (!utf8_valid(line, n))
		return bad(m, RPC_PARSE, "Parse error: not valid UTF-8");
	if (line[0] == '[') {
		m->kind = MSG_BATCH;
		return 0;
	}
	if (line[0] != '{')
		return bad(m, RPC_INVALID, "Invalid Request: not an object");
	m->has_nul = s.nul;
	/* The scan has found it well-formed: what can fail now is memory. */
	m->root = cJSON_ParseWithLength(line, n);
	if (!m->root)
		return -ENOMEM;
	/* The scan knows keys without escapes only; an id under another is not nothing. */
	return classify(m, s.id.len > 0 || cJSON_GetObjectItemCaseSensitive(m->root, "id"));
}

int msg_parse(char *line, size_t n, struct msg *ret)
{
	int r;

	*ret = (struct msg){.kind = MSG_NONE};
	r = parse(line, n, ret);
	if (r)
		msg_release(ret);
	return r;
}

void msg_release(struct msg *m)
{
	free(m->id);
	free(m->request_id);
	free(m->progress);
	cJSON_Delete(m->root);
	*m = (struct msg){.kind = MSG_NONE};
}

int msg_batch_next(char *line, size_t n, size_t *pos, char **ret_elem, size_t *ret_len)
{
	struct scan s = {.p = line, .n = n, .at = *pos};

	if (!s.at && n >= 3 && !memcmp(line, "\xef\xbb\xbf", 3))
		s.at = 3;
	if (!eat(&s, *pos ? ',' : '['))
		return 0;
	skip_ws(&s);
	*ret_elem = line + s.at;
	if (!scan_value(&s, 1, W_OTHER))
		return 0;
	*ret_len = (size_t)(line + s.at - *ret_elem);
	*pos = s.at;
	return 1;
}
