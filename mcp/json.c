#include "mcp/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool utf8_valid(const void *vp, size_t n)
{
	const uint8_t *p = vp;

	for (size_t i = 0, k; i < n; i += k) {
		k = utf8_len(p + i, n - i);
		if (!k)
			return false;
	}
	return true;
}

/* The escape of the character at @p (of @k bytes), or its length 0 when it stands for itself. */
static size_t escape(const uint8_t *p, size_t k, char out[static 8])
{
	static const char shorts[32] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
	unsigned cp;

	if (k == 1 && (p[0] == '"' || p[0] == '\\')) {
		out[0] = '\\';
		out[1] = (char)p[0];
		return 2;
	}
	if (k == 1 && p[0] < 0x20 && shorts[p[0]]) {
		out[0] = '\\';
		out[1] = shorts[p[0]];
		return 2;
	}
	if (k == 1 && (p[0] < 0x20 || p[0] == 0x7f))
		cp = p[0];
	else if (k == 2 && p[0] == 0xc2 && p[1] < 0xa0)
		cp = p[1];
	else if (k == 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9))
		cp = 0x2000u + (p[2] & 0x3fu);
	else
		return 0;
	(void)snprintf(out, 8, "\\u%04x", cp);
	return 6;
}

int json_put_str_max(struct buf *b, const void *vp, size_t n, size_t max, size_t *ret_used)
{
	const uint8_t *p = vp;
	size_t start = b->len, run = 0, i = 0;
	int r;

	r = buf_put(b, "\"", 1);
	while (!r && i < n) {
		size_t k = utf8_len(p + i, n - i), e = 0;
		char esc[8];

		if (!k) {
			memcpy(esc, "\xef\xbf\xbd", 3);
			e = 3;
			k = 1;
		} else {
			e = escape(p + i, k, esc);
		}
		if (b->len - start + (i - run) + (e ? e : k) + 1 > max)
			break;
		if (e) {
			r = buf_put(b, p + run, i - run);
			if (!r)
				r = buf_put(b, esc, e);
			run = i + k;
		}
		i += k;
	}
	if (!r)
		r = buf_put(b, p + run, i - run);
	if (!r)
		r = buf_put(b, "\"", 1);
	if (!r)
		*ret_used = i;
	return r;
}

int json_put_str(struct buf *b, const void *p, size_t n)
{
	size_t used;

	return json_put_str_max(b, p, n, SIZE_MAX, &used);
}

int json_put_cstr(struct buf *b, const char *s)
{
	return json_put_str(b, s, strlen(s));
}

static int put_number(struct buf *b, double d)
{
	if (!isfinite(d))
		return buf_puts(b, "null");
	if (d == trunc(d) && fabs(d) < 9007199254740992.0)
		return buf_printf(b, "%" PRId64, (int64_t)d);
	return buf_printf(b, "%.15g", d);
}

static int put_members(struct buf *b, const cJSON *v, bool keys)
{
	int r = buf_puts(b, keys ? "{" : "[");

	for (const cJSON *c = v->child; !r && c; c = c->next) {
		if (keys) {
			r = json_put_cstr(b, c->string ? c->string : "");
			if (!r)
				r = buf_puts(b, ":");
		}
		if (!r)
			r = json_put(b, c);
		if (!r && c->next)
			r = buf_puts(b, ",");
	}
	return r ? r : buf_puts(b, keys ? "}" : "]");
}

/* Recursion is as deep as the value, which is ours or was bounded when it was read. */
int json_put(struct buf *b, const cJSON *v)
{
	if (cJSON_IsString(v))
		return json_put_cstr(b, v->valuestring);
	if (cJSON_IsNumber(v))
		return put_number(b, v->valuedouble);
	if (cJSON_IsBool(v))
		return buf_puts(b, cJSON_IsTrue(v) ? "true" : "false");
	if (cJSON_IsObject(v) || cJSON_IsArray(v))
		return put_members(b, v, cJSON_IsObject(v));
	return buf_puts(b, "null");
}
