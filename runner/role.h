/*
 * runner/role.h - a session in an empty root with exactly the listed binds of the host's own files: no tree of an
 * environment, no daemon.
 *
 * The command is pid 1 of user, PID and IPC namespaces of its own, and ends when the bwrap outside does; that
 * bwrap is nobody's child but init's once its host has died, so a session outlives a host that dies hard, and
 * the next one finds it by its name (role_find). There is no way to run it with less: what cannot be set up is
 * refused (-ENOTSUP for bwrap itself: "sandbox-unavailable").
 * Sources are opened without following links, copied by descriptor to a place of the session's own, and bound
 * from there: what is at a path afterwards does not matter (K13).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

#define ROLE_BWRAP "/usr/bin/bwrap"

enum run_mount_kind {
	RUN_MOUNT_RO,
	RUN_MOUNT_RW,
	RUN_MOUNT_DEV,
	RUN_MOUNT_PROC,
	RUN_MOUNT_LINK,
};

struct run_mount {
	enum run_mount_kind kind;
	const char *source; /* RUN_MOUNT_LINK: what it says */
	const char *dest;
};

struct role_spec {
	const char *name;               /* of the session: letters, digits, '.', '_' and '-' */
	const char *dir;                /* sessions' records; 0700, ours */
	const struct run_mount *mounts; /* in mount order */
	size_t n;
	const char *const *make; /* directories to be made, 0700; NULL-terminated, or NULL */
	const char *const *argv, *const *env;
	const char *cwd;
	const char *bwrap;  /* NULL: ROLE_BWRAP */
	const char *stage3; /* NULL: beside this program */
	unsigned wait_ms;   /* for the command's start; 0: 10 s */
};

/* Start it with our standard streams; returns when the command runs. *ret_pid: the bwrap outside, our child; its
 * exit code is the command's. -EBUSY a session of that name lives; -ENOTSUP bwrap is missing or fails here;
 * -EINVAL a source may not be bound. */
int role_start(const struct role_spec *s, struct diag *diag, pid_t *ret_pid) MUST_USE;

struct role_session {
	char name[65];
	pid_t pid; /* the bwrap outside */
};
/* Sessions that live. What others have left is ended, and their records are removed. */
int role_list(const char *dir, int (*fn)(void *arg, const struct role_session *s),
	      void *arg) MUST_USE;
/* *ret_pidfd: of the bwrap outside. -ENOENT: none of that name lives. */
int role_find(const char *dir, const char *name, struct role_session *ret, int *ret_pidfd) MUST_USE;
/* All processes of @s are killed: by the pid 1 of its PID namespace, with which the kernel ends the others, whatever they have
 * done about it. @pidfd is that of the bwrap outside. -ETIMEDOUT it does not end. */
int role_end(const char *dir, const struct role_session *s, int pidfd) MUST_USE;
/* The bwrap outside has ended: so does what is left of the session, and its record goes. Nothing is done to a session that lives. */
void role_settle(const char *dir, const char *name);
/* The record alone. */
void role_forget(const char *dir, const char *name);
/* Another command in the session's namespaces; its exit code, or negative errno. Where a standard stream is a terminal it gets
 * one of its own, which is the caller's by copying alone. */
int role_attach(const struct role_session *s, int pidfd, const char *const *argv,
		const char *const *env, const char *cwd, struct diag *diag) MUST_USE;
/* Can a session be had here? Of @s its dir, bwrap and stage3 count; the binds are
 * the system's, the command does nothing. 0, or -ENOTSUP with "<bwrap> is missing" or "<bwrap> failed: <why>". */
int role_probe(const struct role_spec *s, struct diag *diag) MUST_USE;
