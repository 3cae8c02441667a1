/* Characters that a name may show, against the list of those that it may not. */
#include "base/utf8.h"
#include "tests/lib/tap.h"

static size_t put(unsigned cp, uint8_t out[static 4])
{
	if (cp < 0x80)
		return out[0] = (uint8_t)cp, 1;
	if (cp < 0x800)
		return out[0] = (uint8_t)(0xc0 | cp >> 6), out[1] = (uint8_t)(0x80 | (cp & 0x3f)),
		       2;
	out[0] = (uint8_t)(0xe0 | cp >> 12);
	out[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
	out[2] = (uint8_t)(0x80 | (cp & 0x3f));
	return 3;
}

static bool hidden(unsigned cp)
{
	return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x61c || cp == 0x200e ||
	       cp == 0x200f || (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069);
}

int main(void)
{
	unsigned wrong = 0, lengths = 0;
	uint8_t p[4];

	for (unsigned cp = 0; cp < 0x10000; cp++) {
		size_t n = put(cp, p);

		if (cp >= 0xd800 && cp < 0xe000) {
			lengths += utf8_len(p, n) != 0;
			continue;
		}
		lengths += utf8_len(p, n) != n || utf8_len(p, n - 1) != 0;
		wrong += utf8_shown(p, n) == hidden(cp);
	}
	eq_int(lengths, 0,
	       "every character has its length, and none when it is cut or a surrogate");
	eq_int(wrong, 0, "what moves, colours, ends or turns a line is not shown, and all else is");
	ok(utf8_shown((const uint8_t *)"\xf0\x9f\x98\x80", 4), "a smile is");
	return tap_done();
}
