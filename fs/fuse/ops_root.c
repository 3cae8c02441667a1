/* What a provisioning run's root may do that the kernel, which knows one id, does not ask for (stage3/root_abi.h). */
#include "fs/fuse/session_internal.h"

#include <endian.h>
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>

#include "stage3/root_abi.h"

#define CAPABILITY "security.capability"

static ssize_t get_owner(struct session *se, store_ino ino, void *value, size_t size)
{
	struct root_owner o;
	struct ovl_attr a;
	int r;

	if (size == 0)
		return sizeof(o);
	if (size < sizeof(o))
		return -ERANGE;
	r = TREE(se, getattr, ino, 0, &a);
	if (r < 0)
		return r;
	o = (struct root_owner){.uid = a.st.st_uid, .gid = a.st.st_gid};
	memcpy(value, &o, sizeof(o));
	return sizeof(o);
}

static int set_owner(struct session *se, store_ino ino, const void *value, size_t size)
{
	struct stat st = {0};
	struct root_owner o;
	struct ovl_attr a;
	unsigned set = 0;
	int r;

	if (size != sizeof(o))
		return -EINVAL;
	memcpy(&o, value, sizeof(o));
	if (o.uid != ROOT_KEEP)
		set |= OVL_SET_UID;
	if (o.gid != ROOT_KEEP)
		set |= OVL_SET_GID;
	st.st_uid = o.uid;
	st.st_gid = o.gid;
	r = TREE(se, setattr, ino, 0, &st, set, &a);
	if (r == 0)
		session_attr_changed(se, ino);
	return r;
}

static int make_node(struct session *se, store_ino dir, const void *value, size_t size)
{
	const struct ovl_cred root = {0};
	struct root_node n;
	const char *name = (const char *)value + sizeof(n);
	struct ovl_entry e;
	int r;

	if (size <= sizeof(n) ||
	    memchr(name, '\0', size - sizeof(n)) != name + size - sizeof(n) - 1)
		return -EINVAL;
	memcpy(&n, value, sizeof(n));
	if ((!S_ISCHR(n.mode) && !S_ISBLK(n.mode)) || n.mode & ~(uint32_t)(S_IFMT | 07777))
		return -EINVAL;
	/* The kernel's 32 bits: twelve of the major number between the minor's halves. */
	r = TREE(se, mknod, dir, name, n.mode,
		 makedev((n.dev & 0xfff00) >> 8, (n.dev & 0xff) | ((n.dev >> 12) & 0xfff00)), &root,
		 &e);
	if (r < 0)
		return r;
	TREE(se, forget, e.ino, 1);
	session_attr_changed(se, dir);
	return 0;
}

/* What the tree calls the list that @name means; NULL: none. */
static const char *acl_of(const char *name)
{
	if (!strcmp(name, ROOT_XATTR_ACL "access"))
		return "system.posix_acl_access";
	return !strcmp(name, ROOT_XATTR_ACL "default") ? "system.posix_acl_default" : NULL;
}

/* Ids are not those of the kernel's namespace, which could not tell them. */
static int set_acl(struct session *se, store_ino ino, const char *list, const void *value,
		   size_t size, int flags)
{
	int r = TREE(se, setxattr, ino, list, value, size, flags);

	if (r == 0)
		session_attr_changed(se, ino);
	return r;
}

void root_maker(const struct session_ids *ids, pid_t pid, struct ovl_cred *cred)
{
	struct root_owner o;
	struct rlimit lim;

	if (!ids->root || pid <= 0 || prlimit(pid, ROOT_WHO_LIMIT, NULL, &lim) < 0 ||
	    !root_who_carried(&lim))
		return;
	o = root_who_owner(lim.rlim_cur);
	cred->uid = o.uid;
	cred->gid = o.gid;
}

bool root_getxattr(struct session *se, store_ino ino, const char *name, void *value, size_t size,
		   ssize_t *ret)
{
	const char *list = se->ids.root ? acl_of(name) : NULL;

	if (list)
		*ret = TREE(se, getxattr, ino, list, value, size);
	else if (se->ids.root && !strcmp(name, ROOT_XATTR_OWNER))
		*ret = get_owner(se, ino, value, size);
	else
		return false;
	return true;
}

bool root_setxattr(struct session *se, store_ino ino, const char *name, const void *value,
		   size_t size, int flags, int *ret)
{
	const char *list = se->ids.root ? acl_of(name) : NULL;

	if (!se->ids.root)
		return false;
	if (!strcmp(name, ROOT_XATTR_OWNER))
		*ret = set_owner(se, ino, value, size);
	else if (!strcmp(name, ROOT_XATTR_NODE))
		*ret = make_node(se, ino, value, size);
	else if (list)
		*ret = set_acl(se, ino, list, value, size, flags);
	else
		return false;
	return true;
}

size_t root_capability(const struct session_ids *ids, const char *name, void *value, size_t size)
{
	struct vfs_ns_cap_data c;

	if (!ids->root || strcmp(name, CAPABILITY) != 0 || size != XATTR_CAPS_SZ_3)
		return size;
	memcpy(&c, value, sizeof(c));
	if ((le32toh(c.magic_etc) & VFS_CAP_REVISION_MASK) != VFS_CAP_REVISION_3 ||
	    le32toh(c.rootid) != ids->show_uid)
		return size;
	c.magic_etc = htole32((le32toh(c.magic_etc) & ~VFS_CAP_REVISION_MASK) | VFS_CAP_REVISION_2);
	memcpy(value, &c, XATTR_CAPS_SZ_2);
	return XATTR_CAPS_SZ_2;
}
