#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int diag_set(struct diag *d, int r, const char *fmt, ...)
{
	va_list ap;

	if (!d || d->text[0])
		return r;
	va_start(ap, fmt);
	(void)vsnprintf(d->text, sizeof(d->text), fmt, ap);
	va_end(ap);
	return r;
}

const char *err_text(int r)
{
	const char *s = strerrordesc_np(r < 0 ? -r : r);

	return s ? s : "unknown error";
}
