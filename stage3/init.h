/*
 * stage3/init.h - the sandbox's pid 1: reaps, passes on what the runner asks, reports the end.
 *
 * Not confined by the plan, and so not within reach of the command: another Landlock domain, not
 * dumpable, no memory in common. It reads nothing but messages of a fixed size until the command has ended, and then
 * what stage3/note.h says; of a provisioning run also what stage3/root.h does.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Until the command @child has ended (and, after a TERM, all others have): the exit code, as a
 * shell gives it. @tty: watch for a stopped job on the terminal @tty_fd (-1: none). */
/* @linger: until all have ended, not only @child. @noted: it is a shell that notes (note.h). */
/* @root_fd: what root_take() gave; -1: none. */
int init_run(pid_t child, int tty_fd, bool linger, bool noted, int root_fd);
