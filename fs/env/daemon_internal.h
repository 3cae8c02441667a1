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

/* R/<id>/@name. */
int daemon_run_file(const char *run_dir, const char *name, char *ret, size_t size) MUST_USE;
/* No core file, and in no namespace of our own nobody looks into this process. */
void daemon_no_core(bool own_ns);
/* A lack that may be over in a moment. */
bool daemon_may_pass(int r);

/* How ids are shown on the host. */
struct session_ids daemon_host_ids(const struct daemon_opts *o);

/* ---- daemon_serve.c ---- */

struct daemon_begin {
	const struct daemon_opts *o;
	const char *mnt;
	struct keeper_link *kept; /* this process's copy of what the keeper holds */
	int sock, pulse, ready_fd;
	bool own_ns;
	bool again;             /* it holds a dead daemon's mount */
	const struct diag *why; /* no namespace: its text is not empty */
};
/* What the fork of a keeper does, to its end. */
int daemon_begin(const struct daemon_begin *b) MUST_USE;

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
