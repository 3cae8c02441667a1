/*
 * fs/ctl/ctl_io.h - control messages over a Unix stream socket: four bytes of length (big-endian), then
 * the message; descriptors travel with the first byte. Sockets by path, of any length.
 *
 * Errors: of the socket calls; -EPIPE the other side is gone; -EMSGSIZE a message over the limit;
 * -EBADMSG it ended in the middle.
 */
#pragma once

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/io.h"

int ctl_frame_send(int sock, const struct buf *msg, const int *fds, size_t nfds) MUST_USE;
/* 1: a message is in @msg (cleared first) and its descriptors are the caller's; 0: end. */
int ctl_frame_recv(int sock, struct buf *msg, int fds[static IO_MAX_FDS],
		   size_t *ret_nfds) MUST_USE;
void ctl_close_fds(int *fds, size_t n);

/* A connected or listening (mode 0600, an old one is replaced) socket; @path may be longer than
 * sun_path allows. */
int ctl_sock_connect(const char *path, int *ret_fd) MUST_USE;
int ctl_sock_listen(const char *path, int *ret_fd) MUST_USE;
/* -EPERM unless the process at the other end has our user id. */
int ctl_sock_check_peer(int sock) MUST_USE;
