/*
 * apply/record.h - the bytes of a journal. Appending to a buffer, and reading one record after another, bounded and checked.
 *
 * A record is a length (4 bytes, big-endian), a check sum of what follows (8) and msgpack: an array that begins with a number of the
 * record's kind.
 */
#pragma once

#include "apply/trail.h"
#include "base/buf.h"

int record_head(struct buf *b, const struct trail *t) MUST_USE;
int record_step(struct buf *b, const struct step *s) MUST_USE;
/* What step @i has in the stage. */
int record_staged(struct buf *b, size_t i, const struct step *s) MUST_USE;
int record_after(struct buf *b, const struct after *a) MUST_USE;
int record_done(struct buf *b, const struct timespec *at) MUST_USE;
int record_mark(struct buf *b, enum trail_state state) MUST_USE;

/* The record at *@at into @j: 1, and *@at is behind it; 0: there is no more, or what there is is torn. -EBADMSG: it is whole and makes no
 * sense. */
int record_read(const struct buf *b, size_t *at, struct trail *t) MUST_USE;
