#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mcp/hostdiff.h"
#include "tests/lib/tap.h"

static int content(const char *s, int at)
{
	int fd = memfd_create("side", MFD_CLOEXEC), moved;

	if (fd < 0 || write(fd, s, strlen(s)) < 0)
		tap_fatal("memory file");
	moved = fcntl(fd, F_DUPFD_CLOEXEC, at);
	(void)close(fd);
	return moved;
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
	for (int at = 5; at < 13; at++) {
		int a = content("one\n", at), b = content("two\n", at);

		differs(a, b, CHANGED, "changed");
		differs(-1, b, ADDED, "added");
		differs(a, -1, DELETED, "deleted");
		(void)close(a);
		(void)close(b);
		b = content("two\n", at);
		a = content("one\n", at);
		differs(a, b, CHANGED, "changed, numbers the other way round");
		(void)close(a);
		(void)close(b);
	}
}

static void test_ends(void)
{
	int a = content("same\n", 3), b = content("same\n", 3);
	struct buf out = {0};
	bool cut;

	eq_int(hostdiff_unified(a, b, "a", "b", 4096, &out, &cut), 0, "equal");
	eq_int(out.len, 0, "and nothing said");
	(void)close(b);
	b = content("0123456789012345678901234567890123456789\n", 3);
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
