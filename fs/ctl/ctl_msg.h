/*
 * fs/ctl/ctl_msg.h - the messages of the control protocol as C structs and as msgpack bytes; both ends
 * use this file and nothing else (docs/control-protocol.md).
 *
 * Pure functions over bytes: no I/O. Decoding is bounded and strict: unknown keys, operations and
 * types, strings with NUL bytes and trailing bytes are -EBADMSG. The version stands first, so that a
 * message of another version is recognised (-EPROTONOSUPPORT) whatever else it holds.
 * Structs that were decoded own their strings and are released; a zeroed struct is empty.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mp.h"
#include "fs/ctl/ctl_client.h"

#define CTL_PROTO      7
#define CTL_FRAME_MAX  (1u << 20)  /* bytes of one message */
#define CTL_ITEMS_SOFT (64u << 10) /* a stream starts a new message above this */
#define CTL_LIST_MAX   1024        /* strings in one list */

enum ctl_op {
	CTL_OP_OPEN = 1, /* overlays, base: check the environment */
	CTL_OP_ATTACH,
	CTL_OP_LEASE,
	CTL_OP_UNLEASE,
	CTL_OP_BIND,
	CTL_OP_UNBIND,
	CTL_OP_STATUS,
	CTL_OP_COMMIT,
	CTL_OP_ROLLBACK,
	CTL_OP_RESET,
	CTL_OP_UNDO,
	CTL_OP_LOG,
	CTL_OP_DIFF,
	CTL_OP_CAT,
	CTL_OP_CHANGES,
	CTL_OP_FLUSH,
	CTL_OP_SHUTDOWN,
	CTL_OP_RESTART,
	CTL_OP_DENIALS,
	CTL_OP_CHECKPOINT,
	CTL_OP_TAG,
	CTL_OP_UNTAG,
	CTL_OP_REFS,
	CTL_OP_LS,
	CTL_OP_OWN,
	CTL_OP_KEEP, /* what was provisioned */
	CTL_OP_DROP, /* the same */
	CTL_OP_LAST = CTL_OP_DROP,
};
const char *ctl_op_name(enum ctl_op op);

/* Which members an operation uses: docs/control-protocol.md. NULL, 0 and false are not sent. */
struct ctl_req {
	uint64_t id;
	enum ctl_op op;
	char *rev, *rev2, *path, *message, *label, *expect, *host, *mount, *what, *base;
	char **writable;         /* of ATTACH; NULL: the agent's; empty: nothing is writable */
	char **overlays;         /* host, mount, host, mount, ... */
	struct ctl_bytes policy; /* of ATTACH, instead of writable */
	uint64_t token, disk;
	bool force, all, automatic, rw, brief;
	bool through;              /* of OPEN and ATTACH */
	bool same_dirs, tell_dirs; /* of OPEN: see ctl_env_opts */
	bool provision;            /* of ATTACH, instead of a policy */
};
int ctl_req_encode(const struct ctl_req *rq, struct buf *out) MUST_USE;
/* -EPROTONOSUPPORT: *ret_version is what the message speaks; @ret has the id when there is one. */
int ctl_req_decode(const void *p, size_t n, struct ctl_req *ret, uint64_t *ret_version) MUST_USE;
void ctl_req_release(struct ctl_req *rq);

/* Of OPEN. */
struct ctl_opened {
	char note[512]; /* what the caller should know; "": nothing */
	bool made;      /* by this one, or one that was given up */
};

/* One answer; a stream is several with @more set in all but the last. */
struct ctl_rep {
	uint64_t id;
	int err; /* 0 or negative errno */
	char text[512];
	bool more;
};
/* @items: @n encoded items (ctl_item_put), may be NULL with 0. */
int ctl_rep_encode(const struct ctl_rep *rp, const struct buf *items, uint32_t n,
		   struct buf *out) MUST_USE;
struct ctl_rep_doc {
	struct ctl_rep rep;
	struct mp_doc doc;
	const msgpack_object *items;
	uint32_t nitems;
};
/* The items point into @p's bytes. -EPROTONOSUPPORT as above. */
int ctl_rep_decode(const void *p, size_t n, struct ctl_rep_doc *ret,
		   uint64_t *ret_version) MUST_USE;
void ctl_rep_release(struct ctl_rep_doc *d);

/* ---- items: the structs of ctl_client.h ---- */

struct ctl_table;
extern const struct ctl_table ctl_table_commit, /* struct ctl_commit */
	ctl_table_opened,                       /* struct ctl_opened */
	ctl_table_ref,                          /* struct ctl_ref */
	ctl_table_change,                       /* struct ctl_change */
	ctl_table_file,                         /* struct ctl_file */
	ctl_table_status,                       /* struct ctl_status */
	ctl_table_moved,                        /* struct ctl_moved */
	ctl_table_attach,                       /* struct ctl_attach, descriptors apart */
	ctl_table_env,                          /* struct ctl_env_info */
	ctl_table_note,                         /* struct ctl_note */
	ctl_table_denial,                       /* struct ctl_denial */
	ctl_table_finding,                      /* struct ctl_finding */
	ctl_table_fsck_sum,                     /* struct ctl_fsck_sum */
	ctl_table_gc_sum,                       /* struct ctl_gc_sum */
	ctl_table_usage_row,                    /* struct ctl_usage_row */
	ctl_table_usage_sum,                    /* struct ctl_usage_sum */
	ctl_table_import,                       /* struct ctl_import_sum */
	ctl_table_export,                       /* struct ctl_export_sum */
	ctl_table_step,                         /* struct ctl_step */
	ctl_table_had,                          /* struct ctl_had_sum */
	ctl_table_base,                         /* struct ctl_base_info */
	ctl_table_progress;                     /* struct ctl_progress */

/* What rattan-fs admin fsck sends, by the id of the message, each with one item but the last. */
enum ctl_fsck_msg {
	CTL_FSCK_END, /* the last: its error, and with none a ctl_fsck_sum */
	CTL_FSCK_FINDING,
	CTL_FSCK_PROGRESS,
};
/* And rattan-fs admin gc. */
enum ctl_gc_msg {
	CTL_GC_END, /* the last: its error, and with none a ctl_gc_sum */
	CTL_GC_PROGRESS,
};
/* And rattan-fs admin stats. */
enum ctl_stats_msg {
	CTL_STATS_END, /* the last: its error, and with none a ctl_usage_sum */
	CTL_STATS_ROW,
	CTL_STATS_PROGRESS,
};
/* And rattan-fs admin import and export. */
enum ctl_image_msg {
	CTL_IMAGE_END, /* the last: its error, and with none a ctl_import_sum or a ctl_export_sum */
	CTL_IMAGE_PROGRESS,
};
struct ctl_progress {
	char *stage;
	uint64_t done, total;
};

/* Small things that need no struct of their own in ctl_client.h. */
struct ctl_note {
	char *path; /* a changed path */
	char what;
	uint64_t token;
	uint32_t mode;
};

int ctl_item_put(struct buf *out, const struct ctl_table *t, const void *item) MUST_USE;
/* @ret is overwritten; on failure it is empty. */
int ctl_item_get(const msgpack_object *o, const struct ctl_table *t, void *ret) MUST_USE;
void ctl_item_release(const struct ctl_table *t, void *item);
