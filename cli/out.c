#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/utf8.h"
#include "cli/cli.h"

int cli_fail(int code, const char *fmt, ...)
{
	cleanup_free char *whole = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&whole, fmt, ap) < 0)
		whole = NULL;
	va_end(ap);
	(void)fflush(stdout);
	fputs("rattan: ", stderr);
	cli_put(stderr, whole ? whole : "out of memory");
	fputc('\n', stderr);
	return code;
}

int cli_exit_of(int r)
{
	switch (-r) {
	case EINVAL:
		return CLI_USAGE;
	case ENOENT:
		return CLI_NOT_FOUND;
	case EBUSY:
	case EEXIST:
	case ESTALE:
		return CLI_CONFLICT;
	default:
		return CLI_FAILED;
	}
}

int cli_fail_errno(int r, const struct diag *diag, const char *what)
{
	if (diag && *diag->text)
		return cli_fail(cli_exit_of(r), "%s", diag->text);
	return cli_fail(cli_exit_of(r), "%s: %s", what, err_text(r));
}

static void put_shown(FILE *f, const char *s, size_t len, const char *as_is)
{
	const uint8_t *p = (const uint8_t *)s, *end = p + len;

	while (p < end) {
		size_t n = utf8_len(p, (size_t)(end - p));

		if (n && (utf8_shown(p, n) || (n == 1 && *p && strchr(as_is, *p)))) {
			(void)fwrite(p, 1, n, f);
			p += n;
			continue;
		}
		for (n = n ? n : 1; n > 0; n--)
			fprintf(f, "\\x%02x", *p++);
	}
}

void cli_put(FILE *f, const char *s)
{
	put_shown(f, s, strlen(s), "");
}

void cli_put_text(FILE *f, const char *s, size_t n)
{
	put_shown(f, s, n, "\t\n");
}

void cli_put_size(FILE *f, uint64_t bytes)
{
	static const char units[][4] = {"KiB", "MiB", "GiB", "TiB"};
	double v = (double)bytes / 1024;
	size_t u = 0;

	if (bytes < 1024) {
		fprintf(f, "%llu B", (unsigned long long)bytes);
		return;
	}
	for (; v >= 1024 && u + 1 < ARRAY_SIZE(units); u++)
		v /= 1024;
	fprintf(f, "%.1f %s", v, units[u]);
}

void cli_json_str(cJSON *o, const char *key, const char *s)
{
	cleanup_buf struct buf b = {0};
	int r = 0;

	while (r >= 0 && *s) {
		size_t n = utf8_len(s, strlen(s));

		r = n ? buf_put(&b, s, n) : buf_puts(&b, "\xef\xbf\xbd");
		s += n ? n : 1;
	}
	if (r >= 0)
		(void)cJSON_AddStringToObject(o, key, b.len ? (const char *)b.data : "");
}

int cli_print_json(cJSON *o)
{
	cleanup_free char *text = cJSON_Print(o);

	cJSON_Delete(o);
	if (!text)
		return cli_fail(CLI_FAILED, "out of memory");
	puts(text);
	return cli_done();
}

int cli_done(void)
{
	if (fflush(stdout) || ferror(stdout))
		return cli_fail(CLI_FAILED, "the output could not be written: %s", err_text(errno));
	return CLI_OK;
}
