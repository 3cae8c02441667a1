#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The one allowed mutable file-scope state: the sink, written once before threads start. */
static struct {
	const char *prog;
	enum log_level level;
} sink = {"rattan", LOG_WARN};

static const char *const names[] = {
	[LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};

void log_setup(const char *prog, enum log_level level)
{
	sink.prog = prog;
	sink.level = level;
}

int log_level_parse(const char *name, enum log_level *ret_level)
{
	for (int i = LOG_ERROR; i <= LOG_DEBUG; i++) {
		if (!strcmp(name, names[i])) {
			*ret_level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

void log_msg(enum log_level level, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n, m;

	if (level > sink.level)
		return;
	n = snprintf(line, sizeof(line), "%s: %s: ", sink.prog, names[level]);
	if (n < 0 || (size_t)n >= sizeof(line))
		return;
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	if (m < 0)
		return;
	n += m;
	if ((size_t)n > sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	(void)!write(STDERR_FILENO, line, (size_t)n);
}
