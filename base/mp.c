#include "base/mp.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static int append(void *data, const char *p, size_t n)
{
	return buf_put(data, p, n);
}

/* msgpack-c always picks the shortest form, which is what makes the bytes canonical. */
static msgpack_packer packer(struct buf *b)
{
	return (msgpack_packer){.data = b, .callback = append};
}

int mp_put_nil(struct buf *b)
{
	msgpack_packer pk = packer(b);

	return msgpack_pack_nil(&pk);
}

int mp_put_bool(struct buf *b, bool v)
{
	msgpack_packer pk = packer(b);

	return v ? msgpack_pack_true(&pk) : msgpack_pack_false(&pk);
}

int mp_put_uint(struct buf *b, uint64_t v)
{
	msgpack_packer pk = packer(b);

	return msgpack_pack_uint64(&pk, v);
}

int mp_put_int(struct buf *b, int64_t v)
{
	msgpack_packer pk = packer(b);

	return v < 0 ? msgpack_pack_int64(&pk, v) : msgpack_pack_uint64(&pk, (uint64_t)v);
}

/* A header and its body, or neither. */
static int put_body(struct buf *b, int (*header)(msgpack_packer *, size_t), const void *p, size_t n)
{
	msgpack_packer pk = packer(b);
	size_t start = b->len;
	int r;

	if (n > UINT32_MAX)
		return -E2BIG;
	r = header(&pk, n);
	if (r == 0)
		r = buf_put(b, p, n);
	if (r < 0 && b->data) {
		b->len = start;
		b->data[start] = 0;
	}
	return r;
}

int mp_put_str(struct buf *b, const char *s, size_t n)
{
	return put_body(b, msgpack_pack_str, s, n);
}

int mp_put_cstr(struct buf *b, const char *s)
{
	return s ? mp_put_str(b, s, strlen(s)) : mp_put_nil(b);
}

int mp_put_bin(struct buf *b, const void *p, size_t n)
{
	return put_body(b, msgpack_pack_bin, p, n);
}

int mp_put_array(struct buf *b, uint32_t n)
{
	msgpack_packer pk = packer(b);

	return msgpack_pack_array(&pk, n);
}

int mp_put_map(struct buf *b, uint32_t n)
{
	msgpack_packer pk = packer(b);

	return msgpack_pack_map(&pk, n);
}

/* ---- reading ---- */

/*
 * msgpack-c allocates what an array header promises before it has seen the elements, so five bytes
 * could ask for 100 GiB. The bytes are therefore walked once beforehand, without allocating: every
 * count must fit what is left, and nesting and the number of objects have limits.
 */
struct scan {
	const uint8_t *p;
	size_t left;
	uint32_t items;
};

static int scan_take(struct scan *s, size_t n)
{
	if (n > s->left)
		return -EBADMSG;
	s->p += n;
	s->left -= n;
	return 0;
}

/* A big-endian number of @n bytes. */
static int scan_be(struct scan *s, size_t n, uint64_t *ret)
{
	const uint8_t *p = s->p;
	uint64_t v = 0;
	int r = scan_take(s, n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		v = v << 8 | p[i];
	*ret = v;
	return 0;
}

/* Step over one object's head and its own bytes; *@ret_inner is how many objects it contains. */
static int scan_head(struct scan *s, uint64_t *ret_inner)
{
	uint64_t c, n = 0;
	int r = scan_be(s, 1, &c);

	*ret_inner = 0;
	if (r < 0)
		return r;
	if (c <= 0x7f || c >= 0xe0) /* small integers */
		return 0;
	if (c <= 0x8f || c == 0xde || c == 0xdf) { /* maps */
		n = c & 15;
		r = c <= 0x8f ? 0 : scan_be(s, c == 0xde ? 2 : 4, &n);
		*ret_inner = n * 2;
		return r;
	}
	if (c <= 0x9f || c == 0xdc || c == 0xdd) { /* arrays */
		n = c & 15;
		r = c <= 0x9f ? 0 : scan_be(s, c == 0xdc ? 2 : 4, &n);
		*ret_inner = n;
		return r;
	}
	if (c <= 0xbf) /* short strings */
		return scan_take(s, c & 31);
	if (c >= 0xc4 && c <= 0xc6) /* bin */
		r = scan_be(s, (size_t)1 << (c - 0xc4), &n);
	else if (c >= 0xd9 && c <= 0xdb) /* str */
		r = scan_be(s, (size_t)1 << (c - 0xd9), &n);
	else if (c == 0xca || c == 0xcb) /* float, double */
		n = c == 0xca ? 4 : 8;
	else if (c >= 0xcc && c <= 0xd3) /* uint, int of 1, 2, 4, 8 bytes */
		n = (uint64_t)1 << (c & 3);
	else if (c != 0xc0 && c != 0xc2 && c != 0xc3) /* nil and bool; extensions are refused */
		r = -EBADMSG;
	return r < 0 ? r : scan_take(s, n);
}

static int scan_doc(const void *p, size_t n)
{
	struct scan s = {.p = p, .left = n};
	uint64_t open[MP_MAX_DEPTH + 1] = {1}; /* objects still to come at each level */
	int depth = 0;

	while (depth >= 0) {
		uint64_t inner;
		int r;

		if (open[depth] == 0) {
			depth--;
			continue;
		}
		open[depth]--;
		if (++s.items > MP_MAX_ITEMS)
			return -EBADMSG;
		r = scan_head(&s, &inner);
		if (r < 0)
			return r;
		if (inner > s.left) /* each object takes a byte at least */
			return -EBADMSG;
		if (inner && ++depth > MP_MAX_DEPTH)
			return -EBADMSG;
		if (inner)
			open[depth] = inner;
	}
	return s.left ? -EBADMSG : 0;
}

int mp_parse(const void *p, size_t n, struct mp_doc *ret)
{
	struct mp_doc d = {.live = true};
	size_t off = 0;
	msgpack_unpack_return u;
	int r;

	if (n == 0 || n > MP_MAX_BYTES)
		return -EBADMSG;
	r = scan_doc(p, n);
	if (r < 0)
		return r;
	if (!msgpack_zone_init(&d.zone, 1024))
		return -ENOMEM;
	u = msgpack_unpack(p, n, &off, &d.zone, &d.root);
	if (u != MSGPACK_UNPACK_SUCCESS || off != n) {
		msgpack_zone_destroy(&d.zone);
		return u == MSGPACK_UNPACK_NOMEM_ERROR ? -ENOMEM : -EBADMSG;
	}
	*ret = d;
	return 0;
}

void mp_release(struct mp_doc *d)
{
	if (d->live)
		msgpack_zone_destroy(&d->zone);
	d->live = false;
}

const msgpack_object *mp_get(const msgpack_object *o, const char *key)
{
	size_t n = strlen(key);

	if (!o || o->type != MSGPACK_OBJECT_MAP)
		return NULL;
	for (uint32_t i = 0; i < o->via.map.size; i++) {
		const msgpack_object_kv *kv = &o->via.map.ptr[i];

		if (kv->key.type == MSGPACK_OBJECT_STR && kv->key.via.str.size == n &&
		    !memcmp(kv->key.via.str.ptr, key, n))
			return &kv->val;
	}
	return NULL;
}

/* -ENOENT for a missing object, -EBADMSG for one that is not of type @t. */
static int want(const msgpack_object *o, msgpack_object_type t)
{
	if (!o)
		return -ENOENT;
	return o->type == t ? 0 : -EBADMSG;
}

int mp_as_uint(const msgpack_object *o, uint64_t max, uint64_t *ret)
{
	int r = want(o, MSGPACK_OBJECT_POSITIVE_INTEGER);

	if (r < 0)
		return r;
	if (o->via.u64 > max)
		return -EBADMSG;
	*ret = o->via.u64;
	return 0;
}

int mp_as_int(const msgpack_object *o, int64_t *ret)
{
	uint64_t u;
	int r;

	if (o && o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) {
		*ret = o->via.i64;
		return 0;
	}
	r = mp_as_uint(o, INT64_MAX, &u);
	if (r == 0)
		*ret = (int64_t)u;
	return r;
}

int mp_as_bool(const msgpack_object *o, bool *ret)
{
	int r = want(o, MSGPACK_OBJECT_BOOLEAN);

	if (r == 0)
		*ret = o->via.boolean;
	return r;
}

int mp_as_str(const msgpack_object *o, const char **ret, size_t *ret_len)
{
	int r = want(o, MSGPACK_OBJECT_STR);

	if (r < 0)
		return r;
	*ret = o->via.str.ptr;
	*ret_len = o->via.str.size;
	return 0;
}

int mp_as_bin(const msgpack_object *o, const void **ret, size_t *ret_len)
{
	int r = want(o, MSGPACK_OBJECT_BIN);

	if (r < 0)
		return r;
	*ret = o->via.bin.ptr;
	*ret_len = o->via.bin.size;
	return 0;
}

int mp_dup_str(const msgpack_object *o, char **ret)
{
	const char *s;
	size_t n;
	char *copy;
	int r = mp_as_str(o, &s, &n);

	if (r < 0)
		return r;
	if (n && memchr(s, 0, n))
		return -EBADMSG;
	copy = malloc(n + 1);
	if (!copy)
		return -ENOMEM;
	if (n)
		memcpy(copy, s, n);
	copy[n] = 0;
	*ret = copy;
	return 0;
}
