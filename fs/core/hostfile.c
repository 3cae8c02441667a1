/* Host files that are read: a cache of descriptors. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/core/hostsrc_internal.h"

/* How long a cached descriptor is believed to be what its path names. A program that replaces a host
 * file by rename is seen after at most this time. */
#define TRUST_NS (20 * 1000 * 1000LL)
#define AHEAD    (128 << 10) /* bytes: what the kernel reads of a file at first */

int hostfile_init(struct hostsrc *h, unsigned max)
{
	h->max = max;
	h->lru.prev = h->lru.next = &h->lru;
	return -pthread_mutex_init(&h->lock, NULL);
}

static void file_free(struct host_file *f)
{
	(void)close(f->fd);
	free(f);
}

void hostfile_release(struct hostsrc *h)
{
	while (h->lru.next != &h->lru) {
		struct host_file *f = h->lru.next;

		h->lru.next = f->next;
		atomic_fetch_sub(&h->all->files, 1);
		file_free(f);
	}
	(void)pthread_mutex_destroy(&h->lock);
}

static long long now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static unsigned slot_of(const char *rel)
{
	uint64_t v = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	for (; *rel; rel++)
		v = (v ^ (unsigned char)*rel) * UINT64_C(0x100000001b3);
	return (unsigned)(v ^ v >> 32) % HOSTFILE_SLOTS;
}

static void lru_unlink(struct host_file *f)
{
	f->prev->next = f->next;
	f->next->prev = f->prev;
}

static void lru_push(struct hostsrc *h, struct host_file *f)
{
	f->prev = &h->lru;
	f->next = h->lru.next;
	f->next->prev = f;
	h->lru.next = f;
}

/* Out of the cache. A file in use stays open for its users. */
static void cache_drop_locked(struct hostsrc *h, struct host_file *f)
{
	struct host_file **p = &h->slots[f->slot];

	if (f->dead)
		return;
	while (*p != f)
		p = &(*p)->chain;
	*p = f->chain;
	lru_unlink(f);
	h->count--;
	atomic_fetch_sub(&h->all->files, 1);
	f->dead = true;
	if (f->users == 0)
		file_free(f);
}

static void cache_put(struct hostsrc *h, struct host_file *f)
{
	pthread_mutex_lock(&h->lock);
	f->users--;
	if (f->dead && f->users == 0)
		file_free(f);
	pthread_mutex_unlock(&h->lock);
}

static bool is_file(const struct host_file *f, const struct hostsrc_id *id)
{
	return f->dev == id->dev && f->ino == id->ino;
}

/* The file @id, or with NULL that of the path. */
static struct host_file *cache_find(struct hostsrc *h, const char *rel, const struct hostsrc_id *id)
{
	struct host_file *f;

	pthread_mutex_lock(&h->lock);
	for (f = h->slots[slot_of(rel)]; f; f = f->chain) {
		if (strcmp(f->rel, rel) != 0 || (id ? !is_file(f, id) : f->stale))
			continue;
		f->users++;
		lru_unlink(f);
		lru_push(h, f);
		break;
	}
	pthread_mutex_unlock(&h->lock);
	return f;
}

static void cache_trim_locked(struct hostsrc *h, unsigned keep)
{
	for (struct host_file *o = h->lru.prev; h->count > keep && o != &h->lru;) {
		struct host_file *older = o->prev;

		cache_drop_locked(h, o);
		o = older;
	}
}

void hostfile_trim(struct hostsrc *h)
{
	pthread_mutex_lock(&h->lock);
	cache_trim_locked(h, 0);
	pthread_mutex_unlock(&h->lock);
}

static void file_forget(struct hostsrc *h, const char *rel, uint64_t dev, uint64_t ino)
{
	pthread_mutex_lock(&h->lock);
	for (struct host_file *f = h->slots[slot_of(rel)], *next; f; f = next) {
		next = f->chain;
		if (f->dev == dev && f->ino == ino && !strcmp(f->rel, rel))
			cache_drop_locked(h, f);
	}
	pthread_mutex_unlock(&h->lock);
}

static void cache_insert(struct hostsrc *h, struct host_file *f)
{
	pthread_mutex_lock(&h->lock);
	for (struct host_file *o = h->slots[f->slot], *next; o; o = next) {
		next = o->chain;
		if (strcmp(o->rel, f->rel) != 0)
			continue;
		if (o->dev == f->dev && o->ino == f->ino)
			cache_drop_locked(h, o); /* another thread opened it at the same time */
		else
			o->stale = true;
	}
	f->chain = h->slots[f->slot];
	h->slots[f->slot] = f;
	lru_push(h, f);
	h->count++;
	cache_trim_locked(h, atomic_fetch_add(&h->all->files, 1) < h->all->max ? h->max
									       : h->count - 1);
	pthread_mutex_unlock(&h->lock);
}

/* Is the path still this file? */
static bool still_there(struct hostsrc *h, struct host_file *f)
{
	long long now = now_ns(), checked;
	struct stat st;

	pthread_mutex_lock(&h->lock);
	checked = f->checked_ns;
	pthread_mutex_unlock(&h->lock);
	if (now - checked < TRUST_NS)
		return true;
	if (hostsrc_stat(h, f->rel, &st) < 0 || st.st_dev != f->dev || st.st_ino != f->ino)
		return false;
	pthread_mutex_lock(&h->lock);
	f->checked_ns = now;
	pthread_mutex_unlock(&h->lock);
	return true;
}

/* The file @id itself, wherever its path leads by now. */
static int open_held(struct hostsrc *h, const struct hostsrc_id *id)
{
	cleanup_fd int fd = hostpins_get(&h->pins, id->dev, id->ino);
	char path[32];
	int r;

	if (fd < 0)
		return fd;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return r < 0 ? ret_nerrno() : r;
}

/* What the path names; with @id that file, if it can be had. *@ret_moved: not by its path. */
static int open_one(struct hostsrc *h, const char *rel, const struct hostsrc_id *id,
		    struct stat *ret, bool *ret_moved)
{
	/* NONBLOCK: a fifo put in the file's place must not hold us */
	cleanup_fd int fd = hostsrc_open_below(h, rel, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	int r = fd < 0 ? fd : fstat(fd, ret) < 0 ? ret_nerrno() : 0;

	*ret_moved = false;
	if (id && (r < 0 || ret->st_dev != id->dev || ret->st_ino != id->ino)) {
		int held = open_held(h, id);

		if (held >= 0) {
			cleanup_fdp(&fd);
			fd = held;
			r = fstat(fd, ret) < 0 ? ret_nerrno() : 0;
			*ret_moved = true;
		}
	}
	return r < 0 ? r : steal_fd(&fd);
}

static int file_open(struct hostsrc *h, const char *rel, const struct hostsrc_id *id,
		     struct host_file **ret)
{
	struct host_file *f;
	struct stat st;
	bool moved;
	cleanup_fd int fd = open_one(h, rel, id, &st, &moved);
	size_t n = strlen(rel) + 1;

	if (fd < 0)
		return fd;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	if (!hostsrc_shown(h, &st))
		return -ENOENT;
	f = calloc(1, sizeof *f + n);
	if (!f)
		return -ENOMEM;
	memcpy(f->rel, rel, n);
	f->slot = slot_of(rel);
	f->fd = steal_fd(&fd);
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	f->users = 1;
	f->checked_ns = moved ? 0 : now_ns();
	cache_insert(h, f);
	*ret = f;
	return 0;
}

/* A file that its path does not name any more may still be wanted by who had it open. */
static void cache_put_moved(struct hostsrc *h, struct host_file *f)
{
	pthread_mutex_lock(&h->lock);
	f->stale = true;
	pthread_mutex_unlock(&h->lock);
	cache_put(h, f);
}

static int file_get(struct hostsrc *h, const char *rel, enum hostsrc_be be,
		    const struct hostsrc_id *id, struct host_file **ret)
{
	struct host_file *f = cache_find(h, rel, be == HOSTSRC_ANY ? NULL : id);
	int r;

	if (f && (be != HOSTSRC_ANY || still_there(h, f))) {
		*ret = f;
		return 0;
	}
	if (f)
		cache_put_moved(h, f);
	r = file_open(h, rel, be == HOSTSRC_ANY ? NULL : id, &f);
	if (r < 0)
		return r;
	if (be != HOSTSRC_ANY && !is_file(f, id)) {
		cache_put(h, f);
		return -ESTALE;
	}
	*ret = f;
	return 0;
}

static bool id_equal(const struct hostsrc_id *a, const struct hostsrc_id *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/* What is in memory is read at once. Else the kernel has begun to read it when it says that it is not. */
static ssize_t read_all(int fd, void *buf, size_t n, off_t off, bool *ret_waited)
{
	struct iovec iov = {buf, n};
	ssize_t got = preadv2(fd, &iov, 1, off, RWF_NOWAIT), more;

	if (got < 0 && errno == EAGAIN)
		*ret_waited = true;
	if (got < 0) /* also of a file system that does not know the flag */
		got = 0;
	if ((size_t)got == n)
		return got;
	more = io_pread_full(fd, (uint8_t *)buf + got, n - (size_t)got, off + got);
	return more < 0 ? more : got + more;
}

static ssize_t read_checked(const struct host_file *f, const struct hostsrc_id *id, uint64_t off,
			    void *buf, size_t n, bool *ret_waited)
{
	ssize_t got = off > INT64_MAX - n ? 0 : read_all(f->fd, buf, n, (off_t)off, ret_waited);
	struct hostsrc_id now;
	struct stat st;

	if (got < 0 || !id)
		return got;
	/* after the read: a change that reached the bytes has changed the time before them */
	if (fstat(f->fd, &st) < 0)
		return ret_nerrno();
	hostsrc_id_of(&st, &now);
	return id_equal(id, &now) ? got : -ESTALE;
}

int hostsrc_stat_held(struct hostsrc *h, const char *rel, const struct hostsrc_id *id,
		      struct stat *ret)
{
	struct host_file *f = cache_find(h, rel, id);
	cleanup_fd int fd = f ? -1 : hostpins_get(&h->pins, id->dev, id->ino);
	struct stat st;
	int r = 0;

	if (!f && fd < 0)
		return fd;
	if (fstat(f ? f->fd : fd, &st) < 0)
		r = ret_nerrno();
	if (f)
		cache_put(h, f);
	if (r < 0 || !hostsrc_shown(h, &st))
		return r < 0 ? r : -ENOENT;
	if (st.st_nlink == 0) /* as hostsrc_stat() says it */
		st.st_nlink = 1;
	*ret = st;
	return 0;
}

void hostsrc_forget(struct hostsrc *h, const char *rel, uint64_t dev, uint64_t ino)
{
	hostpins_drop(&h->pins, dev, ino);
	if (rel)
		file_forget(h, rel, dev, ino);
}

void hostsrc_ahead(const struct hostsrc *h, int dir_fd, const char *name)
{
	struct stat st;
	int fd;

	/* Looked at first: to open what has come in its place, a pipe or a device, may do something. */
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
	    !hostsrc_shown(h, &st))
		return;
	fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)posix_fadvise(fd, 0, AHEAD, POSIX_FADV_WILLNEED);
	(void)close(fd);
}

ssize_t hostsrc_pread(struct hostsrc *h, const char *rel, enum hostsrc_be be,
		      const struct hostsrc_id *id, uint64_t off, void *buf, size_t n)
{
	bool waited;

	return hostsrc_pread_told(h, rel, be, id, off, buf, n, &waited);
}

ssize_t hostsrc_pread_told(struct hostsrc *h, const char *rel, enum hostsrc_be be,
			   const struct hostsrc_id *id, uint64_t off, void *buf, size_t n,
			   bool *ret_waited)
{
	struct host_file *f;
	ssize_t got;
	int r = file_get(h, rel, be, id, &f);

	if (r < 0)
		return r;
	got = read_checked(f, be == HOSTSRC_SAME ? id : NULL, off, buf, n, ret_waited);
	cache_put(h, f);
	return got;
}

int64_t hostsrc_seek(struct hostsrc *h, const char *rel, enum hostsrc_be be,
		     const struct hostsrc_id *id, int64_t off, int whence)
{
	struct host_file *f;
	int r = file_get(h, rel, be, id, &f);
	int64_t at;

	if (r < 0)
		return r;
	at = lseek(f->fd, off, whence); /* moves a file position that nobody uses */
	if (at < 0)
		at = ret_nerrno();
	cache_put(h, f);
	return at;
}
