/* Do two things differ, and in what? */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/core/diff_internal.h"
#include "fs/core/hostbase.h"

/* The kernel's stand-in for an owner that a user namespace cannot show. */
#define OVERFLOW_ID 65534
/* Host files above this are not read to find out whether they equal a replacement. */
#define READ_MAX    (UINT64_C(64) << 20)
#define TARGET_MAX  4096

bool diff_same(const struct obj *a, const struct obj *b)
{
	if (a->at == OBJ_NONE || b->at == OBJ_NONE)
		return false;
	if (a->at == OBJ_STORE && b->at == OBJ_STORE)
		return a->ino == b->ino;
	return a->key.root && b->key.root && host_key_cmp(&a->key, &b->key) == 0 &&
	       (a->mode & S_IFMT) == (b->mode & S_IFMT);
}

/* ---- content as blocks ---- */

static int add_block(struct block_list *l, uint64_t block, uint32_t len, const struct digest *chunk)
{
	struct block_sig *s = grow_one(&l->v, &l->n, &l->max, sizeof *s);

	if (!s)
		return -ENOMEM;
	*s = (struct block_sig){.block = block, .len = len, .chunk = *chunk};
	return 0;
}

static size_t trimmed(const uint8_t *p, size_t n)
{
	while (n > 0 && !p[n - 1])
		n--;
	return n;
}

static int add_bytes(struct block_list *l, uint64_t block, const uint8_t *p, size_t n)
{
	struct digest d;
	int r;

	n = trimmed(p, n);
	if (n == 0)
		return 0;
	r = digest_of(p, n, &d);
	return r < 0 ? r : add_block(l, block, (uint32_t)n, &d);
}

static int see_extent(void *arg, const struct store_extent *x)
{
	return x->len ? add_block(arg, x->block, x->len, &x->chunk) : 0;
}

int diff_blocks(struct diff *d, enum side side, store_ino ino, const struct rec_inode *rec,
		struct block_list *ret)
{
	switch (rec->content) {
	case REC_INLINE:
		return add_bytes(ret, 0, rec->data, rec->data_len);
	case REC_CHUNK:
		return rec->chunk_len ? add_block(ret, 0, rec->chunk_len, &rec->chunk) : 0;
	case REC_EXTENTS:
		return store_view_extents(d->view[side], ino, 0, see_extent, ret);
	case REC_EMPTY:
		break;
	}
	return 0;
}

static int host_blocks(struct diff *d, const struct host_key *key, uint64_t size,
		       struct block_list *ret)
{
	cleanup_free uint8_t *buf = malloc(STORE_BLOCK);
	struct hostsrc *h;
	int r = diff_source(d, key, &h);

	if (r == 0 && !buf)
		r = -ENOMEM;
	if (r == 0 && !h)
		r = -ENOENT;
	for (uint64_t at = 0; r == 0 && at < size; at += STORE_BLOCK) {
		ssize_t n = hostsrc_pread(h, key->rel, HOSTSRC_ANY, NULL, at, buf, STORE_BLOCK);

		r = n < 0 ? (int)n : add_bytes(ret, at / STORE_BLOCK, buf, (size_t)n);
	}
	return r;
}

static bool lists_differ(const struct block_list *a, const struct block_list *b)
{
	if (a->n != b->n)
		return true;
	for (size_t i = 0; i < a->n; i++)
		if (a->v[i].block != b->v[i].block || a->v[i].len != b->v[i].len ||
		    memcmp(&a->v[i].chunk, &b->v[i].chunk, sizeof(struct digest)) != 0)
			return true;
	return false;
}

/* ---- one thing at one side ---- */

struct facts {
	const struct obj *o;
	enum side side;
	struct rec_inode rec; /* of a recorded one; of a host file what was seen of it */
};

static int load(struct diff *d, enum side side, const struct obj *o, struct facts *ret)
{
	ret->o = o;
	ret->side = side;
	if (o->at == OBJ_STORE)
		return diff_record(d, side, o->ino, &ret->rec);
	ret->rec.mode = o->mode;
	ret->rec.uid = o->uid;
	ret->rec.gid = o->gid;
	ret->rec.size = o->size;
	ret->rec.rdev = o->rdev;
	ret->rec.mtime = o->mtime;
	return 0;
}

/* A recorded file that still shows the bytes of its host file, live. */
static bool pristine(const struct rec_inode *rec)
{
	const struct rec_origin *o = &rec->origin;

	return rec->content == REC_EMPTY && o->root && o->valid == o->size && o->size == rec->size;
}

static int extents_differ(struct diff *d, const struct facts *f, bool *ret)
{
	size_t n;
	const struct touched_extent *x = diff_extents_of(d, f->o->ino, &n);

	*ret = false;
	for (size_t i = 0; i < n && !*ret; i++) {
		struct store_extent a = {0}, b = {0};
		int ra = store_view_extent(d->view[FROM], f->o->ino, x[i].block, &a);
		int rb = store_view_extent(d->view[TO], f->o->ino, x[i].block, &b);

		if ((ra < 0 && ra != -ENOENT) || (rb < 0 && rb != -ENOENT))
			return ra < 0 && ra != -ENOENT ? ra : rb;
		/* without an extent a hole, or the host's bytes where they still count */
		*ret = a.len != b.len || memcmp(&a.chunk, &b.chunk, sizeof a.chunk) != 0 ||
		       (ra != rb && f->rec.origin.valid > x[i].block * STORE_BLOCK);
	}
	return 0;
}

static int list_of(struct diff *d, const struct facts *f, struct block_list *ret)
{
	if (f->o->at == OBJ_HOST)
		return host_blocks(d, &f->o->key, f->rec.size, ret);
	if (f->rec.origin.valid == 0)
		return diff_blocks(d, f->side, f->o->ino, &f->rec, ret);
	if (!pristine(&f->rec))
		return -ENOENT; /* partly the host's: nobody can tell */
	return host_blocks(d, &f->o->key, f->rec.size, ret);
}

static int blocks_differ(struct diff *d, const struct facts *f, const struct facts *t, bool *ret)
{
	struct block_list a = {0}, b = {0};
	int r = 0;

	*ret = true;
	if ((f->o->at == OBJ_STORE && t->o->at == OBJ_STORE && !f->rec.origin.valid &&
	     !t->rec.origin.valid) ||
	    f->rec.size <= READ_MAX) {
		r = list_of(d, f, &a);
		if (r == 0)
			r = list_of(d, t, &b);
		if (r == 0)
			*ret = lists_differ(&a, &b);
	}
	free(a.v);
	free(b.v);
	/* A host file that cannot be read any more is different. */
	return r == -ENOMEM || r == -EBADMSG ? r : 0;
}

static int content_differs(struct diff *d, const struct facts *f, const struct facts *t, bool *ret)
{
	bool same = diff_same(f->o, t->o);

	*ret = false;
	if (same && (f->o->at == OBJ_HOST || pristine(&f->rec)) &&
	    (t->o->at == OBJ_HOST || pristine(&t->rec)))
		return 0;
	*ret = true;
	if (f->rec.size != t->rec.size)
		return 0;
	if (same && f->o->at == OBJ_STORE && t->o->at == OBJ_STORE &&
	    f->rec.content == REC_EXTENTS && t->rec.content == REC_EXTENTS &&
	    f->rec.origin.valid == t->rec.origin.valid)
		return extents_differ(d, f, ret);
	return blocks_differ(d, f, t, ret);
}

/* ---- symlinks ---- */

static int target_of(struct diff *d, const struct facts *f, char out[static TARGET_MAX])
{
	struct hostsrc *h;
	int r = 0;

	out[0] = '\0';
	if (f->rec.target) {
		(void)snprintf(out, TARGET_MAX, "%s", f->rec.target);
	} else if (f->o->key.root) {
		r = diff_source(d, &f->o->key, &h);
		if (r == 0 && h && hostsrc_readlink(h, f->o->key.rel, out) < 0)
			out[0] = '\0';
	}
	return r;
}

static int target_differs(struct diff *d, const struct facts *f, const struct facts *t, bool *ret)
{
	char a[TARGET_MAX], b[TARGET_MAX];
	int r = target_of(d, f, a);

	if (r == 0)
		r = target_of(d, t, b);
	*ret = r == 0 && strcmp(a, b) != 0;
	return r;
}

/* ---- extended attributes ---- */

/* The value by name, big or small, recorded or the host's; -ENODATA. */
static int xattr_of(struct diff *d, const struct facts *f, const char *name, struct buf *out)
{
	struct hostsrc *h;
	ssize_t n;
	int r;

	buf_clear(out);
	for (size_t i = 0; i < f->rec.nxattrs; i++)
		if (!strcmp(f->rec.xattrs[i].name, name))
			return buf_put(out, f->rec.xattrs[i].value, f->rec.xattrs[i].len);
	if (f->o->at == OBJ_STORE) {
		r = f->rec.big_xattrs ? store_view_xattr(d->view[f->side], f->o->ino, name, out)
				      : -ENOENT;
		return r == -ENOENT ? -ENODATA : r;
	}
	r = diff_source(d, &f->o->key, &h);
	if (r == 0)
		r = buf_reserve(out, 1u << 16);
	if (r < 0)
		return r;
	n = h ? hostsrc_getxattr(h, f->o->key.rel, name, out->data, 1u << 16) : -ENODATA;
	if (n < 0)
		return -ENODATA;
	out->len = (size_t)n;
	return 0;
}

static int see_xattr(void *arg, const char *name, size_t value_len)
{
	(void)value_len;
	if (hidden_is_key(name))
		return 0;
	return buf_put(arg, name, strlen(name) + 1);
}

/* Every name, NUL after each. */
static int xattr_names(struct diff *d, const struct facts *f, struct buf *out)
{
	struct hostsrc *h;
	ssize_t n;
	int r = 0;

	if (f->o->at == OBJ_HOST) {
		r = diff_source(d, &f->o->key, &h);
		if (r == 0)
			r = buf_reserve(out, 1u << 16);
		if (r < 0)
			return r;
		n = h ? hostsrc_listxattr(h, f->o->key.rel, (char *)out->data, 1u << 16) : 0;
		out->len = n > 0 ? (size_t)n : 0;
		return 0;
	}
	for (size_t i = 0; r == 0 && i < f->rec.nxattrs; i++)
		r = see_xattr(out, f->rec.xattrs[i].name, 0);
	if (r == 0 && f->rec.big_xattrs)
		r = store_view_xattrs(d->view[f->side], f->o->ino, see_xattr, out);
	return r;
}

/* Is each attribute of @f in @t with the same value? */
static int xattrs_missing(struct diff *d, const struct facts *f, const struct facts *t, bool *ret)
{
	cleanup_buf struct buf names = {0}, a = {0}, b = {0};
	int r = xattr_names(d, f, &names);

	for (size_t at = 0; r == 0 && at < names.len && !*ret;) {
		const char *name = (const char *)names.data + at;

		at += strlen(name) + 1;
		r = xattr_of(d, f, name, &a);
		if (r == -ENODATA) { /* a host attribute that is not for us to read */
			r = 0;
			continue;
		}
		if (r == 0)
			r = xattr_of(d, t, name, &b);
		if (r == -ENODATA ||
		    (r == 0 && (a.len != b.len || (a.len && memcmp(a.data, b.data, a.len) != 0)))) {
			*ret = true;
			r = 0;
		}
	}
	return r;
}

static int xattrs_differ(struct diff *d, const struct facts *f, const struct facts *t, bool *ret)
{
	int r;

	*ret = false;
	if (f->o->at == OBJ_STORE && t->o->at == OBJ_STORE && !f->rec.nxattrs && !t->rec.nxattrs &&
	    !f->rec.big_xattrs && !t->rec.big_xattrs)
		return 0;
	r = xattrs_missing(d, f, t, ret);
	return r < 0 || *ret ? r : xattrs_missing(d, t, f, ret);
}

/* ---- all of it ---- */

static bool is_id(uint32_t a, uint32_t b, uint32_t one, uint32_t other)
{
	return (a == one && b == other) || (a == other && b == one);
}

/* Its ids are the host's: of a host file, or recorded when it was one. */
static bool has_host_ids(const struct facts *f)
{
	return f->o->at == OBJ_HOST || f->rec.origin.root;
}

static unsigned owner_differs(const struct facts *f, const struct facts *t)
{
	const struct rec_inode *a = &f->rec, *b = &t->rec;
	/* Who looked at the host file when it was recorded may have seen its owner through another
	 * user namespace than we do. */
	bool unsure = f->o->at != t->o->at, mixed = has_host_ids(f) != has_host_ids(t);
	bool hidden_u = a->uid == OVERFLOW_ID || b->uid == OVERFLOW_ID;
	bool hidden_g = a->gid == OVERFLOW_ID || b->gid == OVERFLOW_ID;
	bool u = a->uid != b->uid && !(unsure && hidden_u);
	bool g = a->gid != b->gid && !(unsure && hidden_g);
	unsigned what = u || g ? DIFF_OWNER : 0;

	/* What a command makes is the agent's, the host's files are the user's, and these two are one. */
	if (u && mixed)
		u = !hidden_u && !is_id(a->uid, b->uid, geteuid(), HOSTBASE_AGENT);
	if (g && mixed)
		g = !hidden_g && !is_id(a->gid, b->gid, getegid(), HOSTBASE_AGENT);
	return u || g ? what | DIFF_OWNER_SEEN : what;
}

static int body_differs(struct diff *d, const struct facts *f, const struct facts *t, bool *ret)
{
	*ret = false;
	switch (f->rec.mode & S_IFMT) {
	case S_IFREG:
		return content_differs(d, f, t, ret);
	case S_IFLNK:
		return target_differs(d, f, t, ret);
	case S_IFCHR:
	case S_IFBLK:
		*ret = f->rec.rdev != t->rec.rdev;
		return 0;
	default:
		return 0;
	}
}

static int compare_facts(struct diff *d, const struct facts *f, const struct facts *t,
			 unsigned *ret)
{
	const struct rec_inode *a = &f->rec, *b = &t->rec;
	bool differs;
	int r;

	if ((a->mode & S_IFMT) != (b->mode & S_IFMT)) {
		*ret = DIFF_CONTENT;
		return 0;
	}
	r = body_differs(d, f, t, &differs);
	if (r < 0)
		return r;
	*ret = differs ? DIFF_CONTENT : 0;
	if ((a->mode & 07777) != (b->mode & 07777) && !S_ISLNK(a->mode))
		*ret |= DIFF_MODE;
	*ret |= owner_differs(f, t);
	if (a->mtime.tv_sec != b->mtime.tv_sec || a->mtime.tv_nsec != b->mtime.tv_nsec)
		*ret |= DIFF_TIMES;
	r = xattrs_differ(d, f, t, &differs);
	if (r == 0 && differs)
		*ret |= DIFF_XATTRS;
	return r;
}

int diff_compare(struct diff *d, const struct obj *from, const struct obj *to, unsigned *ret_what)
{
	struct facts f = {0}, t = {0};
	int r;

	*ret_what = 0;
	r = load(d, FROM, from, &f);
	if (r == 0)
		r = load(d, TO, to, &t);
	if (r == 0)
		r = compare_facts(d, &f, &t, ret_what);
	rec_inode_release(&f.rec);
	rec_inode_release(&t.rec);
	return r == -ENOENT ? 0 : r; /* gone from the host meanwhile */
}
