/* base/mp: canonical bytes out, bounded objects in. */
#include "base/mp.h"

#include "tests/lib/tap.h"

static void bytes_are(struct buf *b, const char *want, size_t n, const char *what)
{
	ok(b->len == n && !memcmp(b->data, want, n), "%s", what);
	buf_clear(b);
}

static void writes_shortest(void)
{
	cleanup_buf struct buf b = {0};
	char big[300];

	eq_int(mp_put_uint(&b, 127), 0, "uint 127");
	bytes_are(&b, "\x7f", 1, "fixint");
	eq_int(mp_put_uint(&b, 128), 0, "uint 128");
	bytes_are(&b, "\xcc\x80", 2, "uint8");
	eq_int(mp_put_uint(&b, 65536), 0, "uint 65536");
	bytes_are(&b, "\xce\x00\x01\x00\x00", 5, "uint32");
	eq_int(mp_put_int(&b, 200), 0, "int 200");
	bytes_are(&b, "\xcc\xc8", 2, "a non-negative int is a uint");
	eq_int(mp_put_int(&b, -1), 0, "int -1");
	bytes_are(&b, "\xff", 1, "negative fixint");
	eq_int(mp_put_int(&b, INT64_MIN), 0, "int min");
	bytes_are(&b, "\xd3\x80\0\0\0\0\0\0\0", 9, "int64");
	eq_int(mp_put_cstr(&b, NULL), 0, "no string");
	bytes_are(&b, "\xc0", 1, "nil");
	eq_int(mp_put_bin(&b, "ab", 2), 0, "bin");
	bytes_are(&b,
		  "\xc4\x02"
		  "ab",
		  4, "bin8");
	memset(big, 'x', sizeof(big));
	eq_int(mp_put_str(&b, big, sizeof(big)), 0, "300 byte string");
	ok(b.len == 303 && b.data[0] == 0xda, "str16");
}

static void failed_write_leaves_buffer(void)
{
	cleanup_buf struct buf b = {.max = 8};

	eq_int(mp_put_str(&b, "abc", 3), 0, "fits");
	eq_int(mp_put_str(&b, "defgh", 5), -E2BIG, "body does not fit");
	ok(b.len == 4 && b.data[4] == 0, "and its header is gone too");
	eq_int(mp_put_bin(&b, "", 0), 0, "empty bin fits");
}

static void round_trip(void)
{
	cleanup_buf struct buf b = {0};
	struct mp_doc d = {0};
	uint64_t u = 0;
	int64_t i = 0;
	bool yes = false;
	const char *s = NULL;
	size_t n = 0;
	char *copy = NULL;
	int r = 0;

	r |= mp_put_map(&b, 5);
	r |= mp_put_cstr(&b, "u") | mp_put_uint(&b, UINT64_MAX);
	r |= mp_put_cstr(&b, "i") | mp_put_int(&b, -5);
	r |= mp_put_cstr(&b, "t") | mp_put_bool(&b, true);
	r |= mp_put_cstr(&b, "s") | mp_put_str(&b, "a\0b", 3);
	r |= mp_put_cstr(&b, "l") | mp_put_array(&b, 2) | mp_put_uint(&b, 1) | mp_put_nil(&b);
	eq_int(r, 0, "writes");
	eq_int(mp_parse(b.data, b.len, &d), 0, "parses");
	ok(mp_as_uint(mp_get(&d.root, "u"), UINT64_MAX, &u) == 0 && u == UINT64_MAX, "uint");
	eq_int(mp_as_uint(mp_get(&d.root, "u"), 100, &u), -EBADMSG, "above the caller's maximum");
	eq_int(mp_as_int(mp_get(&d.root, "u"), &i), -EBADMSG, "too large for an int");
	ok(mp_as_int(mp_get(&d.root, "i"), &i) == 0 && i == -5, "int");
	ok(mp_as_bool(mp_get(&d.root, "t"), &yes) == 0 && yes, "bool");
	ok(mp_as_str(mp_get(&d.root, "s"), &s, &n) == 0 && n == 3, "str with NUL");
	eq_int(mp_dup_str(mp_get(&d.root, "s"), &copy), -EBADMSG, "is not copied as a C string");
	eq_int(mp_as_str(mp_get(&d.root, "missing"), &s, &n), -ENOENT, "missing key");
	eq_int(mp_as_bool(mp_get(&d.root, "u"), &yes), -EBADMSG, "wrong type");
	ok(!mp_get(mp_get(&d.root, "l"), "x"), "an array has no keys");
	mp_release(&d);
	mp_release(&d);
}

static void refuses(void)
{
	static const struct {
		const char *bytes;
		size_t n;
		const char *what;
	} bad[] = {
		{"", 0, "nothing"},
		{"\x01\x02", 2, "trailing bytes"},
		{"\xdd\xff\xff\xff\xff", 5, "an array of 2^32-1 without elements"},
		{"\xdf\xff\xff\xff\xff\x01", 6, "a map of 2^32-1"},
		{"\xc6\x7f\xff\xff\xff", 5, "a bin longer than the input"},
		{"\xda\x00", 2, "half a length"},
		{"\xc1", 1, "the unused code"},
		{"\xd4\x01\x02", 3, "an extension"},
		{"\xc7\x00\x01", 3, "an empty extension"},
		{"\x92\x01", 2, "an array that ends early"},
		{"\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x01", 18,
		 "17 levels"},
	};
	struct mp_doc d = {0};
	char deep[17];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		eq_int(mp_parse(bad[i].bytes, bad[i].n, &d), -EBADMSG, "refuses %s", bad[i].what);
	memset(deep, 0x91, sizeof(deep));
	deep[16] = 1;
	eq_int(mp_parse(deep, sizeof(deep), &d), 0, "16 levels are fine");
	mp_release(&d);
}

static void limits_items(void)
{
	size_t n = MP_MAX_ITEMS + 5;
	uint8_t *p = calloc(1, n);
	struct mp_doc d = {0};

	if (!p)
		tap_fatal("no memory");
	p[0] = 0xdd;
	p[1] = (uint8_t)((n - 5) >> 24);
	p[2] = (uint8_t)((n - 5) >> 16);
	p[3] = (uint8_t)((n - 5) >> 8);
	p[4] = (uint8_t)(n - 5);
	eq_int(mp_parse(p, n, &d), -EBADMSG, "more than MP_MAX_ITEMS objects");
	free(p);
}

int main(void)
{
	writes_shortest();
	failed_write_leaves_buffer();
	round_trip();
	refuses();
	limits_items();
	return tap_done();
}
