/* The canonical record of a commit: docs/store-format.md "commit id". */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/mp.h"
#include "fs/core/diff_internal.h"

#define MAGIC       "rattan-commit"
#define MAGIC_STATE "rattan-state"
#define VERSION     1
#define CHANGE_SIZE 11

static int put_time(struct buf *b, const struct timespec *t)
{
	int r = mp_put_array(b, 2);

	if (r == 0)
		r = mp_put_int(b, t->tv_sec);
	return r < 0 ? r : mp_put_uint(b, (uint64_t)t->tv_nsec);
}

static int put_digest(struct buf *b, const struct digest *d)
{
	return mp_put_bin(b, d->b, sizeof d->b);
}

static int put_path(struct buf *b, const char *path)
{
	return path ? mp_put_bin(b, path, strlen(path)) : mp_put_nil(b);
}

static int put_block(struct buf *b, uint64_t block, uint32_t len, const struct digest *chunk)
{
	int r = mp_put_array(b, 3);

	if (r == 0)
		r = mp_put_uint(b, block);
	if (r == 0)
		r = mp_put_uint(b, len);
	if (r == 0)
		r = len ? put_digest(b, chunk) : mp_put_nil(b);
	return r;
}

/* ---- content: what changed of a file that was there, all of a new one ---- */

static int put_touched(struct diff *d, store_ino ino, struct buf *b)
{
	size_t n;
	const struct touched_extent *x = diff_extents_of(d, ino, &n);
	int r = mp_put_array(b, (uint32_t)n);

	for (size_t i = 0; r == 0 && i < n; i++) {
		struct store_extent e;

		r = store_view_extent(d->view[TO], ino, x[i].block, &e);
		if (r == -ENOENT) {
			e = (struct store_extent){.block = x[i].block};
			r = 0;
		}
		if (r == 0)
			r = put_block(b, e.block, e.len, &e.chunk);
	}
	return r;
}

static int put_whole(struct diff *d, store_ino ino, const struct rec_inode *rec, struct buf *b)
{
	struct block_list l = {0};
	int r = diff_blocks(d, TO, ino, rec, &l);

	if (r == 0)
		r = mp_put_array(b, (uint32_t)l.n);
	for (size_t i = 0; r == 0 && i < l.n; i++)
		r = put_block(b, l.v[i].block, l.v[i].len, &l.v[i].chunk);
	free(l.v);
	return r;
}

static int was_extents(struct diff *d, const struct diff_change *c, bool *ret)
{
	cleanup_rec_inode struct rec_inode old = {0};
	int r = 0;

	*ret = false;
	if (c->from.at == OBJ_STORE && c->from.ino == c->to.ino) {
		r = diff_record(d, FROM, c->from.ino, &old);
		*ret = r == 0 && old.content == REC_EXTENTS;
	}
	return r == -ENOENT ? 0 : r;
}

static int put_body(struct diff *d, const struct diff_change *c, const struct rec_inode *rec,
		    struct buf *b)
{
	bool part;
	int r;

	switch (rec->mode & S_IFMT) {
	case S_IFLNK:
		return put_path(b, rec->target);
	case S_IFCHR:
	case S_IFBLK:
		return mp_put_uint(b, rec->rdev);
	case S_IFREG:
		r = was_extents(d, c, &part);
		if (r < 0)
			return r;
		return part && rec->content == REC_EXTENTS ? put_touched(d, c->to.ino, b)
							   : put_whole(d, c->to.ino, rec, b);
	default:
		return mp_put_nil(b);
	}
}

/* ---- extended attributes and origin ---- */

struct big_names {
	struct buf b;
	uint32_t n;
};

static int see_big(void *arg, const char *name, size_t value_len)
{
	struct big_names *l = arg;

	(void)value_len;
	if (hidden_is_key(name)) /* no attribute, but what the change is based on */
		return 0;
	l->n++;
	return buf_put(&l->b, name, strlen(name) + 1);
}

static int put_big_xattrs(struct diff *d, store_ino ino, const struct big_names *l, struct buf *b)
{
	cleanup_buf struct buf value = {0};
	int r = 0;

	for (size_t at = 0; r == 0 && at < l->b.len;) {
		const char *name = (const char *)l->b.data + at;
		struct digest dg;

		at += strlen(name) + 1;
		buf_clear(&value);
		r = store_view_xattr(d->view[TO], ino, name, &value);
		if (r == 0)
			r = digest_of(value.len ? (const void *)value.data : "", value.len, &dg);
		if (r == 0)
			r = mp_put_array(b, 2);
		if (r == 0)
			r = put_path(b, name);
		if (r == 0)
			r = put_digest(b, &dg);
	}
	return r;
}

static int put_xattrs(struct diff *d, store_ino ino, const struct rec_inode *rec, struct buf *b)
{
	struct big_names big = {0};
	int r = 0;

	if (rec->big_xattrs)
		r = store_view_xattrs(d->view[TO], ino, see_big, &big);
	if (r == 0)
		r = mp_put_array(b, (uint32_t)rec->nxattrs + big.n);
	for (size_t i = 0; r == 0 && i < rec->nxattrs; i++) {
		r = mp_put_array(b, 2);
		if (r == 0)
			r = put_path(b, rec->xattrs[i].name);
		if (r == 0)
			r = mp_put_bin(b, rec->xattrs[i].value, rec->xattrs[i].len);
	}
	if (r == 0)
		r = put_big_xattrs(d, ino, &big, b);
	buf_release(&big.b);
	return r;
}

/* Bytes that are still the host's: named by where they come from and what they were. */
static int put_origin(const struct rec_inode *rec, struct buf *b)
{
	const struct rec_origin *o = &rec->origin;
	int r;

	if (!o->root || (S_ISREG(rec->mode) && o->valid == 0))
		return mp_put_nil(b);
	r = mp_put_array(b, S_ISREG(rec->mode) ? 5 : 2);
	if (r == 0)
		r = put_path(b, o->root);
	if (r == 0)
		r = put_path(b, o->rel ? o->rel : "");
	if (r < 0 || !S_ISREG(rec->mode))
		return r;
	r = mp_put_uint(b, o->valid);
	if (r == 0)
		r = mp_put_uint(b, o->size);
	return r < 0 ? r : put_time(b, &o->mtime);
}

/* ---- changes ---- */

static int put_record(struct diff *d, const struct diff_change *c, const struct rec_inode *rec,
		      struct buf *b)
{
	int r = mp_put_uint(b, rec->mode);

	if (r == 0)
		r = mp_put_uint(b, rec->uid);
	if (r == 0)
		r = mp_put_uint(b, rec->gid);
	if (r == 0)
		r = mp_put_uint(b, S_ISREG(rec->mode) ? rec->size : 0);
	if (r == 0)
		r = put_time(b, &rec->mtime);
	if (r == 0)
		r = put_body(d, c, rec, b);
	if (r == 0)
		r = put_xattrs(d, c->to.ino, rec, b);
	return r < 0 ? r : put_origin(rec, b);
}

static int put_change(struct diff *d, const struct diff_change *c, struct buf *b)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	char kind = (char)c->kind;
	bool recorded = c->to.at == OBJ_STORE;
	int r = recorded ? diff_record(d, TO, c->to.ino, &rec) : 0;

	/* what was removed, or is the host's again, is told by its place alone */
	if (r == 0)
		r = mp_put_array(b, recorded ? CHANGE_SIZE : 3);
	if (r == 0)
		r = mp_put_str(b, &kind, 1);
	if (r == 0)
		r = put_path(b, c->path);
	if (r == 0)
		r = put_path(b, c->kind == DIFF_RENAMED ? c->old_path : NULL);
	return r < 0 || !recorded ? r : put_record(d, c, &rec, b);
}

/* The count is what a person is shown: not that a directory's time moved. */
static bool is_shown(const struct diff_change *c)
{
	unsigned what = c->what & ~(unsigned)(DIFF_TIMES | DIFF_OWNER);

	if (S_ISDIR(c->to.mode))
		what &= ~(unsigned)DIFF_CONTENT;
	return what != 0; /* an owner by DIFF_OWNER_SEEN */
}

static void count(struct diff_counts *n, const struct diff_change *c)
{
	switch (c->kind) {
	case DIFF_ADDED:
		n->added++;
		break;
	case DIFF_DELETED:
		n->deleted++;
		break;
	case DIFF_RENAMED:
		n->renamed++;
		break;
	case DIFF_MODIFIED:
		n->modified += is_shown(c);
		break;
	case DIFF_TYPE:
		n->modified++;
		break;
	}
}

static int put_head(struct buf *b, const char *magic, const struct digest *parent,
		    const char *message, const char *label, const struct timespec *time)
{
	static const struct digest none;
	int r = mp_put_array(b, 7);

	if (r == 0)
		r = mp_put_cstr(b, magic);
	if (r == 0)
		r = mp_put_uint(b, VERSION);
	if (r == 0)
		r = parent && memcmp(parent, &none, sizeof none) != 0 ? put_digest(b, parent)
								      : mp_put_nil(b);
	if (r == 0)
		r = put_time(b, time);
	if (r == 0)
		r = mp_put_cstr(b, label ? label : "");
	return r < 0 ? r : mp_put_cstr(b, message ? message : "");
}

static int commit_id(struct store *s, unsigned flags, const struct digest *parent, store_layer from,
		     store_layer to, const char *message, const char *label,
		     const struct timespec *time, struct digest *ret_id,
		     struct diff_counts *ret_counts)
{
	cleanup_buf struct buf b = {0};
	struct diff_counts counts = {0};
	struct diff d = {0};
	int r = put_head(&b, MAGIC, parent, message, label, time);

	if (r == 0)
		r = diff_run(&d, s, from, to, flags);
	if (r == 0)
		r = mp_put_array(&b, (uint32_t)d.nout);
	for (size_t i = 0; r == 0 && i < d.nout; i++) {
		r = put_change(&d, &d.out[i], &b);
		count(&counts, &d.out[i]);
	}
	diff_release(&d);
	if (r == 0)
		r = digest_of(b.data, b.len, ret_id);
	if (r == 0)
		*ret_counts = counts;
	return r;
}

int diff_commit_id(struct store *s, const struct digest *parent, store_layer from, store_layer to,
		   const char *message, const char *label, const struct timespec *time,
		   struct digest *ret_id, struct diff_counts *ret_counts)
{
	return commit_id(s, DIFF_ALL, parent, from, to, message, label, time, ret_id, ret_counts);
}

int diff_state_id(const struct store_commit *c, store_layer layer, struct digest *ret_id)
{
	cleanup_buf struct buf b = {0};
	int r = put_head(&b, MAGIC_STATE, &c->parent, c->message, c->label, &c->time);

	if (r == 0)
		r = mp_put_uint(&b, layer);
	return r < 0 ? r : digest_of(b.data, b.len, ret_id);
}

int diff_commit_check(struct store *s, const struct store_commit *c, bool *ret_same)
{
	struct store_layer_info li;
	struct diff_counts n;
	store_layer from = 0;
	struct digest id;
	int r = store_layer_get(s, c->layer, &li);

	*ret_same = true;
	if (r == 0 && c->kind == STORE_AUTO) {
		r = diff_state_id(c, c->layer, &id);
		if (r == 0 && memcmp(&id, &c->id, sizeof(id)) == 0)
			return 0;
	}

	/* As when it was made: automatic states are passed over. */
	if (r == 0 && li.parent)
		r = store_head_commit(s, li.parent, &from);
	if (r == 0)
		r = commit_id(s, DIFF_ALL | DIFF_STORED, &c->parent, from, c->layer, c->message,
			      c->label, &c->time, &id, &n);
	if (r == 0)
		*ret_same = memcmp(&id, &c->id, sizeof(id)) == 0;
	return r == -E2BIG ? -ENODATA : r;
}
