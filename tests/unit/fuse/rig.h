/*
 * tests/unit/fuse/rig.h - a mount in a namespace of this process, served by it, and client processes
 * that use it.
 *
 * Clients are forked before there are threads, so that a test that fails or hangs never waits for its own
 * mount: when this process ends, the connection aborts and they get errors.
 */
#pragma once

#include <stdbool.h>

#include "fs/fuse/session.h"

#define RIG_CLIENTS 4

struct rig {
	char dir[64], mnt[80];
	int sock[RIG_CLIENTS];
	int pid[RIG_CLIENTS];
	int fuse_fd;
	bool helper;
};

/* Enter the namespace, mount, fork the clients. Prints a TAP skip and exits where this host refuses
 * (no /dev/fuse, no user namespaces). With @helper through fusermount3, in no namespace. */
void rig_open(struct rig *r, bool helper);
/* Unmount, end the clients, remove the directory. */
void rig_close(struct rig *r);

/* Let client @i call @fn with its cwd in the mount; rig_wait gives what it returned, -ETIMEDOUT when
 * it has not returned within @ms. */
void rig_call(struct rig *r, int i, int (*fn)(int arg), int arg);
int rig_wait(struct rig *r, int i, int ms);
/* Both, for client 0 and at most ten seconds. */
int rig_do(struct rig *r, int (*fn)(int arg), int arg);
