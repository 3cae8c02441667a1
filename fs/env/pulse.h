/*
 * fs/env/pulse.h - how the keeper learns that the daemon is dying.
 *
 * A thread that makes the kernel write what shared mappings hold waits for answers of the daemon's own
 * threads, and no signal ends that wait. When the process is killed then, the others die and that thread
 * waits for ever: the pidfd does not tell anything, and every user of the mount waits as well. Only an answer or
 * the connection's forced end helps.
 *
 * So one thread has a descriptor table of its own with nothing in it but one end of a pipe. It dies with
 * the first, at once, and the pipe's other end says so.
 */
#pragma once

#include "base/err.h"

/* Starts the thread; it takes @fd, which this process then no longer has. On failure @fd stays open:
 * it closes with the process. */
int pulse_start(int fd) MUST_USE;
