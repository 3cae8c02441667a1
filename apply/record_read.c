/* Reading the records of a journal: the members of an array, one after another; the first error stays. */
#include <stdlib.h>
#include <string.h>

#include "apply/record_internal.h"
#include "base/cleanup.h"
#include "base/mp.h"

static uint64_t get_be(const uint8_t *p, int n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | *p++;
	return v;
}

struct reader {
	const msgpack_object *p, *end;
	int r;
};

static const msgpack_object *next(struct reader *x)
{
	if (x->r == 0 && x->p == x->end)
		x->r = -EBADMSG;
	return x->r == 0 ? x->p++ : NULL;
}

static uint64_t get_uint(struct reader *x, uint64_t max)
{
	const msgpack_object *o = next(x);
	uint64_t v = 0;

	if (o)
		x->r = mp_as_uint(o, max, &v);
	return x->r == 0 ? v : 0;
}

static bool get_bool(struct reader *x)
{
	const msgpack_object *o = next(x);
	bool v = false;

	if (o)
		x->r = mp_as_bool(o, &v);
	return x->r == 0 && v;
}

/* NULL for nil. */
static char *get_bytes(struct reader *x)
{
	const msgpack_object *o = next(x);
	const void *p;
	size_t n;
	char *s;

	if (!o || o->type == MSGPACK_OBJECT_NIL)
		return NULL;
	x->r = mp_as_bin(o, &p, &n);
	if (x->r == 0 && memchr(p, 0, n))
		x->r = -EBADMSG;
	s = x->r == 0 ? malloc(n + 1) : NULL;
	if (x->r == 0 && !s)
		x->r = -ENOMEM;
	if (!s)
		return NULL;
	memcpy(s, p, n);
	s[n] = '\0';
	return s;
}

static struct timespec get_time(struct reader *x)
{
	const msgpack_object *o = next(x);
	struct timespec t = {0};
	int64_t sec = 0;

	if (o)
		x->r = mp_as_int(o, &sec);
	t.tv_sec = sec;
	t.tv_nsec = (long)get_uint(x, 999999999);
	return t;
}

static struct reader inner(struct reader *x)
{
	const msgpack_object *o = next(x);

	if (o && o->type != MSGPACK_OBJECT_ARRAY)
		x->r = -EBADMSG;
	if (!o || x->r < 0)
		return (struct reader){.r = x->r ? x->r : -EBADMSG};
	return (struct reader){.p = o->via.array.ptr, .end = o->via.array.ptr + o->via.array.size};
}

static void leave(struct reader *x, const struct reader *in)
{
	if (x->r == 0)
		x->r = in->r ? in->r : in->p != in->end ? -EBADMSG : 0;
}

static void get_ident(struct reader *x, struct ident *ret)
{
	struct reader in;

	*ret = (struct ident){0};
	if (x->r == 0 && x->p < x->end && x->p->type == MSGPACK_OBJECT_NIL) {
		x->p++;
		return;
	}
	in = inner(x);
	ret->there = true;
	ret->mode = (uint32_t)get_uint(&in, UINT32_MAX);
	ret->uid = (uint32_t)get_uint(&in, UINT32_MAX);
	ret->gid = (uint32_t)get_uint(&in, UINT32_MAX);
	ret->dev = get_uint(&in, UINT64_MAX);
	ret->ino = get_uint(&in, UINT64_MAX);
	ret->size = get_uint(&in, UINT64_MAX);
	ret->mtime = get_time(&in);
	ret->ctime = get_time(&in);
	leave(x, &in);
}

static void get_xattr(struct reader *in, struct attr_x *ret)
{
	const msgpack_object *o;
	const void *p;

	ret->name = get_bytes(in);
	if (in->r == 0 && !ret->name)
		in->r = -EBADMSG;
	o = next(in);
	if (o)
		in->r = mp_as_bin(o, &p, &ret->len);
	if (in->r < 0)
		return;
	ret->value = malloc(ret->len ? ret->len : 1);
	if (ret->value)
		memcpy(ret->value, p, ret->len);
	else
		in->r = -ENOMEM;
}

static void get_attrs(struct reader *x, struct attrs *ret)
{
	struct reader in = inner(x), list;
	size_t n;

	attrs_release(ret);
	ret->mode = (uint32_t)get_uint(&in, UINT32_MAX);
	ret->uid = (uint32_t)get_uint(&in, UINT32_MAX);
	ret->gid = (uint32_t)get_uint(&in, UINT32_MAX);
	ret->atime = get_time(&in);
	ret->mtime = get_time(&in);
	list = inner(&in);
	n = list.r == 0 && list.p ? (size_t)(list.end - list.p) : 0;
	if (n % 2)
		list.r = -EBADMSG;
	if (n && list.r == 0) {
		ret->x = calloc(n / 2, sizeof(*ret->x));
		if (!ret->x)
			list.r = -ENOMEM;
	}
	while (list.r == 0 && ret->nx < n / 2)
		get_xattr(&list, &ret->x[ret->nx++]);
	leave(&in, &list);
	leave(x, &in);
}

static void read_head(struct reader *x, struct trail *t)
{
	cleanup_free char *stage = NULL;

	if (get_uint(x, RECORD_VERSION) != RECORD_VERSION && x->r == 0)
		x->r = -EBADMSG;
	if (t->env || t->root) {
		x->r = -EBADMSG;
		return;
	}
	t->env = get_bytes(x);
	t->root = get_bytes(x);
	t->root_dev = get_uint(x, UINT64_MAX);
	t->root_ino = get_uint(x, UINT64_MAX);
	t->back = get_uint(x, UINT64_MAX);
	t->time = get_time(x);
	stage = get_bytes(x);
	if (x->r == 0 && (!t->env || !t->root || !stage || strlen(stage) >= sizeof(t->stage) ||
			  strncmp(stage, ".rattan-apply-", 14) || strchr(stage, '/')))
		x->r = -EBADMSG;
	if (x->r == 0)
		memcpy(t->stage, stage, strlen(stage) + 1);
}

static void read_step(struct reader *x, struct trail *t)
{
	struct step *s = steps_add(&t->steps, STEP_OUT, NULL, NULL);

	if (!s) {
		x->r = -ENOMEM;
		return;
	}
	s->op = (enum step_op)get_uint(x, STEP_DIR);
	s->path = get_bytes(x);
	s->place = get_bytes(x);
	s->slot = (uint32_t)get_uint(x, UINT32_MAX);
	s->moved = get_bool(x);
	s->forced = get_bool(x);
	s->what = (uint32_t)get_uint(x, ATTRS_ALL);
	get_ident(x, &s->was);
	get_attrs(x, &s->old);
	get_attrs(x, &s->new);
	if (x->r == 0 && ((s->op == STEP_OUT && !s->place) || (s->op == STEP_IN && !s->path) ||
			  (s->op == STEP_SWAP && (!s->path || !s->place)) ||
			  (s->op == STEP_ATTR && (!s->path || !s->place)) || !s->op))
		x->r = -EBADMSG;
}

static void read_staged(struct reader *x, struct trail *t)
{
	uint64_t i = get_uint(x, t->steps.n ? t->steps.n - 1 : 0);

	if (!t->steps.n) {
		x->r = -EBADMSG;
		return;
	}
	get_ident(x, &t->steps.v[i].now);
	get_attrs(x, &t->steps.v[i].new);
}

static void read_after(struct reader *x, struct trail *t)
{
	cleanup_free char *path = get_bytes(x);
	struct ident id;

	get_ident(x, &id);
	if (x->r == 0)
		x->r = path ? trail_after_add(t, path, &id) : -EBADMSG;
}

static void read_mark(struct reader *x, struct trail *t)
{
	uint64_t state = get_uint(x, TRAIL_CLEAN);

	if (state == TRAIL_CLEAN)
		t->clean = true;
	else
		t->state = (enum trail_state)state;
}

static int read_one(struct reader *x, struct trail *t)
{
	uint64_t kind = get_uint(x, REC_MARK);

	switch (kind) {
	case REC_HEAD:
		read_head(x, t);
		break;
	case REC_STEP:
		read_step(x, t);
		break;
	case REC_STAGED:
		read_staged(x, t);
		break;
	case REC_AFTER:
		read_after(x, t);
		break;
	case REC_DONE:
		t->done_at = get_time(x);
		t->state = TRAIL_DONE;
		break;
	case REC_MARK:
		read_mark(x, t);
		break;
	default:
		return -EBADMSG;
	}
	return x->r ? x->r : x->p != x->end ? -EBADMSG : 0;
}

int record_read(const struct buf *b, size_t *at, struct trail *t)
{
	struct mp_doc d = {0};
	struct reader x = {0};
	const uint8_t *p;
	size_t n;
	int r;

	if (b->len - *at < HEAD)
		return 0;
	p = b->data + *at;
	n = get_be(p, 4);
	if (n > b->len - *at - HEAD || get_be(p + 4, 8) != record_sum(p + HEAD, n))
		return 0;
	r = mp_parse(p + HEAD, n, &d);
	if (r == 0 && d.root.type != MSGPACK_OBJECT_ARRAY)
		r = -EBADMSG;
	if (r == 0) {
		x.p = d.root.via.array.ptr;
		x.end = x.p + d.root.via.array.size;
		r = read_one(&x, t);
	}
	mp_release(&d);
	if (r < 0)
		return r;
	*at += HEAD + n;
	return 1;
}
