/*
 * fs/fuse/session.h - serves one mount from one tree: libfuse's low-level API behind our own loop.
 *
 * Threads: session_start makes the workers; the other calls may come from any thread that is not a
 * worker. One reply per request; no answer depends on another request (docs/architecture.md).
 * Owner ids: with ids.squash every inode is shown as owned by (show_uid, show_gid), and what the
 * kernel says about these two means the stored (store_uid, store_gid): a single-id namespace cannot
 * show others, and inodes with unmapped ids would refuse writes. Without it ids are shown as stored.
 * With ids.root, of a mount that provisioning uses, the stored owner can be asked for and set, and devices be made, by
 * extended attributes that exist in no other mount (stage3/root_abi.h): whoever reaches the mount is its root.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "fs/core/ovl.h"
#include "fs/fuse/tree.h"

struct session;

struct session_ids {
	bool squash;
	bool root;
	uid_t show_uid, store_uid;
	gid_t show_gid, store_gid;
};

/* What was said when the mount began; another process may go on with it. */
#define SESSION_INIT_MAX 256
struct session_init {
	uint32_t in_len, out_len;
	uint8_t in[SESSION_INIT_MAX], out[SESSION_INIT_MAX];
	bool resumable; /* the kernel can send again what nobody answered (Linux 6.9) */
};

/* As spin_us: keep the other CPU occupied whenever messages come (company.h), if there are two. */
#define SESSION_BESIDE (-2)

struct session_opts {
	/* Not NULL: the mount's former process is dead. -EPROTO: we would not have said the same. */
	const struct session_init *resume;
	/* Of the mount, the same after a resumption: requests of different mounts have the same numbers. */
	uint64_t connection;
	int fuse_fd; /* from mount_fuse; owned by the session from here on, also on failure */
	/* Opened by the caller with notify = session_notify() of a session made by session_new. */
	struct ovl *ovl;  /* lent; ovl_notify_end before session_stop, ovl_close after it */
	struct tree tree; /* instead of it; lent, outlives the session */
	struct session_ids ids;
	bool rdonly;
	bool writeback; /* kernel write-back cache; off: docs/performance.md */
	int workers;    /* 0: default */
	int spin_us;    /* -1: measured (default 50 us at most); 0: never; or SESSION_BESIDE */
};

/* Two steps, because the ovl needs the session for its notifications. */
int session_new(struct session **ret) MUST_USE;
struct ovl_notify session_notify(struct session *se);
int session_start(struct session *se, const struct session_opts *o) MUST_USE;
/* Of a session that was started. */
void session_init_get(const struct session *se, struct session_init *ret);
/* Another process is about to go on with this mount, should the store break (ovl_broken): who would get EIO for that
 * reason gets no answer for ten seconds, so that the other one may give him a better. */
void session_patience(struct session *se, bool on);
/* Ends the workers; requests that the kernel still has get ENOTCONN. Frees the session. */
void session_stop(struct session *se);
/* The kernel closed the connection (unmounted or aborted): readable when so. Owned by the session. */
int session_ended_fd(struct session *se);
/* Make the kernel write back what shared mappings dirtied (ovl_maybe_mapped); returns when it did. It then caches nothing
 * of those files any more. */
int session_push_dirty(struct session *se) MUST_USE;
/* What a mapping dirtied has been written and answered when the mapping is gone: only what is mapped now needs a push. */
bool session_unmapped_is_clean(const struct session *se);

#define SESSION_OPS 64
/* Requests served since the start, all and by the kernel's opcode (linux/fuse.h); 0 for what is
 * beyond the table. Answers of one moment only roughly: no lock is taken. */
struct session_stats {
	uint64_t requests;
	uint64_t by_op[SESSION_OPS];
};
void session_stats(struct session *se, struct session_stats *ret);
