/* The other end of content_log.c: what a journal says of one content, applied over the last flush or a later
 * one. Alone: nobody else uses the content yet. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/core/content_internal.h"
#include "fs/core/journal.h"
#include "fs/core/redo.h"

/* A unit is one blk however many records name it: files may share it. */
struct redo_unit {
	struct table_link link;
	uint64_t name;
	struct blk *b;
};

void content_redo_release(struct content_redo *u)
{
	for (size_t i = 0; i < u->units.nslots; i++) {
		for (struct table_link *l = u->units.slots[i], *next; l; l = next) {
			struct redo_unit *x = (struct redo_unit *)l;

			next = l->next;
			blk_unref(x->b);
			free(x);
		}
	}
	table_release(&u->units);
}

static struct redo_unit *unit_find(struct content_redo *u, uint64_t name)
{
	struct table_link *l = table_find(&u->units, table_hash_u64(name));

	for (; l; l = table_next(l))
		if (((struct redo_unit *)l)->name == name)
			return (struct redo_unit *)l;
	return NULL;
}

/* -ENOENT: the unit has been used for something else since, so that a later record says what is there. */
static int unit_blk(struct content_redo *u, struct content_env *e, const struct redo_block *r,
		    struct blk **ret)
{
	struct redo_unit *x = unit_find(u, r->name);
	uint8_t *p;
	int k;

	if (r->len > BLOCK)
		return -EBADMSG;
	if (!x) {
		k = journal_unit_adopt(e->journal, r->name, &p);
		if (k < 0)
			return k;
		x = calloc(1, sizeof(*x));
		if (!x)
			return -ENOMEM;
		x->name = r->name;
		k = blk_new_unit(e, p, &x->b);
		if (k == 0)
			k = table_add(&u->units, &x->link, table_hash_u64(r->name));
		if (k < 0) {
			blk_unref(x->b);
			free(x);
			return k;
		}
	}
	x->b->len = r->len;
	*ret = blk_ref(x->b);
	return 0;
}

static int set(struct content *c, uint64_t idx, struct blk *b)
{
	int r = blkmap_set(&c->map, idx, b);

	if (r < 0)
		blk_unref(b);
	content_touch_locked(c);
	return r;
}

static int redo_hole(struct content *c, uint64_t idx)
{
	struct blk *b;
	int r = blk_new_hole(c->env, &b);

	return r < 0 ? r : set(c, idx, b);
}

static int redo_block(struct content *c, struct content_redo *u, const void *p)
{
	struct redo_block r;
	struct blk *b;
	int k;

	memcpy(&r, p, sizeof(r));
	k = unit_blk(u, c->env, &r, &b);
	if (k == -ENOENT)
		return redo_hole(c, r.idx);
	return k < 0 ? k : set(c, r.idx, b);
}

static int redo_bytes(struct content *c, const uint8_t *p, size_t len)
{
	struct redo_bytes r;
	struct blk *b;
	int k;

	memcpy(&r, p, sizeof(r));
	if (r.n != len - sizeof(r) || r.n > BLOCK)
		return -EBADMSG;
	k = blk_new_data(c->env, r.n, &b);
	if (k < 0)
		return k;
	blk_put(b, 0, p + sizeof(r), r.n);
	return set(c, r.idx, b);
}

/* Over what is there: a block that an earlier record gave, or what the store says. */
static int redo_patch(struct content *c, const uint8_t *p, size_t len)
{
	struct redo_bytes r;

	memcpy(&r, p, sizeof(r));
	if (r.n != len - sizeof(r) || r.n > BLOCK || r.off > BLOCK - r.n)
		return -EBADMSG;
	return content_write_block(c, r.idx, r.off, p + sizeof(r), r.n);
}

static int redo_ref(struct content *c, const void *p)
{
	struct redo_ref r;
	struct blk *b;
	int k;

	memcpy(&r, p, sizeof(r));
	if (r.len > BLOCK)
		return -EBADMSG;
	k = blk_new_held(c->env, &r.digest, r.len, &b);
	return k < 0 ? k : set(c, r.idx, b);
}

static int redo_cut(struct content *c, uint64_t first)
{
	uint64_t idx;

	while (blkmap_next(&c->map, first, &idx))
		blkmap_del(&c->map, idx);
	if (c->cut > first)
		c->cut = first;
	if (c->cut_new > first)
		c->cut_new = first;
	content_touch_locked(c);
	return 0;
}

static int redo_shape(struct content *c, const void *p)
{
	struct redo_shape s;

	memcpy(&s, p, sizeof(s));
	if (s.size > CONTENT_MAX_SIZE || s.valid > CONTENT_MAX_SIZE || s.host_nsec > 999999999)
		return -EBADMSG;
	atomic_store(&c->size, s.size);
	c->valid = c->rel ? s.valid : 0;
	c->reserved = s.reserved;
	c->reserve_end = s.reserve_end;
	c->data_units = s.data_units;
	c->pristine = c->rel && s.pristine;
	c->host_id = (struct hostsrc_id){
		.dev = s.host_dev,
		.ino = s.host_ino,
		.size = s.host_size,
		.mtime = {.tv_sec = s.host_sec, .tv_nsec = s.host_nsec},
	};
	content_account_locked(c);
	content_touch_locked(c);
	return s.size <= BLOCK ? content_make_whole(c, 0) : 0;
}

int content_redo(struct content *c, struct content_redo *u, uint32_t type, const uint8_t *p,
		 size_t len)
{
	static const size_t least[] = {
		[REDO_BLOCK] = sizeof(struct redo_block), [REDO_BYTES] = sizeof(struct redo_bytes),
		[REDO_PATCH] = sizeof(struct redo_bytes), [REDO_REF] = sizeof(struct redo_ref),
		[REDO_HOLE] = sizeof(uint64_t),           [REDO_CUT] = sizeof(uint64_t),
		[REDO_SHAPE] = sizeof(struct redo_shape),
	};
	uint64_t n;

	if (type >= ARRAY_SIZE(least) || !least[type] || len < least[type])
		return -EBADMSG;
	memcpy(&n, p, sizeof(n));
	/* What is beyond the largest file is no block of it. */
	if (type != REDO_SHAPE && type != REDO_CUT && n > CONTENT_MAX_SIZE / BLOCK)
		return -EBADMSG;
	switch (type) {
	case REDO_BLOCK:
		return redo_block(c, u, p);
	case REDO_BYTES:
		return redo_bytes(c, p, len);
	case REDO_PATCH:
		return redo_patch(c, p, len);
	case REDO_REF:
		return redo_ref(c, p);
	case REDO_HOLE:
		return redo_hole(c, n);
	case REDO_CUT:
		return redo_cut(c, n);
	default:
		return redo_shape(c, p);
	}
}
