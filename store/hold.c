/* What a collector must leave alone although no record names it: chunks that a process holds, and layers
 * that one shows. A process's word counts as long as it keeps the lock on the file that says it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "store/key.h"
#include "store/store_internal.h"

#define HOLD_PREFIX "hold-"
#define PIN_PREFIX  "pin-"

/* Counters, by digest. Two digests with one counter keep each other a little longer. */
#define HOLD_N     ((size_t)32 << 10)
#define HOLD_BYTES (HOLD_N * sizeof(uint32_t))

#define DEAD_MODE 0400
#define DEAD_S    600

/* A new file of ours, locked. A collector takes away what is not locked, so it may be gone again before
 * it is. */
static int own_file(struct store *s, char *name, size_t size, const char *prefix, int *ret_fd)
{
	for (int i = 0; i < 100; i++) {
		struct timespec now;
		struct stat st;
		int fd;

		(void)clock_gettime(CLOCK_REALTIME, &now);
		(void)snprintf(name, size, "%s%08lx%04x", prefix, (unsigned long)now.tv_nsec,
			       (unsigned)getpid() & 0xffff);
		fd = openat(s->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
			    0600);
		if (fd < 0 && errno != EEXIST)
			return ret_nerrno();
		if (fd < 0)
			continue;
		if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0) {
			*ret_fd = fd;
			return 0;
		}
		(void)close(fd);
	}
	return -EBUSY;
}

/* ---- holding chunks ---- */

static int holds_make(struct store *s)
{
	void *map;
	int fd, r = own_file(s, s->hold_name, sizeof(s->hold_name), HOLD_PREFIX, &fd);

	if (r < 0)
		return r;
	r = store_map_room(fd, HOLD_BYTES);
	map = r < 0 ? MAP_FAILED
		    : mmap(NULL, HOLD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (r == 0 && map == MAP_FAILED)
		r = ret_nerrno();
	if (r < 0) {
		(void)unlinkat(s->dir_fd, s->hold_name, 0);
		(void)close(fd);
		return r;
	}
	s->hold_fd = fd;
	__atomic_store_n(&s->holds, map, __ATOMIC_RELEASE);
	return 0;
}

static size_t slot_of(const struct digest *d)
{
	return key_get_be64(d->b + 8) % HOLD_N;
}

int store_chunk_hold(struct store *s, const struct digest *d)
{
	uint32_t *holds = __atomic_load_n(&s->holds, __ATOMIC_ACQUIRE);
	int r = 0;

	if (!holds) {
		(void)pthread_mutex_lock(&s->lock);
		if (!s->holds)
			r = holds_make(s);
		holds = s->holds;
		(void)pthread_mutex_unlock(&s->lock);
	}
	if (r == 0)
		(void)__atomic_add_fetch(&holds[slot_of(d)], 1, __ATOMIC_SEQ_CST);
	return r;
}

void store_chunk_unhold(struct store *s, const struct digest *d)
{
	uint32_t *holds = __atomic_load_n(&s->holds, __ATOMIC_ACQUIRE);

	if (holds)
		(void)__atomic_sub_fetch(&holds[slot_of(d)], 1, __ATOMIC_SEQ_CST);
}

void store_holds_close(struct store *s)
{
	if (!s->holds)
		return;
	(void)munmap(s->holds, HOLD_BYTES);
	s->holds = NULL;
	(void)unlinkat(s->dir_fd, s->hold_name, 0);
	cleanup_fdp(&s->hold_fd);
	s->hold_fd = -1;
}

/* ---- pinning layers ---- */

static int pin(struct store *s, store_layer layer, uint32_t state, int *ret_fd)
{
	cleanup_tx MDB_txn *t = NULL;
	struct store_layer_rec rec;
	char prefix[40], name[64];
	/* Under the lock with which a collector condemns layers. */
	int r = store_tx_begin(s, &t);

	if (r == 0)
		r = store_layer_read(s, t, layer, &rec);
	if (r == 0 && rec.state != state)
		r = -EINVAL;
	if (r < 0)
		return r;
	(void)snprintf(prefix, sizeof(prefix), PIN_PREFIX "%llu-", (unsigned long long)layer);
	return own_file(s, name, sizeof(name), prefix, ret_fd);
}

int store_layer_pin(struct store *s, store_layer layer, int *ret_fd)
{
	return pin(s, layer, STORE_LAYER_SEALED, ret_fd);
}

int store_layer_pin_open(struct store *s, store_layer layer, int *ret_fd)
{
	return pin(s, layer, STORE_LAYER_OPEN, ret_fd);
}

/* ---- for the collector ---- */

/* A dead process's holds: who takes over its mount finds the same blocks in its journal, a moment later. Its file
 * says, by its mode and time, since when it is known to be dead. */
static int dead_long(int fd, bool *ret)
{
	const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
	struct stat st;

	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	*ret = (st.st_mode & 0777) == DEAD_MODE && time(NULL) - st.st_mtim.tv_sec > DEAD_S;
	if ((st.st_mode & 0777) == DEAD_MODE)
		return 0;
	return futimens(fd, now) < 0 || fchmod(fd, DEAD_MODE) < 0 ? ret_nerrno() : 0;
}

/* Does somebody live who wrote it? If not it goes, at once or (@linger) after a while. */
static int live_file(struct store *s, const char *name, bool linger, bool *ret)
{
	cleanup_fd int fd = openat(s->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	bool gone = true;
	int r = 0;

	*ret = false;
	if (fd < 0)
		return errno == ENOENT ? 0 : ret_nerrno();
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		*ret = errno == EWOULDBLOCK;
		return *ret ? 0 : ret_nerrno();
	}
	if (linger)
		r = dead_long(fd, &gone);
	*ret = !gone;
	if (r == 0 && gone && unlinkat(s->dir_fd, name, 0) < 0 && errno != ENOENT)
		r = ret_nerrno();
	return r;
}

/* Every file of somebody who lives and whose name begins with @prefix. */
static int each_file(struct store *s, const char *prefix, bool linger,
		     int (*fn)(void *arg, const char *name), void *arg)
{
	int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	cleanup_dir DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		r = ret_nerrno();
		cleanup_fdp(&fd);
		return r;
	}
	for (;;) {
		struct dirent *e;
		bool live;

		errno = 0;
		e = readdir(d);
		if (!e)
			return errno ? ret_nerrno() : 0;
		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
			continue;
		r = live_file(s, e->d_name, linger, &live);
		if (r == 0 && live)
			r = fn(arg, e->d_name);
		if (r)
			return r;
	}
}

struct holders_call {
	struct store *s;
	struct store_holders *h;
};

static int holder_add(void *arg, const char *name)
{
	struct holders_call *c = arg;
	cleanup_fd int fd = openat(c->s->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	uint32_t **more;
	struct stat st;
	void *map;

	if (fd < 0) /* it ended just now */
		return errno == ENOENT ? 0 : ret_nerrno();
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	/* Not yet complete: its owner holds nothing before it is. */
	if (st.st_size < (off_t)HOLD_BYTES)
		return 0;
	more = realloc(c->h->maps, (c->h->n + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	c->h->maps = more;
	map = mmap(NULL, HOLD_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return ret_nerrno();
	more[c->h->n++] = map;
	return 0;
}

int store_holders_load(struct store *s, struct store_holders *ret)
{
	struct holders_call c = {s, ret};
	int r;

	*ret = (struct store_holders){0};
	r = each_file(s, HOLD_PREFIX, true, holder_add, &c);
	if (r < 0)
		store_holders_release(ret);
	return r;
}

bool store_holders_have(const struct store_holders *h, const struct digest *d)
{
	for (size_t i = 0; i < h->n; i++)
		if (__atomic_load_n(&h->maps[i][slot_of(d)], __ATOMIC_SEQ_CST))
			return true;
	return false;
}

void store_holders_release(struct store_holders *h)
{
	for (size_t i = 0; i < h->n; i++)
		(void)munmap(h->maps[i], HOLD_BYTES);
	free(h->maps);
	*h = (struct store_holders){0};
}

struct pins_call {
	int (*fn)(void *arg, store_layer layer);
	void *arg;
};

static int pin_lend(void *arg, const char *name)
{
	const struct pins_call *c = arg;
	char *end;
	unsigned long long layer;

	errno = 0;
	layer = strtoull(name + strlen(PIN_PREFIX), &end, 10);
	return errno || *end != '-' ? 0 : c->fn(c->arg, layer);
}

int store_pins(struct store *s, int (*fn)(void *arg, store_layer layer), void *arg)
{
	struct pins_call c = {fn, arg};

	return each_file(s, PIN_PREFIX, false, pin_lend, &c);
}
