/* Edit matching, its diagnosis and the diff, as pure functions. */
#include "mcp/files/edit.h"

#include "mcp/files/udiff.h"
#include "tests/lib/tap.h"

static struct buf out;
static struct edit_report rep;

static int apply(const char *file, const char *old, const char *new_text, bool all,
		 unsigned occurrence)
{
	struct edit_op op = {old, new_text, strlen(old), strlen(new_text), all, occurrence};

	buf_clear(&out);
	return edit_apply((const uint8_t *)file, strlen(file), &op, &out, &rep);
}

static void exact(void)
{
	ok(!apply("a\nb\nc\n", "b", "B", false, 0), "one match");
	eq_str((char *)out.data, "a\nB\nc\n", "is replaced");
	eq_int(rep.first_line, 2, "at its line");
	eq_int(apply("x x", "x", "y", false, 0), -EEXIST, "two matches are refused");
	ok(rep.found == 2 && rep.at[1] == 2, "and told where");
	eq_int(apply("aaa", "aa", "b", false, 0), -EEXIST, "overlapping ones as well");
	ok(!apply("x x x", "x", "yy", true, 0), "all");
	eq_str((char *)out.data, "yy yy yy", "of them");
	eq_int(rep.replaced, 3, "counted");
	ok(!apply("x x x", "x", "y", false, 2), "the second");
	eq_str((char *)out.data, "x y x", "only");
	eq_int(apply("x x", "x", "y", false, 3), -ERANGE, "there is no third");
	eq_int(apply("abc", "z", "y", false, 0), -ENOENT, "none");
	ok(!apply("no newline", "newline", "end", false, 0), "a missing final newline");
	eq_str((char *)out.data, "no end", "stays missing");
	ok(!apply("a\xe9 b\xff", "b", "c", false, 0), "bytes of another charset");
	eq_str((char *)out.data, "a\xe9 c\xff", "are kept");
	ok(!apply("line\n", "line\n", "", false, 0) && out.len == 0, "delete everything");
}

static void endings(void)
{
	ok(!apply("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", false, 0), "LF text in a CRLF file");
	eq_str((char *)out.data, "x\r\ny\r\nz\r\nc\r\n", "takes the file's endings");
	ok(rep.adapted, "and says so");
	ok(!apply("a\nb\r\nc\nd\r\n", "b", "b1\nb2", false, 0), "one line of a mixed file");
	eq_str((char *)out.data, "a\nb1\r\nb2\r\nc\nd\r\n",
	       "the line's own ending; others untouched");
	ok(!apply("a\nb\r\nc\nd\r\n", "c", "c1\nc2", false, 0), "an LF line of it");
	eq_str((char *)out.data, "a\nb\r\nc1\nc2\nd\r\n", "stays LF");
	ok(!apply("a\nb\n", "a\r\nb", "c\r\nd", false, 0), "CRLF text in an LF file");
	eq_str((char *)out.data, "c\nd\n", "takes LF");
}

static bool says(const char *file, const char *old, const char *new_text, const char *what)
{
	struct edit_op op = {old, new_text, strlen(old), strlen(new_text), false, 0};
	bool yes;

	buf_clear(&out);
	if (edit_diagnose((const uint8_t *)file, strlen(file), &op, 1000, &out) < 0)
		return false;
	yes = strstr((char *)out.data, what) != NULL;
	if (!yes) {
		tap_note(what, 1500);
		printf("# is wanted in:\n");
		tap_note((char *)out.data, 1500);
	}
	return yes;
}

static void causes(void)
{
	ok(says("int a;\nint b;\n", "1→int a;\n2→int b;", "x", "line-number prefixes"), "numbers");
	ok(says("int a;\nint b;\n", "L1: int a;\nL2: int b;", "x", "line-number prefixes"),
	   "L numbers");
	ok(says("a\r\nb\nc\r\n", "a\nb\nc", "x", "mixed"), "mixed endings");
	ok(says("if (x) {\n\ty();\n}\n", "if (x) {\n    y();\n}", "x", "indents with tabs"),
	   "tabs");
	ok(says("if (x) {\n    y();\n}\n", "if (x) {\n\ty();\n}", "x", "indents with blanks"),
	   "blanks");
	ok(says("foo();  \nbar();\n", "foo();\nbar();", "x", "blanks at the end of a line"),
	   "trailing");
	ok(says("foo();\nbar();\n", "foo(); \nbar();", "x", "blanks at the end of a line"),
	   "trailing in old");
	ok(says("say \xe2\x80\x9chi\xe2\x80\x9d\n", "say \"hi\"", "x", "U+201C"), "curly quotes");
	ok(says("say \"hi\"\n", "say \xe2\x80\x9chi\xe2\x80\x9d", "x", "in old_string: U+201C"),
	   "curly quotes in old");
	ok(says("caf\xc3\xa9\n", "cafe\xcc\x81", "x", "looks the same"), "composed and not");
	ok(says("a\xc2\xa0"
		"b\n",
		"a b", "x", "U+00A0"),
	   "no-break space");
	ok(says("  a();\n    b();\n", "a();\n  b();\n", "x", "indented by 2 more"), "shift");
	ok(says("a();\n  b();\n", "    a();\n      b();\n", "x", "indented by 4 less"),
	   "shift back");
	ok(says("a\nb\n", "a\\nb", "x", "literal \\n"), "escaped newline");
	ok(says("if (a < b)\n", "if (a &lt; b)", "x", "literal &lt;"), "HTML");
	ok(says("x\nnew text here\n", "old text here", "new text here", "already applied"),
	   "applied");
	ok(says("int foo(int a)\n{\n\treturn a + 1;\n}\n", "int foo(int a)\n{\n\treturn a + 2;\n}",
		"x", "closest is lines 1-4"),
	   "closest");
	ok(strstr((char *)out.data, "- →return·a·+·2;\n+ →return·a·+·1;"),
	   "with the first difference");
	ok(says("apples\n", "zzzz qqqq 1234", "x", "nothing in it is alike"), "nothing alike");
	ok(says("", "abc", "x", "not in the file"), "an empty file");
}

static void diffs(void)
{
	struct udiff_stat d;
	const char *a = "1\n2\n3\n4\n5\n6\n7\n8\n9\n", *b = "1\n2\nx\n4\n5\n6\n7\n8\n9\nnew";

	buf_clear(&out);
	ok(!udiff((const uint8_t *)a, strlen(a), (const uint8_t *)b, strlen(b), 1, 100, &out, &d),
	   "diff");
	ok(d.added == 2 && d.removed == 1, "counts");
	eq_str((char *)out.data,
	       "@@ -2,3 +2,3 @@\n 2\n-3\n+x\n 4\n@@ -9,1 +9,2 @@\n 9\n+new\n"
	       "\\ No newline at end of file\n",
	       "hunks");
	ok(!udiff(NULL, 0, (const uint8_t *)"a\n", 2, 2, 100, NULL, &d) && d.added == 1 &&
		   !d.removed,
	   "from nothing");
}

/* Against a plain quadratic LCS, on random small texts. */
static void diff_is_minimal(void)
{
	unsigned seed = 7;
	bool fine = true;

	for (int round = 0; round < 500 && fine; round++) {
		char a[64] = "", b[64] = "";
		int na = (int)(rand_r(&seed) % 15), nb = (int)(rand_r(&seed) % 15),
		    l[16][16] = {{0}};
		struct udiff_stat d;

		for (int i = 0; i < na; i++) {
			a[2 * i] = (char)('a' + rand_r(&seed) % 3);
			a[2 * i + 1] = '\n';
		}
		for (int i = 0; i < nb; i++) {
			b[2 * i] = (char)('a' + rand_r(&seed) % 3);
			b[2 * i + 1] = '\n';
		}
		for (int i = 1; i <= na; i++)
			for (int j = 1; j <= nb; j++) {
				int m = l[i - 1][j] > l[i][j - 1] ? l[i - 1][j] : l[i][j - 1];

				l[i][j] = a[2 * i - 2] == b[2 * j - 2] && l[i - 1][j - 1] + 1 > m
						  ? l[i - 1][j - 1] + 1
						  : m;
			}
		buf_clear(&out);
		fine = !udiff((uint8_t *)a, (size_t)na * 2, (uint8_t *)b, (size_t)nb * 2, 0, 1000,
			      &out, &d) &&
		       d.removed == (uint64_t)(na - l[na][nb]) &&
		       d.added == (uint64_t)(nb - l[na][nb]);
	}
	ok(fine, "500 random diffs are as small as can be");
}

int main(void)
{
	exact();
	endings();
	causes();
	diffs();
	diff_is_minimal();
	buf_release(&out);
	return tap_done();
}
