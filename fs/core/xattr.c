/* Extended attributes: small values in the record, big ones in the xattrs database. */
#include <stdlib.h>
#include <sys/xattr.h>

#include "fs/core/acl.h"
#include "fs/core/ovl_internal.h"

#define XATTR_NAME_LEN_MAX 255

static size_t xattr_at(const struct rec_inode *r, const char *name, bool *found)
{
	size_t lo = 0, hi = r->nxattrs;

	*found = false;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(r->xattrs[mid].name, name);

		if (c == 0) {
			*found = true;
			return mid;
		}
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

const struct rec_xattr *xattr_find(const struct rec_inode *r, const char *name)
{
	bool found;
	size_t i = xattr_at(r, name, &found);

	return found ? &r->xattrs[i] : NULL;
}

static void *dup_value(const void *value, size_t len)
{
	void *p = malloc(len ? len : 1);

	if (p && len)
		memcpy(p, value, len);
	return p;
}

int xattr_put(struct rec_inode *r, const char *name, const void *value, size_t len)
{
	bool found;
	size_t i = xattr_at(r, name, &found);
	cleanup_free void *copy = dup_value(value, len);
	struct rec_xattr *more;
	char *key;

	if (!copy)
		return -ENOMEM;
	if (found) {
		free(r->xattrs[i].value);
		r->xattrs[i].value = steal_ptr(&copy);
		r->xattrs[i].len = len;
		return 0;
	}
	more = realloc(r->xattrs, (r->nxattrs + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	r->xattrs = more;
	key = strdup(name);
	if (!key)
		return -ENOMEM;
	memmove(&more[i + 1], &more[i], (r->nxattrs - i) * sizeof(*more));
	more[i] = (struct rec_xattr){.name = key, .value = steal_ptr(&copy), .len = len};
	r->nxattrs++;
	return 0;
}

bool xattr_drop(struct rec_inode *r, const char *name)
{
	bool found;
	size_t i = xattr_at(r, name, &found);

	if (!found)
		return false;
	free(r->xattrs[i].name);
	free(r->xattrs[i].value);
	r->nxattrs--;
	memmove(&r->xattrs[i], &r->xattrs[i + 1], (r->nxattrs - i) * sizeof(*r->xattrs));
	return true;
}

/* ---- big values ---- */

static struct bigx *bigx_find(const struct node *n, const char *name)
{
	for (struct bigx *b = n->bigx; b; b = b->next) {
		if (!strcmp(b->name, name))
			return b;
	}
	return NULL;
}

/* An entry for @name, with a place for its value: what can fail happens here. *ret_new: nobody has it. */
static int bigx_prepare(struct node *n, const char *name, const void *value, size_t len,
			struct bigx **ret, void **ret_copy, bool *ret_new)
{
	struct bigx *b = bigx_find(n, name);
	void *copy = value ? dup_value(value, len) : NULL;

	if (value && !copy)
		return -ENOMEM;
	*ret_new = !b;
	if (!b) {
		b = calloc(1, sizeof(*b));
		if (b)
			b->name = strdup(name);
		if (!b || !b->name) {
			free(b);
			free(copy);
			return -ENOMEM;
		}
	}
	*ret = b;
	*ret_copy = copy;
	return 0;
}

/* The value that a flush is to write; NULL: a tombstone. */
static void bigx_set(struct ovl *o, struct node *n, struct bigx *b, void *copy, size_t len,
		     bool fresh)
{
	if (fresh) {
		b->next = n->bigx;
		n->bigx = b;
	}
	free(b->value);
	b->value = copy;
	b->len = len;
	b->logged = false;
	b->gen = atomic_fetch_add(&o->gen, 1) + 1;
}

int bigx_log(struct ovl *o, struct node *n, const char *name, const void *value, size_t len)
{
	struct bigx *b;
	void *copy;
	bool fresh;
	int r = bigx_prepare(n, name, value, len, &b, &copy, &fresh);

	if (r == 0)
		bigx_set(o, n, b, copy, len, fresh);
	return r;
}

static ssize_t give(const void *value, size_t len, void *out, size_t size)
{
	if (size == 0)
		return (ssize_t)len;
	if (size < len)
		return -ERANGE;
	if (len)
		memcpy(out, value, len);
	return (ssize_t)len;
}

static ssize_t big_get(struct ovl *o, const struct node *n, const char *name, void *value,
		       size_t size)
{
	cleanup_buf struct buf b = {0};
	const struct bigx *x = bigx_find(n, name);
	int r;

	if (x)
		return x->value ? give(x->value, x->len, value, size) : -ENODATA;
	if (!n->rec.big_xattrs || !n->in_store)
		return -ENODATA;
	r = store_view_xattr(o->view, n->ino, name, &b);
	if (r < 0)
		return r == -ENOENT ? -ENODATA : r == -EBADMSG ? -EIO : r;
	return give(b.data, b.len, value, size);
}

ssize_t xattr_get(struct ovl *o, struct node *n, const char *name, void *value, size_t size)
{
	const struct rec_xattr *x = xattr_find(&n->rec, name);

	if (x)
		return give(x->value, x->len, value, size);
	if (!n->host_only)
		return big_get(o, n, name, value, size);
	ssize_t r = n->src ? hostsrc_getxattr(n->src->h, n->rec.origin.rel, name, value, size)
			   : -ENODATA;

	return r == -EOPNOTSUPP || r == -ENOENT ? -ENODATA : r;
}

/* A record that is too large could never be flushed, and nothing else with it. */
static bool fits_record(const struct rec_inode *r, const char *name, size_t len)
{
	return len <= REC_XATTR_MAX && (r->nxattrs < REC_MAX_XATTRS || xattr_find(r, name));
}

/* Into the record, and the big value of that name goes: neither or both. */
static int set_small(struct ovl *o, struct node *n, const char *name, const void *value, size_t len)
{
	ssize_t k = big_get(o, n, name, NULL, 0);
	struct bigx *b = NULL;
	void *copy = NULL;
	bool fresh = false;
	int r = k < 0 && k != -ENODATA ? (int)k : 0;

	if (r == 0 && k >= 0)
		r = bigx_prepare(n, name, NULL, 0, &b, &copy, &fresh);
	if (r < 0)
		return r;
	r = xattr_put(&n->rec, name, value, len);
	if (r == 0 && b)
		bigx_set(o, n, b, NULL, 0, fresh);
	else if (b && fresh)
		bigx_free(b);
	return r;
}

int xattr_set(struct ovl *o, struct node *n, const char *name, const void *value, size_t len)
{
	int r;

	if (fits_record(&n->rec, name, len))
		return set_small(o, n, name, value, len);
	r = bigx_log(o, n, name, value, len);
	if (r == 0) {
		(void)xattr_drop(&n->rec, name);
		n->rec.big_xattrs = true;
	}
	return r;
}

int xattr_remove(struct ovl *o, struct node *n, const char *name)
{
	ssize_t k;

	if (xattr_drop(&n->rec, name))
		return 0;
	k = big_get(o, n, name, NULL, 0);
	return k < 0 ? (int)k : bigx_log(o, n, name, NULL, 0);
}

/* ---- lists ---- */

struct names {
	struct node *n;
	struct buf b;
	int r;
};

static int names_put(struct names *l, const char *name)
{
	return buf_put(&l->b, name, strlen(name) + 1);
}

static int names_stored(void *arg, const char *name, size_t value_len)
{
	struct names *l = arg;

	(void)value_len;
	if (hidden_is_key(name))
		return 0;
	return bigx_find(l->n, name) || xattr_find(&l->n->rec, name) ? 0 : names_put(l, name);
}

static int names_recorded(struct ovl *o, struct names *l)
{
	struct node *n = l->n;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n->rec.nxattrs; i++)
		r = names_put(l, n->rec.xattrs[i].name);
	for (const struct bigx *b = n->bigx; r == 0 && b; b = b->next) {
		if (b->value)
			r = names_put(l, b->name);
	}
	if (r == 0 && n->rec.big_xattrs && n->in_store)
		r = store_view_xattrs(o->view, n->ino, names_stored, l);
	return r == -EBADMSG ? -EIO : r;
}

static int host_names(struct node *n, char **ret, size_t *ret_len)
{
	cleanup_free char *list = NULL;
	ssize_t k = n->src ? hostsrc_listxattr(n->src->h, n->rec.origin.rel, NULL, 0) : 0;

	if (k == -EOPNOTSUPP || k == -ENOENT)
		k = 0;
	for (int tries = 0; k > 0 && tries < 3; tries++) { /* the list may grow meanwhile */
		size_t size = (size_t)k + 256;

		free(list);
		list = malloc(size);
		if (!list)
			return -ENOMEM;
		k = hostsrc_listxattr(n->src->h, n->rec.origin.rel, list, size);
		if (k != -ERANGE)
			break;
		k = (ssize_t)size * 2;
	}
	if (k < 0)
		return (int)k;
	*ret = steal_ptr(&list);
	*ret_len = (size_t)k;
	return 0;
}

int xattr_load_host(struct ovl *o, struct node *n)
{
	cleanup_free char *list = NULL, *value = NULL;
	size_t len;
	int r = host_names(n, &list, &len);

	if (r < 0 || len == 0)
		return r;
	value = malloc(XATTR_VALUE_MAX);
	if (!value)
		return -ENOMEM;
	for (const char *p = list; r == 0 && p < list + len; p += strlen(p) + 1) {
		ssize_t k =
			hostsrc_getxattr(n->src->h, n->rec.origin.rel, p, value, XATTR_VALUE_MAX);

		if (k >= 0)
			r = xattr_set(o, n, p, value, (size_t)k);
		else if (k == -ENOMEM || k == -EIO)
			r = (int)k;
		/* others: gone meanwhile, or not for us to read: the copy is without it */
	}
	return r;
}

bool kill_privileges(struct ovl *o, struct node *n)
{
	uint32_t mode = n->rec.mode;
	bool cap;

	if (S_ISDIR(mode))
		return false;
	mode &= ~(uint32_t)S_ISUID;
	if (mode & S_IXGRP)
		mode &= ~(uint32_t)S_ISGID;
	cap = xattr_remove(o, n, CAPABILITY) == 0;
	if (mode == n->rec.mode && !cap)
		return false;
	n->rec.mode = mode;
	return true;
}

/* ---- operations ---- */

ssize_t ovl_getxattr(struct ovl *o, store_ino ino, const char *name, void *value, size_t size)
{
	struct node *n;
	ssize_t k = 0;

	lock_shared(o);
	n = node_find(o, ino);
	if (n && (n->pol == POL_UNKNOWN || !(policy_may(o->policy, n->pol) & POLICY_MAY_READ)))
		n = NULL;
	if (n) {
		pthread_mutex_lock(&n->lock);
		k = xattr_get(o, n, name, value, size);
		pthread_mutex_unlock(&n->lock);
	}
	unlock(o);
	if (n)
		return k;
	lock_excl(o);
	k = node_get(o, ino, &n);
	if (k == 0)
		k = node_may(o, n, POLICY_MAY_READ, "attributes");
	if (k == 0)
		k = xattr_get(o, n, name, value, size);
	unlock(o);
	return k;
}

ssize_t ovl_listxattr(struct ovl *o, store_ino ino, char *list, size_t size)
{
	struct names l = {.b = {.max = XATTR_LIST_MAX}};
	cleanup_free char *host = NULL;
	size_t len = 0;
	int r;

	lock_excl(o);
	r = node_get(o, ino, &l.n);
	if (r == 0)
		r = node_may(o, l.n, POLICY_MAY_READ, "attributes");
	if (r == 0 && l.n->host_only)
		r = host_names(l.n, &host, &len);
	else if (r == 0)
		r = names_recorded(o, &l);
	unlock(o);
	ssize_t k = r < 0               ? r
		    : host || !l.b.data ? give(host, len, list, size)
					: give(l.b.data, l.b.len, list, size);
	buf_release(&l.b);
	return k;
}

/* What the kernel checks for local file systems before they are asked. */
static int xattr_allowed(const struct node *n, const char *name, size_t len)
{
	size_t nlen = strlen(name);

	if (nlen == 0 || nlen > XATTR_NAME_LEN_MAX)
		return -ERANGE;
	if (len > XATTR_VALUE_MAX)
		return -E2BIG;
	if (!strncmp(name, "user.", 5))
		return S_ISREG(n->rec.mode) || S_ISDIR(n->rec.mode) ? 0 : -EPERM;
	if (!strncmp(name, "security.", 9) || !strncmp(name, "trusted.", 8))
		return 0;
	if (strcmp(name, ACL_ACCESS) != 0 && strcmp(name, ACL_DEFAULT) != 0)
		return -EOPNOTSUPP;
	return S_ISLNK(n->rec.mode) ? -EOPNOTSUPP : 0;
}

/* The list of all names must stay readable through listxattr(2). */
static int list_has_room(struct ovl *o, struct node *n, const char *name)
{
	struct names l = {.n = n, .b = {.max = XATTR_LIST_MAX}};
	int r = names_recorded(o, &l);

	if (r == 0)
		r = names_put(&l, name);
	buf_release(&l.b);
	return r == -E2BIG ? -ENOSPC : r;
}

static int acl_apply(struct ovl *o, struct node *n, const char *name, const void *value, size_t len)
{
	bool access = !strcmp(name, ACL_ACCESS);
	mode_t mode = n->rec.mode;
	size_t entries;
	int r = acl_check(value, len, &entries);

	if (r < 0)
		return r;
	if (!access && !S_ISDIR(n->rec.mode))
		return entries ? -EACCES : 0;
	if (entries && access && !acl_to_mode(value, len, &mode))
		r = xattr_set(o, n, name, value, len);
	else if (entries && !access)
		r = xattr_set(o, n, name, value, len);
	else
		r = xattr_remove(o, n, name); /* nothing that the mode does not say */
	if (r == -ENODATA)
		r = 0;
	if (r == 0)
		n->rec.mode = mode;
	return r;
}

/* EX: the inode, ready to be changed. */
static int xattr_begin(struct ovl *o, store_ino ino, struct node **ret)
{
	int r = node_get(o, ino, ret);

	if (r == 0)
		r = node_may(o, *ret, POLICY_MAY_WRITE, "change of attributes");
	return r == 0 ? host_materialise(o, *ret) : r;
}

static void xattr_done(struct ovl *o, struct node *n)
{
	n->rec.ctime = now_real();
	node_dirty(o, n);
	change_inode(o, n->ino);
}

static int setxattr_locked(struct ovl *o, store_ino ino, const char *name, const void *value,
			   size_t size, int flags)
{
	struct node *n;
	ssize_t k;
	bool there, acl = !strcmp(name, ACL_ACCESS) || !strcmp(name, ACL_DEFAULT);
	int r = xattr_begin(o, ino, &n);

	if (r == 0)
		r = xattr_allowed(n, name, size);
	if (r < 0)
		return r;
	k = xattr_get(o, n, name, NULL, 0);
	if (k < 0 && k != -ENODATA)
		return (int)k;
	there = k >= 0;
	if (there && flags & XATTR_CREATE)
		return -EEXIST;
	if (!there && flags & XATTR_REPLACE)
		return -ENODATA;
	if (!there)
		r = list_has_room(o, n, name);
	if (r == 0)
		r = acl ? acl_apply(o, n, name, value, size) : xattr_set(o, n, name, value, size);
	if (r == 0 && flags & OVL_XATTR_KILL_SGID && !strcmp(name, ACL_ACCESS))
		n->rec.mode &= ~(uint32_t)S_ISGID;
	if (r == 0)
		xattr_done(o, n);
	if (r == 0)
		redo_arm(o, 0, 0);
	return r;
}

int ovl_setxattr(struct ovl *o, store_ino ino, const char *name, const void *value, size_t size,
		 int flags)
{
	int r = change_begin(o, true);

	if (r < 0)
		return r;
	lock_excl(o);
	r = setxattr_locked(o, ino, name, value, size, flags);
	unlock(o);
	change_end(o);
	return r;
}

int ovl_removexattr(struct ovl *o, store_ino ino, const char *name)
{
	struct node *n;
	int r = change_begin(o, false);

	if (r < 0)
		return r;
	lock_excl(o);
	r = xattr_begin(o, ino, &n);
	if (r == 0)
		r = xattr_allowed(n, name, 0);
	if (r == 0)
		r = xattr_remove(o, n, name);
	if (r == 0) {
		xattr_done(o, n);
		redo_arm(o, 0, 0);
	}
	unlock(o);
	change_end(o);
	return r;
}
