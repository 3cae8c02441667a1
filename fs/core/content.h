/*
 * fs/core/content.h - the bytes of one regular file: dirty blocks in memory over chunks in the store
 * over, possibly, a host file.
 *
 * Knows nothing of names, times or modes. One struct content belongs to one inode of one ovl.
 * Threads: all calls may run at once; a content has its own rwlock, taken inside every call and
 * never while another content's is held except by content_copy, which orders by address. It is a
 * leaf below the core's locks: no call comes back into the core. Reading the store or the host
 * happens without the exclusive lock.
 * Errors: -EIO damaged chunk or changed host file; -ENOSPC, -EDQUOT; -EFBIG; -ENOMEM.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "fs/core/table.h"
#include "store/record.h"
#include "store/store.h"

struct content;
struct content_env; /* what contents of one ovl share: store, chunk cache, dirty-byte account */
struct hostsrc;

struct journal;

/* @view is lent and may be replaced after a commit with content_env_set_view. @journal is lent and NULL, or keeps
 * dirty blocks and gets told what changes. */
int content_env_new(struct store *s, struct store_view *view, struct journal *journal,
		    struct content_env **ret) MUST_USE;
void content_env_free(struct content_env *e);
void content_env_set_view(struct content_env *e, struct store_view *view);
/* Bytes in dirty and in-flight blocks of all contents; lock-free. */
size_t content_env_dirty(const struct content_env *e);
/* Of these, the bytes of whole blocks; and what a flush will put together of blocks that are there in part. Lock-free. */
size_t content_env_whole(const struct content_env *e);
size_t content_env_owed(const struct content_env *e);
/* Nothing was written for a while: memory kept for the next blocks goes back to the system. */
void content_env_idle(struct content_env *e);

/* From a record (content, size, origin). A file made new is content_open of a zeroed record. With an
 * origin, @host (lent, outlives) opens the host file when it is needed; NULL without one, and when the
 * source is gone: then what would come from it is -EIO. */
int content_open(struct content_env *e, store_ino ino, const struct rec_inode *rec,
		 struct hostsrc *host, struct content **ret) MUST_USE;
/* The inode is recorded: while nobody changes its bytes they are those of the host file that has the name,
 * whichever that is; until then only those of the file that was looked up. No way back. */
void content_follow(struct content *c);
/* Dirty blocks are dropped. Accepts NULL. */
void content_close(struct content *c);

uint64_t content_size(const struct content *c);   /* lock-free */
uint64_t content_blocks(const struct content *c); /* st_blocks; lock-free */
bool content_is_dirty(const struct content *c);   /* differs from what the last flush wrote */
/* Something that was written is lost since the last time this was asked: the rest of its block turned out to be damaged.
 * Reading there is -EIO. Lock-free. */
bool content_lost(struct content *c);
/* Nothing but what its record says: it may be closed and opened again. For who has all references. */
bool content_spare(struct content *c);
/* Changed here, and some bytes still come from the host file. A file whose bytes nobody changed shows
 * the host's live and is not incomplete. */
bool content_incomplete(const struct content *c);

/* Has a read of the host's bytes had to wait for the disk since this was last asked? */
bool content_waited(struct content *c);
ssize_t content_read(struct content *c, uint64_t off, void *buf, size_t n) MUST_USE;
ssize_t content_write(struct content *c, uint64_t off, const void *buf, size_t n) MUST_USE;
int content_truncate(struct content *c, uint64_t size) MUST_USE;
int content_fallocate(struct content *c, int mode, uint64_t off, uint64_t len) MUST_USE;
int64_t content_seek(struct content *c, int64_t off, int whence) MUST_USE;
/* Whole blocks at equal alignment are shared, the rest is copied. Holes stay holes. Short at the end
 * of @in, and after 16 MiB of bytes that had to be copied (so that the caller can wait for a flush):
 * call again; 0 is the end of @in. @in may be @out, or of another tree of the same store. */
ssize_t content_copy(struct content *in, uint64_t off_in, struct content *out, uint64_t off_out,
		     uint64_t n) MUST_USE;
/* Bring in what still comes from the host file, so that it is not needed any more. A file whose bytes
 * nobody changed counts as changed from then on. Large parts go to the store's chunks directly, so
 * memory stays bounded; durable only after a flush. -EIO: the host file is not what it was. */
int content_complete(struct content *c) MUST_USE;
/* The same, at most about @max bytes: 1 when more is left, 0 when complete. */
int content_complete_some(struct content *c, uint64_t max) MUST_USE;

/* What the journal of a dead process says about @c (fs/core/redo.h), a record at a time; nobody else uses it yet.
 * @u is zeroed before the first record of any content and kept until all of them are applied. -EBADMSG. */
struct content_redo {
	struct table units;
};
int content_redo(struct content *c, struct content_redo *u, uint32_t type, const uint8_t *p,
		 size_t len) MUST_USE;
void content_redo_release(struct content_redo *u);

/*
 * Flushing, in three steps so that nobody waits for the disk:
 * 1 content_snap_take: under the lock, takes references on dirty blocks and copies the shape. Later
 *   writes copy a block that a snapshot holds.
 * 2 content_snap_store: hashes, puts chunks (store_chunks_put), fills the content fields of @rec
 *   (content, data, chunk, size, blocks, origin.valid) and adds extents to @b. No locks of the core.
 *   May be called again with a new batch after -EAGAIN.
 * 3 content_snap_done: @ok: what was flushed and not written since becomes clean; else stays dirty.
 *   The batch must have been committed, so that the view sees it.
 * One snapshot of a content at a time: content_snap_take is -EBUSY while another is not done. A
 * snapshot keeps its content alive.
 */
struct content_snap;
int content_snap_take(struct content *c, struct content_snap **ret) MUST_USE;
int content_snap_store(struct content_snap *sn, struct store_batch *b,
		       struct rec_inode *rec) MUST_USE;
/* Put the chunks of many snapshots of one environment together (fewer, larger store transactions); optional, before
 * content_snap_store, which then finds them there, or puts small ones with the records when they are few. */
int content_snaps_put(struct content_snap **sn, size_t n) MUST_USE;
void content_snap_done(struct content_snap *sn, bool ok);
