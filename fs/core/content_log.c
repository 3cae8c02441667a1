/* What a change of a content's bytes leaves behind, for the journal: one batch an operation, appended under
 * content.change, so that batches of one content are in the order of their effects. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/core/content_internal.h"
#include "fs/core/journal.h"
#include "fs/core/redo.h"

/* Bytes that are not copied into the heads: they go in front of heads.data[at]. */
struct log_piece {
	size_t at, n;
	const void *p;
};

void content_log_begin(struct content *c, struct content_log *l, bool steady)
{
	*l = (struct content_log){.steady = steady};
	c->log = c->env->journal ? l : NULL;
}

static void put_piece(struct content_log *l, const void *p, size_t n)
{
	if (l->npieces == l->pieces_cap) {
		size_t cap = l->pieces_cap ? l->pieces_cap * 2 : 8;
		struct log_piece *more = realloc(l->pieces, cap * sizeof(*more));

		if (!more) {
			l->failed = true;
			return;
		}
		l->pieces = more;
		l->pieces_cap = cap;
	}
	l->pieces[l->npieces++] = (struct log_piece){.at = l->heads.len, .n = n, .p = p};
}

static void put(struct content *c, enum redo_type type, const void *body, size_t len,
		const void *more, size_t n)
{
	struct content_log *l = c->log;
	struct redo_head h = {.type = type, .len = (uint32_t)(len + n), .ino = c->ino};

	if (buf_put(&l->heads, &h, sizeof(h)) < 0 || buf_put(&l->heads, body, len) < 0)
		l->failed = true;
	if (n && l->steady)
		put_piece(l, more, n);
	else if (n && buf_put(&l->heads, more, n) < 0)
		l->failed = true;
}

static bool in_journal(const struct content *c, const struct blk *b)
{
	return b->cap == BLOCK && journal_owns(c->env->journal, b->data);
}

static void log_unit(struct content *c, uint64_t idx, const struct blk *b, bool part, size_t off,
		     size_t n)
{
	struct redo_block r = {.idx = idx,
			       .name = journal_unit_name(c->env->journal, b->data),
			       .len = b->len,
			       .part = part,
			       .off = (uint32_t)off,
			       .n = (uint32_t)n};

	put(c, REDO_BLOCK, &r, sizeof(r), NULL, 0);
}

void content_log_block(struct content *c, uint64_t idx, const struct blk *b)
{
	struct redo_bytes bytes = {.idx = idx, .n = b->len};
	struct redo_ref ref = {.idx = idx, .len = b->len, .digest = b->digest};

	if (!c->log)
		return;
	switch (b->kind) {
	case BLK_DATA:
		if (in_journal(c, b))
			log_unit(c, idx, b, false, 0, b->len);
		else
			put(c, REDO_BYTES, &bytes, sizeof(bytes), b->data, b->len);
		break;
	case BLK_REF:
		put(c, REDO_REF, &ref, sizeof(ref), NULL, 0);
		break;
	case BLK_HOLE:
		content_log_hole(c, idx);
		break;
	case BLK_PART: /* what was put is told by whoever does */
		break;
	}
}

void content_log_patch(struct content *c, uint64_t idx, const struct blk *b, size_t off,
		       const void *p, size_t n)
{
	struct redo_bytes r = {.idx = idx, .off = (uint32_t)off, .n = (uint32_t)n};

	if (!c->log)
		return;
	if (in_journal(c, b))
		log_unit(c, idx, b, true, off, n);
	else
		put(c, REDO_PATCH, &r, sizeof(r), p, n);
}

void content_log_hole(struct content *c, uint64_t idx)
{
	if (c->log)
		put(c, REDO_HOLE, &idx, sizeof(idx), NULL, 0);
}

void content_log_cut(struct content *c, uint64_t first)
{
	if (c->log)
		put(c, REDO_CUT, &first, sizeof(first), NULL, 0);
}

void content_log_hold(struct content *c, struct blk *b)
{
	struct content_log *l = c->log;

	if (!l || !b || b->kind != BLK_DATA)
		return;
	if (l->nheld == l->held_cap) {
		size_t cap = l->held_cap ? l->held_cap * 2 : 8;
		struct blk **more = realloc(l->held, cap * sizeof(*more));

		if (!more)
			return; /* only who is killed this very moment could miss it */
		l->held = more;
		l->held_cap = cap;
	}
	l->held[l->nheld++] = blk_ref(b);
}

static void log_shape(struct content *c)
{
	struct redo_shape s;

	pthread_rwlock_rdlock(&c->lock);
	s = (struct redo_shape){
		.size = atomic_load(&c->size),
		.valid = c->valid,
		.reserved = c->reserved,
		.reserve_end = c->reserve_end,
		.data_units = c->data_units,
		.host_dev = c->host_id.dev,
		.host_ino = c->host_id.ino,
		.host_size = c->host_id.size,
		.host_sec = c->host_id.mtime.tv_sec,
		.host_nsec = (uint32_t)c->host_id.mtime.tv_nsec,
		.pristine = c->pristine,
	};
	pthread_rwlock_unlock(&c->lock);
	put(c, REDO_SHAPE, &s, sizeof(s), NULL, 0);
}

static int append(struct content *c, struct content_log *l)
{
	struct iovec few[16], *iov = few;
	size_t n = 0, at = 0;
	int r;

	if (2 * l->npieces + 1 > ARRAY_SIZE(few)) {
		iov = calloc(2 * l->npieces + 1, sizeof(*iov));
		if (!iov)
			return -ENOMEM;
	}
	for (size_t i = 0; i < l->npieces; i++) {
		const struct log_piece *p = &l->pieces[i];

		iov[n++] = (struct iovec){l->heads.data + at, p->at - at};
		iov[n++] = (struct iovec){(void *)(uintptr_t)p->p, p->n};
		at = p->at;
	}
	iov[n++] = (struct iovec){l->heads.data + at, l->heads.len - at};
	r = journal_append(c->env->journal, JOURNAL_CHANGES, iov, n);
	if (iov != few)
		free(iov);
	return r;
}

void content_log_end(struct content *c)
{
	struct content_log *l = c->log;

	if (!l)
		return;
	log_shape(c);
	if (l->failed || append(c, l) < 0)
		journal_break(c->env->journal);
	for (size_t i = 0; i < l->nheld; i++)
		blk_unref(l->held[i]);
	free(l->held);
	free(l->pieces);
	buf_release(&l->heads);
	c->log = NULL;
}
