/* Attributes and extended attributes. */
#include "fs/through/through_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define DEV_SHIFT  48
#define OWN_NUMBER (UINT64_C(1) << 63)

/* ---- what is shown ---- */

/* The mount is one device, and the host's files are of several: number them apart. Those of the first keep theirs. */
uint64_t attr_ino(struct through *t, uint64_t dev, uint64_t ino)
{
	const uint64_t key[] = {dev, ino};
	size_t i = 0;

	through_lock(t);
	while (i < t->ndevs && t->devs[i] != dev)
		i++;
	if (i == t->ndevs && i < ARRAY_SIZE(t->devs))
		t->devs[t->ndevs++] = dev;
	through_unlock(t);
	if (i < ARRAY_SIZE(t->devs) && ino >> DEV_SHIFT == 0)
		return (uint64_t)i << DEV_SHIFT | ino;
	return table_hash(2, key, sizeof(key)) | OWN_NUMBER;
}

void attr_show(struct through *t, int pol, const struct stat *st, const struct timespec *btime,
	       struct ovl_attr *ret)
{
	*ret = (struct ovl_attr){.st = *st, .btime = *btime, .valid_ms = THROUGH_TTL_MS};
	ret->st.st_ino = attr_ino(t, st->st_dev, st->st_ino);
	ret->st.st_dev = 0;
	/* One that is only a way to others shows nothing of itself. */
	if (!(policy_may(t->policy, pol) & POLICY_MAY_READ)) {
		ret->st.st_size = 0;
		ret->st.st_blocks = 0;
		ret->st.st_nlink = 1;
		ret->st.st_atim = ret->st.st_mtim = ret->st.st_ctim = ret->btime =
			(struct timespec){0};
	}
}

static int attr_of(const struct use *u, int fd, struct ovl_attr *ret)
{
	static const struct stat empty = {.st_mode = S_IFDIR | 0555, .st_nlink = 2};
	struct ident id;
	struct stat st;
	int r;

	if (u->n->made_up) {
		attr_show(u->t, u->pol, &empty, &(struct timespec){0}, ret);
		return 0;
	}
	r = ident_of(fd, &id, &st);
	if (r == 0)
		attr_show(u->t, u->pol, &st, &id.btime, ret);
	return r;
}

int th_getattr(void *t, store_ino ino, uint64_t fh, struct ovl_attr *ret)
{
	cleanup_use struct use u = {0};
	int r = tnode_use(t, ino, FRESH_ENOUGH, &u);

	(void)fh;
	if (r == 0)
		r = may_node(&u, POLICY_MAY_PASS, "attributes");
	return r == 0 ? attr_of(&u, u.fd, ret) : r;
}

int th_statfs(void *arg, store_ino ino, struct statvfs *ret)
{
	struct through *t = arg;
	cleanup_use struct use u = {0};
	int r = tnode_use(t, ino, FRESH_ENOUGH, &u);

	if (r < 0)
		return r;
	return fstatvfs(u.fd >= 0 ? u.fd : t->root->fd, ret) < 0 ? ret_nerrno() : 0;
}

/* ---- changes ---- */

bool attr_kill(int fd)
{
	struct fd_path p = fd_path(fd);
	struct stat st;
	mode_t mode;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	mode = st.st_mode & 07777 & ~(mode_t)S_ISUID;
	if (mode & S_IXGRP)
		mode &= ~(mode_t)S_ISGID;
	return mode != (st.st_mode & 07777) && chmod(p.s, mode) == 0;
}

static int set_mode(const struct use *u, mode_t mode)
{
	struct fd_path p = fd_path(u->fd);

	if (u->n->id.type == S_IFLNK)
		return -EOPNOTSUPP;
	return chmod(p.s, mode & 07777) < 0 ? ret_nerrno() : 0;
}

static int set_owner(const struct use *u, const struct stat *st, unsigned set)
{
	uid_t uid = set & OVL_SET_UID ? st->st_uid : (uid_t)-1;
	gid_t gid = set & OVL_SET_GID ? st->st_gid : (gid_t)-1;

	return fchownat(u->fd, "", uid, gid, AT_EMPTY_PATH) < 0 ? ret_nerrno() : 0;
}

static int set_size(const struct use *u, const struct handle *h, off_t size)
{
	struct fd_path p = fd_path(u->fd);
	int r;

	if (u->n->id.type != S_IFREG)
		return u->n->id.type == S_IFDIR ? -EISDIR : -EINVAL;
	/* Who has it open may, whatever its mode is by now. */
	r = h && h->writes ? ftruncate(h->fd, size) : truncate(p.s, size);
	return r < 0 ? ret_nerrno() : 0;
}

static struct timespec time_to(unsigned set, unsigned bit, unsigned now, const struct timespec *t)
{
	if (set & now)
		return (struct timespec){.tv_nsec = UTIME_NOW};
	return set & bit ? *t : (struct timespec){.tv_nsec = UTIME_OMIT};
}

static int set_times(const struct use *u, const struct stat *st, unsigned set)
{
	const struct timespec ts[2] = {
		time_to(set, OVL_SET_ATIME, OVL_SET_ATIME_NOW, &st->st_atim),
		time_to(set, OVL_SET_MTIME, OVL_SET_MTIME_NOW, &st->st_mtim),
	};

	return utimensat(u->fd, "", ts, AT_EMPTY_PATH) < 0 ? ret_nerrno() : 0;
}

int th_setattr(void *t, store_ino ino, uint64_t fh, const struct stat *st, unsigned set,
	       struct ovl_attr *ret)
{
	const unsigned times =
		OVL_SET_ATIME | OVL_SET_MTIME | OVL_SET_ATIME_NOW | OVL_SET_MTIME_NOW;
	const struct handle *h = handle_of(t, ino, fh);
	cleanup_use struct use u = {0};
	int r;

	if (!set)
		return th_getattr(t, ino, fh, ret);
	r = tnode_use(t, ino, FRESH_NOW, &u);
	if (r == 0)
		r = may_node(&u, POLICY_MAY_WRITE, "change of attributes");
	if (r == 0 && set & (OVL_SET_UID | OVL_SET_GID))
		r = set_owner(&u, st, set);
	if (r == 0 && set & OVL_SET_SIZE)
		r = set_size(&u, h, st->st_size);
	if (r == 0 && set & (OVL_SET_UID | OVL_SET_GID | OVL_SET_KILLPRIV))
		(void)attr_kill(u.fd);
	if (r == 0 && set & OVL_SET_MODE)
		r = set_mode(&u, st->st_mode);
	if (r == 0 && set & times)
		r = set_times(&u, st, set);
	return r == 0 ? attr_of(&u, u.fd, ret) : r;
}

/* ---- extended attributes ---- */

/* Links have none that a user could set, and a descriptor of theirs names what they lead to. */
static int xattr_use(struct through *t, store_ino ino, unsigned what, const char *op,
		     struct use *ret)
{
	int r = tnode_use(t, ino, what & POLICY_MAY_WRITE ? FRESH_NOW : FRESH_ENOUGH, ret);

	if (r == 0)
		r = may_node(ret, what, op);
	if (r == 0 && (ret->n->id.type == S_IFLNK || ret->n->made_up))
		r = -EOPNOTSUPP;
	return r;
}

ssize_t th_getxattr(void *t, store_ino ino, const char *name, void *value, size_t size)
{
	cleanup_use struct use u = {0};
	int r = xattr_use(t, ino, POLICY_MAY_READ, "attributes", &u);
	struct fd_path p = fd_path(u.fd);
	ssize_t n;

	if (r < 0)
		return r == -EOPNOTSUPP ? -ENODATA : r;
	n = getxattr(p.s, name, value, size);
	return n < 0 ? ret_nerrno() : n;
}

ssize_t th_listxattr(void *t, store_ino ino, char *list, size_t size)
{
	cleanup_use struct use u = {0};
	int r = xattr_use(t, ino, POLICY_MAY_READ, "attributes", &u);
	struct fd_path p = fd_path(u.fd);
	ssize_t n;

	if (r < 0)
		return r == -EOPNOTSUPP ? 0 : r;
	n = listxattr(p.s, list, size);
	return n < 0 ? ret_nerrno() : n;
}

/* A new list drops the set-group-id bit of who is not in the group; the host takes this process for its user. */
static void kill_sgid(int fd)
{
	struct fd_path p = fd_path(fd);
	struct stat st;

	if (fstat(fd, &st) == 0 && st.st_mode & S_ISGID)
		(void)!chmod(p.s, st.st_mode & 07777 & ~(mode_t)S_ISGID);
}

int th_setxattr(void *t, store_ino ino, const char *name, const void *value, size_t size, int flags)
{
	cleanup_use struct use u = {0};
	int r = xattr_use(t, ino, POLICY_MAY_WRITE, "change of attributes", &u);
	struct fd_path p = fd_path(u.fd);

	if (r < 0)
		return r;
	if (setxattr(p.s, name, value, size, flags & (XATTR_CREATE | XATTR_REPLACE)) < 0)
		return ret_nerrno();
	if (flags & OVL_XATTR_KILL_SGID)
		kill_sgid(u.fd);
	return 0;
}

int th_removexattr(void *t, store_ino ino, const char *name)
{
	cleanup_use struct use u = {0};
	int r = xattr_use(t, ino, POLICY_MAY_WRITE, "change of attributes", &u);
	struct fd_path p = fd_path(u.fd);

	if (r < 0)
		return r;
	return removexattr(p.s, name) < 0 ? ret_nerrno() : 0;
}
