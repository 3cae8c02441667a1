/*
 * fs/ctl/ctl_ops.h - one request of one client, carried out and answered.
 *
 * Answers are made whole before the first byte is sent, so that no lock is held while a client reads.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct env;
struct env_looks;

enum ctl_end {
	CTL_END_NOT,
	CTL_END_NOW,
	CTL_END_REPLACE, /* another daemon goes on */
};

/* A message @msg from @owner's socket @sock, with descriptors that this call takes over. @looks: the connection's, kept between its
 * messages. Negative: the connection is of no use any more. *ret_end: is the daemon to end? */
int ctl_serve(struct env *env, const void *owner, struct env_looks *looks, int sock,
	      const struct buf *msg, int *fds, size_t nfds, enum ctl_end *ret_end) MUST_USE;
