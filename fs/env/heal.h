/*
 * fs/env/heal.h - what is left of a daemon that was killed together with its keeper.
 *
 * A thread that waits for the kernel to write what a mapping holds (fs/fuse/notify.c) waits for ever then, and with it
 * whoever uses the mount, for the wait itself keeps the connection open. Nobody else has the descriptor; but the thread
 * is still in the namespaces of the mount, and who starts the next daemon, the owner of these, can enter them.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Into the file behind @alive_fd, the lock of the runtime directory: the processes that may be left. */
void heal_note(int alive_fd, const pid_t *pids, size_t n);
/* With the lock taken, in a process of one thread: whatever processes were noted are dead or dying; the connections of the
 * dying ones, mounted below @mnt, are ended. Waits for them, a second at most. */
void heal_dead(int alive_fd, const char *mnt);
