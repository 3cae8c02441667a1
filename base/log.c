#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The one allowed mutable file-scope state: the sink, written once before threads start. */
static struct {
	const char *prog;
	enum log_level level;
	int fd; /* of a file; or standard error */
} sink = {"rattan", LOG_WARN, STDERR_FILENO};

static const char *const names[] = {
	[LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};

void log_setup(const char *prog, enum log_level level)
{
	sink.prog = prog;
	sink.level = level;
}

int log_to_file(const char *path)
{
	/* A pipe that nobody reads, or that is full, holds nobody up. */
	int fd =
		open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);

	if (fd < 0)
		return ret_nerrno();
	sink.fd = fd;
	return 0;
}

/* Only a file that lives on needs it: who reads standard error knows when. */
static int put_time(char *line, size_t size)
{
	time_t now = time(NULL);
	struct tm tm;

	if (sink.fd == STDERR_FILENO || !gmtime_r(&now, &tm))
		return 0;
	return (int)strftime(line, size, "%Y-%m-%dT%H:%M:%SZ ", &tm);
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
	int n, m, t;

	if (level > sink.level)
		return;
	t = put_time(line, sizeof(line));
	n = snprintf(line + t, sizeof(line) - (size_t)t, "%s: %s: ", sink.prog, names[level]) + t;
	if (n < t || (size_t)n >= sizeof(line))
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
	(void)!write(sink.fd, line, (size_t)n);
}
