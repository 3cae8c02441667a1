#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/codec.h"

struct store_view {
	struct store *s;
	struct store_anc *anc;
};

int store_view_open(struct store *s, store_layer layer, struct store_view **ret)
{
	cleanup_rd struct store_rd rd = {0};
	struct store_view *v = calloc(1, sizeof(*v));
	int r = v ? store_rd_begin(s, &rd) : -ENOMEM;

	if (r == 0)
		r = store_anc_get(s, rd.r->txn, layer, &v->anc);
	if (r < 0) {
		free(v);
		return r;
	}
	v->s = s;
	*ret = v;
	return 0;
}

void store_view_close(struct store_view *v)
{
	if (!v)
		return;
	store_anc_unref(v->anc);
	free(v);
}

store_layer store_view_layer(const struct store_view *v)
{
	return v->anc->layer;
}

bool store_view_sees(const struct store_view *v, store_layer layer)
{
	return layer && store_anc_has(v->anc, layer);
}

/* The newest version in sight; its bytes live until @rd ends. */
static int find(struct store_view *v, struct store_rd *rd, enum store_db db, const struct key *k,
		MDB_val *ret)
{
	MDB_cursor *c;
	int r = store_rd_begin(v->s, rd);

	if (r == 0)
		r = store_rd_cursor(rd, db, &c);
	return r < 0 ? r : store_ver_find(c, db, v->anc, k->b, k->len, ret);
}

static int scan(struct store_view *v, enum store_db db, const struct key *from, size_t plen,
		store_ver_fn fn, void *arg)
{
	cleanup_rd struct store_rd rd = {0};
	MDB_cursor *c;
	int r = store_rd_begin(v->s, &rd);

	if (r == 0)
		r = store_rd_cursor(&rd, db, &c);
	return r < 0 ? r : store_ver_scan(c, db, v->anc, from->b, from->len, plen, fn, arg);
}

/* ---- inodes ---- */

int store_view_inode(struct store_view *v, store_ino ino, struct rec_inode *ret)
{
	cleanup_rd struct store_rd rd = {0};
	struct key k = {0};
	MDB_val val;
	int r;

	key_num(&k, ino);
	r = find(v, &rd, DB_INODES, &k, &val);
	return r < 0 ? r : rec_inode_decode(val.mv_data, val.mv_size, ret);
}

/* ---- names ---- */

int store_view_name(struct store_view *v, store_ino parent, const char *name, size_t len,
		    struct rec_name *ret)
{
	cleanup_rd struct store_rd rd = {0};
	struct key k = {0};
	MDB_val val;
	int r;

	if (!store_name_ok(name, len))
		return -EINVAL;
	key_num(&k, parent);
	key_name(&k, name, len);
	r = find(v, &rd, DB_NAMES, &k, &val);
	return r < 0 ? r : store_name_decode(&val, ret);
}

struct names_call {
	int (*fn)(void *arg, const char *name, size_t len, const struct rec_name *n);
	void *arg;
};

static int on_name(void *arg, const uint8_t *mid, size_t n, const MDB_val *val)
{
	const struct names_call *c = arg;
	struct rec_name name;
	int r = n < 2 ? -EBADMSG : 0;

	/* One damaged name does not hide the others. */
	if (r == 0 && (!val || store_name_decode(val, &name) < 0))
		name = (struct rec_name){STORE_DAMAGED_INO, S_IFREG};
	return r < 0 ? r : c->fn(c->arg, (const char *)mid, n - 1, &name);
}

int store_view_names(struct store_view *v, store_ino parent,
		     int (*fn)(void *arg, const char *name, size_t len, const struct rec_name *n),
		     void *arg)
{
	struct names_call c = {fn, arg};
	struct key k = {0};

	key_num(&k, parent);
	return scan(v, DB_NAMES, &k, k.len, on_name, &c);
}

/* ---- extents ---- */

int store_view_extent(struct store_view *v, store_ino ino, uint64_t block, struct store_extent *ret)
{
	cleanup_rd struct store_rd rd = {0};
	struct key k = {0};
	struct store_extent e = {.block = block};
	MDB_val val;
	int r;

	key_num(&k, ino);
	key_num(&k, block);
	r = find(v, &rd, DB_EXTENTS, &k, &val);
	if (r == 0)
		r = store_extent_decode(&val, &e);
	if (r == 0)
		*ret = e;
	return r;
}

struct extents_call {
	int (*fn)(void *arg, const struct store_extent *e);
	void *arg;
};

static int on_extent(void *arg, const uint8_t *mid, size_t n, const MDB_val *val)
{
	const struct extents_call *c = arg;
	struct store_extent e;
	int r = n != 8 || !val ? -EBADMSG : store_extent_decode(val, &e);

	if (r < 0)
		return r;
	e.block = key_get_be64(mid);
	return c->fn(c->arg, &e);
}

int store_view_extents(struct store_view *v, store_ino ino, uint64_t first,
		       int (*fn)(void *arg, const struct store_extent *e), void *arg)
{
	struct extents_call c = {fn, arg};
	struct key k = {0};

	key_num(&k, ino);
	key_num(&k, first);
	return scan(v, DB_EXTENTS, &k, 8, on_extent, &c);
}

/* ---- xattrs and links: a first byte of 1 is there, of 0 a tombstone ---- */

int store_view_xattr(struct store_view *v, store_ino ino, const char *name, struct buf *out)
{
	cleanup_rd struct store_rd rd = {0};
	struct key k = {0};
	size_t len = strlen(name);
	const void *p;
	MDB_val val;
	size_t n;
	bool there;
	int r;

	if (len == 0 || len > STORE_NAME_MAX)
		return -EINVAL;
	key_num(&k, ino);
	key_name(&k, name, len);
	r = find(v, &rd, DB_XATTRS, &k, &val);
	if (r == 0)
		r = store_there_decode(&val, &there, &p, &n);
	if (r == 0 && !there)
		r = -ENOENT;
	return r < 0 ? r : buf_put(out, p, n);
}

struct xattrs_call {
	int (*fn)(void *arg, const char *name, size_t value_len);
	void *arg;
};

static int on_xattr(void *arg, const uint8_t *mid, size_t n, const MDB_val *val)
{
	const struct xattrs_call *c = arg;

	const void *p;
	bool there;
	size_t len;

	if (n < 2 || !val || store_there_decode(val, &there, &p, &len) < 0)
		return -EBADMSG;
	return there ? c->fn(c->arg, (const char *)mid, len) : 0;
}

int store_view_xattrs(struct store_view *v, store_ino ino,
		      int (*fn)(void *arg, const char *name, size_t value_len), void *arg)
{
	struct xattrs_call c = {fn, arg};
	struct key k = {0};

	key_num(&k, ino);
	return scan(v, DB_XATTRS, &k, k.len, on_xattr, &c);
}

struct links_call {
	int (*fn)(void *arg, store_ino parent, const char *name, size_t len);
	void *arg;
};

static int on_link(void *arg, const uint8_t *mid, size_t n, const MDB_val *val)
{
	const struct links_call *c = arg;

	bool there;

	if (n < 10 || !val || store_there_decode(val, &there, NULL, NULL) < 0)
		return -EBADMSG;
	return there ? c->fn(c->arg, key_get_be64(mid), (const char *)mid + 8, n - 9) : 0;
}

int store_view_links(struct store_view *v, store_ino ino,
		     int (*fn)(void *arg, store_ino parent, const char *name, size_t len),
		     void *arg)
{
	struct links_call c = {fn, arg};
	struct key k = {0};

	key_num(&k, ino);
	return scan(v, DB_LINKS, &k, k.len, on_link, &c);
}
