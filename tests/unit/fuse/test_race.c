/* Answers that overtake each other on their way into the kernel: what it caches must be the newest, and its own
 * count of links must not lose one twice. */
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/fuse/mount.h"
#include "fs/fuse/proto.h"
#include "tests/lib/tap.h"
#include "tests/unit/fuse/fake_ovl.h"
#include "tests/unit/fuse/rig.h"

/* ---- what clients do; a negative result is -errno ---- */

static int ctime_of(const char *name, int force)
{
	struct statx sx;

	if (statx(AT_FDCWD, name, force ? AT_STATX_FORCE_SYNC : 0, STATX_BASIC_STATS, &sx) < 0)
		return -errno;
	return (int)sx.stx_ctime.tv_sec;
}

static int c_ctime(int force)
{
	return ctime_of("a", force);
}

static int c_dir_ctime(int force)
{
	return ctime_of(".", force);
}

static int c_links(int arg)
{
	struct stat st;

	(void)arg;
	return stat("a", &st) < 0 ? -errno : (int)st.st_nlink;
}

static int c_setxattr(int arg)
{
	(void)arg;
	return setxattr("a", "user.x", "y", 1, 0) < 0 ? -errno : 0;
}

static int c_setxattr_n(int size)
{
	static char value[65536] = {'z'};

	return setxattr("a", "user.x", value, (size_t)size, XATTR_CREATE) < 0 ? -errno : 0;
}

/* The mode and nothing else, which needs no time. */
static int c_mode(int arg)
{
	struct statx sx;

	(void)arg;
	return statx(AT_FDCWD, "h", 0, STATX_MODE, &sx) < 0 ? -errno : sx.stx_mode & 07777;
}

static int c_write(int arg)
{
	int fd = open("h", O_WRONLY | O_CLOEXEC), r = fd < 0 || write(fd, "x", 1) != 1 ? -errno : 0;

	(void)arg;
	(void)close(fd);
	return r;
}

static int c_fallocate(int arg)
{
	int fd = open("a", O_WRONLY | O_CLOEXEC), r;

	(void)arg;
	r = fd < 0 || fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0
		    ? -errno
		    : 0;
	(void)close(fd);
	return r;
}

/* An asynchronous write past the page cache, of bytes that are there, and its end. */
static int c_aio(int arg)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open("b", O_WRONLY | O_DIRECT | O_CLOEXEC), r = 0;
	struct iocb cb = {.aio_fildes = (uint32_t)fd,
			  .aio_lio_opcode = IOCB_CMD_PWRITE,
			  .aio_buf = (uintptr_t)p,
			  .aio_nbytes = 4096};
	struct iocb *list[] = {&cb};
	struct io_event e;
	aio_context_t ctx = 0;

	(void)arg;
	if (fd < 0 || p == MAP_FAILED || syscall(SYS_io_setup, 1, &ctx) < 0)
		return -errno;
	if (syscall(SYS_io_submit, ctx, 1, list) != 1 ||
	    syscall(SYS_io_getevents, ctx, 1, 1, &e, NULL) != 1)
		r = -errno;
	else
		r = (int)e.res;
	(void)syscall(SYS_io_destroy, ctx);
	(void)close(fd);
	(void)munmap(p, 4096);
	return r;
}

static int c_read(int arg)
{
	char buf[4096];
	int fd = open("b", O_RDONLY | O_CLOEXEC),
	    r = fd < 0 ? -errno : (int)read(fd, buf, sizeof(buf));

	(void)arg;
	(void)close(fd);
	return r;
}

static int c_unlink(int arg)
{
	(void)arg;
	return unlink("b") < 0 ? -errno : 0;
}

static int c_rmdir(int arg)
{
	(void)arg;
	return rmdir("new") < 0 ? -errno : 0;
}

static int c_mkdir(int arg)
{
	(void)arg;
	return mkdir("new", 0700) < 0 ? -errno : 0;
}

static int c_mknod(int arg)
{
	(void)arg;
	return mknod("made", S_IFREG | 0600, 0) < 0 ? -errno : 0;
}

static int c_symlink(int arg)
{
	(void)arg;
	return symlink("target", "sym") < 0 && errno != EIO ? -errno : 0; /* the fake's is a file */
}

static int c_rename(int arg)
{
	(void)arg;
	return rename("c", "moved") < 0 ? -errno : 0;
}

static int c_link(int arg)
{
	(void)arg;
	return link("a", "linked") < 0 ? -errno : 0;
}

/* ---- tests ---- */

static uint64_t count(struct session *se, int op)
{
	struct session_stats s;

	session_stats(se, &s);
	return s.by_op[op];
}

static bool held(struct ovl *o, int n)
{
	for (int i = 0; i < 2000 && atomic_load(&o->held) != n; i++)
		(void)usleep(1000);
	return atomic_load(&o->held) == n;
}

/* A stat asks, something changes and returns, and only then the stat gets its answer, of before. */
static void overtake(struct rig *r, struct ovl *o, int (*look)(int), int (*change)(int),
		     const char *what)
{
	static int time = 1000;

	atomic_store(&o->ctime, ++time);
	eq_int(rig_do(r, look, 1), time, "%s: the time before", what);
	atomic_store(&o->hold, true);
	atomic_store(&o->hold_attr, look == c_dir_ctime ? 1 : FAKE_FIRST);
	rig_call(r, 0, look, 1);
	ok(held(o, 1), "a stat waits for its answer");
	atomic_store(&o->ctime, ++time);
	rig_call(r, 1, change, 0);
	eq_int(rig_wait(r, 1, 2000), 0, "a change overtakes it");
	atomic_store(&o->hold, false);
	ok(rig_wait(r, 0, 2000) > 0, "it gets its answer");
	eq_int(rig_do(r, look, 0), time, "which is not kept");
}

static void test_overtaking(struct rig *r, struct ovl *o)
{
	overtake(r, o, c_ctime, c_setxattr, "setxattr");
	overtake(r, o, c_ctime, c_fallocate, "a hole");
	overtake(r, o, c_dir_ctime, c_mkdir, "mkdir");
	overtake(r, o, c_dir_ctime, c_rmdir, "rmdir");
	overtake(r, o, c_dir_ctime, c_mknod, "mknod");
	overtake(r, o, c_dir_ctime, c_symlink, "symlink");
	overtake(r, o, c_dir_ctime, c_unlink, "unlink");
	overtake(r, o, c_dir_ctime, c_rename, "rename");
	overtake(r, o, c_dir_ctime, c_link, "link");
}

static void refresh(const struct ovl_notify *n)
{
	store_ino none = 0;

	n->inval_inode(n->arg, FAKE_FIRST);
	/* Waits its turn behind it, and nobody is pruned. */
	(void)n->prune(n->arg, &none, 0);
}

static void test_links(struct rig *r, struct session *se, struct ovl *o, const struct ovl_notify *n)
{
	uint64_t before;

	/* A count of links that the kernel must not take over: it would find nothing to link. */
	atomic_store(&o->more_links, 1);
	refresh(n);
	eq_int(rig_do(r, c_links, 0), 2, "two links");
	atomic_store(&o->told, true);
	atomic_store(&o->unsettled, 7);
	atomic_store(&o->more_links, -1);
	refresh(n);
	before = count(se, FUSE_GETATTR);
	eq_int(rig_do(r, c_links, 0), 0, "an unsettled count is shown");
	eq_int(rig_do(r, c_links, 0), 0, "again");
	eq_int(count(se, FUSE_GETATTR), before + 2, "and not cached");
	eq_int(rig_do(r, c_link, 0), 0, "nor taken over: the kernel links the file");

	atomic_store(&o->told, false);
	eq_int(rig_do(r, c_links, 0), 0, "the first that is shown is settled");
	for (int i = 0; i < 2000 && atomic_load(&o->unsettled); i++)
		(void)usleep(1000);
	eq_int(atomic_load(&o->unsettled), 0, "soon");
	eq_int(rig_do(r, c_links, 0), 0, "then asked for once more");
	before = count(se, FUSE_GETATTR);
	eq_int(rig_do(r, c_links, 0), 0, "and kept");
	eq_int(count(se, FUSE_GETATTR), before, "without a message");
	eq_int(rig_do(r, c_link, 0), -ENOENT, "by the kernel, too");
	atomic_store(&o->more_links, 0);
}

/* What is read while a direct write is on its way is of before, and must not stay. */
static void test_direct(struct rig *r, struct session *se, struct ovl *o)
{
	uint64_t before;

	atomic_store(&o->hold, true);
	atomic_store(&o->hold_write, true);
	rig_call(r, 1, c_aio, 0);
	ok(held(o, 1), "an asynchronous direct write is on its way");
	eq_int(rig_do(r, c_read, 0), 4096, "its place is read");
	before = count(se, FUSE_READ);
	atomic_store(&o->hold, false);
	eq_int(rig_wait(r, 1, 2000), 4096, "it ends");
	eq_int(rig_do(r, c_read, 0), 4096, "its place is read again");
	ok(count(se, FUSE_READ) > before, "from the file system");
}

static void test_mode(struct rig *r)
{
	eq_int(rig_do(r, c_mode, 0), 04755, "a set-id file");
	eq_int(rig_do(r, c_write, 0), 0, "is written, which drops the bit");
	eq_int(rig_do(r, c_mode, 0), 0755, "so that nobody sees it, nor runs it with it");
}

static void test_xattrs(struct rig *r, struct ovl *o)
{
	static const int sizes[] = {1, 0, 4096, 65536};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		eq_int(rig_do(r, c_setxattr_n, sizes[i]), 0, "an xattr of %d bytes", sizes[i]);
		eq_int(atomic_load(&o->xattr_size), sizes[i], "arrives");
		eq_int(atomic_load(&o->xattr_first), sizes[i] ? 'z' : 0, "with name and value");
		eq_int(atomic_load(&o->xattr_flags), XATTR_CREATE, "and flags");
	}
	atomic_store(&o->result, -ENOSPC);
	eq_int(rig_do(r, c_setxattr, 0), -ENOSPC, "or the error comes back");
	atomic_store(&o->result, 0);
}

int main(void)
{
	static struct ovl o;
	struct session_opts opts = {
		.ovl = &o,
		.ids = {.squash = true, .store_uid = 1000, .store_gid = 1000},
		.spin_us = -1,
	};
	struct session *se;
	struct ovl_notify n;
	struct rig r;

	rig_open(&r, false);
	if (session_new(&se) < 0)
		tap_fatal("session_new");
	n = session_notify(se);
	opts.fuse_fd = r.fuse_fd;
	if (session_start(se, &opts) < 0)
		tap_fatal("session_start");
	for (int i = 0; i < 2; i++) {
		rig_call(&r, i, c_links, 0);
		(void)rig_wait(&r, i, 2000);
	}
	test_overtaking(&r, &o);
	test_links(&r, se, &o, &n);
	test_direct(&r, se, &o);
	test_mode(&r);
	test_xattrs(&r, &o);
	eq_int(mount_detach(r.mnt, false), 0, "unmount");
	session_stop(se);
	rig_close(&r);
	return tap_done();
}
