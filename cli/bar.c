/* How far a long command is: a bar on a terminal, else a line now and then. */
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/cli.h"

void cli_bar_start(struct cli_bar *b)
{
	*b = (struct cli_bar){.tty = isatty(STDERR_FILENO), .last = io_now_ms() / 1000};
}

void cli_bar_clear(struct cli_bar *b)
{
	if (b->shown)
		fputs("\r\033[K", stderr);
	b->shown = false;
}

void cli_bar_put(struct cli_bar *b, const char *verb, const char *what, uint64_t done,
		 uint64_t total)
{
	unsigned percent = total && done < total ? (unsigned)(done * 100 / total) : 100;
	long long now = io_now_ms() / 1000;
	/* A unit stands behind its number. */
	const bool unit = !strcmp(what, "MiB");
	const char *gap = unit ? "" : " ", *name = unit ? "" : what, *behind = unit ? " MiB" : "";

	if (b->tty) {
		cli_bar_clear(b);
		if (total)
			fprintf(stderr, "%s%s%s [%-20.*s] %u %%", verb, gap, name,
				(int)(percent / 5), "####################", percent);
		else
			fprintf(stderr, "%s%s%s: %llu%s", verb, gap, name, (unsigned long long)done,
				behind);
		if (total && unit)
			fprintf(stderr, " of %llu MiB", (unsigned long long)total);
		(void)fflush(stderr);
		b->shown = true;
	} else if (now >= b->last + 5) {
		fprintf(stderr, "%s%s%s: %llu", verb, gap, name, (unsigned long long)done);
		if (total)
			fprintf(stderr, " of %llu", (unsigned long long)total);
		fprintf(stderr, "%s\n", behind);
		b->last = now;
	}
}
