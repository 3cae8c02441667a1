/* runner/role_internal.h - shared by the files of role sessions. */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "runner/role.h"
#include "stage3/stage3_abi.h"

#define ROLE_FD_COUNT (STAGE3_FD_LIFE_HELD + 1)

/* Steps of the child before bwrap, reported as stage3 reports its own; stage3's and spawn's are below. */
enum role_step {
	ROLE_STEP_NAMESPACES = 96,
	ROLE_STEP_SOURCE,
	ROLE_STEP_STAGE,
	ROLE_STEP_BWRAP,
};

/* Everything that the child needs, made before the fork. */
struct role_launch {
	const struct role_spec *spec;
	const char *bwrap;
	char stage[4096]; /* where copies of the sources are mounted, in the child's namespace */
	int fd[ROLE_FD_COUNT]; /* what becomes which descriptor; -1: nothing */
	int status, err;       /* our ends */
	int lock;
};

/* role_child.c: never returns. */
void role_child(const struct role_launch *l) __attribute__((noreturn));

/* role_session.c: what the next host needs, made under the lock of the session's name. A record, the pid of the
 * bwrap outside; and a FIFO of which that bwrap holds both ends, so that it tells who asks whether it lives. */
struct role_record {
	int lock_fd;
	int read_fd, both_fd; /* of the FIFO */
};
/* -EBUSY: a session of that name lives, or is being started. */
int role_record_make(const char *dir, const char *name, struct role_record *ret) MUST_USE;
void role_record_release(struct role_record *r);
/* By the process that becomes the bwrap. */
int role_record_write(const char *dir, const char *name) MUST_USE;
/* By whoever started it: which process the pid 1 inside is, for who finds the bwrap outside dead. */
int role_record_inner(const char *dir, const char *name, pid_t outer) MUST_USE;

/* role_inner.c: the session's pid 1 inside. */
struct role_inner {
	pid_t pid;
	unsigned long long
		start; /* ticks since boot: a number that was given again has another one */
	char boot[40];
};
/* The child of the bwrap outside, held: what *ret_pidfd names is it, and not what has its number by then. @outer_pidfd says
 * whose number @outer is; -1: that of a child of ours. @ret may be NULL. -ESRCH. */
int role_inner_of(pid_t outer, int outer_pidfd, struct role_inner *ret, int *ret_pidfd) MUST_USE;
/* The process that was recorded as @in, if it still is. -ESRCH. */
int role_inner_open(const struct role_inner *in, int *ret_pidfd) MUST_USE;

/* role_tty.c */
/* For a command between us and whom there is to be no terminal of ours. */
struct role_tty {
	int master, slave; /* ours, and the command's; -1: no standard stream is a terminal */
};
int role_tty_open(struct role_tty *ret) MUST_USE;
/* In the child: a session of its own, with the new terminal in place of the old one. */
int role_tty_enter(const struct role_tty *t) MUST_USE;
/* In the parent: copies until @pid has ended, and gives its wait status. */
int role_tty_relay(struct role_tty *t, pid_t pid, int *ret_status) MUST_USE;
/* No key that the caller's session holds is the command's. */
int role_leave_keys(void) MUST_USE;
