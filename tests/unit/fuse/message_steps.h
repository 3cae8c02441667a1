/*
 * tests/unit/fuse/message_steps.h - what programs do with files, one operation a step, MESSAGE_N times over, for who
 * counts the messages that reach a file system.
 *
 * The steps are done in order by one process with the mount as its cwd: some look at what earlier ones made.
 */
#pragma once

#define MESSAGE_N 16

enum message_kind {
	MESSAGE_ANY,
	MESSAGE_PREP, /* not counted */
	MESSAGE_NONE, /* promised: no message at all */
	MESSAGE_COLD, /* the kernel has forgotten what is below "d" */
};

struct message_step {
	const char *what;
	int (*fn)(int arg); /* 0 or -errno */
	int arg;
	enum message_kind kind;
};

extern const struct message_step message_steps[];
extern const unsigned message_nsteps;
