/*
 * tests/lib/namespaces.h - for tests that make user namespaces of their own: inside a sandbox of ours, where this
 * project is built and tested as well, none can be made, and the whole test is skipped.
 */
#pragma once

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Before the first check. Tried in a child: the caller stays where it is. */
static inline void need_namespaces(void)
{
	int status = 0;
	pid_t pid = _Fork(); /* fork(): a sanitizer's thread in the child would forbid unshare(2) */

	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER) < 0 ? 77 : 0);
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) ||
	    WEXITSTATUS(status) == 0)
		return;
	printf("1..0 # SKIP no user namespaces can be made here\n");
	exit(0);
}
