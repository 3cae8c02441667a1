/* See record.h. */
/* Both spellings of each call are defined here, so neither may be made into the other. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include "tests/power/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT   __attribute__((visibility("default")))
#define SEEN_MAX 1024
#define LOG_FD   900

/* Files that were opened below the root. Entries are only added; @ino is set last. */
struct seen {
	atomic_uint_least64_t ino;
	char name[128];
};
static struct seen seen[SEEN_MAX];
static char root[PATH_MAX];
static size_t root_len;
static int log_fd = -1;
static atomic_uint_least64_t syncs;
static struct power_slot own_slots[POWER_FAULTS], *slots;

/* ---- the log: raw calls, so that nothing of ours sees them ---- */

static void put(enum power_type type, uint64_t ino, uint64_t off, uint64_t arg,
		const struct iovec *iov, int n, size_t len)
{
	struct power_rec r = {POWER_MAGIC, type, ino, off, arg, (uint32_t)len, 0};
	struct iovec v[65] = {{&r, sizeof(r)}};
	int saved = errno, k = 1;

	for (int i = 0; i < n && k < 65; i++) {
		size_t part = iov[i].iov_len < len ? iov[i].iov_len : len;

		v[k++] = (struct iovec){iov[i].iov_base, part};
		len -= part;
	}
	if (log_fd >= 0 && syscall(SYS_writev, log_fd, v, k) < 0)
		abort(); /* a log with a hole would prove nothing */
	errno = saved;
}

static void put_text(enum power_type type, uint64_t ino, uint64_t arg, const char *text, size_t n)
{
	struct iovec v = {(void *)(uintptr_t)text, n};

	put(type, ino, 0, arg, &v, 1, n);
}

void power_note(const char *text)
{
	put_text(POWER_NOTE, 0, 0, text, strlen(text));
}

struct power_slot *power_faults(void)
{
	return slots;
}

int power_record(const char *dir, const char *log)
{
	int fd;

	if (strlen(dir) >= sizeof(root))
		return -1;
	slots = slots ? slots : own_slots;
	if (log) {
		fd = (int)syscall(SYS_openat, AT_FDCWD, log,
				  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
		if (fd < 0)
			return -1;
		log_fd = fcntl(fd, F_DUPFD_CLOEXEC, LOG_FD);
		(void)syscall(SYS_close, fd);
		if (log_fd < 0)
			return -1;
	}
	memcpy(root, dir, strlen(dir) + 1);
	root_len = strlen(root);
	return 0;
}

__attribute__((constructor)) static void from_environment(void)
{
	const char *dir = getenv("POWER_ROOT"), *faults = getenv("POWER_FAULTS");
	int fd = faults ? (int)syscall(SYS_openat, AT_FDCWD, faults, O_RDWR | O_CLOEXEC) : -1;
	void *p;

	if (fd >= 0) {
		p = mmap(NULL, sizeof(own_slots), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p != MAP_FAILED)
			slots = p;
		(void)syscall(SYS_close, fd);
	}
	if (dir && power_record(dir, getenv("POWER_LOG")) < 0)
		abort();
}

/* ---- which files ---- */

/* Below the root, and then relative to it; "" is the root itself. */
static const char *below(const char *path)
{
	if (!root_len || strncmp(path, root, root_len) != 0)
		return NULL;
	if (path[root_len] == 0)
		return path + root_len;
	return path[root_len] == '/' ? path + root_len + 1 : NULL;
}

static const char *fd_path(int fd, char buf[static PATH_MAX])
{
	char link[40];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, buf, PATH_MAX - 1);
	if (n < 0)
		return NULL;
	buf[n] = 0;
	return below(buf);
}

/* @name in @dirfd, which is there or has a parent that is. */
static const char *at_path(int dirfd, const char *name, char buf[static PATH_MAX])
{
	char dir[PATH_MAX];
	ssize_t n = 0;

	dir[0] = 0;
	if (name[0] != '/') {
		char link[40];

		if (dirfd == AT_FDCWD)
			(void)snprintf(link, sizeof(link), "/proc/self/cwd");
		else
			(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
		n = readlink(link, dir, sizeof(dir) - 1);
		if (n < 0)
			return NULL;
		dir[n] = 0;
	}
	n = snprintf(buf, PATH_MAX, "%s%s%s", dir, n ? "/" : "", name);
	if (n < 0 || n >= PATH_MAX)
		return NULL;
	while (n > 1 && buf[n - 1] == '/')
		buf[--n] = 0;
	return below(buf);
}

static struct seen *find(uint64_t ino)
{
	for (size_t i = 0; i < SEEN_MAX; i++) {
		uint64_t at = atomic_load(&seen[i].ino);

		if (at == ino)
			return &seen[i];
		if (!at)
			return NULL;
	}
	return NULL;
}

static struct seen *file_of(int fd, uint64_t *ret_ino)
{
	struct stat st;
	int saved = errno;
	bool is = root_len && fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);

	errno = saved;
	if (!is)
		return NULL;
	*ret_ino = st.st_ino;
	return find(st.st_ino);
}

static void opened(int fd)
{
	static atomic_flag lock = ATOMIC_FLAG_INIT;
	char buf[PATH_MAX];
	const char *name;
	struct stat st;
	int saved = errno;

	if (!root_len || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	name = fd_path(fd, buf);
	if (!name || strlen(name) >= sizeof(seen[0].name)) {
		errno = saved;
		return;
	}
	put_text(POWER_OPEN, st.st_ino, (uint64_t)st.st_size, name, strlen(name));
	while (atomic_flag_test_and_set(&lock))
		;
	if (!find(st.st_ino)) {
		for (size_t i = 0; i < SEEN_MAX; i++) {
			if (atomic_load(&seen[i].ino))
				continue;
			memcpy(seen[i].name, name, strlen(name) + 1);
			atomic_store(&seen[i].ino, st.st_ino);
			break;
		}
	}
	atomic_flag_clear(&lock);
	errno = saved;
}

/* ---- faults ---- */

static int fault(enum power_fault what, const struct seen *s)
{
	struct power_slot *f = slots ? &slots[what] : NULL;
	size_t n, k;

	if (!f || !s || !__atomic_load_n(&f->count, __ATOMIC_ACQUIRE))
		return 0;
	n = strnlen(f->only, sizeof(f->only));
	k = strlen(s->name);
	if (n > k || memcmp(s->name + k - n, f->only, n) != 0)
		return 0;
	if (__atomic_load_n(&f->after, __ATOMIC_RELAXED) > 0) {
		__atomic_fetch_sub(&f->after, 1, __ATOMIC_RELAXED);
		return 0;
	}
	if (__atomic_load_n(&f->count, __ATOMIC_RELAXED) > 0)
		__atomic_fetch_sub(&f->count, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&f->hit, 1, __ATOMIC_RELAXED);
	return f->err;
}

/* ---- what stands before libc ---- */

static int open_any(int dirfd, const char *path, int flags, mode_t mode)
{
	int fd = (int)syscall(SYS_openat, dirfd, path, flags, mode);

	if (fd >= 0 && (flags & O_ACCMODE) != O_RDONLY)
		opened(fd);
	return fd;
}

#define OPEN_MODE(mode, flags)                                     \
	mode_t mode = 0;                                           \
	if ((flags)&O_CREAT || ((flags)&O_TMPFILE) == O_TMPFILE) { \
		va_list ap;                                        \
		va_start(ap, flags);                               \
		mode = va_arg(ap, mode_t);                         \
		va_end(ap);                                        \
	}

EXPORT int open(const char *path, int flags, ...)
{
	OPEN_MODE(mode, flags)
	return open_any(AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
	OPEN_MODE(mode, flags)
	return open_any(AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int dirfd, const char *path, int flags, ...)
{
	OPEN_MODE(mode, flags)
	return open_any(dirfd, path, flags, mode);
}

EXPORT int openat64(int dirfd, const char *path, int flags, ...)
{
	OPEN_MODE(mode, flags)
	return open_any(dirfd, path, flags, mode);
}

/* One write: where it goes, the log, the call, and whether it is durable when it returns. */
struct writing {
	struct seen *s;
	uint64_t ino, off, n;
	bool dsync;
};

/* False: it fails, errno is set. @off -1: at the descriptor's place. */
static bool write_begin(struct writing *w, int fd, const struct iovec *iov, int n, off_t off)
{
	int flags, err;

	w->s = file_of(fd, &w->ino);
	if (!w->s)
		return true;
	flags = fcntl(fd, F_GETFL);
	w->dsync = flags & O_DSYNC;
	err = fault(w->dsync ? POWER_FAULT_META : POWER_FAULT_WRITE, w->s);
	if (err) {
		errno = err;
		return false;
	}
	w->n = 0;
	for (int i = 0; i < n; i++)
		w->n += iov[i].iov_len;
	if (off < 0)
		off = flags & O_APPEND ? lseek(fd, 0, SEEK_END) : lseek(fd, 0, SEEK_CUR);
	w->off = (uint64_t)off;
	put(POWER_WRITE, w->ino, w->off, 0, iov, n, w->n);
	return true;
}

static void write_end(const struct writing *w, ssize_t k)
{
	if (w->s && w->dsync && k == (ssize_t)w->n)
		put(POWER_WRITTEN, w->ino, w->off, w->n, NULL, 0, 0);
}

EXPORT ssize_t write(int fd, const void *p, size_t n)
{
	struct iovec v = {(void *)(uintptr_t)p, n};
	struct writing w = {0};
	ssize_t k;

	if (!write_begin(&w, fd, &v, 1, -1))
		return -1;
	k = syscall(SYS_write, fd, p, n);
	write_end(&w, k);
	return k;
}

static ssize_t pwrite_any(int fd, const void *p, size_t n, off_t off)
{
	struct iovec v = {(void *)(uintptr_t)p, n};
	struct writing w = {0};
	ssize_t k;

	if (!write_begin(&w, fd, &v, 1, off))
		return -1;
	k = syscall(SYS_pwrite64, fd, p, n, off);
	write_end(&w, k);
	return k;
}

EXPORT ssize_t pwrite(int fd, const void *p, size_t n, off_t off)
{
	return pwrite_any(fd, p, n, off);
}

EXPORT ssize_t pwrite64(int fd, const void *p, size_t n, off64_t off)
{
	return pwrite_any(fd, p, n, off);
}

EXPORT ssize_t writev(int fd, const struct iovec *v, int n)
{
	struct writing w = {0};
	ssize_t k;

	if (!write_begin(&w, fd, v, n, -1))
		return -1;
	k = syscall(SYS_writev, fd, v, n);
	write_end(&w, k);
	return k;
}

static ssize_t preadv_any(int fd, const struct iovec *v, int n, off_t off)
{
	uint64_t ino;
	struct seen *s = file_of(fd, &ino);
	int err = fault(POWER_FAULT_READ, s);

	if (err) {
		errno = err;
		return -1;
	}
	return syscall(SYS_preadv, fd, v, n, off, 0);
}

EXPORT ssize_t preadv(int fd, const struct iovec *v, int n, off_t off)
{
	return preadv_any(fd, v, n, off);
}

EXPORT ssize_t preadv64(int fd, const struct iovec *v, int n, off64_t off)
{
	return preadv_any(fd, v, n, off);
}

static int truncate_any(int fd, off_t size)
{
	uint64_t ino;
	struct seen *s = file_of(fd, &ino);
	int err = fault(POWER_FAULT_WRITE, s);

	if (err) {
		errno = err;
		return -1;
	}
	if (s)
		put(POWER_SIZE, ino, (uint64_t)size, 0, NULL, 0, 0);
	return (int)syscall(SYS_ftruncate, fd, size);
}

EXPORT int ftruncate(int fd, off_t size)
{
	return truncate_any(fd, size);
}

EXPORT int ftruncate64(int fd, off64_t size)
{
	return truncate_any(fd, size);
}

static int allocate_any(int fd, int mode, off_t off, off_t len)
{
	uint64_t ino;
	struct seen *s = file_of(fd, &ino);
	struct stat st;

	if (s && mode & FALLOC_FL_PUNCH_HOLE)
		put(POWER_PUNCH, ino, (uint64_t)off, (uint64_t)len, NULL, 0, 0);
	else if (s && !(mode & FALLOC_FL_KEEP_SIZE) && fstat(fd, &st) == 0 &&
		 off + len > st.st_size)
		put(POWER_SIZE, ino, (uint64_t)(off + len), 0, NULL, 0, 0);
	return (int)syscall(SYS_fallocate, fd, mode, off, len);
}

EXPORT int fallocate(int fd, int mode, off_t off, off_t len)
{
	return allocate_any(fd, mode, off, len);
}

EXPORT int fallocate64(int fd, int mode, off64_t off, off64_t len)
{
	return allocate_any(fd, mode, off, len);
}

EXPORT int posix_fallocate(int fd, off_t off, off_t len)
{
	return allocate_any(fd, 0, off, len) < 0 ? errno : 0;
}

EXPORT int posix_fallocate64(int fd, off64_t off, off64_t len)
{
	return allocate_any(fd, 0, off, len) < 0 ? errno : 0;
}

static int sync_any(int fd, long call)
{
	char buf[PATH_MAX];
	const char *name;
	struct stat st;
	uint64_t ino, id = atomic_fetch_add(&syncs, 1) << 24 | ((uint64_t)getpid() & 0xffffff);
	struct seen *s = file_of(fd, &ino);
	int r, err = fault(POWER_FAULT_SYNC, s);

	if (err) {
		errno = err;
		return -1;
	}
	if (s) {
		put(POWER_SYNC, ino, 0, id, NULL, 0, 0);
		r = (int)syscall(call, fd);
		if (r == 0)
			put(POWER_SYNCED, ino, 0, id, NULL, 0, 0);
		return r;
	}
	name = root_len && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? fd_path(fd, buf) : NULL;
	if (name)
		put_text(POWER_DIRSYNC, st.st_ino, id, name, strlen(name));
	r = (int)syscall(call, fd);
	if (name && r == 0)
		put_text(POWER_DIRSYNCED, st.st_ino, id, name, strlen(name));
	return r;
}

EXPORT int fsync(int fd)
{
	return sync_any(fd, SYS_fsync);
}

EXPORT int fdatasync(int fd)
{
	return sync_any(fd, SYS_fdatasync);
}

EXPORT int mkdirat(int dirfd, const char *path, mode_t mode)
{
	char buf[PATH_MAX];
	const char *name = root_len ? at_path(dirfd, path, buf) : NULL;
	int r = (int)syscall(SYS_mkdirat, dirfd, path, mode);

	if (name && r == 0)
		put_text(POWER_MKDIR, 0, 0, name, strlen(name));
	return r;
}

EXPORT int mkdir(const char *path, mode_t mode)
{
	return mkdirat(AT_FDCWD, path, mode);
}

EXPORT int renameat(int from, const char *path, int to, const char *newpath)
{
	char a[PATH_MAX], b[PATH_MAX], both[2 * PATH_MAX];
	const char *x = root_len ? at_path(from, path, a) : NULL;
	const char *y = root_len ? at_path(to, newpath, b) : NULL;
	int n = x && y ? snprintf(both, sizeof(both), "%s%c%s", x, 0, y) : 0;

	if (n > 0)
		put_text(POWER_RENAME, 0, 0, both, (size_t)n);
	return (int)syscall(SYS_renameat2, from, path, to, newpath, 0);
}

EXPORT int rename(const char *path, const char *newpath)
{
	return renameat(AT_FDCWD, path, AT_FDCWD, newpath);
}

EXPORT int unlinkat(int dirfd, const char *path, int flags)
{
	char buf[PATH_MAX];
	const char *name = root_len ? at_path(dirfd, path, buf) : NULL;

	if (name)
		put_text(POWER_UNLINK, 0, 0, name, strlen(name));
	return (int)syscall(SYS_unlinkat, dirfd, path, flags);
}

EXPORT int unlink(const char *path)
{
	return unlinkat(AT_FDCWD, path, 0);
}
