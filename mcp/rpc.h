/*
 * mcp/rpc.h - lines in and out: JSON-RPC framing over two descriptors.
 *
 * Threads: a reader belongs to one thread; a writer may be used by all. The reading thread must never
 * wait for a client that does not read (it may be waiting for us to read): it posts, and others write.
 * The descriptors' own flags are never changed, since O_NONBLOCK would be shared with whoever else has
 * the same open file.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define RPC_LINE_MAX    (16u << 20)
#define RPC_OUT_MAX     ((1u << 20) - 1) /* a line with its newline */
#define RPC_PENDING_MAX (8u << 20)

struct rpc_reader {
	int fd; /* lent */
	char *data;
	size_t at, len, cap, seen; /* seen: bytes from at that hold no newline */
	bool skipping;             /* inside a line that was too long */
};

void rpc_reader_init(struct rpc_reader *r, int fd);
void rpc_reader_release(struct rpc_reader *r);
/* One read(2) into the buffer; call when the descriptor is readable. 1, or 0 at end of file. */
int rpc_reader_fill(struct rpc_reader *r) MUST_USE;
/* The next whole line, lent until the next fill; writable, not terminated. 1; 0: none yet;
 * -EMSGSIZE: a line was longer than RPC_LINE_MAX (reported once; what follows it is intact). */
int rpc_reader_next(struct rpc_reader *r, char **ret_line, size_t *ret_len) MUST_USE;

struct rpc_writer {
	int fd; /* lent */
	bool is_socket;
	atomic_bool dead;      /* EPIPE, or told to stop: everything fails with -EPIPE */
	pthread_mutex_t lock;  /* held while a line goes out */
	pthread_mutex_t plock; /* pending; taken after lock */
	struct buf pending;    /* posted, not written: goes out before any other line */
};

int rpc_writer_init(struct rpc_writer *w, int fd) MUST_USE;
void rpc_writer_release(struct rpc_writer *w);
/* @line ends with its newline. Waits for the client to read; -EPIPE. */
int rpc_write(struct rpc_writer *w, const void *line, size_t n) MUST_USE;
/* Never waits. -ENOBUFS: the client sends, but does not read. */
int rpc_post(struct rpc_writer *w, const void *line, size_t n) MUST_USE;
/* Posted lines wait for the descriptor: poll it for POLLOUT, then call rpc_flush. */
bool rpc_pending(struct rpc_writer *w);
void rpc_flush(struct rpc_writer *w);
/* Nothing is written any more; whoever waits in rpc_write returns soon. */
void rpc_stop(struct rpc_writer *w);
