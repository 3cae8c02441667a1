/* Why a step of a bootstrap failed, for a person. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/bootstrap.h"
#include "cli/run_internal.h"

#define LINES_SHOWN 12
#define LINE_SHOWN  300

/* All that is kept of its errors, with a NUL. */
static int said(struct run *run, struct buf *to)
{
	cleanup_buf struct buf tail = {0};
	uint64_t skipped;
	int r = run_output(run, 1, to, &tail, &skipped);

	if (r == 0 && skipped)
		r = buf_puts(to, "\n");
	if (r == 0)
		r = buf_put(to, tail.data, tail.len);
	for (size_t i = 0; r == 0 && i < to->len; i++)
		to->data[i] = to->data[i] ? to->data[i] : '?';
	return r == 0 ? buf_put(to, "", 1) : r;
}

/* Where the last mark's line begins; NULL: there is none. */
static char *last_mark(char *text)
{
	char *found = NULL;

	for (char *p = text; (p = strstr(p, BOOT_DOING_MARK)); p++)
		if (p == text || p[-1] == '\n')
			found = p;
	return found;
}

/* The last lines that are not empty, of at most that length. */
static void put_lines(const char *text)
{
	const char *from = text + strlen(text);
	size_t n = 0;

	while (from > text && n <= LINES_SHOWN)
		if (*--from == '\n' && from[1] && from[1] != '\n')
			n++;
	from += n > LINES_SHOWN;
	while (*from) {
		size_t len = strcspn(from, "\n");
		char line[LINE_SHOWN + 1];

		(void)snprintf(line, sizeof(line), "%.*s", (int)len, from);
		if (*line) {
			fputs("  ", stderr);
			cli_put(stderr, line);
			fputs(len > LINE_SHOWN ? "...\n" : "\n", stderr);
		}
		from += len + (from[len] == '\n');
	}
}

static void how(const struct run_result *res, char *to, size_t n)
{
	if (res->state == RUN_SIGNALED)
		(void)snprintf(to, n, "by signal %d (%s)", res->signal, strsignal(res->signal));
	else if (res->code == 127)
		(void)snprintf(to, n, "for a program that is not there (exit code 127)");
	else
		(void)snprintf(to, n, "with exit code %d", res->code);
}

int boot_tell_failed(const struct boot_step *s, struct client_run *cr, const struct run_result *res)
{
	cleanup_buf struct buf text = {0};
	char why[128], part[200] = "";
	char *rest = NULL;
	bool refused;

	refused = run_tell_refused(cr, true, false);
	how(res, why, sizeof(why));
	if (said(client_run_of(cr), &text) == 0)
		rest = (char *)text.data;
	if (rest && last_mark(rest)) {
		rest = last_mark(rest) + strlen(BOOT_DOING_MARK);
		(void)snprintf(part, sizeof(part), ", in the part \"%.*s\",",
			       (int)strcspn(rest, "\n"), rest);
		rest += strcspn(rest, "\n");
	}
	if (rest && rest[strspn(rest, "\n")]) {
		fprintf(stderr, "rattan: bootstrap: it said last:\n");
		put_lines(rest);
	}
	(void)cli_fail(
		CLI_FAILED,
		"bootstrap: %s failed%s %s; %s. -v shows all that it says; nothing is left of "
		"this bootstrap",
		s->what, part, why,
		refused     ? "the network refused what is said above"
		: s->remedy ? s->remedy
			    : "is there room on the disk and in /var/tmp?");
	return CLI_FAILED;
}
