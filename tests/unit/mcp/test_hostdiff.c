#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
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

/* Short lines are what costs diff most: without a limit several hundred MiB, outside the sandbox. */
static void test_memory(void)
{
	const size_t n = 12 << 20;
	char *bytes = malloc(n + 1);
	struct buf out = {0};
	int a, b, r;
	bool cut;

	if (!bytes)
		tap_fatal("no memory");
	bytes[n] = 0;
	for (size_t i = 0; i < n; i++)
		bytes[i] = i % 2 ? '\n' : (char)('a' + i / 2 % 23);
	a = content(bytes, 20);
	for (size_t i = 0; i < n; i++)
		bytes[i] = i % 2 ? '\n' : (char)('a' + i / 2 % 19);
	b = content(bytes, 21);
	r = hostdiff_unified(a, b, "a", "b", 4096, &out, &cut);
	ok(r == -E2BIG || r == -ETIMEDOUT, "many short lines end without a diff: %d", r);
	buf_release(&out);
	(void)close(a);
	(void)close(b);
	free(bytes);
}

/* What people have: a full side of short lines, and few of them changed. */
static void test_short_lines(void)
{
	const size_t n = (16u << 20) / 11;
	struct buf text = {0}, out = {0};
	int a, b, r = 0;
	bool cut;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = buf_printf(&text, "%010zu\n", i * 6007);
	if (r < 0 || buf_put(&text, "", 1) < 0)
		tap_fatal("no memory");
	a = content((const char *)text.data, 20);
	for (size_t i = 0; i < n; i += 5000)
		text.data[i * 11] = 'x';
	b = content((const char *)text.data, 21);
	r = hostdiff_unified(a, b, "a", "b", 65536, &out, &cut);
	eq_int(r, 1, "two sides of 16 MiB in lines of ten bytes are compared");
	ok(!cut && out.len > 1000, "to the end: %zu bytes", out.len);
	buf_release(&text);
	buf_release(&out);
	(void)close(a);
	(void)close(b);
}

int main(void)
{
	test_numbers();
	test_ends();
	test_memory();
	test_short_lines();
	return tap_done();
}
