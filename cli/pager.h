/* cli/pager.h - a long output on a terminal: colours, and a program that shows it by the page. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct cli_page {
	bool tty;     /* what is printed is for a person's eyes, also by way of a pager */
	bool colours; /* a terminal that has some, and no NO_COLOR */
	pid_t pid;    /* of the program that standard output goes to; 0: none */
};
/* Looks at standard output; from here on $PAGER reads it, or less, which ends by itself where all fits. Not off a terminal, where @off, where
 * PAGER is empty or "cat", or where there is no less or no terminal that it could show pages on. */
void cli_page_start(struct cli_page *p, bool off);
/* Waits for that program. Before an error is told as well: what was printed comes first. */
void cli_page_end(struct cli_page *p);

enum cli_colour {
	CLI_PLAIN,
	CLI_BOLD,
	CLI_RED,
	CLI_GREEN,
	CLI_YELLOW,
	CLI_CYAN
};
/* Of what is printed next. */
void cli_colour(const struct cli_page *p, enum cli_colour c);
