#include "base/utf8.h"

size_t utf8_len(const void *vp, size_t n)
{
	const uint8_t *p = vp;

	if (!n)
		return 0;
	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;

	size_t len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

	if (n < len || (p[1] & 0xc0) != 0x80)
		return 0;
	/* overlong forms, surrogates and what lies above U+10FFFF show in the second byte */
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

bool utf8_shown(const uint8_t *p, size_t len)
{
	if (len == 1) /* C0, DEL */
		return p[0] >= 0x20 && p[0] != 0x7f;
	if (len == 2) /* C1, U+061C */
		return !(p[0] == 0xc2 && p[1] < 0xa0) && !(p[0] == 0xd8 && p[1] == 0x9c);
	if (len != 3 || p[0] != 0xe2)
		return len > 0;
	if (p[1] == 0x80) /* U+200E and 200F; the separators 2028 and 2029; 202A to 202E */
		return p[2] != 0x8e && p[2] != 0x8f && (p[2] < 0xa8 || p[2] > 0xae);
	return p[1] != 0x81 || p[2] < 0xa6 || p[2] > 0xa9; /* U+2066 to 2069 */
}
