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
