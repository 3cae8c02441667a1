#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "store/key.h"
#include "store/store_internal.h"

#define SEEN_FILE "gc-seen"
#define SEEN_NEW  "gc-seen.new"
#define SEEN_MIN  ((size_t)4096)
#define SEEN_MAX  ((size_t)512 << 10)

/* A file, not a database: noting must not fail when the disk is full, and costs a process that
 * commits no page. It needs no crash safety, because whoever names a chunk after a crash notes it anew,
 * and a collector that died has no successor that relies on what it saw. */

static void seen_set(struct store *s, uint8_t *map, size_t len)
{
	(void)pthread_mutex_lock(&s->lock);
	if (!s->seen) {
		s->seen_len = len;
		__atomic_store_n(&s->seen, map, __ATOMIC_RELEASE);
		map = NULL;
	}
	(void)pthread_mutex_unlock(&s->lock);
	if (map)
		(void)munmap(map, len);
}

/* It becomes visible with its size, and never changes it. One of another size was left by a power cut, and no
 * collector uses it. */
static bool size_ok(const struct stat *st)
{
	return st->st_size >= (off_t)SEEN_MIN && st->st_size <= (off_t)SEEN_MAX &&
	       (st->st_size & (st->st_size - 1)) == 0;
}

int store_seen_open(struct store *s)
{
	cleanup_fd int fd = -1;
	struct stat st;
	void *map;

	if (__atomic_load_n(&s->seen, __ATOMIC_ACQUIRE))
		return 0;
	fd = openat(s->dir_fd, SEEN_FILE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? 0 : ret_nerrno();
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (!size_ok(&st))
		return 0;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return ret_nerrno();
	seen_set(s, map, (size_t)st.st_size);
	return 0;
}

/* The bytes of a digest that neither the mark table nor the holds go by. */
static size_t bit_of(const struct store *s, const struct digest *d)
{
	return key_get_be64(d->b + 16) & (s->seen_len * 8 - 1);
}

void store_seen_note(struct store *s, const struct digest *d)
{
	uint8_t *map = __atomic_load_n(&s->seen, __ATOMIC_ACQUIRE);
	uint8_t m;
	size_t bit;

	if (!map)
		return;
	bit = bit_of(s, d);
	m = (uint8_t)(1u << bit % 8);
	if (!(__atomic_load_n(&map[bit / 8], __ATOMIC_RELAXED) & m))
		(void)__atomic_fetch_or(&map[bit / 8], m, __ATOMIC_RELAXED);
}

bool store_seen_has(struct store *s, const struct digest *d)
{
	size_t bit = bit_of(s, d);

	return __atomic_load_n(&s->seen[bit / 8], __ATOMIC_RELAXED) >> bit % 8 & 1;
}

/* As large as there is room for: a small one only keeps more garbage. */
static int seen_make(struct store *s)
{
	cleanup_fd int fd = openat(s->dir_fd, SEEN_NEW,
				   O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r = -ENOSPC;

	if (fd < 0)
		return ret_nerrno();
	/* Allocated: a write to a map must not find the disk full. */
	for (size_t n = SEEN_MAX; err_no_room(r) && n >= SEEN_MIN; n /= 8) {
		r = store_map_room(fd, n);
		if (err_no_room(r) && ftruncate(fd, 0) < 0)
			r = ret_nerrno();
	}
	return r == 0 && fsync(fd) < 0 ? ret_nerrno() : r;
}

int store_seen_begin(struct store *s)
{
	cleanup_tx MDB_txn *t = NULL;
	struct stat st;
	bool have = fstatat(s->dir_fd, SEEN_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 && size_ok(&st);
	int r = have ? 0 : seen_make(s);

	/* With the lock held nobody is between noting and committing; whoever comes later finds the file. */
	if (r == 0)
		r = store_tx_begin(s, &t);
	if (r == 0 && !have && renameat(s->dir_fd, SEEN_NEW, s->dir_fd, SEEN_FILE) < 0)
		r = ret_nerrno();
	if (r == 0)
		r = store_seen_open(s);
	if (r == 0 && !s->seen)
		r = -EIO; /* somebody took it away */
	if (r < 0)
		return r;
	for (size_t i = 0; i < s->seen_len; i += 8)
		__atomic_store_n((uint64_t *)(void *)(s->seen + i), 0, __ATOMIC_RELAXED);
	return 0;
}

void store_seen_close(struct store *s)
{
	if (s->seen)
		(void)munmap(s->seen, s->seen_len);
	s->seen = NULL;
}
