/*
 * base/io.h - whole reads and writes, descriptor passing, directories made safely.
 *
 * All retry EINTR. Errors: negative errno; io_read_full gives the count, short only at end of file.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

ssize_t io_read_full(int fd, void *p, size_t n) MUST_USE;
ssize_t io_pread_full(int fd, void *p, size_t n, off_t off) MUST_USE;
int io_write_full(int fd, const void *p, size_t n) MUST_USE;
/* The whole file at @path below @dirfd, at most @max bytes (-EFBIG above). */
int io_read_file(int dirfd, const char *path, size_t max, struct buf *out) MUST_USE;

/* Raise this process's own limit of descriptors to what it may have. It is also what the kernel measures a sender of descriptors
 * by: a user whose processes have more of them under way in Unix sockets, a confined command's among them, can pass no more. */
void io_most_descriptors(void);

#define IO_MAX_FDS 8
/* One message of @n bytes with @nfds descriptors over a Unix stream or seqpacket socket. */
int io_send_fds(int sock, const void *p, size_t n, const int *fds, size_t nfds) MUST_USE;
/* Receive up to @n bytes and up to IO_MAX_FDS descriptors, all CLOEXEC and owned by the caller;
 * 0 bytes is end of file. */
ssize_t io_recv_fds(int sock, void *p, size_t n, int fds[static IO_MAX_FDS],
		    size_t *ret_nfds) MUST_USE;

/* mkdir -p with @mode for what is made. Existing directories are left as they are. */
int io_mkdir_p(const char *path, mode_t mode) MUST_USE;

/* Opens /dev/null as each of the descriptors 0, 1 and 2 that is closed. Call it first of all: what is
 * opened next would take the number, and a command's standard stream would be a socket of ours (R3). */
int io_std_open(void) MUST_USE;

/* From here on this thread has a descriptor table of its own, with nothing in it but @fd: when the process dies,
 * what the others had open closes, whatever this thread waits for. */
int io_only(int fd) MUST_USE;

long long io_now_ms(void); /* CLOCK_MONOTONIC */
