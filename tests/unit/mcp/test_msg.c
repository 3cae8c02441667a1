#include "mcp/msg.h"

#include "mcp/json.h"
#include "tests/lib/tap.h"

static struct msg parse(const char *text, size_t n)
{
	char *copy = malloc(n + 1);
	struct msg m;

	if (!copy)
		tap_fatal("memory");
	memcpy(copy, text, n); /* exact size, so that a sanitizer sees a read past the end */
	if (msg_parse(copy, n, &m))
		tap_fatal("msg_parse");
	free(copy);
	return m;
}
#define PARSE(s) parse(s, sizeof(s) - 1)

static void test_kinds(void)
{
	static const struct {
		const char *line;
		enum msg_kind kind;
		int code;
		const char *id;
	} cases[] = {
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", MSG_REQUEST, 0, "1"},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"id\":\"a b\"}", MSG_REQUEST, 0,
		 "\"a b\""},
		{"{\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"p\"}", MSG_REQUEST, 0,
		 "9007199254740993"},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"n\"}", MSG_NOTIFICATION, 0, NULL},
		{"{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}", MSG_RESPONSE, 0, "4"},
		{"", MSG_NONE, 0, NULL},
		{"  \r", MSG_NONE, 0, NULL},
		{"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\"}\r", MSG_REQUEST, 0,
		 "1"},
		{"[1]", MSG_BATCH, 0, NULL},
		{"[]", MSG_BATCH, 0, NULL},
		{"{bad json", MSG_BAD, RPC_PARSE, NULL},
		{"{\"id\":7,\"method\":", MSG_BAD, RPC_PARSE, "7"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\"} x", MSG_BAD, RPC_PARSE, "1"},
		{"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"\xff\"}", MSG_BAD, RPC_PARSE, "3"},
		{"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"a\tb\"}", MSG_BAD, RPC_PARSE, "3"},
		{"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"p\"}", MSG_BAD, RPC_INVALID, NULL},
		{"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"p\"}", MSG_BAD, RPC_INVALID, NULL},
		{"{\"id\":5,\"method\":\"p\"}", MSG_BAD, RPC_INVALID, "5"},
		{"{\"jsonrpc\":\"1.0\",\"id\":5,\"method\":\"p\"}", MSG_BAD, RPC_INVALID, "5"},
		{"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":7}", MSG_BAD, RPC_INVALID, "5"},
		{"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"p\",\"params\":[]}", MSG_BAD,
		 RPC_INVALID, "5"},
		{"{\"jsonrpc\":\"2.0\",\"id\":5}", MSG_BAD, RPC_INVALID, "5"},
		{"7", MSG_BAD, RPC_INVALID, NULL},
		{"01", MSG_BAD, RPC_PARSE, NULL},
		{"-", MSG_BAD, RPC_PARSE, NULL},
		{"\"abc", MSG_BAD, RPC_PARSE, NULL},
		{"{\"jsonrpc\":\"2.0\",\"id\":5,\"id\":6,\"method\":\"p\"}", MSG_REQUEST, 0, "5"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct msg m = parse(cases[i].line, strlen(cases[i].line));

		ok(m.kind == cases[i].kind && (m.kind != MSG_BAD || m.code == cases[i].code) &&
			   !!m.id == !!cases[i].id && (!m.id || !strcmp(m.id, cases[i].id)),
		   "%s", cases[i].line);
		if (m.kind != cases[i].kind)
			printf("# kind %u code %d id %s\n", m.kind, m.code, m.id ? m.id : "-");
		msg_release(&m);
	}
}

static void test_strings(void)
{
	struct msg m = PARSE("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"s\":"
			     "\"a\\ud800b\\ud83d\\ude00\\udc00\"}}");
	const cJSON *s = cJSON_GetObjectItem(m.params, "s");

	eq_str(s ? s->valuestring : NULL,
	       "a\xef\xbf\xbd"
	       "b\xf0\x9f\x98\x80\xef\xbf\xbd",
	       "half surrogate pairs become U+FFFD, whole ones stay");
	msg_release(&m);
	m = PARSE(
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"s\":\"a\\u0000b\"}}");
	ok(m.kind == MSG_REQUEST && m.has_nul, "U+0000 is noticed");
	msg_release(&m);
	m = PARSE(
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"s\":\"a\\\\u0000b\"}}");
	ok(m.kind == MSG_REQUEST && !m.has_nul, "an escaped backslash before u0000 is not U+0000");
	msg_release(&m);
}

static void test_kept(void)
{
	struct msg m = PARSE("{\"params\":{\"_meta\":{\"progressToken\":12345678901234567890},"
			     "\"requestId\":\"r\\\"1\",\"x\":{\"_meta\":{\"progressToken\":1},"
			     "\"requestId\":2}},\"jsonrpc\":\"2.0\",\"method\":\"m\",\"id\":1}");

	eq_str(m.progress, "12345678901234567890", "the progress token keeps its bytes");
	eq_str(m.request_id, "\"r\\\"1\"", "so does requestId, and deeper ones do not count");
	msg_release(&m);
	m = PARSE("{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"id\":1,\"params\":{\"_meta\":"
		  "{\"progressToken\":{\"a\":1}}}}");
	ok(!m.progress, "a token that is no scalar is none");
	msg_release(&m);
}

static void test_depth(void)
{
	char deep[4096];
	struct msg m;

	memset(deep, '[', sizeof(deep));
	m = parse(deep, sizeof(deep));
	ok(m.kind == MSG_BAD && m.code == RPC_PARSE, "4096 levels are refused");
	msg_release(&m);
	memset(deep, '[', 64);
	memset(deep + 64, ']', 64);
	m = parse(deep, 128);
	ok(m.kind == MSG_BATCH, "64 levels are read");
	msg_release(&m);
	memset(deep, '[', 65);
	memset(deep + 65, ']', 65);
	m = parse(deep, 130);
	ok(m.kind == MSG_BAD, "65 are not");
	msg_release(&m);
}

static void test_batch(void)
{
	char line[] = " [ {\"a\":[1,2]} , 3,\"x,]\" ]";
	const char *want[] = {"{\"a\":[1,2]}", "3", "\"x,]\""};
	size_t pos = 0, len, n = 0;
	char *elem;

	while (msg_batch_next(line, strlen(line), &pos, &elem, &len)) {
		ok(n < 3 && len == strlen(want[n]) && !memcmp(elem, want[n], len), "element %zu",
		   n);
		n++;
	}
	eq_int(n, 3, "three elements");
}

/* Every prefix of a message, and every byte of it replaced: an answer, never a crash. */
static void test_damage(void)
{
	static const char whole[] =
		"{\"jsonrpc\":\"2.0\",\"id\":\"\\u00e9\\ud800\",\"method\":\"m\","
		"\"params\":{\"_meta\":{\"progressToken\":-1.5e+3},\"a\":[true,false,"
		"null,\"\xc3\xa9\"]}}";
	static const char bytes[] = "\0\"\\{}[]:,u0-e\xff\x80\n ";
	size_t n = sizeof(whole) - 1;
	unsigned seen = 0;

	for (size_t i = 0; i <= n; i++) {
		struct msg m = parse(whole, i);

		seen |= 1u << m.kind;
		msg_release(&m);
	}
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < sizeof(bytes) - 1; k++) {
			char copy[sizeof(whole)];
			struct msg m;

			memcpy(copy, whole, sizeof(whole));
			copy[i] = bytes[k];
			m = parse(copy, n);
			seen |= 1u << m.kind;
			if (m.root && m.kind == MSG_BAD && m.code == RPC_PARSE)
				ok(false, "a bad line was parsed");
			msg_release(&m);
		}
	}
	ok(seen & (1u << MSG_BAD) && seen & (1u << MSG_REQUEST), "damaged lines are answered");
}

static void out_is(const void *p, size_t n, const char *want, const char *what)
{
	struct buf b = {0};

	if (json_put_str(&b, p, n))
		tap_fatal("memory");
	eq_str((const char *)b.data, want, "%s", what);
	buf_release(&b);
}

static void test_out(void)
{
	struct buf b = {0};
	size_t used;
	cJSON *v;

	out_is("a\"\\\n\x01\x7f", 6, "\"a\\\"\\\\\\n\\u0001\\u007f\"", "control characters");
	out_is("\xe2\x80\xa8\xe2\x80\xa9\xc2\x85", 8, "\"\\u2028\\u2029\\u0085\"",
	       "line separators");
	out_is("\xff\xc3\xe2\x82", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"",
	       "bytes that are not UTF-8");
	out_is("\xed\xa0\x80\xf4\x90\x80\x80\xc0\xaf", 9,
	       "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
	       "\xef\xbf\xbd\xef\xbf\xbd\"",
	       "surrogates, too high, too long");
	out_is("\xf0\x9f\x98\x80\xc3\xa9", 6, "\"\xf0\x9f\x98\x80\xc3\xa9\"", "good UTF-8 stays");
	out_is("a\0b", 3, "\"a\\u0000b\"", "NUL");
	if (json_put_str_max(&b, "\xc3\xa9\xc3\xa9\xc3\xa9", 6, 6, &used))
		tap_fatal("memory");
	ok(used == 4 && b.len == 6, "a cut is between characters");
	buf_clear(&b);
	v = cJSON_Parse("{\"a\":[1,-2.5,1e300,9007199254740991,true,null,{\"b\":\"\"}],\"c\":{}}");
	if (!v || json_put(&b, v))
		tap_fatal("json_put");
	eq_str((const char *)b.data,
	       "{\"a\":[1,-2.5,1e+300,9007199254740991,true,null,{\"b\":\"\"}],\"c\":{}}",
	       "values");
	cJSON_Delete(v);
	buf_release(&b);
}

int main(void)
{
	test_kinds();
	test_strings();
	test_kept();
	test_depth();
	test_batch();
	test_damage();
	test_out();
	return tap_done();
}
