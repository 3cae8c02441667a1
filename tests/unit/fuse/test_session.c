/* The adapter over a core that does as it is told: what goes down, what comes back, and when. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/fuse/mount.h"
#include "fs/fuse/proto.h"
#include "tests/lib/tap.h"
#include "tests/unit/fuse/fake_ovl.h"
#include "tests/unit/fuse/rig.h"

static const char *name_of(int i)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};

	return names[i];
}

/* ---- what clients do; a negative result is -errno ---- */

static int c_stat_uid(int file)
{
	struct stat st;

	return stat(name_of(file), &st) < 0 ? -errno : (int)st.st_uid;
}

static int c_stat_size(int file)
{
	struct stat st;

	return stat(name_of(file), &st) < 0 ? -errno : (int)st.st_size;
}

static int stat_name(const char *name)
{
	struct stat st;

	return stat(name, &st) < 0 ? -errno : 0;
}

static int c_odd_lookup(int which)
{
	static const char *const names[] = {"missing", "enosys", "internal", "restart"};

	return stat_name(names[which]);
}

/* The first byte, when all of @len bytes are the same. */
static int c_read(int file)
{
	static char buf[65536];
	int fd = open(name_of(file), O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));
	int r = n < 0 ? -errno : n == (ssize_t)sizeof(buf) ? buf[0] : -ENODATA;

	for (ssize_t i = 1; i < n; i++)
		if (buf[i] != buf[0])
			r = -EBADMSG;
	if (fd >= 0)
		(void)close(fd);
	return r;
}

static int c_write(int file)
{
	int fd = open(name_of(file), O_WRONLY | O_CLOEXEC);
	int r = fd < 0 || write(fd, "xyz", 3) != 3 ? -errno : 0;

	if (fd >= 0)
		(void)close(fd);
	return r;
}

/* One write, or one read that no cache answers, of 1 MiB. */
static int c_big(int writing)
{
	int fd = open("e", (writing ? O_WRONLY : O_RDONLY | O_DIRECT) | O_CLOEXEC);
	void *p = mmap(NULL, FAKE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ssize_t n;
	int r;

	if (fd < 0 || p == MAP_FAILED)
		return -errno;
	n = writing ? pwrite(fd, p, FAKE_SIZE, 0) : pread(fd, p, FAKE_SIZE, 0);
	r = n < 0 ? -errno : (int)n;
	(void)munmap(p, FAKE_SIZE);
	(void)close(fd);
	return r;
}

static int c_truncate(int file)
{
	return truncate(name_of(file), 10) < 0 ? -errno : 0;
}

static int c_fsync(int file)
{
	int fd = open(name_of(file), O_WRONLY | O_CLOEXEC);
	int r = fd < 0 || fsync(fd) < 0 ? -errno : 0;

	if (fd >= 0)
		(void)close(fd);
	return r;
}

static int c_fsyncdir(int arg)
{
	int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd < 0 || fsync(fd) < 0 ? -errno : 0;

	(void)arg;
	if (fd >= 0)
		(void)close(fd);
	return r;
}

static int c_btime(int file)
{
	struct statx sx;

	if (statx(AT_FDCWD, name_of(file), 0, STATX_BTIME | STATX_BASIC_STATS, &sx) < 0)
		return -errno;
	if (!(sx.stx_mask & STATX_BTIME))
		return -EOPNOTSUPP;
	if (sx.stx_uid != 0 || sx.stx_size != FAKE_SIZE || sx.stx_btime.tv_nsec != 42)
		return -EBADMSG;
	return (int)sx.stx_btime.tv_sec;
}

static int c_tmpfile(int arg)
{
	int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	(void)arg;
	if (fd < 0)
		return -errno;
	(void)close(fd);
	return 0;
}

static int c_copy(int arg)
{
	int in = open("b", O_RDONLY | O_CLOEXEC), out = open("c", O_WRONLY | O_CLOEXEC);
	ssize_t n = in < 0 || out < 0 ? -1 : copy_file_range(in, NULL, out, NULL, 65536, 0);
	int r = n < 0 ? -errno : (int)n;

	(void)arg;
	(void)close(in);
	(void)close(out);
	return r;
}

static int c_lseek(int arg)
{
	int fd = open("b", O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : (int)lseek(fd, 0, SEEK_DATA);

	(void)arg;
	(void)close(fd);
	return r;
}

static int c_ioctl(int arg)
{
	int fd = open("b", O_RDONLY | O_CLOEXEC), n = 0;
	int r = fd < 0 || ioctl(fd, _IOR('x', 77, int), &n) < 0 ? -errno : 0;

	(void)arg;
	(void)close(fd);
	return r;
}

static int c_xattr(int size)
{
	char buf[64];
	ssize_t n = getxattr("b", "user.x", buf, (size_t)size);

	return n < 0 ? -errno : size && memcmp(buf, "0123456789", 10) != 0 ? -EBADMSG : (int)n;
}

static int c_listxattr(int size)
{
	char buf[64];
	ssize_t n = listxattr("b", buf, (size_t)size);

	return n < 0 ? -errno : (int)n;
}

static int c_chown(int uid)
{
	return chown("b", (uid_t)uid, (gid_t)-1) < 0 ? -errno : 0;
}

static int c_mkdir(int arg)
{
	(void)arg;
	(void)umask(027);
	return mkdir("new", 0777) < 0 ? -errno : 0;
}

/* How many different names of the root there are; the whole is listed twice. */
static int c_list(int arg)
{
	int n = 0, again = 0;
	struct dirent *e;
	DIR *d = opendir(".");

	(void)arg;
	if (!d)
		return -errno;
	while ((e = readdir(d)))
		n++;
	rewinddir(d);
	while ((e = readdir(d)))
		again++;
	(void)closedir(d);
	return n == again ? n : -EBADMSG;
}

enum {
	UNMAP = -1,
	SYNC = -2
};

/* Dirty two pages of a shared mapping and leave it mapped; or what is to be done with it. */
static int c_dirty(int file)
{
	static char *p;
	int fd;

	if (file == SYNC)
		return msync(p, 65536, MS_SYNC) < 0 ? -errno : 0;
	if (file == UNMAP)
		return munmap(p, 65536) < 0 ? -errno : 0;
	fd = open(name_of(file), O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	if (p == MAP_FAILED)
		return -errno;
	p[0] = 'x';
	p[40000] = 'y';
	return 0;
}

/* What another opening sees at the place that c_dirty() has changed first. */
static int c_first(int file)
{
	int fd = open(name_of(file), O_RDONLY | O_CLOEXEC);
	char c;
	int r = fd < 0 ? -errno : pread(fd, &c, 1, 0) == 1 ? c : -ENODATA;

	if (fd >= 0)
		(void)close(fd);
	return r;
}

static void on_signal(int sig)
{
	(void)sig;
}

static int c_fsync_interrupted(int file)
{
	struct sigaction sa = {.sa_handler = on_signal};

	(void)sigaction(SIGALRM, &sa, NULL);
	(void)ualarm(50000, 0);
	return c_fsync(file);
}

/* ---- tests ---- */

static uint64_t count(struct session *se, int op)
{
	struct session_stats s;

	session_stats(se, &s);
	return s.by_op[op];
}

/* Wait for @v to become true. */
static bool until(bool (*v)(struct ovl *o), struct ovl *o)
{
	for (int i = 0; i < 2000 && !v(o); i++)
		(void)usleep(1000);
	return v(o);
}

static bool one_held(struct ovl *o)
{
	return atomic_load(&o->held) == 1;
}

static bool three_held(struct ovl *o)
{
	return atomic_load(&o->held) == 3;
}

static void test_names(struct rig *r, struct session *se)
{
	uint64_t n;

	eq_int(rig_do(r, c_stat_uid, 1), 0, "a stranger's file is shown as the caller's");
	n = count(se, FUSE_LOOKUP) + count(se, FUSE_GETATTR);
	eq_int(rig_do(r, c_stat_size, 1), FAKE_SIZE, "stat");
	eq_int(count(se, FUSE_LOOKUP) + count(se, FUSE_GETATTR), n,
	       "which is answered from the cache");
	eq_int(rig_do(r, c_odd_lookup, 0), -ENOENT, "a name that is not there");
	n = count(se, FUSE_LOOKUP);
	eq_int(rig_do(r, c_odd_lookup, 0), -ENOENT, "once more");
	eq_int(count(se, FUSE_LOOKUP), n, "which the kernel remembers");
	eq_int(rig_do(r, c_odd_lookup, 1), -EOPNOTSUPP,
	       "ENOSYS never reaches the kernel by accident");
	eq_int(rig_do(r, c_odd_lookup, 2), -EIO, "nor does a foreign code");
	eq_int(rig_do(r, c_odd_lookup, 3), -EIO, "nor one of the kernel's own");
}

static void test_sizes(struct rig *r, struct session *se)
{
	uint64_t n = count(se, FUSE_WRITE);

	eq_int(rig_do(r, c_big, 1), FAKE_SIZE, "a write of 1 MiB");
	eq_int(count(se, FUSE_WRITE), n + 1, "is one request");
	n = count(se, FUSE_READ);
	eq_int(rig_do(r, c_big, 0), FAKE_SIZE, "a direct read of 1 MiB");
	eq_int(count(se, FUSE_READ), n + 1, "is one request");
}

static void test_content(struct rig *r, struct session *se, struct ovl *o)
{
	eq_int(rig_do(r, c_read, 1), 'B', "read");
	eq_int(rig_do(r, c_read, 1), 'B', "read again");
	eq_int(rig_do(r, c_read, 2), 'C', "read another");
	eq_int(count(se, FUSE_OPEN), 1, "one OPEN, then never again");
	eq_int(count(se, FUSE_FLUSH), 1, "one FLUSH, then never again");
	eq_int(count(se, FUSE_RELEASE), 0, "no RELEASE");
	eq_int(rig_do(r, c_write, 2), 0, "write");
	eq_int(atomic_load(&o->writes), 1, "comes down as it is made");
	eq_int(rig_do(r, c_lseek, 0), 4096, "SEEK_DATA");
	eq_int(rig_do(r, c_copy, 0), 65536, "copy_file_range");
	eq_int(atomic_load(&o->copies), 1, "is one call of the core");
	eq_int(rig_do(r, c_fsync, 1), 0, "fsync");
	eq_int(rig_do(r, c_fsyncdir, 1), 0, "fsync of a directory");
	eq_int(atomic_load(&o->flushes), 1, "flushes");
	eq_int(rig_do(r, c_ioctl, 0), -ENOTTY, "an unknown ioctl");
	atomic_store(&o->result, -ENOSPC);
	eq_int(rig_do(r, c_write, 2), -ENOSPC, "the core's error is the caller's");
	eq_int(rig_do(r, c_mkdir, 2), -ENOSPC, "for names too");
	eq_int(rig_do(r, c_truncate, 2), -ENOSPC, "and attributes");
	atomic_store(&o->result, 0);
}

static void test_attributes(struct rig *r, struct ovl *o)
{
	int got;

	eq_int(rig_do(r, c_chown, 0), 0, "chown to the mapped id");
	eq_int(atomic_load(&o->uid), 1000, "means the stored one");
	ok(atomic_load(&o->set) & OVL_SET_UID, "and says that it is the owner");
	eq_int(rig_do(r, c_mkdir, 0), 0, "mkdir");
	eq_int(atomic_load(&o->uid), 1000, "creates as the stored id");
	eq_int(atomic_load(&o->umask), 027, "with the caller's umask, for default ACLs");
	eq_int(rig_do(r, c_xattr, 0), 10, "size of an xattr");
	eq_int(rig_do(r, c_xattr, 10), 10, "value of an xattr");
	eq_int(rig_do(r, c_xattr, 5), -ERANGE, "no room for it");
	eq_int(rig_do(r, c_listxattr, 64), 7, "list of xattrs");
	eq_int(rig_do(r, c_listxattr, 0), 7, "size of the list");
	got = rig_do(r, c_btime, 3);
	ok(got == 4711 || got == -EOPNOTSUPP, "time of birth (Linux 6.6)");
	got = rig_do(r, c_tmpfile, 0);
	ok(got == 0 || got == -EOPNOTSUPP, "O_TMPFILE (Linux 6.2)");
	eq_int(atomic_load(&o->tmpfiles), got == 0, "reaches the core");
}

/* The kernel asks for it whenever the writer lacks CAP_FSETID outside of all user namespaces. */
static void test_killpriv(struct rig *r, struct ovl *o)
{
	int before = atomic_load(&o->killpriv);

	eq_int(rig_do(r, c_write, 7), 0, "write to a set-id file");
	eq_int(atomic_load(&o->killpriv), before + 1, "drops the bit (KILLPRIV_V2)");
	eq_int(rig_do(r, c_truncate, 7), 0, "truncate");
	ok(atomic_load(&o->set) & OVL_SET_KILLPRIV, "too");
}

static void test_blocking(struct rig *r, struct session *se, struct ovl *o)
{
	atomic_store(&o->hold, true);
	rig_call(r, 0, c_read, 0);
	ok(until(one_held, o), "a read that blocks");
	rig_call(r, 1, c_read, 3);
	eq_int(rig_wait(r, 1, 2000), 'D', "nobody else waits for it");
	atomic_store(&o->hold, false);
	eq_int(rig_wait(r, 0, 2000), 'A', "its answer comes");

	for (int i = 0; i < 2; i++) {
		atomic_store(&o->hold, true);
		rig_call(r, 0, c_fsync_interrupted, 1);
		eq_int(rig_wait(r, 0, 200), -ETIMEDOUT, "a signal does not cut a request short");
		atomic_store(&o->hold, false);
		eq_int(rig_wait(r, 0, 2000), 0, "it succeeds");
	}
	eq_int(count(se, FUSE_INTERRUPT), 1, "one interrupt is refused, no other comes");

	atomic_store(&o->hold, true);
	for (int i = 0; i < 3; i++)
		rig_call(r, i, c_fsync, 1 + i);
	ok(until(three_held, o), "three that block");
	rig_call(r, 3, c_stat_size, 4);
	eq_int(rig_wait(r, 3, 2000), FAKE_SIZE, "leave one worker for the others");
	atomic_store(&o->hold, false);
	for (int i = 0; i < 3; i++)
		eq_int(rig_wait(r, i, 2000), 0, "fsync %d", i);
}

static void test_listing(struct rig *r, struct ovl *o, const struct ovl_notify *n)
{
	eq_int(rig_do(r, c_list, 0), 10, "a listing, twice");
	atomic_store(&o->many, true);
	n->inval_inode(n->arg, 1);
	(void)usleep(100000);
	eq_int(rig_do(r, c_list, 0), 5002, "a large listing, after the directory was invalidated");
	atomic_store(&o->many, false);
	n->inval_inode(n->arg, 1);
}

static void test_notify(struct rig *r, struct session *se, struct ovl *o,
			const struct ovl_notify *n)
{
	uint64_t lookups;
	int got = 0;

	(void)rig_do(r, c_stat_size, 5);
	atomic_store(&o->size, 4096);
	eq_int(rig_do(r, c_stat_size, 5), FAKE_SIZE, "a change behind the kernel is not seen");
	n->inval_inode(n->arg, FAKE_FIRST + 5);
	for (int i = 0; i < 100 && got != 4096; i++, (void)usleep(2000))
		got = rig_do(r, c_stat_size, 5);
	eq_int(got, 4096, "until the kernel is told");
	atomic_store(&o->size, 0);

	lookups = count(se, FUSE_LOOKUP);
	(void)rig_do(r, c_stat_size, 5);
	eq_int(count(se, FUSE_LOOKUP), lookups, "a name is remembered");
	n->inval_entry(n->arg, 1, "f", 1);
	for (int i = 0; i < 100 && count(se, FUSE_LOOKUP) == lookups; i++, (void)usleep(2000))
		(void)rig_do(r, c_stat_size, 5);
	eq_int(count(se, FUSE_LOOKUP), lookups + 1, "until the kernel is told");
}

static void test_push(struct rig *r, struct session *se, struct ovl *o)
{
	int before;

	eq_int(rig_do(r, c_dirty, 6), 0, "stores into a shared mapping");
	before = atomic_load(&o->writes);
	eq_int(session_push_dirty(se), 0, "are pushed");
	ok(atomic_load(&o->writes) > before, "before the call returns");
	before = atomic_load(&o->writes);
	eq_int(session_push_dirty(se), 0, "once more");
	eq_int(atomic_load(&o->writes), before, "with nothing to push");
	eq_int(rig_do(r, c_dirty, UNMAP), 0, "unmapped");
}

/* A page that may not be written: who else looks at the file must not go on seeing it. */
static void test_refused_page(struct rig *r, struct ovl *o)
{
	int was = rig_do(r, c_first, 7), got = 0;

	atomic_store(&o->result, -EACCES);
	eq_int(rig_do(r, c_dirty, 7), 0, "stores into a shared mapping");
	eq_int(rig_do(r, c_dirty, SYNC), -EACCES, "may not be, which their owner is told");
	for (int i = 0; i < 1000 && got != was; i++, (void)usleep(2000))
		got = rig_do(r, c_first, 7);
	eq_int(got, was, "and nobody sees them any more");
	atomic_store(&o->result, 0);
	eq_int(rig_do(r, c_dirty, UNMAP), 0, "unmapped");
}

static bool readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
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
	n.inval_inode(n.arg, 1); /* before the start: nothing to tell */
	opts.fuse_fd = r.fuse_fd;
	if (session_start(se, &opts) < 0)
		tap_fatal("session_start");
	test_names(&r, se);
	test_content(&r, se, &o);
	test_sizes(&r, se);
	test_attributes(&r, &o);
	test_blocking(&r, se, &o);
	test_listing(&r, &o, &n);
	test_notify(&r, se, &o, &n);
	test_push(&r, se, &o);
	test_refused_page(&r, &o);
	test_killpriv(&r, &o);
	ok(!readable(session_ended_fd(se), 0), "the session goes on");
	eq_int(mount_detach(r.mnt, false), 0, "unmount");
	ok(readable(session_ended_fd(se), 2000), "ends it");
	session_stop(se);
	rig_close(&r);
	return tap_done();
}
