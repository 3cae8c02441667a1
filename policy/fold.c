#include "policy/fold.h"

#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"

/* Unicode's Default_Ignorable_Code_Point, which case-folding file systems drop. */
static const struct {
	uint32_t from, to;
} ignorable[] = {
	{0xad, 0xad},       {0x34f, 0x34f},   {0x61c, 0x61c},     {0x115f, 0x1160},
	{0x17b4, 0x17b5},   {0x180b, 0x180f}, {0x200b, 0x200f},   {0x202a, 0x202e},
	{0x2060, 0x206f},   {0x3164, 0x3164}, {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},
	{0xffa0, 0xffa0},   {0xfff0, 0xfff8}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
	{0xe0000, 0xe0fff},
};

static bool is_ignorable(uint32_t c)
{
	for (size_t i = 0; i < ARRAY_SIZE(ignorable); i++)
		if (c >= ignorable[i].from && c <= ignorable[i].to)
			return true;
	return false;
}

/* The code point at @p and its bytes; a byte that begins none is itself, out of the way of all. */
static size_t decode(const uint8_t *p, size_t n, uint32_t *ret)
{
	size_t len = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
	uint32_t c = len < 2 ? p[0] : p[0] & (0xffu >> (len + 1));

	for (size_t i = 1; i < len; i++) {
		if (i >= n || (p[i] & 0xc0) != 0x80)
			len = 0;
		else
			c = c << 6 | (p[i] & 0x3f);
	}
	*ret = len ? c : 0x80000000u | p[0];
	return len ? len : 1;
}

static uint32_t lower(uint32_t c)
{
	if (c >= 'A' && c <= 'Z')
		return c | 0x20;
	if (c == 0x17f) /* long s */
		return 's';
	return c == 0x212a ? 'k' : c; /* the kelvin sign */
}

bool fold_same(const char *plain, const char *name, size_t len)
{
	const uint8_t *p = (const uint8_t *)name, *q = (const uint8_t *)plain;
	size_t left = strlen(plain);

	for (size_t i = 0; i < len;) {
		uint32_t a, b;

		i += decode(p + i, len - i, &a);
		if (is_ignorable(a))
			continue;
		if (!left)
			return false;
		size_t k = decode(q, left, &b);
		if (lower(a) != lower(b))
			return false;
		q += k;
		left -= k;
	}
	return left == 0;
}

void fold_plain(char *s)
{
	for (; *s; s++)
		if (*s >= 'A' && *s <= 'Z')
			*s = (char)(*s | 0x20);
}
