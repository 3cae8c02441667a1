/* A sentence that is too long loses the middle of a path, and nothing else. */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"
#include "tests/lib/tap.h"

static bool whole_characters(const char *s)
{
	for (size_t n; *s; s += n) {
		n = utf8_len(s, strlen(s));
		if (!n)
			return false;
	}
	return true;
}

static void fill(char *s, size_t size, const char *with)
{
	size_t at = 0;

	for (; at + strlen(with) < size - 4; at += strlen(with))
		memcpy(s + at, with, strlen(with));
	memcpy(s + at, "end", 4);
}

static void test_paths(void)
{
	static const char *const parts[] = {"/directory", "/\xc3\xa9\xe2\x82\xac", "/two words"};
	static char path[5000];

	for (size_t i = 0; i < 3; i++)
		for (size_t size = 300; size < sizeof(path); size += 7) {
			struct diag d = {0};
			bool fits;
			size_t n;

			fill(path, size, parts[i]);
			fits = strlen("cannot write to : ; make room, and apply again") +
				       strlen(path) + strlen("No space left on device") <
			       sizeof(d.text);
			if (diag_set(&d, -ENOSPC,
				     "cannot write to %s: %s; make room, and apply again", path,
				     "No space left on device") != -ENOSPC)
				tap_fatal("the code");
			n = strlen(d.text);
			if (n >= sizeof(d.text) || !whole_characters(d.text) ||
			    strncmp(d.text, "cannot write to /", 17) != 0 ||
			    !strstr(d.text,
				    "end: No space left on device; make room, and apply again") ||
			    fits == !!strstr(d.text, "...") || (!fits && n < sizeof(d.text) - 8))
				tap_fatal("%zu bytes of %s: %s", size, parts[i], d.text);
		}
	ok(true, "paths of any length and letters lose their middle");
}

int main(void)
{
	static char two[2][400], word[900];
	struct diag d = {0}, e = {0};

	test_paths();
	fill(two[0], 400, "/a");
	fill(two[1], 400, "/b");
	eq_int(diag_set(&d, -EXDEV, "%s cannot be moved to %s: do it by hand", two[0], two[1]),
	       -EXDEV, "the code stays");
	ok(!strncmp(d.text, "/a/a", 4) && strstr(d.text, "/bend: do it by hand") &&
		   strstr(d.text, " cannot be moved to /b"),
	   "of two paths one: %s", d.text);
	memset(word, 'x', sizeof(word) - 1);
	for (size_t i = 5; i < sizeof(word) - 1; i += 6)
		word[i] = ' ';
	(void)diag_set(&e, -EIO, "begins %s ends", word);
	ok(!strncmp(e.text, "begins ", 7) && !strcmp(e.text + strlen(e.text) - 5, " ends") &&
		   strstr(e.text, "..."),
	   "a text of short words: %s", e.text);
	(void)diag_set(&e, -EIO, "another");
	ok(!strncmp(e.text, "begins ", 7), "the first one stays");
	eq_int(diag_set(NULL, -EIO, "%s", word), -EIO, "nobody is told");
	return tap_done();
}
