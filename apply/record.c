/* Writing the records of a journal. */
#include <string.h>

#include "apply/record_internal.h"

#include "base/cleanup.h"
#include "base/mp.h"

/* ---- frames ---- */

uint64_t record_sum(const uint8_t *p, size_t n)
{
	uint64_t v = UINT64_C(0xcbf29ce484222325); /* FNV-1a: torn writes, not forgers */

	while (n--)
		v = (v ^ *p++) * UINT64_C(0x100000001b3);
	return v;
}

static void put_be(uint8_t *p, uint64_t v, int n)
{
	while (n--) {
		p[n] = (uint8_t)v;
		v >>= 8;
	}
}

static int begin(struct buf *b, enum record_kind kind, uint32_t n, size_t *ret_at)
{
	static const uint8_t room[HEAD];
	int r;

	*ret_at = b->len;
	r = buf_put(b, room, sizeof(room));
	if (r == 0)
		r = mp_put_array(b, n + 1);
	return r == 0 ? mp_put_uint(b, kind) : r;
}

/* @r: of what was put between. */
static int end(struct buf *b, size_t at, int r)
{
	size_t n = b->len - at - HEAD;

	if (r < 0) {
		b->len = at;
		return r;
	}
	put_be(b->data + at, n, 4);
	put_be(b->data + at + 4, record_sum(b->data + at + HEAD, n), 8);
	return 0;
}

/* ---- writing ---- */

static int put_bytes(struct buf *b, const char *s)
{
	return s ? mp_put_bin(b, s, strlen(s)) : mp_put_nil(b);
}

static int put_time(struct buf *b, const struct timespec *t)
{
	int r = mp_put_int(b, t->tv_sec);

	return r == 0 ? mp_put_uint(b, (uint64_t)t->tv_nsec) : r;
}

static int put_ident(struct buf *b, const struct ident *i)
{
	const uint64_t v[] = {i->mode, i->uid, i->gid, i->dev, i->ino, i->size};
	int r = i->there ? mp_put_array(b, 10) : mp_put_nil(b);

	for (size_t k = 0; i->there && r == 0 && k < ARRAY_SIZE(v); k++)
		r = mp_put_uint(b, v[k]);
	if (r == 0 && i->there)
		r = put_time(b, &i->mtime);
	return r == 0 && i->there ? put_time(b, &i->ctime) : r;
}

static int put_attrs(struct buf *b, const struct attrs *a)
{
	int r = mp_put_array(b, 8);

	if (r == 0)
		r = mp_put_uint(b, a->mode);
	if (r == 0)
		r = mp_put_uint(b, a->uid);
	if (r == 0)
		r = mp_put_uint(b, a->gid);
	if (r == 0)
		r = put_time(b, &a->atime);
	if (r == 0)
		r = put_time(b, &a->mtime);
	if (r == 0)
		r = mp_put_array(b, (uint32_t)(2 * a->nx));
	for (size_t i = 0; r == 0 && i < a->nx; i++) {
		r = put_bytes(b, a->x[i].name);
		if (r == 0)
			r = mp_put_bin(b, a->x[i].value, a->x[i].len);
	}
	return r;
}

int record_head(struct buf *b, const struct trail *t)
{
	size_t at;
	int r = begin(b, REC_HEAD, 9, &at);

	if (r == 0)
		r = mp_put_uint(b, RECORD_VERSION);
	if (r == 0)
		r = put_bytes(b, t->env);
	if (r == 0)
		r = put_bytes(b, t->root);
	if (r == 0)
		r = mp_put_uint(b, t->root_dev);
	if (r == 0)
		r = mp_put_uint(b, t->root_ino);
	if (r == 0)
		r = mp_put_uint(b, t->back);
	if (r == 0)
		r = put_time(b, &t->time);
	if (r == 0)
		r = put_bytes(b, t->stage);
	return end(b, at, r);
}

int record_step(struct buf *b, const struct step *s)
{
	size_t at;
	int r = begin(b, REC_STEP, 10, &at);

	if (r == 0)
		r = mp_put_uint(b, s->op);
	if (r == 0)
		r = put_bytes(b, s->path);
	if (r == 0)
		r = put_bytes(b, s->place);
	if (r == 0)
		r = mp_put_uint(b, s->slot);
	if (r == 0)
		r = mp_put_bool(b, s->moved);
	if (r == 0)
		r = mp_put_bool(b, s->forced);
	if (r == 0)
		r = mp_put_uint(b, s->what);
	if (r == 0)
		r = put_ident(b, &s->was);
	if (r == 0)
		r = put_attrs(b, &s->old);
	if (r == 0)
		r = put_attrs(b, &s->new);
	return end(b, at, r);
}

int record_staged(struct buf *b, size_t i, const struct step *s)
{
	size_t at;
	int r = begin(b, REC_STAGED, 3, &at);

	if (r == 0)
		r = mp_put_uint(b, i);
	if (r == 0)
		r = put_ident(b, &s->now);
	if (r == 0)
		r = put_attrs(b, &s->new);
	return end(b, at, r);
}

int record_after(struct buf *b, const struct after *a)
{
	size_t at;
	int r = begin(b, REC_AFTER, 2, &at);

	if (r == 0)
		r = put_bytes(b, a->path);
	if (r == 0)
		r = put_ident(b, &a->id);
	return end(b, at, r);
}

int record_done(struct buf *b, const struct timespec *t)
{
	size_t at;
	int r = begin(b, REC_DONE, 2, &at);

	if (r == 0)
		r = put_time(b, t);
	return end(b, at, r);
}

int record_mark(struct buf *b, enum trail_state state)
{
	size_t at;
	int r = begin(b, REC_MARK, 1, &at);

	if (r == 0)
		r = mp_put_uint(b, state);
	return end(b, at, r);
}
