#include "base/near.h"

#include <ctype.h>
#include <string.h>

enum {
	WORD_MAX = 63
};

static bool same(char a, char b, bool fold)
{
	return a == b || (fold && tolower((unsigned char)a) == tolower((unsigned char)b));
}

unsigned near_distance(const char *a, const char *b, bool fold)
{
	unsigned row[WORD_MAX + 1];
	size_t n = strlen(a), m = strlen(b);

	if (n > WORD_MAX || m > WORD_MAX)
		return NEAR_FAR;
	for (size_t j = 0; j <= m; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		unsigned diag = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			unsigned best = diag + !same(a[i - 1], b[j - 1], fold);

			diag = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[m];
}
