/* Lines, encodings, versions and base64 as pure functions. */
#include "mcp/files/text.h"

#include "base/err.h"
#include "base/utf8.h"
#include "mcp/files/readwin.h"
#include "tests/lib/tap.h"

#define B(s) (const uint8_t *)(s), sizeof(s) - 1

static void lines(void)
{
	eq_int(text_count_lines(B("")), 0, "no bytes, no lines");
	eq_int(text_count_lines(B("a\nb")), 2, "bytes after the last newline are a line");
	eq_int(text_count_lines(B("a\nb\n")), 2, "a final newline adds none");
	eq_int(text_count_lines(B("a\fb\vc\r\xc2\x85\xe2\x80\xa8\n")), 1, "only \\n ends a line");
	eq_int(text_line_at(B("a\nb\nc"), 4), 3, "line of an offset");
	eq_int(text_line_at(B("a\nb\nc"), 1), 1, "a newline belongs to its line");
}

static void shapes(void)
{
	struct text_shape s = text_shape_of(B("a\r\nb\r\n"));

	ok(s.eol == TEXT_EOL_CRLF && s.encoding == TEXT_UTF8 && s.final_newline, "CRLF");
	s = text_shape_of(B("a\r\nb\nc"));
	ok(s.eol == TEXT_EOL_MIXED && !s.final_newline && s.lines == 3, "mixed, unfinished");
	s = text_shape_of(B("caf\xe9 \xe9\n"));
	ok(s.encoding == TEXT_OTHER && s.invalid == 2, "latin-1 is not utf-8, bytes counted");
	s = text_shape_of(B("\xef\xbb\xbfx\n"));
	ok(s.encoding == TEXT_UTF8_BOM, "BOM");
	ok(!utf8_len(B("\xed\xa0\x80")), "surrogates are not UTF-8");
	ok(!utf8_len(B("\xc0\x80")), "overlong forms are not UTF-8");
	eq_int(utf8_len(B("\xf0\x9f\x98\x80")), 4, "four bytes");
	ok(!utf8_len(B("\xf0\x9f\x98")), "a cut character is none");
}

static void binaries(void)
{
	char room[64];

	ok(text_is_binary(B("abc\0def")), "NUL is binary");
	ok(!text_is_binary(B("")), "empty is text");
	ok(!text_is_binary(B("\xff\xfeh\0i\0")), "UTF-16 with a mark is text");
	ok(!text_is_binary(B("caf\xe9 and more plain words\n")), "latin-1 is text");
	ok(text_is_binary(B("\x80\x81\x82\x83 \x90\x91\x92 ab")), "mostly invalid is binary");
	eq_str(text_magic(B("\x7f"
			    "ELF\2\1\1\0"),
			  room, sizeof(room)),
	       "ELF 64-bit", "ELF");
	eq_str(text_magic(B("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\2\x80\0\0\1\xe0"), room,
			  sizeof(room)),
	       "PNG image 640x480", "PNG with its size");
	ok(!text_magic(B("#!/bin/sh\n"), room, sizeof(room)), "a script is not a kind of binary");
}

static void escapes(void)
{
	struct buf b = {0};

	ok(!text_put_escaped(&b, B("a\xff"
				   "b\0c\xc3\xa9\xc3")),
	   "escape");
	eq_str((char *)b.data, "a\\xffb\\x00c\xc3\xa9\\xc3",
	       "bad bytes and NUL shown, good ones kept");
	buf_clear(&b);
	ok(!text_put_name(&b, "a\nA /etc\t\x1b[31m\xc2\x9b\xe2\x80\xa8\xff\xc3\xa9 \\n", 25),
	   "a name");
	eq_str((char *)b.data, "a\\nA /etc\\t\\x1b[31m\\xc2\\x9b\\xe2\\x80\\xa8\\xff\xc3\xa9 \\n",
	       "it forges no line and no colour");
	buf_clear(&b);
	ok(!text_put_name(&b, "\xe2\x80\xaegnp.exe\xe2\x81\xa6\xd8\x9c\xe2\x81\xaa", 18) &&
		   !strcmp((char *)b.data,
			   "\\xe2\\x80\\xaegnp.exe\\xe2\\x81\\xa6\\xd8\\x9c\xe2\x81\xaa"),
	   "nor does it turn the direction of what follows");
	buf_clear(&b);
	ok(!text_to_utf8(TEXT_UTF16LE, B("\xff\xfeh\0\x3d\xd8\0\xde\n\0"), &b), "utf-16");
	eq_str((char *)b.data, "h\xf0\x9f\x98\x80\n", "surrogate pairs join");
	buf_clear(&b);
	ok(!text_to_utf8(TEXT_UTF16BE, B("\xfe\xff\xd8\0\0x\0"), &b), "broken utf-16");
	eq_str((char *)b.data, "\xef\xbf\xbdx\xef\xbf\xbd",
	       "lone surrogate and odd byte are U+FFFD");
	buf_release(&b);
	eq_int(text_cut(B("ab\xc3\xa9z"), 3), 2, "a cut splits no character");
	eq_int(text_cut(B("ab\xc3\xa9z"), 4), 4, "a cut after one is fine");
}

static void base64(void)
{
	static const uint8_t all[] = {0, 1, 250, 255, 62, 63, 7};
	struct buf b = {0}, back = {0};

	for (size_t n = 0; n <= sizeof(all); n++) {
		buf_clear(&b);
		buf_clear(&back);
		ok(!text_base64(all, n, &b) &&
			   !text_unbase64(b.data ? (char *)b.data : "", &back) && back.len == n &&
			   (!n || !memcmp(back.data, all, n)),
		   "base64 of %zu bytes comes back", n);
	}
	buf_clear(&b);
	ok(!text_base64(B("any carnal pleasure"), &b), "base64");
	eq_str((char *)b.data, "YW55IGNhcm5hbCBwbGVhc3VyZQ==", "as RFC 4648 has it");
	eq_int(text_unbase64("YW5", &back), 0, "missing padding is forgiven");
	eq_int(text_unbase64("YW5!", &back), -EINVAL, "foreign characters are not");
	eq_int(text_unbase64("YQ==YQ==", &back), -EINVAL, "nothing after the padding");
	eq_int(text_unbase64("A", &back), -EINVAL, "six bits are no byte");
	buf_release(&b);
	buf_release(&back);
}

static void versions(void)
{
	ok(text_version("abc", 3) != text_version("abd", 3), "content changes the version");
	ok(text_version("", 0) != text_version("\0", 1), "length does");
	ok(text_version("12345678", 8) == text_version("12345678", 8), "it is a function");
}

/* The same window whatever the chunks. */
static void windows(void)
{
	static const char text[] = "one\r\ntwo\nthree\n\nfive";
	struct buf whole = {0}, parts = {0};
	struct readwin w = {.first = 2, .limit = 3, .max_bytes = 1000, .numbers = true}, v = w;

	ok(!readwin_feed(&w, B(text), true, &whole), "whole");
	eq_str((char *)whole.data, "2→two\n3→three\n4→\n", "lines 2 to 4");
	ok(w.line == 5 && w.last == 4 && w.no_newline, "the rest is counted");
	for (size_t i = 0; i < sizeof(text) - 1; i++)
		ok(!readwin_feed(&v, (const uint8_t *)text + i, 1, i == sizeof(text) - 2, &parts),
		   "byte %zu", i);
	eq_str((char *)parts.data, (char *)whole.data, "in chunks of one byte");
	ok(v.line == 5 && v.last == 4, "counted the same");
	buf_release(&whole);
	buf_release(&parts);
}

static void long_lines(void)
{
	static uint8_t p[5000];
	struct buf b = {0};
	struct readwin w = {.first = 1, .limit = 1, .max_bytes = 32768, .numbers = true};

	memset(p, 'x', sizeof(p));
	memcpy(p + 1999, "\xc3\xa9", 2);
	ok(!readwin_feed(&w, p, sizeof(p), true, &b), "long");
	ok(strstr((char *)b.data, "…[+3001 bytes; column=2000 continues]"),
	   "cut before the character that does not fit");
	buf_clear(&b);
	w = (struct readwin){.first = 1, .limit = 1, .max_bytes = 1000, .column = 4501};
	ok(!readwin_feed(&w, p, sizeof(p), true, &b), "by column");
	eq_int(b.len, 501, "the last 500 bytes and a newline");
	buf_release(&b);
}

int main(void)
{
	lines();
	shapes();
	binaries();
	escapes();
	base64();
	versions();
	windows();
	long_lines();
	return tap_done();
}
