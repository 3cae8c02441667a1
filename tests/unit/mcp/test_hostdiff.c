#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mcp/hostdiff.h"
#include "tests/lib/tap.h"

/* @at: exactly this number. */
static int content(const char *s, int at)
{
	int fd = memfd_create("side", MFD_CLOEXEC);

	if (fd < 0 || write(fd, s, strlen(s)) < 0 || dup3(fd, at, O_CLOEXEC) < 0)
		tap_fatal("memory file");
	(void)close(fd);
	return at;
}

static void differs(int a, int b, const char *want, const char *what)
{
	struct buf out = {0};
	bool cut;

	eq_int(hostdiff_unified(a, b, "a/f", "b/f", 4096, &out, &cut), 1, "%s", what);
	eq_str(out.data ? (const char *)out.data : "", want, "%s: text", what);
	buf_release(&out);
}

#define CHANGED "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+two\n"
#define ADDED   "--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+two\n"
#define DELETED "--- a/f\n+++ b/f\n@@ -1 +0,0 @@\n-one\n"

/* A server has any number of files open: the sides may have the very numbers that diff is given. */
static void test_numbers(void)
{
	for (int i = 9; i < 13; i++) {
		for (int k = 9; k < 13; k++) {
			int a, b;

			if (i == k)
				continue;
			a = content("one\n", i);
			b = content("two\n", k);
			differs(a, b, CHANGED, "changed");
			differs(-1, b, ADDED, "added");
			differs(a, -1, DELETED, "deleted");
			(void)close(a);
			(void)close(b);
		}
	}
}

static void test_ends(void)
{
	int a = content("same\n", 20), b = content("same\n", 21);
	struct buf out = {0};
	bool cut;

	eq_int(hostdiff_unified(a, b, "a", "b", 4096, &out, &cut), 0, "equal");
	eq_int(out.len, 0, "and nothing said");
	(void)close(b);
	b = content("0123456789012345678901234567890123456789\n", 21);
	eq_int(hostdiff_unified(a, b, "a", "b", 16, &out, &cut), 1, "longer than wanted");
	ok(cut && out.len == 16, "is cut");
	buf_release(&out);
	(void)close(a);
	(void)close(b);
}

int main(void)
{
	test_numbers();
	test_ends();
	return tap_done();
}
