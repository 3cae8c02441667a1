/* The copy-on-write tree as a session asks for it. It has no handles: an inode is all that an operation needs. */
#include "fs/fuse/tree.h"

#include <fcntl.h>

static void o_request(void *t, uint64_t tag, unsigned slot)
{
	ovl_request(t, tag, slot);
}

static int o_request_done(void *t, uint64_t tag, store_ino ino, struct ovl_done *ret)
{
	return ovl_request_done(t, tag, ino, ret);
}

static bool o_broken(void *t)
{
	return ovl_broken(t);
}

static bool o_opens_matter(void *t)
{
	return ovl_opens_matter(t);
}

static int o_maybe_mapped(void *t, int (*fn)(void *arg, store_ino ino), void *arg)
{
	return ovl_maybe_mapped(t, fn, arg);
}

static store_ino o_unsettled(void *t, store_ino ino, uint32_t *ret_which)
{
	return ovl_unsettled(t, ino, ret_which);
}

static void o_settled(void *t, store_ino ino, uint32_t which)
{
	ovl_settled(t, ino, which);
}

/* ---- names ---- */

static int o_lookup(void *t, store_ino parent, const char *name, struct ovl_entry *ret)
{
	return ovl_lookup(t, parent, name, ret);
}

static void o_forget(void *t, store_ino ino, uint64_t n)
{
	ovl_forget(t, ino, n);
}

static int o_mknod(void *t, store_ino parent, const char *name, mode_t mode, dev_t rdev,
		   const struct ovl_cred *cred, struct ovl_entry *ret)
{
	return ovl_mknod(t, parent, name, mode, rdev, cred, ret);
}

static int o_mkdir(void *t, store_ino parent, const char *name, mode_t mode,
		   const struct ovl_cred *cred, struct ovl_entry *ret)
{
	return ovl_mkdir(t, parent, name, mode, cred, ret);
}

static int o_symlink(void *t, store_ino parent, const char *name, const char *target,
		     const struct ovl_cred *cred, struct ovl_entry *ret)
{
	return ovl_symlink(t, parent, name, target, cred, ret);
}

static int o_link(void *t, store_ino ino, store_ino parent, const char *name, struct ovl_entry *ret)
{
	return ovl_link(t, ino, parent, name, ret);
}

static int o_unlink(void *t, store_ino parent, const char *name)
{
	return ovl_unlink(t, parent, name);
}

static int o_rmdir(void *t, store_ino parent, const char *name)
{
	return ovl_rmdir(t, parent, name);
}

static int o_rename(void *t, store_ino parent, const char *name, store_ino newparent,
		    const char *newname, unsigned flags, const struct ovl_cred *cred,
		    store_ino ret_moved[static 2])
{
	return ovl_rename_told(t, parent, name, newparent, newname, flags, cred, ret_moved);
}

static int o_readlink(void *t, store_ino ino, char ret_target[static 4096])
{
	return ovl_readlink(t, ino, ret_target);
}

static int o_readdir(void *t, store_ino dir, uint64_t fh, uint64_t cookie, bool plus,
		     int (*fn)(void *arg, const char *name, uint64_t cookie,
			       const struct ovl_entry *e),
		     void *arg)
{
	(void)fh;
	return ovl_readdir(t, dir, cookie, plus, fn, arg);
}

static void o_keep_order(void *t, store_ino dir)
{
	ovl_keep_order(t, dir);
}

static bool o_names_change(void *t, store_ino dir)
{
	return ovl_names_change(t, dir);
}

/* ---- openings ---- */

/* The kernel makes it with MKNOD then, once and for all. */
static int o_create(void *t, store_ino parent, const char *name, mode_t mode, int flags,
		    const struct ovl_cred *cred, struct ovl_entry *ret, struct tree_open *ret_o)
{
	(void)t, (void)parent, (void)name, (void)mode, (void)flags;
	(void)cred, (void)ret, (void)ret_o;
	return -ENOSYS;
}

static int o_tmpfile(void *t, store_ino parent, mode_t mode, int flags, const struct ovl_cred *cred,
		     struct ovl_entry *ret, struct tree_open *ret_o)
{
	(void)flags;
	*ret_o = (struct tree_open){.keep = true};
	return ovl_tmpfile(t, parent, mode, cred, ret);
}

static int o_open(void *t, store_ino ino, int flags, struct tree_open *ret)
{
	*ret = (struct tree_open){.keep = true};
	return ovl_may_open(t, ino, (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC);
}

static int o_opendir(void *t, store_ino ino, struct tree_open *ret)
{
	*ret = (struct tree_open){.keep = !ovl_names_change(t, ino)};
	return ovl_may_open(t, ino, false);
}

static void o_release(void *t, store_ino ino, uint64_t fh)
{
	(void)t, (void)ino, (void)fh;
}

/* ---- attributes ---- */

static int o_getattr(void *t, store_ino ino, uint64_t fh, struct ovl_attr *ret)
{
	(void)fh;
	return ovl_getattr(t, ino, ret);
}

static int o_setattr(void *t, store_ino ino, uint64_t fh, const struct stat *st, unsigned set,
		     struct ovl_attr *ret)
{
	(void)fh;
	return ovl_setattr(t, ino, st, set, ret);
}

static int o_statfs(void *t, store_ino ino, struct statvfs *ret)
{
	(void)ino;
	return ovl_statfs(t, ret);
}

static ssize_t o_getxattr(void *t, store_ino ino, const char *name, void *value, size_t size)
{
	return ovl_getxattr(t, ino, name, value, size);
}

static ssize_t o_listxattr(void *t, store_ino ino, char *list, size_t size)
{
	return ovl_listxattr(t, ino, list, size);
}

static int o_setxattr(void *t, store_ino ino, const char *name, const void *value, size_t size,
		      int flags)
{
	return ovl_setxattr(t, ino, name, value, size, flags);
}

static int o_removexattr(void *t, store_ino ino, const char *name)
{
	return ovl_removexattr(t, ino, name);
}

/* ---- content ---- */

static ssize_t o_read(void *t, store_ino ino, uint64_t fh, uint64_t off, void *buf, size_t n)
{
	(void)fh;
	return ovl_read(t, ino, off, buf, n);
}

/* The kernel knows where the end is: nobody else moves it. */
static ssize_t o_write(void *t, store_ino ino, uint64_t fh, uint64_t off, const void *buf, size_t n,
		       unsigned how, bool *killpriv)
{
	(void)fh, (void)how;
	return ovl_write_told(t, ino, off, buf, n, killpriv);
}

static int o_fallocate(void *t, store_ino ino, uint64_t fh, int mode, uint64_t off, uint64_t len)
{
	(void)fh;
	return ovl_fallocate(t, ino, mode, off, len);
}

static int64_t o_lseek(void *t, store_ino ino, uint64_t fh, int64_t off, int whence)
{
	(void)fh;
	return ovl_lseek(t, ino, off, whence);
}

static ssize_t o_copy_range(void *t, store_ino in, uint64_t fh_in, uint64_t off_in, store_ino out,
			    uint64_t fh_out, uint64_t off_out, uint64_t n)
{
	(void)fh_in, (void)fh_out;
	return ovl_copy_range(t, in, off_in, out, off_out, n);
}

static int o_fsync(void *t, store_ino ino, uint64_t fh, bool datasync)
{
	(void)fh;
	return ovl_fsync(t, ino, datasync);
}

/* Names are made durable together with everything else. */
static int o_fsyncdir(void *t, store_ino ino, uint64_t fh, bool datasync)
{
	(void)ino, (void)fh, (void)datasync;
	return ovl_sync(t);
}

struct tree tree_of_ovl(struct ovl *o)
{
	static const struct tree_ops ops = {
		.request = o_request,
		.request_done = o_request_done,
		.broken = o_broken,
		.opens_matter = o_opens_matter,
		.maybe_mapped = o_maybe_mapped,
		.unsettled = o_unsettled,
		.settled = o_settled,
		.lookup = o_lookup,
		.forget = o_forget,
		.mknod = o_mknod,
		.mkdir = o_mkdir,
		.symlink = o_symlink,
		.link = o_link,
		.unlink = o_unlink,
		.rmdir = o_rmdir,
		.rename = o_rename,
		.readlink = o_readlink,
		.readdir = o_readdir,
		.keep_order = o_keep_order,
		.names_change = o_names_change,
		.create = o_create,
		.tmpfile = o_tmpfile,
		.open = o_open,
		.opendir = o_opendir,
		.release = o_release,
		.getattr = o_getattr,
		.setattr = o_setattr,
		.statfs = o_statfs,
		.getxattr = o_getxattr,
		.listxattr = o_listxattr,
		.setxattr = o_setxattr,
		.removexattr = o_removexattr,
		.read = o_read,
		.write = o_write,
		.fallocate = o_fallocate,
		.lseek = o_lseek,
		.copy_range = o_copy_range,
		.fsync = o_fsync,
		.fsyncdir = o_fsyncdir,
	};

	return (struct tree){.ops = &ops, .t = o};
}
