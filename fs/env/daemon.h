/*
 * fs/env/daemon.h - the programs inside rattan-fs: what it does from its options to its end.
 *
 * Each returns 0 or negative errno, having told its starter once through @ready_fd (a ctl_rep; -1:
 * on stderr). They own the process: signals, standard streams and descriptors are theirs.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define DAEMON_LIST_MAX 256

struct daemon_opts {
	const char *data_dir, *run_dir, *env, *base, *rev, *name, *dir;
	char *overlays[DAEMON_LIST_MAX + 1]; /* host, mount, ... */
	char *writable[DAEMON_LIST_MAX + 1];
	bool has_writable;
	int takeover_fd; /* -1, or the keeper's state: this process is a keeper, whose daemon died */
	bool create, foreground;
	bool stored_ids;                         /* show ids as stored */
	bool quick, repair;                      /* fsck */
	bool dry_run, shrink, compress, removed; /* gc: store/store.h */
	bool rw; /* mount: writable, and what is written goes with it */
	unsigned keep_states, keep_days, strip;
	const char *kind, *src, *dest, *tag, *pack; /* import, export: fs/image/image.h */
	bool replace, reread, squash, with_host;
	bool force; /* serve: without the runtime directory's lock */
	int ready_fd;
	uint64_t disk_max; /* 0: the default */
};

/* Keeper and daemon of one environment. */
int daemon_env(const struct daemon_opts *o) MUST_USE;
/* The working tree of an environment, on a directory of the host. */
int daemon_serve(const struct daemon_opts *o) MUST_USE;
/* One commit, read-only, on a directory of the host. */
int daemon_mount(const struct daemon_opts *o) MUST_USE;
int daemon_admin_list(const struct daemon_opts *o) MUST_USE;
int daemon_admin_fork(const struct daemon_opts *o) MUST_USE;
int daemon_admin_remove(const struct daemon_opts *o) MUST_USE;
/* Tells its starter in a stream of messages, each behind its length. */
int daemon_admin_fsck(const struct daemon_opts *o) MUST_USE;
int daemon_admin_gc(const struct daemon_opts *o) MUST_USE;
int daemon_admin_stats(const struct daemon_opts *o) MUST_USE;
int daemon_admin_import(const struct daemon_opts *o) MUST_USE;
int daemon_admin_export(const struct daemon_opts *o) MUST_USE;
int daemon_admin_have(const struct daemon_opts *o) MUST_USE;
int daemon_admin_bases(const struct daemon_opts *o) MUST_USE;
/* Of a base, or of the one that an environment began on. */
int daemon_admin_history(const struct daemon_opts *o) MUST_USE;
int daemon_admin_base_remove(const struct daemon_opts *o) MUST_USE;
