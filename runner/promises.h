/*
 * runner/promises.h - which system calls each promise stands for. Constant tables.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum promise {
	PROMISE_STDIO = 1 << 0,
	PROMISE_RPATH = 1 << 1,
	PROMISE_WPATH = 1 << 2,
	PROMISE_CPATH = 1 << 3,
	PROMISE_DPATH = 1 << 4,
	PROMISE_FLOCK = 1 << 5,
	PROMISE_FATTR = 1 << 6,
	PROMISE_TTY = 1 << 7,
	PROMISE_PROC = 1 << 8,
	PROMISE_EXEC = 1 << 9,
	PROMISE_PROT_EXEC = 1 << 10,
	PROMISE_ID = 1 << 11,
	PROMISE_UNIX = 1 << 12,
	PROMISE_INET = 1 << 13,
	PROMISE_DNS = 1 << 14,
	PROMISE_RECVFD = 1 << 15,
	PROMISE_SENDFD = 1 << 16,
	PROMISE_TMPPATH = 1 << 17,
	PROMISE_IPC = 1 << 18,
	PROMISE_INOTIFY = 1 << 19,
	PROMISE_SCHED = 1 << 20,
	/* No name of its own: comes with inet and dns. A way to ask about interfaces, routes and sockets. */
	PROMISE_NETLINK = 1 << 21,
	PROMISE_PTRACE = 1 << 22,
	PROMISE_SETTIME = 1 << 23,
	/* No name: what a provisioning run's root needs besides. */
	PROMISE_ROOT = 1 << 24,
};

/* What a command gets that asks for nothing: all but ptrace and settime. */
#define PROMISES_DEFAULT ((uint32_t)PROMISE_PTRACE - 1)

struct promise_name {
	const char *name;
	uint32_t bit;
};
extern const struct promise_name promise_names[];
extern const size_t promise_names_count;

/* A call is allowed when one of its promises is given. */
struct promise_call {
	const char *name;
	uint32_t promises;
	int nr; /* > 0: the number, for calls that libseccomp may be too old to name. From 403 on,
		   numbers are the same on all architectures. */
};
extern const struct promise_call promise_calls[];
extern const size_t promise_calls_count;

/* Refused with EPERM unless a promise allows them: programs shall see a refusal rather than an old
 * kernel. Calls in neither table give ENOSYS. */
extern const char *const promise_refused[];
extern const size_t promise_refused_count;
