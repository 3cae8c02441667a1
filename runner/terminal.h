/*
 * runner/terminal.h - between a person's terminal and a command's: what is typed into the one cannot come from the other.
 *
 * Where one of our standard streams is a terminal the command gets another one, a pseudo-terminal of its own, and we copy: what it
 * shows to ours, and what is typed to it, as soon as it wants that. It wants that from its beginning when both our standard input and
 * our standard output are terminals and we are in the foreground; else the first read, or change of modes, stops it, and tells. Until
 * then a pipeline's other commands have the keyboard. While the command has it our terminal is in raw mode, so that ^C, ^Z and the
 * like are the other one's to make signals of.
 *
 * A command that is stopped stops us, and all of our job, for our shell to see, and goes on with us. The window's size is kept. Our
 * terminal's modes come back on every way out; when we are killed, a process that waits for just that brings them back.
 *
 * Threads: one per process, from the thread that takes the process's signals; other threads must block them.
 */
#pragma once

#include "runner/runner.h"

struct terminal;

/* Before the run is started. Blocks the signals that end us, and with a terminal those that stop and continue us, until
 * terminal_free(). *ret also where no stream is a terminal. Negative errno. */
int terminal_open(struct terminal **ret) MUST_USE;
/* The command's terminal, into @s, which has passthrough and our standard input; nothing where there is none. */
void terminal_lend(const struct terminal *t, struct run_spec *s);
/* Copies and waits until @r has ended, as run_wait() does. SIGTERM and SIGHUP to us end the command, within @grace_ms, a second one at
 * once; so do SIGINT and SIGQUIT without a terminal, and with one they are the command's. *ret_signal: the first that ended it, or 0. */
int terminal_wait(struct terminal *t, struct run *r, unsigned grace_ms, struct run_result *ret,
		  int *ret_signal) MUST_USE;
/* Accepts NULL. */
void terminal_free(struct terminal *t);
