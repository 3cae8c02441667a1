#include "store/record.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/mp.h"

#define REC_VERSION      1
#define REC_FIELDS       23
#define REC_MAX_TARGET   4095
#define ORIGIN_FIELDS    9
#define ORIGIN_ALL_FLAGS (REC_ORIGIN_PUBLIC | REC_ORIGIN_STABLE)

void rec_inode_release(struct rec_inode *r)
{
	free(r->name);
	free(r->target);
	for (size_t i = 0; i < r->nxattrs; i++) {
		free(r->xattrs[i].name);
		free(r->xattrs[i].value);
	}
	free(r->xattrs);
	free(r->data);
	free(r->origin.root);
	free(r->origin.rel);
	memset(r, 0, sizeof(*r));
}

/* ---- copying ---- */

/* @n bytes and a NUL. NULL stays NULL. */
static int dup_bytes(void *ret, const void *p, size_t n)
{
	char *copy = NULL;

	if (p) {
		copy = malloc(n + 1);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, p, n);
		copy[n] = 0;
	}
	memcpy(ret, &copy, sizeof(copy));
	return 0;
}

static int dup_cstr(char **ret, const char *s)
{
	return dup_bytes(ret, s, s ? strlen(s) : 0);
}

/* Room for @n attributes, none of them there yet. */
static int xattrs_alloc(struct rec_inode *r, size_t n)
{
	r->xattrs = n ? calloc(n, sizeof(*r->xattrs)) : NULL;
	r->nxattrs = 0;
	return n && !r->xattrs ? -ENOMEM : 0;
}

static int xattr_add(struct rec_inode *r, const char *name, size_t name_len, const void *value,
		     size_t len)
{
	struct rec_xattr *x = &r->xattrs[r->nxattrs++];
	int e = dup_bytes(&x->name, name, name_len);

	if (e == 0)
		e = dup_bytes(&x->value, value ? value : "", len);
	x->len = len;
	return e;
}

int rec_inode_copy(struct rec_inode *dst, const struct rec_inode *src)
{
	struct rec_inode d = *src;
	int e;

	d.name = d.target = d.origin.root = d.origin.rel = NULL;
	d.data = NULL;
	e = xattrs_alloc(&d, src->nxattrs);
	for (size_t i = 0; e == 0 && i < src->nxattrs; i++) {
		const struct rec_xattr *x = &src->xattrs[i];

		e = xattr_add(&d, x->name, strlen(x->name), x->value, x->len);
	}
	if (e == 0)
		e = dup_bytes(&d.name, src->name, src->name_len);
	if (e == 0)
		e = dup_cstr(&d.target, src->target);
	if (e == 0)
		e = dup_bytes(&d.data, src->data, src->data_len);
	if (e == 0)
		e = dup_cstr(&d.origin.root, src->origin.root);
	if (e == 0)
		e = dup_cstr(&d.origin.rel, src->origin.rel);
	if (e < 0) {
		rec_inode_release(&d);
		return e;
	}
	*dst = d;
	return 0;
}

/* ---- what is a valid record: the same for writing and for reading ---- */

static bool mode_ok(const struct rec_inode *r)
{
	switch (r->mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
	case S_IFIFO:
	case S_IFSOCK:
	case S_IFCHR:
	case S_IFBLK:
		return (r->mode & ~(uint32_t)(S_IFMT | 07777)) == 0;
	default:
		return false;
	}
}

static bool time_ok(const struct timespec *t)
{
	return t->tv_nsec >= 0 && t->tv_nsec < 1000000000;
}

static bool name_ok(const char *s, size_t n)
{
	return n <= STORE_NAME_MAX && (n == 0 || (s && !memchr(s, 0, n) && !memchr(s, '/', n)));
}

static bool xattrs_ok(const struct rec_inode *r)
{
	if (r->nxattrs > REC_MAX_XATTRS)
		return false;
	for (size_t i = 0; i < r->nxattrs; i++) {
		const struct rec_xattr *x = &r->xattrs[i];
		size_t n = x->name ? strlen(x->name) : 0;

		if (n == 0 || n > STORE_NAME_MAX || x->len > REC_XATTR_MAX)
			return false;
		if (i && strcmp(r->xattrs[i - 1].name, x->name) >= 0)
			return false;
	}
	return true;
}

static bool content_ok(const struct rec_inode *r)
{
	if (r->content != REC_EMPTY && !S_ISREG(r->mode))
		return false;
	switch (r->content) {
	case REC_EMPTY:
	case REC_EXTENTS:
		return true;
	case REC_INLINE:
		return r->data_len > 0 && r->data_len <= REC_INLINE_MAX && r->data_len <= r->size;
	case REC_CHUNK:
		return r->chunk_len > 0 && r->chunk_len <= STORE_BLOCK && r->chunk_len <= r->size &&
		       r->size <= STORE_BLOCK;
	default:
		return false;
	}
}

static bool origin_ok(const struct rec_origin *o)
{
	if (!o->root)
		return true;
	return o->root[0] == '/' && strlen(o->root) <= REC_ORIGIN_MAX &&
	       (!o->rel || (o->rel[0] != '/' && strlen(o->rel) <= REC_ORIGIN_MAX)) &&
	       (o->flags & ~(unsigned)ORIGIN_ALL_FLAGS) == 0 && time_ok(&o->mtime);
}

static bool valid(const struct rec_inode *r)
{
	if (r->target &&
	    (!S_ISLNK(r->mode) || strlen(r->target) == 0 || strlen(r->target) > REC_MAX_TARGET))
		return false;
	return mode_ok(r) && r->size <= INT64_MAX && time_ok(&r->atime) && time_ok(&r->mtime) &&
	       time_ok(&r->ctime) && time_ok(&r->btime) && name_ok(r->name, r->name_len) &&
	       xattrs_ok(r) && content_ok(r) && origin_ok(&r->origin);
}

/* ---- writing ---- */

static int put_time(struct buf *b, const struct timespec *t)
{
	int e = mp_put_int(b, t->tv_sec);

	return e ? e : mp_put_uint(b, (uint64_t)t->tv_nsec);
}

static int put_bytes(struct buf *b, const char *s)
{
	return s ? mp_put_bin(b, s, strlen(s)) : mp_put_nil(b);
}

static int put_numbers(struct buf *b, const struct rec_inode *r)
{
	const uint64_t nums[] = {REC_VERSION, r->mode, r->uid,  r->gid,
				 r->nlink,    r->rdev, r->size, r->blocks};
	const struct timespec *times[] = {&r->atime, &r->mtime, &r->ctime, &r->btime};
	int e = mp_put_array(b, REC_FIELDS);

	for (size_t i = 0; e == 0 && i < ARRAY_SIZE(nums); i++)
		e = mp_put_uint(b, nums[i]);
	for (size_t i = 0; e == 0 && i < ARRAY_SIZE(times); i++)
		e = put_time(b, times[i]);
	return e;
}

static int put_xattrs(struct buf *b, const struct rec_inode *r)
{
	int e = mp_put_array(b, (uint32_t)r->nxattrs * 2);

	for (size_t i = 0; e == 0 && i < r->nxattrs; i++) {
		e = put_bytes(b, r->xattrs[i].name);
		if (e == 0)
			e = mp_put_bin(b, r->xattrs[i].value, r->xattrs[i].len);
	}
	return e ? e : mp_put_bool(b, r->big_xattrs);
}

/* nil, the bytes, [length, digest], or true for extents: the type says which. */
static int put_content(struct buf *b, const struct rec_inode *r)
{
	int e;

	switch (r->content) {
	case REC_INLINE:
		return mp_put_bin(b, r->data, r->data_len);
	case REC_CHUNK:
		e = mp_put_array(b, 2);
		if (e == 0)
			e = mp_put_uint(b, r->chunk_len);
		return e ? e : mp_put_bin(b, r->chunk.b, DIGEST_LEN);
	case REC_EXTENTS:
		return mp_put_bool(b, true);
	case REC_EMPTY:
	default:
		return mp_put_nil(b);
	}
}

static int put_origin(struct buf *b, const struct rec_origin *o)
{
	const uint64_t nums[] = {o->flags, o->valid, o->dev, o->ino, o->size};
	int e;

	if (!o->root)
		return mp_put_nil(b);
	e = mp_put_array(b, ORIGIN_FIELDS);
	if (e == 0)
		e = put_bytes(b, o->root);
	if (e == 0)
		e = put_bytes(b, o->rel ? o->rel : "");
	for (size_t i = 0; e == 0 && i < ARRAY_SIZE(nums); i++)
		e = mp_put_uint(b, nums[i]);
	return e ? e : put_time(b, &o->mtime);
}

int rec_inode_encode(const struct rec_inode *r, struct buf *out)
{
	size_t start = out->len;
	int e;

	if (!valid(r))
		return -EINVAL;
	e = put_numbers(out, r);
	if (e == 0)
		e = mp_put_uint(out, r->parent);
	if (e == 0)
		e = mp_put_bin(out, r->name, r->name_len);
	if (e == 0)
		e = put_bytes(out, r->target);
	if (e == 0)
		e = put_xattrs(out, r);
	if (e == 0)
		e = put_content(out, r);
	if (e == 0)
		e = put_origin(out, &r->origin);
	if (e < 0)
		out->len = start;
	return e;
}

/* ---- reading ---- */

/* A cursor over the elements of one array; the first error stays. */
struct in {
	const msgpack_object *next, *end;
	int err;
};

static struct in in_array(const msgpack_object *o, size_t n)
{
	if (!o || o->type != MSGPACK_OBJECT_ARRAY || (n && o->via.array.size != n))
		return (struct in){.err = -EBADMSG};
	return (struct in){o->via.array.ptr, o->via.array.ptr + o->via.array.size, 0};
}

static const msgpack_object *in_next(struct in *in)
{
	if (in->err == 0 && in->next == in->end)
		in->err = -EBADMSG;
	return in->err ? NULL : in->next++;
}

static uint64_t in_uint(struct in *in, uint64_t max)
{
	const msgpack_object *o = in_next(in);
	uint64_t v = 0;

	if (o)
		in->err = mp_as_uint(o, max, &v);
	return v;
}

static struct timespec in_time(struct in *in)
{
	const msgpack_object *o = in_next(in);
	struct timespec t = {0};
	int64_t sec = 0;

	if (o)
		in->err = mp_as_int(o, &sec);
	t.tv_sec = sec;
	t.tv_nsec = (long)in_uint(in, 999999999);
	return t;
}

/* A bin, copied with a NUL after it; nil is NULL. With @text no NUL may be inside. */
static void in_bytes(struct in *in, bool text, void *ret, size_t *ret_len)
{
	const msgpack_object *o = in_next(in);
	const void *p = NULL;
	size_t n = 0;

	if (!o || o->type == MSGPACK_OBJECT_NIL)
		return;
	in->err = mp_as_bin(o, &p, &n);
	if (in->err == 0 && text && n && memchr(p, 0, n))
		in->err = -EBADMSG;
	if (in->err == 0)
		in->err = dup_bytes(ret, p ? p : "", n);
	if (in->err == 0 && ret_len)
		*ret_len = n;
}

static int read_xattrs(const msgpack_object *o, struct rec_inode *r)
{
	struct in in = in_array(o, 0);
	size_t n = in.err ? 0 : (size_t)(in.end - in.next);
	int e;

	if (in.err || n % 2 || n / 2 > REC_MAX_XATTRS)
		return -EBADMSG;
	e = xattrs_alloc(r, n / 2);
	while (e == 0 && in.next < in.end) {
		const void *name, *value;
		size_t name_len, len;

		e = mp_as_bin(in.next++, &name, &name_len);
		if (e == 0)
			e = mp_as_bin(in.next++, &value, &len);
		if (e == 0 && (name_len == 0 || memchr(name, 0, name_len)))
			e = -EBADMSG;
		if (e == 0)
			e = xattr_add(r, name, name_len, value, len);
	}
	return e;
}

static int read_chunk(const msgpack_object *o, struct rec_inode *r)
{
	struct in in = in_array(o, 2);
	const void *p;
	size_t n;

	r->content = REC_CHUNK;
	r->chunk_len = (uint32_t)in_uint(&in, STORE_BLOCK);
	if (in.err)
		return in.err;
	if (mp_as_bin(in.next, &p, &n) < 0 || n != DIGEST_LEN)
		return -EBADMSG;
	memcpy(r->chunk.b, p, DIGEST_LEN);
	return 0;
}

static int read_content(const msgpack_object *o, struct rec_inode *r)
{
	switch ((int)o->type) {
	case MSGPACK_OBJECT_NIL:
		r->content = REC_EMPTY;
		return 0;
	case MSGPACK_OBJECT_BOOLEAN:
		r->content = REC_EXTENTS;
		return o->via.boolean ? 0 : -EBADMSG;
	case MSGPACK_OBJECT_BIN:
		r->content = REC_INLINE;
		r->data_len = o->via.bin.size;
		return dup_bytes(&r->data, o->via.bin.ptr ? o->via.bin.ptr : "", r->data_len);
	case MSGPACK_OBJECT_ARRAY:
		return read_chunk(o, r);
	default:
		return -EBADMSG;
	}
}

static int read_origin(const msgpack_object *o, struct rec_origin *g)
{
	struct in in;

	if (o->type == MSGPACK_OBJECT_NIL)
		return 0;
	in = in_array(o, ORIGIN_FIELDS);
	in_bytes(&in, true, &g->root, NULL);
	in_bytes(&in, true, &g->rel, NULL);
	g->flags = (unsigned)in_uint(&in, ORIGIN_ALL_FLAGS);
	g->valid = in_uint(&in, UINT64_MAX);
	g->dev = in_uint(&in, UINT64_MAX);
	g->ino = in_uint(&in, UINT64_MAX);
	g->size = in_uint(&in, UINT64_MAX);
	g->mtime = in_time(&in);
	if (in.err == 0 && (!g->root || !g->rel))
		return -EBADMSG;
	return in.err;
}

static int read_fields(const msgpack_object *root, struct rec_inode *r)
{
	struct in in = in_array(root, REC_FIELDS);
	const msgpack_object *o;

	if (in_uint(&in, REC_VERSION) != REC_VERSION)
		return -EBADMSG;
	r->mode = (uint32_t)in_uint(&in, UINT32_MAX);
	r->uid = (uint32_t)in_uint(&in, UINT32_MAX);
	r->gid = (uint32_t)in_uint(&in, UINT32_MAX);
	r->nlink = (uint32_t)in_uint(&in, UINT32_MAX);
	r->rdev = in_uint(&in, UINT64_MAX);
	r->size = in_uint(&in, INT64_MAX);
	r->blocks = in_uint(&in, UINT64_MAX);
	r->atime = in_time(&in);
	r->mtime = in_time(&in);
	r->ctime = in_time(&in);
	r->btime = in_time(&in);
	r->parent = in_uint(&in, UINT64_MAX);
	in_bytes(&in, true, &r->name, &r->name_len);
	in_bytes(&in, true, &r->target, NULL);
	o = in_next(&in);
	if (o)
		in.err = read_xattrs(o, r);
	o = in_next(&in);
	if (o)
		in.err = mp_as_bool(o, &r->big_xattrs);
	o = in_next(&in);
	if (o)
		in.err = read_content(o, r);
	o = in_next(&in);
	return o ? read_origin(o, &r->origin) : in.err;
}

/* msgpack can spell one value in several ways; only the one that the encoder writes is a record. */
static int check_canonical(const struct rec_inode *r, const void *p, size_t n)
{
	cleanup_buf struct buf b = {.max = n};
	int e = rec_inode_encode(r, &b);

	if (e == -ENOMEM)
		return e;
	return e == 0 && b.len == n && !memcmp(b.data, p, n) ? 0 : -EBADMSG;
}

int rec_inode_decode(const void *p, size_t n, struct rec_inode *ret)
{
	cleanup_rec_inode struct rec_inode r = {0};
	struct mp_doc d = {0};
	int e = mp_parse(p, n, &d);

	if (e < 0)
		return e;
	e = read_fields(&d.root, &r);
	mp_release(&d);
	if (e == 0)
		e = check_canonical(&r, p, n);
	if (e < 0)
		return e == -ENOMEM ? e : -EBADMSG;
	*ret = r;
	memset(&r, 0, sizeof(r));
	return 0;
}
