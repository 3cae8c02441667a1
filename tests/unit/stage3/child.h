/* tests/unit/stage3/child.h - a step is for ever: each is taken in a process of its own. */
#pragma once

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stage3/plan.h"

/* What @fn returns, in a child: 0..254, or 255 when it died. */
static inline int child(int (*fn)(const struct plan *), const struct plan *plan)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(fn(plan));
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return 255;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}
