/*
 * stage3/steps.h - what the child does between clone and exec: a table of steps, taken in order,
 * stopping at the first failure (R1).
 */
#pragma once

#include "stage3/landlock.h"

struct steps {
	const struct plan *plan;
	const char **sh_argv; /* room for argc + 3 pointers: a script without an interpreter line */
	const char *shell;    /* chosen by the shell step */
	struct landlock landlock;
	int root_fd;   /* a socket to init, for the descriptor of step "root"; -1 */
	uint32_t done; /* 1 << enum stage3_step, those taken */
};

/* Reports over the status descriptor and returns only when a step failed: the code to exit with. */
int steps_run(struct steps *s);
