/* getattr and setattr. */
#include <stdlib.h>

#include "fs/core/acl.h"
#include "fs/core/file.h"
#include "fs/core/ovl_internal.h"

int ovl_getattr(struct ovl *o, store_ino ino, struct ovl_attr *ret)
{
	struct node *n;
	bool done = false;
	int r;

	lock_shared(o);
	n = node_find(o, ino);
	if (n && !host_stale(o, n) && n->pol != POL_UNKNOWN &&
	    policy_may(o->policy, n->pol) & POLICY_MAY_PASS) {
		pthread_mutex_lock(&n->lock);
		node_attr(o, n, ret);
		pthread_mutex_unlock(&n->lock);
		node_used(n);
		done = true;
	}
	unlock(o);
	if (done)
		return 0;
	lock_excl(o);
	r = node_get(o, ino, &n);
	if (r == 0)
		r = node_may(o, n, POLICY_MAY_PASS, "attributes");
	if (r == 0)
		r = host_recheck(o, n);
	if (r == 0)
		node_attr(o, n, ret);
	unlock(o);
	return r;
}

static int set_mode(struct ovl *o, struct node *n, mode_t mode)
{
	ssize_t k = xattr_get(o, n, ACL_ACCESS, NULL, 0);
	int r = k < 0 && k != -ENODATA ? (int)k : 0;

	/* The list's mask, or its group entry, is what the group bits stand for: keep both equal. */
	if (k > 0) {
		cleanup_free uint8_t *acl = malloc((size_t)k);
		size_t entries;

		if (!acl)
			return -ENOMEM;
		k = xattr_get(o, n, ACL_ACCESS, acl, (size_t)k);
		if (k > 0 && acl_check(acl, (size_t)k, &entries) == 0 && entries) {
			acl_chmod(acl, (size_t)k, mode);
			r = xattr_set(o, n, ACL_ACCESS, acl, (size_t)k);
		}
	}
	if (r == 0)
		n->rec.mode = (n->rec.mode & S_IFMT) | (mode & 07777);
	return r;
}

static void set_times(struct node *n, const struct stat *st, unsigned set,
		      const struct timespec *now)
{
	if (set & OVL_SET_ATIME_NOW)
		n->rec.atime = *now;
	else if (set & OVL_SET_ATIME)
		n->rec.atime = st->st_atim;
	if (set & OVL_SET_MTIME_NOW)
		n->rec.mtime = *now;
	else if (set & OVL_SET_MTIME)
		n->rec.mtime = st->st_mtim;
	n->rec.ctime = set & OVL_SET_CTIME ? st->st_ctim : *now;
}

/* EX. */
static int setattr_locked(struct ovl *o, store_ino ino, const struct stat *st, unsigned set,
			  struct ovl_attr *ret)
{
	struct timespec now = now_real();
	struct node *n;
	mode_t mode;
	int r = node_get(o, ino, &n);

	if (r == 0)
		r = node_may(o, n, POLICY_MAY_WRITE, "change of attributes");
	if (r == 0)
		r = host_materialise(o, n);
	if (r < 0)
		return r;
	mode = n->rec.mode;
	if (set & (OVL_SET_UID | OVL_SET_GID | OVL_SET_KILLPRIV))
		(void)kill_privileges(o, n);
	if (set & OVL_SET_MODE)
		r = set_mode(o, n, st->st_mode);
	if (r < 0) {
		n->rec.mode = mode;
		return r;
	}
	if (set & OVL_SET_UID)
		n->rec.uid = st->st_uid;
	if (set & OVL_SET_GID)
		n->rec.gid = st->st_gid;
	if (set & OVL_SET_SIZE && !(set & (OVL_SET_MTIME | OVL_SET_MTIME_NOW)))
		n->rec.mtime = now;
	set_times(n, st, set, &now);
	node_dirty(o, n);
	change_inode(o, n->ino);
	node_attr(o, n, ret);
	return 0;
}

int ovl_setattr(struct ovl *o, store_ino ino, const struct stat *st, unsigned set,
		struct ovl_attr *ret)
{
	int r;

	if (!set)
		return ovl_getattr(o, ino, ret);
	r = change_begin(o, set & OVL_SET_SIZE);
	if (r < 0)
		return r;
	if (set & OVL_SET_SIZE)
		r = file_truncate(o, ino, st->st_size);
	if (r == 0) {
		lock_excl(o);
		r = setattr_locked(o, ino, st, set, ret);
		if (r == 0)
			redo_arm(o, 0, 0);
		unlock(o);
	}
	change_end(o);
	return r;
}
