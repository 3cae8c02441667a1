/* runner/terminal_guard.h - a process that brings a terminal's modes back when ours is killed. */
#pragma once

#include <sys/types.h>
#include <termios.h>

struct terminal_guard {
	int fd; /* told through this; its end is ours. -1: there is none */
	pid_t pid;
};
void terminal_guard_init(struct terminal_guard *g);
/* For the terminal @tty. While the process has one thread, and its signals are as it keeps them. Where it cannot be had
 * there is none. */
void terminal_guard_start(struct terminal_guard *g, int tty);
/* What @tty is about to become, and what it was, or both NULL: it is as it was. */
void terminal_guard_tell(const struct terminal_guard *g, const struct termios *was,
			 const struct termios *now);
void terminal_guard_end(struct terminal_guard *g);
