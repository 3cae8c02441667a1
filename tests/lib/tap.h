/*
 * tests/lib/tap.h - checks for unit tests, printed as TAP; one binary a file, `return tap_done();`.
 *
 * A failed check prints file and line and goes on; tap_fatal() ends the binary. Single-threaded use.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_count, tap_failed;

#define ok(cond, ...)                                                       \
	do {                                                                \
		int ok_ = !!(cond);                                         \
		tap_count++;                                                \
		printf("%sok %d - ", ok_ ? "" : "not ", tap_count);         \
		printf("" __VA_ARGS__);                                     \
		printf("\n");                                               \
		if (!ok_) {                                                 \
			tap_failed++;                                       \
			printf("# %s:%d: %s\n", __FILE__, __LINE__, #cond); \
		}                                                           \
		fflush(stdout);                                             \
	} while (0)

#define eq_int(got, want, ...)                                           \
	do {                                                             \
		long long g_ = (long long)(got), w_ = (long long)(want); \
		ok(g_ == w_, __VA_ARGS__);                               \
		if (g_ != w_)                                            \
			printf("# got %lld, want %lld\n", g_, w_);       \
	} while (0)

#define eq_str(got, want, ...)                                                                     \
	do {                                                                                       \
		const char *g_ = (got), *w_ = (want);                                              \
		int same_ = g_ && w_ && !strcmp(g_, w_);                                           \
		ok(same_, __VA_ARGS__);                                                            \
		if (!same_)                                                                        \
			printf("# got '%s', want '%s'\n", g_ ? g_ : "(null)", w_ ? w_ : "(null)"); \
	} while (0)

#define tap_fatal(...)                  \
	do {                            \
		printf("Bail out! ");   \
		printf("" __VA_ARGS__); \
		printf("\n");           \
		exit(1);                \
	} while (0)

/* What is beside a check, of any number of lines: each becomes a comment, for a reader of TAP knows no other. At most
 * @max bytes. */
static inline void tap_note(const char *text, size_t max)
{
	size_t len = strnlen(text, max);

	for (size_t at = 0; at < len;) {
		size_t n = strcspn(text + at, "\n");

		if (n > len - at)
			n = len - at;
		printf("# %.*s\n", (int)n, text + at);
		at += n + 1;
	}
}

static inline int tap_done(void)
{
	printf("1..%d\n", tap_count);
	return tap_failed ? 1 : 0;
}
