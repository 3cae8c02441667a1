/* The alternatives of a pattern. */
#include "base/brace.h"
#include "tests/lib/tap.h"

/* Where the braces and then each alternative of @s end, as offsets. */
static void has(const char *s, const char *want)
{
	const char *end = brace_end(s);
	char got[64];
	int n = end ? snprintf(got, sizeof(got), "%td:", end - s)
		    : snprintf(got, sizeof(got), "none");

	for (const char *p = s + 1; end; p++) {
		p = brace_alternative_end(p, end);
		n += snprintf(got + n, sizeof(got) - (size_t)n, " %td", p - s);
		if (p == end)
			break;
	}
	eq_str(got, want, "%s", s);
}

int main(void)
{
	has("{a,b}", "4: 2 4");
	has("{}", "1: 1");
	has("{,}x", "2: 1 2");
	has("{a{b,c},d}", "9: 7 9");
	has("{a\\},b}", "6: 4 6");
	has("{a\\,b}", "5: 5");
	has("{a\\{,b}", "6: 4 6");
	has("{a,{b}", "none");
	has("{a\\}", "none");
	has("{", "none");
	return tap_done();
}
