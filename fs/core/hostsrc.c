#include "fs/core/hostsrc.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

#define CACHE_MAX      128
#define CACHE_MIN      4
#define CACHE_SLOTS    256
/* How long a cached descriptor is believed to be what its path names. A program that replaces a host
 * file by rename is seen after at most this time. */
#define CACHE_TRUST_NS (20 * 1000 * 1000LL)
#define RACY_NS        (20 * 1000 * 1000LL)
#define HOST_INO_BITS  40
#define OPEN_TRIES     100
#define NLINK_TRIES    8

/* An open host file. All fields but fd, rel, dev and ino under hostsrc.lock. */
struct host_file {
	struct host_file *chain;       /* of the hash slot */
	struct host_file *prev, *next; /* least recently used order */
	unsigned slot;
	unsigned users;
	bool dead;  /* not in the cache any more: the last user frees it */
	bool stale; /* its path names another file: only for who wants this one */
	long long checked_ns;
	uint64_t dev, ino;
	int fd;
	char rel[];
};

struct hostsrc {
	char *root;
	int root_fd;
	unsigned flags, index;
	dev_t dev;

	pthread_mutex_t lock; /* a leaf: the cache below */
	struct host_file *slots[CACHE_SLOTS];
	struct host_file lru; /* ring: next is the most recently used */
	unsigned count;
	unsigned max; /* fixed; of @count, for each of many sources */
};

static int open_below(const struct hostsrc *h, const char *rel, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd = -1;

	/* EAGAIN: a rename ran beside the walk and the kernel could not prove "beneath" */
	for (int tries = 0; tries < OPEN_TRIES && fd < 0; tries++) {
		fd = syscall(SYS_openat2, h->root_fd, *rel ? rel : ".", &how, sizeof how);
		if (fd < 0 && errno != EINTR && errno != EAGAIN)
			break;
	}
	return fd < 0 ? ret_nerrno() : (int)fd;
}

/* May everyone read it? Others see such a file as not there (REC_ORIGIN_PUBLIC). */
static bool is_public(const struct stat *st)
{
	switch (st->st_mode & S_IFMT) {
	case S_IFREG:
	case S_IFIFO:
	case S_IFSOCK:
		return st->st_mode & S_IROTH;
	case S_IFDIR:
		return (st->st_mode & (S_IROTH | S_IXOTH)) == (S_IROTH | S_IXOTH);
	case S_IFLNK:
		return true;
	default:
		return false;
	}
}

static bool shown(const struct hostsrc *h, const struct stat *st)
{
	return !(h->flags & REC_ORIGIN_PUBLIC) || is_public(st);
}

/* There are other sources, and other uses of descriptors. */
static unsigned cache_max(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_cur / 16 >= CACHE_MAX)
		return CACHE_MAX;
	return rl.rlim_cur / 16 < CACHE_MIN ? CACHE_MIN : (unsigned)rl.rlim_cur / 16;
}

/* What was a directory when it was laid over the tree is not followed to where a link leads now. */
static int open_root(const char *root)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, AT_FDCWD, root, &how, sizeof how);
}

int hostsrc_open(const char *root, unsigned flags, unsigned index, struct hostsrc **ret)
{
	struct hostsrc *h;
	struct stat st;
	int r;

	if (root[0] != '/' || index >= 1024)
		return -EINVAL;
	h = calloc(1, sizeof *h);
	if (!h)
		return -ENOMEM;
	h->flags = flags;
	h->index = index;
	h->max = cache_max();
	h->lru.prev = h->lru.next = &h->lru;
	r = -pthread_mutex_init(&h->lock, NULL);
	if (r < 0) {
		free(h);
		return r;
	}
	h->root_fd = open_root(root);
	if (h->root_fd < 0 || fstat(h->root_fd, &st) < 0)
		r = ret_nerrno();
	h->root = strdup(root);
	if (r == 0 && !h->root)
		r = -ENOMEM;
	if (r < 0) {
		hostsrc_close(h);
		return r;
	}
	h->dev = st.st_dev;
	*ret = h;
	return 0;
}

static void file_free(struct host_file *f)
{
	(void)close(f->fd);
	free(f);
}

void hostsrc_close(struct hostsrc *h)
{
	if (!h)
		return;
	while (h->lru.next != &h->lru) {
		struct host_file *f = h->lru.next;

		h->lru.next = f->next;
		file_free(f);
	}
	if (h->root_fd >= 0)
		(void)close(h->root_fd);
	pthread_mutex_destroy(&h->lock);
	free(h->root);
	free(h);
}

const char *hostsrc_root(const struct hostsrc *h)
{
	return h->root;
}

unsigned hostsrc_flags(const struct hostsrc *h)
{
	return h->flags;
}

static int stat_below(struct hostsrc *h, const char *rel, struct stat *ret)
{
	cleanup_fd int fd = open_below(h, rel, O_PATH | O_NOFOLLOW);

	if (fd < 0)
		return fd;
	return fstat(fd, ret) < 0 ? ret_nerrno() : 0;
}

int hostsrc_stat(struct hostsrc *h, const char *rel, struct stat *ret)
{
	struct stat st;
	int r = stat_below(h, rel, &st);

	/* No link: it was removed or replaced between the two calls; look again. A file system that
	 * counts no links says so each time: one name is what we came by. */
	for (int tries = 0; r == 0 && st.st_nlink == 0 && tries < NLINK_TRIES; tries++)
		r = stat_below(h, rel, &st);
	if (r < 0)
		return r;
	if (st.st_nlink == 0)
		st.st_nlink = 1;
	if (!shown(h, &st))
		return -ENOENT;
	*ret = st;
	return 0;
}

store_ino hostsrc_ino(const struct hostsrc *h, const struct stat *st)
{
	if (st->st_dev != h->dev || st->st_ino >> HOST_INO_BITS)
		return 0;
	return STORE_HOST_INO | (uint64_t)h->index << HOST_INO_BITS | st->st_ino;
}

int hostsrc_readlink(struct hostsrc *h, const char *rel, char ret_target[static 4096])
{
	cleanup_fd int fd = open_below(h, rel, O_PATH | O_NOFOLLOW);
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return fd;
	/* readlinkat(2) of an empty path gives ENOENT, not EINVAL, for what is no symlink */
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (!S_ISLNK(st.st_mode))
		return -EINVAL;
	n = readlinkat(fd, "", ret_target, 4095);
	if (n < 0)
		return ret_nerrno();
	ret_target[n] = '\0';
	return 0;
}

static int list_one(struct hostsrc *h, int fd, const struct dirent *d,
		    int (*fn)(void *arg, const char *name, uint64_t ino, unsigned type), void *arg)
{
	unsigned type = d->d_type;

	if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
		return 0;
	if (type == DT_UNKNOWN || ((h->flags & REC_ORIGIN_PUBLIC) && type != DT_LNK)) {
		struct stat st;

		/* What cannot be looked at (a mount of somebody else's, or whose server is gone) is
		 * not for everyone to read; without that rule its name is enough. */
		if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
			if (errno == ENOENT || errno == ENOMEM || h->flags & REC_ORIGIN_PUBLIC)
				return errno == ENOMEM ? -ENOMEM : 0;
		} else if (!shown(h, &st)) {
			return 0;
		} else {
			type = IFTODT(st.st_mode);
		}
	}
	return fn(arg, d->d_name, d->d_ino, type);
}

int hostsrc_list(struct hostsrc *h, const char *rel,
		 int (*fn)(void *arg, const char *name, uint64_t ino, unsigned type), void *arg)
{
	cleanup_fd int fd = open_below(h, rel, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	cleanup_dir DIR *dir = NULL;
	struct stat st;
	int r = 0;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (!shown(h, &st))
		return -ENOENT;
	dir = fdopendir(fd);
	if (!dir)
		return ret_nerrno();
	(void)steal_fd(&fd); /* the DIR closes it */
	while (r == 0) {
		const struct dirent *d;

		errno = 0;
		d = readdir(dir);
		if (!d)
			return errno ? ret_nerrno() : 0;
		r = list_one(h, dirfd(dir), d, fn, arg);
	}
	return r;
}

void hostsrc_id_of(const struct stat *st, struct hostsrc_id *ret)
{
	*ret = (struct hostsrc_id){
		.dev = st->st_dev,
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.mtime = st->st_mtim,
	};
}

bool hostsrc_racy(const struct stat *st)
{
	struct timespec now;
	long long age;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	age = (now.tv_sec - st->st_mtim.tv_sec) * 1000000000LL + now.tv_nsec - st->st_mtim.tv_nsec;
	return age > -RACY_NS && age < RACY_NS;
}

static bool id_equal(const struct hostsrc_id *a, const struct hostsrc_id *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/* ---- the descriptor cache ---- */

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
	return (unsigned)(v ^ v >> 32) % CACHE_SLOTS;
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
	cache_trim_locked(h, h->max);
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
	if (now - checked < CACHE_TRUST_NS)
		return true;
	if (hostsrc_stat(h, f->rel, &st) < 0 || st.st_dev != f->dev || st.st_ino != f->ino)
		return false;
	pthread_mutex_lock(&h->lock);
	f->checked_ns = now;
	pthread_mutex_unlock(&h->lock);
	return true;
}

static int file_fd(struct hostsrc *h, const char *rel)
{
	/* NONBLOCK: a fifo put in the file's place must not hold us */
	int fd = open_below(h, rel, O_RDONLY | O_NONBLOCK | O_NOCTTY);

	if (fd != -EMFILE && fd != -ENFILE)
		return fd;
	pthread_mutex_lock(&h->lock);
	cache_trim_locked(h, 0);
	pthread_mutex_unlock(&h->lock);
	return open_below(h, rel, O_RDONLY | O_NONBLOCK | O_NOCTTY);
}

static int file_open(struct hostsrc *h, const char *rel, struct host_file **ret)
{
	cleanup_fd int fd = file_fd(h, rel);
	struct host_file *f;
	struct stat st;
	size_t n = strlen(rel) + 1;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	if (!shown(h, &st))
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
	f->checked_ns = now_ns();
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
	r = file_open(h, rel, &f);
	if (r < 0)
		return r;
	if (be != HOSTSRC_ANY && !is_file(f, id)) {
		cache_put(h, f);
		return -ESTALE;
	}
	*ret = f;
	return 0;
}

static ssize_t pread_full(int fd, void *buf, size_t n, uint64_t off)
{
	size_t done = 0;

	if (off > INT64_MAX)
		return 0;
	while (done < n) {
		ssize_t r = pread(fd, (char *)buf + done, n - done, (off_t)(off + done));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return done ? (ssize_t)done : ret_nerrno();
		if (r == 0)
			break;
		done += (size_t)r;
	}
	return (ssize_t)done;
}

static ssize_t read_checked(const struct host_file *f, const struct hostsrc_id *id, uint64_t off,
			    void *buf, size_t n)
{
	ssize_t got = pread_full(f->fd, buf, n, off);
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

ssize_t hostsrc_pread(struct hostsrc *h, const char *rel, enum hostsrc_be be,
		      const struct hostsrc_id *id, uint64_t off, void *buf, size_t n)
{
	struct host_file *f;
	ssize_t got;
	int r = file_get(h, rel, be, id, &f);

	if (r < 0)
		return r;
	got = read_checked(f, be == HOSTSRC_SAME ? id : NULL, off, buf, n);
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

/* ---- extended attributes: through /proc, because an O_PATH descriptor has none of its own ---- */

static int xattr_path(struct hostsrc *h, const char *rel, int *ret_fd, char path[static 32])
{
	cleanup_fd int fd = open_below(h, rel, O_PATH | O_NOFOLLOW);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (!shown(h, &st))
		return -ENOENT;
	(void)snprintf(path, 32, "/proc/self/fd/%d", fd);
	*ret_fd = steal_fd(&fd);
	return 0;
}

ssize_t hostsrc_getxattr(struct hostsrc *h, const char *rel, const char *name, void *value,
			 size_t size)
{
	cleanup_fd int fd = -1;
	char path[32];
	int r = xattr_path(h, rel, &fd, path);
	ssize_t n;

	if (r < 0)
		return r;
	n = getxattr(path, name, value, size);
	return n < 0 ? ret_nerrno() : n;
}

ssize_t hostsrc_listxattr(struct hostsrc *h, const char *rel, char *list, size_t size)
{
	cleanup_fd int fd = -1;
	char path[32];
	int r = xattr_path(h, rel, &fd, path);
	ssize_t n;

	if (r < 0)
		return r;
	n = listxattr(path, list, size);
	return n < 0 ? ret_nerrno() : n;
}
