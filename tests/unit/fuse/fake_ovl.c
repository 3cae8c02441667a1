#include "tests/unit/fuse/fake_ovl.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void hold(struct ovl *o)
{
	atomic_fetch_add(&o->held, 1);
	while (atomic_load(&o->hold))
		(void)usleep(200);
	atomic_fetch_sub(&o->held, 1);
}

static uint32_t valid(struct ovl *o)
{
	uint32_t ms = atomic_load(&o->valid_ms);

	return ms ? ms : OVL_FOREVER;
}

static void fill(struct ovl *o, store_ino ino, struct ovl_attr *a)
{
	uint64_t size = atomic_load(&o->size);

	*a = (struct ovl_attr){
		.st = {.st_ino = ino,
		       .st_mode = ino == 1 || ino == FAKE_DIR
					  ? S_IFDIR | 0755
					  : S_IFREG | (ino != FAKE_SETUID           ? 0644
						       : atomic_load(&o->no_setuid) ? 0755
										    : 04755),
		       .st_nlink = (nlink_t)(1 + atomic_load(&o->more_links)),
		       .st_ctim.tv_sec = atomic_load(&o->ctime),
		       .st_uid = 1234,
		       .st_gid = 1235,
		       .st_size = (off_t)(size ? size : FAKE_SIZE),
		       .st_blksize = 131072},
		.btime = {.tv_sec = 4711, .tv_nsec = 42},
		.valid_ms = valid(o),
		.unsettled = atomic_load(&o->unsettled),
	};
}

static int entry(struct ovl *o, store_ino ino, struct ovl_entry *e)
{
	e->ino = ino;
	e->valid_ms = valid(o);
	fill(o, ino, &e->attr);
	atomic_fetch_add(&o->refs, 1);
	return 0;
}

bool ovl_broken(struct ovl *o)
{
	(void)o;
	return false;
}

int ovl_lookup(struct ovl *o, store_ino parent, const char *name, struct ovl_entry *ret)
{
	(void)parent;
	memset(ret, 0, sizeof(*ret));
	if (!strcmp(name, "enosys"))
		return -ENOSYS;
	if (!strcmp(name, "internal"))
		return -30798;
	if (!strcmp(name, "restart"))
		return -512;
	if (name[0] >= 'a' && name[0] <= 'h' && !name[1])
		return entry(o, FAKE_FIRST + (store_ino)(name[0] - 'a'), ret);
	ret->valid_ms = valid(o);
	return 0;
}

void ovl_forget(struct ovl *o, store_ino ino, uint64_t n)
{
	if (ino != 1)
		atomic_fetch_sub(&o->refs, (int)n);
}

static int created(struct ovl *o, store_ino ino, const struct ovl_cred *cred, struct ovl_entry *ret)
{
	int r = atomic_load(&o->result);

	atomic_store(&o->uid, cred->uid);
	atomic_store(&o->umask, cred->umask);
	return r < 0 ? r : entry(o, ino, ret);
}

int ovl_mknod(struct ovl *o, store_ino parent, const char *name, mode_t mode, dev_t rdev,
	      const struct ovl_cred *cred, struct ovl_entry *ret)
{
	(void)parent, (void)name, (void)mode, (void)rdev;
	return created(o, FAKE_NEW, cred, ret);
}

int ovl_mkdir(struct ovl *o, store_ino parent, const char *name, mode_t mode,
	      const struct ovl_cred *cred, struct ovl_entry *ret)
{
	(void)parent, (void)name, (void)mode;
	return created(o, FAKE_DIR, cred, ret);
}

int ovl_symlink(struct ovl *o, store_ino parent, const char *name, const char *target,
		const struct ovl_cred *cred, struct ovl_entry *ret)
{
	(void)parent, (void)name, (void)target;
	return created(o, FAKE_NEW, cred, ret);
}

int ovl_tmpfile(struct ovl *o, store_ino parent, mode_t mode, const struct ovl_cred *cred,
		struct ovl_entry *ret)
{
	(void)parent, (void)mode;
	atomic_fetch_add(&o->tmpfiles, 1);
	return created(o, FAKE_NEW, cred, ret);
}

int ovl_link(struct ovl *o, store_ino ino, store_ino parent, const char *name,
	     struct ovl_entry *ret)
{
	(void)parent, (void)name;
	return entry(o, ino, ret);
}

int ovl_unlink(struct ovl *o, store_ino parent, const char *name)
{
	(void)parent, (void)name;
	return atomic_load(&o->result);
}

int ovl_rmdir(struct ovl *o, store_ino parent, const char *name)
{
	(void)parent, (void)name;
	return atomic_load(&o->result);
}

int ovl_rename_told(struct ovl *o, store_ino parent, const char *name, store_ino newparent,
		    const char *newname, unsigned flags, const struct ovl_cred *cred,
		    store_ino ret_moved[static 2])
{
	(void)parent, (void)name, (void)newparent, (void)newname, (void)flags, (void)cred;
	ret_moved[0] = ret_moved[1] = 0;
	return atomic_load(&o->result);
}

store_ino ovl_unsettled(struct ovl *o, store_ino ino, uint32_t *ret_which)
{
	(void)ino;
	*ret_which = atomic_load(&o->unsettled);
	return atomic_exchange(&o->told, true) ? 0 : 1;
}

void ovl_settled(struct ovl *o, store_ino ino, uint32_t which)
{
	(void)ino;
	if (which == atomic_load(&o->unsettled))
		atomic_store(&o->unsettled, 0);
}

int ovl_readlink(struct ovl *o, store_ino ino, char ret_target[static 4096])
{
	(void)o, (void)ino, (void)ret_target;
	return -EINVAL;
}

void ovl_keep_order(struct ovl *o, store_ino dir)
{
	(void)o, (void)dir;
}

int ovl_readdir(struct ovl *o, store_ino dir, uint64_t cookie, bool plus,
		int (*fn)(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e),
		void *arg)
{
	uint64_t n = atomic_load(&o->many) ? 5000 : 8;
	struct ovl_entry e;
	char name[24];

	(void)dir;
	for (uint64_t i = cookie; i < n + 2; i++) {
		bool dot = i < 2;

		memset(&e, 0, sizeof(e));
		e.ino = dot ? 1 : FAKE_FIRST + (i - 2);
		e.valid_ms = valid(o);
		fill(o, e.ino, &e.attr);
		(void)snprintf(name, sizeof(name), "%s", i == 0 ? "." : "..");
		if (!dot && n == 8)
			(void)snprintf(name, sizeof(name), "%c", (char)('a' + (char)(i - 2)));
		else if (!dot)
			(void)snprintf(name, sizeof(name), "n%llu", (unsigned long long)i);
		if (fn(arg, name, i + 1, &e))
			break;
		if (plus && !dot)
			atomic_fetch_add(&o->refs, 1);
	}
	return 0;
}

int ovl_getattr(struct ovl *o, store_ino ino, struct ovl_attr *ret)
{
	fill(o, ino, ret);
	if (atomic_compare_exchange_strong(&o->hold_attr, &ino, 0))
		hold(o);
	return 0;
}

int ovl_setattr(struct ovl *o, store_ino ino, const struct stat *st, unsigned set,
		struct ovl_attr *ret)
{
	int r = atomic_load(&o->result);

	atomic_store(&o->set, set);
	atomic_store(&o->uid, st->st_uid);
	fill(o, ino, ret);
	return r;
}

int ovl_statfs(struct ovl *o, struct statvfs *ret)
{
	(void)o;
	memset(ret, 0, sizeof(*ret));
	ret->f_bsize = ret->f_frsize = 4096;
	ret->f_blocks = 1234;
	ret->f_namemax = 255;
	return 0;
}

static const char xattr_value[] = "0123456789";

ssize_t ovl_getxattr(struct ovl *o, store_ino ino, const char *name, void *value, size_t size)
{
	(void)o, (void)ino;
	if (strcmp(name, "user.x") != 0)
		return -ENODATA;
	if (size && size < sizeof(xattr_value) - 1)
		return -ERANGE;
	if (size)
		memcpy(value, xattr_value, sizeof(xattr_value) - 1);
	return (ssize_t)sizeof(xattr_value) - 1;
}

ssize_t ovl_listxattr(struct ovl *o, store_ino ino, char *list, size_t size)
{
	(void)o, (void)ino;
	if (size)
		memcpy(list, "user.x", 7);
	return 7;
}

int ovl_setxattr(struct ovl *o, store_ino ino, const char *name, const void *value, size_t size,
		 int flags)
{
	(void)ino;
	atomic_store(&o->xattr_size, (int)size);
	atomic_store(&o->xattr_flags, flags);
	atomic_store(&o->xattr_first, strcmp(name, "user.x") != 0 ? -1
				      : size                      ? *(const char *)value
								  : 0);
	return atomic_load(&o->result);
}

int ovl_removexattr(struct ovl *o, store_ino ino, const char *name)
{
	(void)ino, (void)name;
	return atomic_load(&o->result);
}

ssize_t ovl_read(struct ovl *o, store_ino ino, uint64_t off, void *buf, size_t n)
{
	int us = atomic_load(&o->read_delay_us);

	if (ino == FAKE_FIRST)
		hold(o);
	if (us)
		(void)usleep((useconds_t)us);
	if (off >= FAKE_SIZE)
		return 0;
	n = n < FAKE_SIZE - off ? n : FAKE_SIZE - off;
	memset(buf, (int)('A' + (ino - FAKE_FIRST)), n);
	return (ssize_t)n;
}

ssize_t ovl_write_told(struct ovl *o, store_ino ino, uint64_t off, const void *buf, size_t n,
		       bool *killpriv)
{
	int r = atomic_load(&o->result);

	(void)ino, (void)off, (void)buf;
	atomic_fetch_add(&o->writes, 1);
	if (atomic_exchange(&o->hold_write, false))
		hold(o);
	if (killpriv) {
		atomic_fetch_add(&o->killpriv, 1);
		*killpriv = ino == FAKE_SETUID && !atomic_exchange(&o->no_setuid, true);
	}
	return r < 0 ? r : (ssize_t)n;
}

int ovl_fallocate(struct ovl *o, store_ino ino, int mode, uint64_t off, uint64_t len)
{
	(void)ino, (void)mode, (void)off, (void)len;
	return atomic_load(&o->result);
}

int64_t ovl_lseek(struct ovl *o, store_ino ino, int64_t off, int whence)
{
	(void)o, (void)ino;
	return whence == SEEK_DATA ? off + 4096 : FAKE_SIZE;
}

ssize_t ovl_copy_range(struct ovl *o, store_ino in, uint64_t off_in, store_ino out,
		       uint64_t off_out, uint64_t n)
{
	(void)in, (void)off_in, (void)out, (void)off_out;
	atomic_fetch_add(&o->copies, 1);
	return (ssize_t)n;
}

int ovl_fsync(struct ovl *o, store_ino ino, bool datasync)
{
	(void)ino, (void)datasync;
	atomic_fetch_add(&o->fsyncs, 1);
	hold(o);
	return atomic_load(&o->result);
}

int ovl_sync(struct ovl *o)
{
	atomic_fetch_add(&o->flushes, 1);
	return atomic_load(&o->result);
}

bool ovl_opens_matter(struct ovl *o)
{
	return atomic_load(&o->opens);
}

int ovl_may_open(struct ovl *o, store_ino ino, bool change)
{
	(void)ino;
	return change && atomic_load(&o->opens) ? -EACCES : 0;
}

bool ovl_names_change(struct ovl *o, store_ino dir)
{
	(void)o;
	(void)dir;
	return false;
}

int ovl_maybe_mapped(struct ovl *o, int (*fn)(void *arg, store_ino ino), void *arg)
{
	int r = 0;

	(void)o;
	for (store_ino ino = FAKE_FIRST; r == 0 && ino < FAKE_FIRST + 200; ino++)
		r = fn(arg, ino);
	return r;
}

void ovl_request(struct ovl *o, uint64_t tag, unsigned slot)
{
	(void)o, (void)tag, (void)slot;
}

int ovl_request_done(struct ovl *o, uint64_t tag, store_ino ino, struct ovl_done *ret)
{
	(void)o, (void)tag, (void)ino, (void)ret;
	return 0;
}
