#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t char_begin(const char *s, size_t at)
{
	while (at && ((unsigned char)s[at] & 0xc0) == 0x80)
		at--;
	return at;
}

/* The longest word of @s, which is a path most often. */
static void longest_word(const char *s, size_t *ret_from, size_t *ret_len)
{
	*ret_from = *ret_len = 0;
	for (size_t at = 0, n; s[at]; at += n) {
		at += strspn(s + at, " ");
		n = strcspn(s + at, " ");
		if (n > *ret_len) {
			*ret_from = at;
			*ret_len = n;
		}
	}
}

/* To @max bytes: what is said first, what is to be done, which is said last, and both ends of a path stay. */
static void shorten(char *s, size_t max)
{
	static const char gap[] = "...";
	size_t len = strlen(s), from, n, cut = len - max + sizeof(gap) - 1, end;

	longest_word(s, &from, &n);
	if (n < cut + 32) { /* names with spaces, or many words: the middle of all */
		from = 0;
		n = len;
	}
	/* The end of a path says more than its beginning. */
	from = char_begin(s, from + (n - cut) / 3);
	end = from + cut;
	while (((unsigned char)s[end] & 0xc0) == 0x80)
		end++;
	memmove(s + from + sizeof(gap) - 1, s + end, len - end + 1);
	memcpy(s + from, gap, sizeof(gap) - 1);
}

int diag_set(struct diag *d, int r, const char *fmt, ...)
{
	char *whole;
	va_list ap;
	int n;

	if (!d || d->text[0])
		return r;
	va_start(ap, fmt);
	n = vsnprintf(d->text, sizeof(d->text), fmt, ap);
	va_end(ap);
	if (n < (int)sizeof(d->text))
		return r;
	va_start(ap, fmt);
	if (vasprintf(&whole, fmt, ap) >= 0) { /* without memory it is what there was room for */
		if (strlen(whole) >= sizeof(d->text))
			shorten(whole, sizeof(d->text) - 1);
		(void)snprintf(d->text, sizeof(d->text), "%s", whole);
		free(whole);
	}
	va_end(ap);
	return r;
}

const char *err_text(int r)
{
	const char *s = strerrordesc_np(r < 0 ? -r : r);

	return s ? s : "unknown error";
}
