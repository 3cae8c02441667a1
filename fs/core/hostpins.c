#include "fs/core/hostpins.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

#define BATCH 64

int hostpins_init(struct hostpins *p, unsigned max, atomic_uint *all, unsigned all_max)
{
	p->table = (struct table){0};
	p->lru.prev = p->lru.next = &p->lru;
	p->max = max;
	p->all = all;
	p->all_max = all_max;
	return -pthread_mutex_init(&p->lock, NULL);
}

static uint64_t hash_of(uint64_t dev, uint64_t ino)
{
	return table_hash_u64(table_hash_u64(dev) ^ ino);
}

static struct hostpin *find_locked(struct hostpins *p, uint64_t dev, uint64_t ino)
{
	struct table_link *l = table_find(&p->table, hash_of(dev, ino));

	for (; l; l = table_next(l)) {
		struct hostpin *k = (struct hostpin *)l;

		if (k->dev == dev && k->ino == ino)
			return k;
	}
	return NULL;
}

static void lru_unlink(struct hostpin *k)
{
	k->prev->next = k->next;
	k->next->prev = k->prev;
}

static void lru_push(struct hostpins *p, struct hostpin *k)
{
	k->prev = &p->lru;
	k->next = p->lru.next;
	k->next->prev = k;
	p->lru.next = k;
}

static struct hostpin *use_locked(struct hostpins *p, uint64_t dev, uint64_t ino)
{
	struct hostpin *k = find_locked(p, dev, ino);

	if (k) {
		lru_unlink(k);
		lru_push(p, k);
	}
	return k;
}

static void drop_locked(struct hostpins *p, struct hostpin *k)
{
	table_del(&p->table, &k->link);
	lru_unlink(k);
	atomic_fetch_sub(p->all, 1);
	(void)close(k->fd);
	free(k);
}

static void trim_locked(struct hostpins *p, size_t keep)
{
	while (p->table.n > keep)
		drop_locked(p, p->lru.prev);
}

void hostpins_release(struct hostpins *p)
{
	trim_locked(p, 0);
	table_release(&p->table);
	(void)pthread_mutex_destroy(&p->lock);
}

/* Takes *@fd when it is kept. */
static void put_locked(struct hostpins *p, uint64_t dev, uint64_t ino, int *fd)
{
	struct hostpin *k;

	if (use_locked(p, dev, ino))
		return;
	k = calloc(1, sizeof(*k));
	if (!k)
		return;
	*k = (struct hostpin){.dev = dev, .ino = ino, .checked_ms = io_now_ms(), .fd = *fd};
	if (table_add(&p->table, &k->link, hash_of(dev, ino)) < 0) {
		free(k);
		return;
	}
	lru_push(p, k);
	*fd = -1;
	trim_locked(p, atomic_fetch_add(p->all, 1) < p->all_max ? p->max : p->table.n - 1);
}

void hostpins_put(struct hostpins *p, uint64_t dev, uint64_t ino, int fd)
{
	pthread_mutex_lock(&p->lock);
	put_locked(p, dev, ino, &fd);
	pthread_mutex_unlock(&p->lock);
	if (fd >= 0)
		(void)close(fd);
}

int hostpins_use(struct hostpins *p, uint64_t dev, uint64_t ino)
{
	int r;

	pthread_mutex_lock(&p->lock);
	r = use_locked(p, dev, ino)                                   ? 1
	    : p->table.n < p->max && atomic_load(p->all) < p->all_max ? 0
								      : -EMFILE;
	pthread_mutex_unlock(&p->lock);
	return r;
}

void hostpins_drop(struct hostpins *p, uint64_t dev, uint64_t ino)
{
	struct hostpin *k;

	pthread_mutex_lock(&p->lock);
	k = find_locked(p, dev, ino);
	if (k)
		drop_locked(p, k);
	pthread_mutex_unlock(&p->lock);
}

void hostpins_trim(struct hostpins *p, unsigned keep)
{
	pthread_mutex_lock(&p->lock);
	trim_locked(p, keep);
	pthread_mutex_unlock(&p->lock);
}

int hostpins_get(struct hostpins *p, uint64_t dev, uint64_t ino)
{
	struct hostpin *k;
	int fd = -ESTALE;

	pthread_mutex_lock(&p->lock);
	k = use_locked(p, dev, ino);
	if (k) {
		fd = fcntl(k->fd, F_DUPFD_CLOEXEC, 3);
		if (fd < 0)
			fd = ret_nerrno();
	}
	pthread_mutex_unlock(&p->lock);
	return fd;
}

/* ---- files without a name ---- */

struct look {
	uint64_t dev, ino;
	int fd;
};

/* Some that are due, with descriptors of their own: looking at a file may take its time. */
static size_t due_locked(struct hostpins *p, long long now, long long age_ms, struct look *ret)
{
	size_t n = 0;

	for (struct hostpin *k = p->lru.prev; k != &p->lru && n < BATCH; k = k->prev) {
		if (now - k->checked_ms < age_ms)
			continue;
		ret[n].fd = fcntl(k->fd, F_DUPFD_CLOEXEC, 3);
		if (ret[n].fd < 0)
			break;
		ret[n].dev = k->dev;
		ret[n++].ino = k->ino;
		k->checked_ms = now;
	}
	return n;
}

bool hostpins_nameless(struct hostpins *p, long long age_ms,
		       void (*fn)(void *arg, uint64_t dev, uint64_t ino), void *arg)
{
	long long now = io_now_ms();
	struct look l[BATCH];
	bool left;
	size_t n;

	do {
		pthread_mutex_lock(&p->lock);
		n = due_locked(p, now, age_ms, l);
		pthread_mutex_unlock(&p->lock);
		for (size_t i = 0; i < n; i++) {
			struct stat st;
			bool gone = fstat(l[i].fd, &st) < 0 || st.st_nlink == 0;

			(void)close(l[i].fd);
			if (gone)
				fn(arg, l[i].dev, l[i].ino);
		}
	} while (n == BATCH);
	pthread_mutex_lock(&p->lock);
	left = p->table.n > 0;
	pthread_mutex_unlock(&p->lock);
	return left;
}
