#include "base/brace.h"

#include <stddef.h>

const char *brace_end(const char *p)
{
	int depth = 0;

	for (; *p; p++) {
		if (*p == '\\' && p[1])
			p++;
		else if (*p == '{')
			depth++;
		else if (*p == '}' && --depth == 0)
			return p;
	}
	return NULL;
}

const char *brace_alternative_end(const char *p, const char *end)
{
	int depth = 0;

	for (; p < end; p++) {
		if (*p == '\\' && p + 1 < end)
			p++;
		else if (*p == '{')
			depth++;
		else if (*p == '}')
			depth--;
		else if (*p == ',' && depth == 0)
			break;
	}
	return p;
}
