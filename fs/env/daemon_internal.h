/* fs/env/daemon_internal.h - shared by the files of the daemon; nobody else includes it. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "fs/env/daemon.h"
#include "fs/env/env.h"

/* Tell the starter, once; @items are @n encoded ones. Closes the descriptor. Returns @r. */
int daemon_tell(int *ready_fd, int r, const struct diag *d, const struct buf *items, uint32_t n);
/* Standard streams, umask, limits; SIGTERM, SIGINT, SIGHUP blocked and in *ret_fd. */
int daemon_prepare(int *ret_signal_fd) MUST_USE;
/* Fork to live on; in the parent *ret_parent is true and it is to end. */
int daemon_detach(const struct daemon_opts *o, bool *ret_parent) MUST_USE;
/* R/<id>/alive, held for this process's life; waits for a predecessor that is ending. */
int daemon_alive(const char *run_dir, struct diag *diag, int *ret_fd) MUST_USE;
/* Remember (or with NULL forget) a mount on the host, for whoever finds us dead. */
int daemon_note_mount(const char *run_dir, const char *dir) MUST_USE;

/* How ids are shown on the host. */
struct session_ids daemon_host_ids(const struct daemon_opts *o);

/* ---- daemon_stream.c: messages to the starter as they come, each with its length before it ---- */

struct ctl_table;
struct daemon_stream {
	int fd; /* lent */
	struct buf items, msg;
};
int daemon_stream_item(struct daemon_stream *t, uint64_t id, bool more,
		       const struct ctl_table *table, const void *item) MUST_USE;
/* The last one, instead of an item. */
void daemon_stream_error(struct daemon_stream *t, uint64_t id, int r, const struct diag *diag);
void daemon_stream_release(struct daemon_stream *t);
