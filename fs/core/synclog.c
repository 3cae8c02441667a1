/*
 * fsync without a flush: the journal's batches since the last flush, or since the last fsync, go into the environment's log in
 * the store as one frame, which is one wait for the disk (docs/decisions/0012-fsync-log.md). The next flush voids them.
 *
 * What is here belongs to whoever has flush_group.running, and while that is a flush which lets frames in, to whoever has .framing. It
 * is usable from the end of a flush on: then the store and the frames hold what the journal says up to @at, and the layer has @batches
 * batches. A flush that frames came into leaves that number as it is, so that all of them are applied over it.
 */
#include <stdlib.h>

#include "base/log.h"
#include "fs/core/journal.h"
#include "fs/core/ovl_internal.h"
#include "store/synclog.h"

#define NEEDS_FLUSH 1 /* of functions below: not an error */

/* Of whole blocks in one frame: more of them are better written once, by a flush. */
#define SPILL     ((size_t)128 << 10) /* given to the log at once */
#define WHOLE_MAX ((size_t)1 << 20)

struct framing {
	struct ovl *o;
	struct buf *out; /* what the log has not got yet */
	size_t whole;
	bool begun; /* in the log */
};

/* ---- one batch, as it goes into a frame ---- */

static int put_record(struct buf *out, uint32_t type, store_ino ino, const void *body, size_t len,
		      const void *more, size_t n)
{
	struct redo_head h = {.type = type, .len = (uint32_t)(len + n), .ino = ino};
	int r = buf_put(out, &h, sizeof(h));

	if (r == 0 && len)
		r = buf_put(out, body, len);
	if (r == 0 && n)
		r = buf_put(out, more, n);
	return r;
}

/* Records stand at any address. */
static int set_len(struct buf *out, size_t head, uint32_t len)
{
	memcpy(out->data + head + offsetof(struct redo_head, len), &len, sizeof(len));
	return 0;
}

/* With the bytes as they are now: what changed them since has a record further on in the same frame. */
static int put_block(struct framing *f, store_ino ino, const uint8_t *p)
{
	struct buf *out = f->out;
	struct redo_block b;
	struct redo_bytes to = {0};
	size_t head = out->len;
	int r;

	memcpy(&b, p, sizeof(b));
	to.idx = b.idx;
	to.off = b.part ? b.off : 0;
	to.n = b.part ? b.n : b.len;
	f->whole += to.n;
	r = f->whole > WHOLE_MAX ? NEEDS_FLUSH : 0;
	if (r == 0)
		r = put_record(out, b.part ? REDO_PATCH : REDO_BYTES, ino, &to, sizeof(to), NULL,
			       0);
	if (r == 0)
		r = buf_reserve(out, to.n);
	if (r != 0)
		return r;
	/* Not if its memory is another block's by now. */
	if (!journal_unit_copy(f->o->journal, b.name, to.off, out->data + out->len, to.n))
		return NEEDS_FLUSH;
	out->len += to.n;
	return set_len(out, head, (uint32_t)(sizeof(to) + to.n));
}

static int put_any(struct framing *f, const struct redo_head *h, const uint8_t *p)
{
	switch (h->type) {
	case REDO_BLOCK:
		return h->len == sizeof(struct redo_block) ? put_block(f, h->ino, p) : -EBADMSG;
	case REDO_DONE: /* of a request that nobody will ask for again */
		return 0;
	case REDO_REF: /* only memory keeps its chunk from being collected */
		return NEEDS_FLUSH;
	default:
		return put_record(f->out, h->type, h->ino, p, h->len, NULL, 0);
	}
}

static int spill(struct framing *f)
{
	struct sync_log *l = &f->o->slog;
	int r = 0;

	if (!f->begun) {
		l->any = true; /* also if it fails half way */
		r = store_log_begin(l->log, f->o->layer, l->batches);
		f->begun = r == 0;
	}
	if (r == 0)
		r = store_log_put(l->log, f->out->data, f->out->len);
	buf_clear(f->out);
	return r;
}

static int put_batch(void *arg, const uint8_t *p, size_t n)
{
	struct framing *f = arg;
	size_t at = f->out->len;
	uint32_t len = 0;
	int r = buf_put(f->out, &len, sizeof(len));

	while (r == 0 && n > 0) {
		struct redo_head h;

		if (n < sizeof(h))
			return -EBADMSG;
		memcpy(&h, p, sizeof(h));
		if (h.len > n - sizeof(h))
			return -EBADMSG;
		r = put_any(f, &h, p + sizeof(h));
		p += sizeof(h) + h.len;
		n -= sizeof(h) + h.len;
	}
	if (r != 0)
		return r;
	len = (uint32_t)(f->out->len - at - sizeof(len));
	memcpy(f->out->data + at, &len, sizeof(len));
	return f->out->len >= SPILL ? spill(f) : 0;
}

/* ---- writing ---- */

/* All that was acknowledged since the last frame, of one moment: nobody changes anything meanwhile. What is long goes to the file
 * as it comes: it is in the page cache then, and nobody waits for the disk here. */
static int frame(struct framing *f, uint64_t *ret_end)
{
	const struct redo_frame head = {.version = JOURNAL_VERSION};
	struct ovl *o = f->o;
	int r;

	buf_clear(f->out);
	r = buf_put(f->out, &head, sizeof(head));
	pthread_rwlock_wrlock(&o->freeze);
	if (r == 0 && (o->child || !journal_whole(o->journal)))
		r = NEEDS_FLUSH;
	if (r == 0)
		r = journal_read_from(o->journal, o->slog.at, ret_end, put_batch, f);
	pthread_rwlock_unlock(&o->freeze);
	return r;
}

int synclog_write(struct ovl *o, uint64_t want)
{
	struct sync_log *l = &o->slog;
	struct framing f = {.o = o, .out = &l->buf};
	uint64_t end;
	int r;

	/* What the journal could not take is before no place in it. When LMDB has given the store up, a commit that failed may
	 * have sealed the layer, and nobody would look for frames over it again. */
	if (!l->usable || atomic_load(&l->off) || atomic_load(&o->fl.error) < 0 ||
	    !journal_whole(o->journal) || store_broken(o->store))
		return NEEDS_FLUSH;
	if (l->at >= want)
		return 0; /* went with somebody else's */
	r = frame(&f, &end);
	if (r == 0)
		r = spill(&f);
	if (r == 0)
		r = store_log_end(l->log);
	else if (f.begun)
		store_log_drop(l->log);
	if (l->buf.cap > 4 * SPILL)
		buf_release(&l->buf);
	if (r == 0) {
		l->at = end;
		l->since = true;
	}
	/* Whatever it was, a flush does without the log, and has its own errors. */
	l->usable = r == 0;
	return r == 0 ? 0 : NEEDS_FLUSH;
}

void synclog_flushed(struct ovl *o, uint64_t at)
{
	struct sync_log *l = &o->slog;
	struct store_layer_info li;

	/* A frame that came meanwhile says more than the flush, and all of them stay; one that failed after it has made an end. */
	if (l->since)
		return;
	l->usable = l->log && o->journal && store_layer_get(o->store, o->layer, &li) == 0;
	l->any = false;
	l->at = at;
	l->batches = l->usable ? li.batches : 0;
}

void synclog_failed(struct ovl *o)
{
	o->slog.usable = false;
}

void synclog_layer(struct ovl *o)
{
	o->slog.batches = 0;
}

void synclog_done(struct ovl *o)
{
	if (o->slog.log && !o->slog.any)
		store_log_remove(o->slog.log);
}

/* ---- reading: at open, before there is a second thread ---- */

struct replay {
	struct ovl *o;
	struct redo *x;
	bool any;
};

static int replay_batch(struct replay *p, const uint8_t *b, uint32_t len)
{
	struct iovec iov = {(void *)(uintptr_t)b, len};
	int r = redo_batch(p->x, b, len);

	/* It is acknowledged, and not flushed: so who goes on from this process needs it as well. */
	if (r == 0 && p->o->journal)
		r = journal_append(p->o->journal, JOURNAL_CHANGES, &iov, 1);
	return r;
}

static int replay_frame(void *arg, const uint8_t *p, size_t n)
{
	struct replay *x = arg;
	struct redo_frame head;
	int r = 0;

	if (n < sizeof(head))
		return -EBADMSG;
	memcpy(&head, p, sizeof(head));
	if (head.version < REDO_FRAME_READ || head.version > JOURNAL_VERSION)
		return -EPROTONOSUPPORT;
	p += sizeof(head);
	n -= sizeof(head);
	x->any = true;
	while (r == 0 && n > 0) {
		uint32_t len;

		if (n < sizeof(len))
			return -EBADMSG;
		memcpy(&len, p, sizeof(len));
		if (len > n - sizeof(len))
			return -EBADMSG;
		r = replay_batch(x, p + sizeof(len), len);
		p += sizeof(len) + len;
		n -= sizeof(len) + len;
	}
	return r;
}

int synclog_replay(struct ovl *o, uint64_t batches)
{
	struct replay p = {.o = o};
	int r;

	if (!o->slog.log)
		return 0;
	r = redo_begin(o, &p.x);
	if (r < 0)
		return r;
	r = store_log_read(o->slog.log, o->layer, batches, replay_frame, &p);
	r = redo_end(p.x, r);
	o->slog.any |= p.any;
	if (r == -EPROTONOSUPPORT)
		log_error(
			"what was synced and not flushed when the last rattan-fs died was written "
			"by another version; start that version once");
	else if (r < 0)
		log_error("what was synced and not flushed when the last rattan-fs died cannot be "
			  "applied: %s",
			  err_text(r));
	else if (p.any)
		log_info("what was synced and not flushed when the last rattan-fs died is there");
	return r;
}
