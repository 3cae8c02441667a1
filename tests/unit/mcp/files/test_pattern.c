/* Wildcards, ignore rules, and the search of lines. */
#include "mcp/files/pattern.h"

#include <limits.h>
#include <stdint.h>

#include "mcp/files/search.h"
#include "tests/lib/tap.h"

static void wildcards(void)
{
	static const struct {
		const char *pattern, *path;
		bool want;
	} t[] = {
		{"*.c", "a.c", true},
		{"*.c", "d/a.c", false},
		{"**/*.c", "a.c", true},
		{"**/*.c", "d/e/a.c", true},
		{"d/**", "d/e/f", true},
		{"d/**/f", "d/f", true},
		{"d/**/f", "d/a/b/f", true},
		{"d/**/f", "x/f", false},
		{"a?c", "abc", true},
		{"a?c", "a/c", false},
		{"[a-c]x", "bx", true},
		{"[!a-c]x", "bx", false},
		{"[]x]", "]", true},
		{"[a", "[a", true},
		{"\\*", "*", true},
		{"\\*", "a", false},
		{"*.{c,h}", "x.h", true},
		{"*.{c,h}", "x.o", false},
		{"{a,b{c,d}}", "bd", true},
		{"{a,b{c,d}}", "b", false},
		{"{a\\,b,c}", "a,b", true},
		{"{a\\,b,c}", "a", false},
		{"\\{a,b}", "{a,b}", true},
		{"\\{a,b}", "a", false},
		{"src/**/*.{ts,tsx}", "src/x/y.tsx", true},
		{"a**b", "axxb", true},
		{"a**b", "ax/xb", false},
		{"{", "{", true},
		{"*", "", true},
		{"", "", true},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		ok(pattern_match(t[i].pattern, t[i].path) == t[i].want, "%s %s %s", t[i].pattern,
		   t[i].want ? "matches" : "does not match", t[i].path);
	ok(pattern_match_anywhere("*.c", "d/a.c"), "a bare name matches at any depth");
	ok(!pattern_match_anywhere("d/*.c", "x/d/a.c"), "a path does not");
	ok(pattern_filter("*.c !*_test.c", "d/a.c") && !pattern_filter("*.c !*_test.c", "a_test.c"),
	   "filter");
	ok(pattern_filter("!*.o", "a.c"), "only exclusions include the rest");
	ok(!pattern_match("*a*a*a*a*a*a*a*a*a*a*b",
			  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
	   "a hostile pattern ends");
}

static void ignores(void)
{
	static const char text[] =
		"# comment\n*.o\n!keep.o\n/top\nbuild/\ndoc/*.txt\nsp\\ \n\\#x\n**/deep\r\n";
	struct ignore_rules r = {0};

	ok(!ignore_parse(&r, text, sizeof(text) - 1), "parse");
	eq_int(ignore_verdict(&r, "d/a.o", false), 1, "by name at any depth");
	eq_int(ignore_verdict(&r, "d/keep.o", false), -1, "taken back");
	eq_int(ignore_verdict(&r, "top", false), 1, "anchored");
	eq_int(ignore_verdict(&r, "d/top", false), 0, "only at the top");
	eq_int(ignore_verdict(&r, "d/build", true), 1, "a directory");
	eq_int(ignore_verdict(&r, "build", false), 0, "a file of that name is not");
	eq_int(ignore_verdict(&r, "doc/a.txt", false), 1, "a path in the middle anchors");
	eq_int(ignore_verdict(&r, "x/doc/a.txt", false), 0, "so it is not found below");
	eq_int(ignore_verdict(&r, "#x", false), 1, "escaped #");
	eq_int(ignore_verdict(&r, "a/b/deep", false), 1, "** and a CRLF line");
	eq_int(ignore_verdict(&r, "comment", false), 0, "comments are not rules");
	ignore_release(&r);
}

struct hits {
	uint64_t line[16];
	unsigned n;
};

static int on_hit(void *arg, const struct search_hit *h)
{
	struct hits *hits = arg;

	if (hits->n < 16)
		hits->line[hits->n] = h->line;
	hits->n++;
	return 0;
}

static struct hits find(const char *pattern, unsigned flags, const char *text)
{
	struct hits h = {0};
	struct search *s;
	struct diag d = {0};

	if (search_new(pattern, flags, &d, &s) < 0) {
		h.n = 99;
		return h;
	}
	if (search_run(s, (const uint8_t *)text, strlen(text), 1, INT64_MAX, on_hit, &h) < 0)
		h.n = 98;
	search_free(s);
	return h;
}

static void lines(void)
{
	static const char t[] = "foo\nbar foo\r\n\nbaz\nFOO";
	struct hits h = find("foo", 0, t);

	ok(h.n == 2 && h.line[0] == 1 && h.line[1] == 2, "lines");
	eq_int(find("foo", SEARCH_CASELESS, t).n, 3, "caseless");
	h = find("foo$", 0, t);
	ok(h.n == 2 && h.line[1] == 2, "$ stands before CRLF");
	h = find("^$", 0, t);
	ok(h.n == 1 && h.line[0] == 3, "the empty line, and none after the end");
	h = find("o\\s+b", 0, t);
	eq_int(h.n, 0, "no match across lines");
	h = find("foo\\s*b", SEARCH_MULTILINE, t);
	ok(h.n == 2 && h.line[0] == 1 && h.line[1] == 2, "unless multiline");
	eq_int(find("[^x]+", 0, t).n, 4, "a class that takes newlines still matches each line");
	eq_int(find("\\Abar", 0, t).n, 1, "\\A is the line's start");
	eq_int(find("foo(?!\\s*bar)", 0, t).n, 2, "lookahead does not see the next line");
	eq_int(find("a.c", SEARCH_LITERAL, "abc\na.c\n").n, 1, "literal");
	eq_int(find("\\E.*(", SEARCH_LITERAL, "x\\E.*(y\nz\n").n, 1, "literal metacharacters");
	eq_int(find("foo", SEARCH_WORD, "food\nfoo\n_foo\n").n, 1, "word");
	eq_int(find("\\w+", 0, "\xc3\xa9\n").n, 1, "letters of all languages");
	eq_int(find("b", 0, "\xff\xfe b\n").n, 1, "among bytes that are not UTF-8");
	eq_int(find("x*", 0, "a\nb\n").n, 2, "empty matches once a line");
	eq_int(find("(", 0, "x").n, 99, "a broken pattern is refused");
}

static void bounds(void)
{
	static char t[20000];
	struct hits h = {0};
	struct search *s;
	struct diag d = {0};

	memset(t, 'a', sizeof(t) - 3);
	memcpy(t + sizeof(t) - 3, "\nb", 2);
	ok(!search_new("^(a+)+\\d$|b", 0, &d, &s), "catastrophic");
	eq_int(search_run(s, (uint8_t *)t, strlen(t), 1, INT64_MAX, on_hit, &h), -ERANGE,
	       "given up");
	eq_int(h.n, 1, "but only on that line");
	search_free(s);
	ok(search_smart_caseless("foo\\S", false) && !search_smart_caseless("Foo", false),
	   "smart case");
}

int main(void)
{
	wildcards();
	ignores();
	lines();
	bounds();
	return tap_done();
}
