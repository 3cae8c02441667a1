/*
 * runner/spawn.h - the child, up to bwrap's exec.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "stage3/stage3_abi.h"

/* Steps of the child, reported as stage3 reports its own, over the same socket. */
enum spawn_step {
	SPAWN_FDS = 64,
	SPAWN_CGROUP,
	SPAWN_USERNS,
	SPAWN_MNTNS,
	SPAWN_LIFETIME,
	SPAWN_BWRAP,
};

struct spawn {
	const char *bwrap; /* absolute */
	char *const *argv;
	int fd[STAGE3_FD_COUNT]; /* what becomes which descriptor (-1: none); nothing else is inherited */
	int userns_fd, mntns_fd; /* -1: ours */
	int tty_at; /* which of them is a terminal for a session of the child's own; -1: none is */
	int cgroup_fd; /* cgroup.procs; -1: none */
};

/* Nothing of all that: every descriptor -1. */
void spawn_init(struct spawn *s);

/* The pid, or negative errno. The calling thread must live as long as the child shall: the child
 * dies with it (PR_SET_PDEATHSIG is about threads, not processes). */
pid_t spawn_bwrap(const struct spawn *s) MUST_USE;

/* fuse_abort of what is mounted at @root in these namespaces. */
void spawn_abort_tree(int userns_fd, int mntns_fd, const char *root);
