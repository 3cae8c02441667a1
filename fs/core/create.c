/* New names: mknod, mkdir, symlink, link, tmpfile. */
#include <stdlib.h>

#include "fs/core/acl.h"
#include "fs/core/ovl_internal.h"

#define NLINK_MAX 1000000000u

/* Owner, times, mode and access lists of an inode that is made in @dir. */
static int init_rec(struct ovl *o, struct node *n, struct node *dir, const struct new_inode *what,
		    const struct ovl_cred *cred, const struct timespec *now)
{
	struct rec_inode *r = &n->rec;
	mode_t mode = what->mode;
	int k;

	r->uid = cred->uid;
	r->gid = cred->gid;
	if (dir->rec.mode & S_ISGID) {
		r->gid = dir->rec.gid;
		if (S_ISDIR(mode))
			mode |= S_ISGID;
	}
	r->mode = mode;
	r->rdev = S_ISCHR(mode) || S_ISBLK(mode) ? what->rdev : 0;
	r->atime = r->mtime = r->ctime = r->btime = *now;
	r->nlink = S_ISDIR(mode) ? 2 : 1;
	if (what->target) {
		r->target = strdup(what->target);
		if (!r->target)
			return -ENOMEM;
		r->size = strlen(what->target);
	}
	if (S_ISLNK(mode))
		return 0;
	k = acl_inherit(o, dir, n, cred->umask);
	return k;
}

int node_make(struct ovl *o, struct node *dir, const struct new_inode *what,
	      const struct ovl_cred *cred, const struct timespec *now, struct node **ret)
{
	struct node *n;
	store_ino ino;
	int r = node_number(o, &ino);

	if (r < 0)
		return r;
	r = node_new(o, ino, &n);
	if (r < 0)
		return r;
	n->born = o->layer;
	r = init_rec(o, n, dir, what, cred, now);
	if (r < 0) {
		node_unmake(o, n);
		return r;
	}
	if (S_ISDIR(n->rec.mode)) {
		n->new_dir = true;
		if (listing_new(&n->listing) < 0)
			n->listing = NULL; /* the first readdir makes it */
	}
	*ret = n;
	return 0;
}

void node_unmake(struct ovl *o, struct node *n)
{
	n->rec.nlink = 0;
	node_reap(o, n);
}

/* The directory and the free name in it, for @op. @what: what the policy has to allow there. */
static int free_name(struct ovl *o, store_ino parent, const char *name, size_t len, unsigned what,
		     const char *op, struct node **ret_dir, struct found *f)
{
	int r = node_get_dir(o, parent, true, ret_dir);

	/* First: whether something is at a closed place is nobody's business. */
	if (r == 0)
		r = name_may(o, *ret_dir, name, len, POLICY_MAY_PASS, op);
	if (r == 0)
		r = name_lookup(o, *ret_dir, name, len, true, f);
	if (r == 0 && (f->ino || f->host))
		r = -EEXIST;
	if (r == 0)
		r = name_may(o, *ret_dir, name, len, what, op);
	if (r == 0)
		r = host_materialise(o, *ret_dir);
	return r;
}

static int make_locked(struct ovl *o, store_ino parent, const char *name, size_t len,
		       const struct new_inode *what, const struct ovl_cred *cred,
		       struct ovl_entry *ret)
{
	cleanup_name struct name *e = NULL;
	struct timespec now = now_real();
	bool isdir = S_ISDIR(what->mode);
	struct node *dir, *n;
	struct found f;
	int r = free_name(o, parent, name, len, isdir ? POLICY_MAY_MKDIR : POLICY_MAY_PUT,
			  isdir ? "mkdir" : "create", &dir, &f);

	if (r == 0 && isdir && dir->rec.nlink >= NLINK_MAX)
		r = -EMLINK;
	if (r == 0)
		r = name_prepare(o, dir, name, len, &e);
	if (r == 0)
		r = node_make(o, dir, what, cred, &now, &n);
	if (r < 0)
		return r;
	r = node_set_place(n, dir->ino, name, len);
	if (r < 0) {
		node_unmake(o, n);
		return r;
	}
	node_found(o, dir, name, len, n);
	name_set(o, &e, &f, n->ino, n->rec.mode & S_IFMT);
	dir_touched(o, dir, &now, isdir ? 1 : 0);
	node_dirty(o, n);
	node_entry(o, n, OVL_FOREVER, ret);
	redo_arm(o, 0, n->ino);
	return 0;
}

/* change_begin() for a name that is to be made. */
static int begin_name(struct ovl *o, const char *name, size_t *ret_len)
{
	int r = name_check(name, ret_len);

	if (r < 0)
		return r;
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return -EEXIST;
	return change_begin(o, true);
}

static int make(struct ovl *o, store_ino parent, const char *name, const struct new_inode *what,
		const struct ovl_cred *cred, struct ovl_entry *ret)
{
	size_t len;
	int r = begin_name(o, name, &len);

	if (r < 0)
		return r;
	lock_excl(o);
	r = make_locked(o, parent, name, len, what, cred, ret);
	unlock(o);
	change_end(o);
	return r;
}

int ovl_mknod(struct ovl *o, store_ino parent, const char *name, mode_t mode, dev_t rdev,
	      const struct ovl_cred *cred, struct ovl_entry *ret)
{
	struct new_inode what = {.mode = mode, .rdev = rdev};

	/* Or no flush would ever succeed again: the store takes no others. */
	if (mode & ~(mode_t)(S_IFMT | 07777))
		return -EINVAL;
	if ((mode & S_IFMT) == 0)
		what.mode |= S_IFREG;
	switch (what.mode & S_IFMT) {
	case S_IFREG:
	case S_IFIFO:
	case S_IFSOCK:
	case S_IFCHR:
	case S_IFBLK:
		return make(o, parent, name, &what, cred, ret);
	default:
		return (mode & S_IFMT) == S_IFDIR ? -EPERM : -EINVAL;
	}
}

int ovl_mkdir(struct ovl *o, store_ino parent, const char *name, mode_t mode,
	      const struct ovl_cred *cred, struct ovl_entry *ret)
{
	struct new_inode what = {.mode = S_IFDIR | (mode & 07777)};

	return make(o, parent, name, &what, cred, ret);
}

int ovl_symlink(struct ovl *o, store_ino parent, const char *name, const char *target,
		const struct ovl_cred *cred, struct ovl_entry *ret)
{
	struct new_inode what = {.mode = S_IFLNK | 0777, .target = target};
	size_t len = strnlen(target, 4096);

	if (len == 0)
		return -ENOENT;
	if (len >= 4096)
		return -ENAMETOOLONG;
	return make(o, parent, name, &what, cred, ret);
}

static int tmpfile_locked(struct ovl *o, store_ino parent, mode_t mode, const struct ovl_cred *cred,
			  struct ovl_entry *ret)
{
	struct new_inode what = {.mode = S_IFREG | (mode & 07777)};
	struct timespec now = now_real();
	struct node *dir, *n;
	int r = node_get_dir(o, parent, true, &dir);

	if (r == 0) /* no name yet: it must be allowed everywhere in the directory */
		r = name_may(o, dir, "", 0, POLICY_MAY_PUT, "create");
	if (r == 0)
		r = node_make(o, dir, &what, cred, &now, &n);
	if (r < 0)
		return r;
	n->rec.nlink = 0;
	n->tmpfile = true;
	node_found(o, dir, "", 0, n);
	node_entry(o, n, 0, ret);
	if (o->journal) {
		redo_orphan(o, n);
		node_dirty(o, n); /* the flush keeps what a successor has to find */
	}
	redo_arm(o, 0, n->ino);
	return 0;
}

int ovl_tmpfile(struct ovl *o, store_ino parent, mode_t mode, const struct ovl_cred *cred,
		struct ovl_entry *ret)
{
	int r = change_begin(o, true);

	if (r < 0)
		return r;
	lock_excl(o);
	r = tmpfile_locked(o, parent, mode, cred, ret);
	unlock(o);
	change_end(o);
	return r;
}

static int link_locked(struct ovl *o, store_ino ino, store_ino parent, const char *name, size_t len,
		       struct ovl_entry *ret)
{
	cleanup_name struct name *e = NULL;
	cleanup_place struct place_plan plan = {0};
	struct timespec now = now_real();
	struct node *dir, *n;
	struct found f;
	int r = node_get(o, ino, &n);

	if (r < 0)
		return r;
	r = free_name(o, parent, name, len, POLICY_MAY_PUT, "link", &dir, &f);
	if (r == 0 && S_ISDIR(n->rec.mode))
		r = -EPERM;
	if (r == 0 && n->rec.nlink == 0 && !n->tmpfile)
		r = -ENOENT;
	if (r == 0 && n->rec.nlink >= NLINK_MAX)
		r = -EMLINK;
	if (r == 0) /* a link would open a protected file to changes */
		r = node_may(o, n, POLICY_MAY_WRITE, "link");
	if (r == 0)
		r = host_materialise(o, n);
	if (r == 0)
		r = name_prepare(o, dir, name, len, &e);
	if (r == 0)
		r = place_add(n, dir->ino, name, len, &plan);
	if (r < 0)
		return r;
	place_do(o, n, &plan);
	n->rec.nlink++;
	n->tmpfile = false;
	n->rec.ctime = now;
	node_found(o, dir, name, len, n);
	name_set(o, &e, &f, n->ino, n->rec.mode & S_IFMT);
	dir_touched(o, dir, &now, 0);
	dir->turns++;
	node_dirty(o, n);
	node_entry(o, n, OVL_FOREVER, ret);
	redo_arm(o, 0, n->ino);
	return 0;
}

int ovl_link(struct ovl *o, store_ino ino, store_ino parent, const char *name,
	     struct ovl_entry *ret)
{
	size_t len;
	int r = begin_name(o, name, &len);

	if (r < 0)
		return r;
	lock_excl(o);
	r = link_locked(o, ino, parent, name, len, ret);
	unlock(o);
	change_end(o);
	return r;
}
