#include "fs/core/journal_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define MAGIC UINT64_C(0x314c4e524a4e5452) /* "RTNJRNL1" */

/* ---- life ---- */

static void head_init(struct head *h)
{
	h->version = JOURNAL_VERSION;
	h->units = UNITS;
	for (int l = 0; l < JOURNAL_LOGS; l++)
		for (int i = 0; i < 2; i++) {
			atomic_init(&h->log[l].chain[i].first, NONE);
			h->log[l].chain[i].last = NONE;
		}
	h->magic = MAGIC;
}

int journal_create(int *ret_fd)
{
	cleanup_fd int fd = memfd_create("rattan-journal", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct head *h;

	if (fd < 0 || ftruncate(fd, (off_t)SIZE) < 0)
		return ret_nerrno();
	h = mmap(NULL, HEAD, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (h == MAP_FAILED)
		return ret_nerrno();
	head_init(h);
	(void)munmap(h, HEAD);
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* A process that was killed in an append has linked units for bytes that do not count. Each unit is in one log, once: what is
 * in two would be given back twice. */
static int chain_trim(struct head *h, struct chain *c, uint8_t *used)
{
	uint32_t u = atomic_load(&c->first), high = atomic_load(&h->high), n = 0;
	uint64_t end = atomic_load(&c->end);

	c->last = NONE;
	if (u == NONE)
		return 0;
	if (u >= high || h->base[u] > end)
		return -EBADMSG;
	for (;; n++) {
		uint32_t next = atomic_load(&h->next[u]);

		if (n > high || used[u])
			return -EBADMSG;
		used[u] = 1;
		if (next >= high || h->base[next] > end)
			break;
		u = next;
	}
	if (end - h->base[u] > UNIT)
		return -EBADMSG;
	atomic_store(&h->next[u], NONE);
	c->last = u;
	return 0;
}

static int check(const struct head *h)
{
	if (h->magic != MAGIC)
		return -EBADMSG;
	if (h->version != JOURNAL_VERSION || h->units != UNITS)
		return -EPROTONOSUPPORT;
	return atomic_load(&h->high) <= UNITS ? 0 : -EBADMSG;
}

static int trim_all(struct head *h, uint8_t *used)
{
	int r = 0;

	for (int l = 0; l < JOURNAL_LOGS && r == 0; l++)
		r = chain_trim(h, &h->log[l].chain[atomic_load(&h->log[l].cur) & 1], used);
	return r;
}

int journal_open(int fd, struct journal **ret)
{
	struct journal *j;
	struct stat st;
	void *p;
	int r;

	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (st.st_size != (off_t)SIZE)
		return -EPROTONOSUPPORT;
	p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (p == MAP_FAILED)
		return ret_nerrno();
	j = calloc(1, sizeof(*j));
	if (j) {
		j->free = calloc(UNITS, sizeof(*j->free));
		j->used = calloc(UNITS, 1);
	}
	r = j && j->free && j->used ? check(p) : -ENOMEM;
	if (r == 0)
		r = trim_all(p, j->used);
	if (r < 0) {
		(void)munmap(p, SIZE);
		if (j) {
			free(j->free);
			free(j->used);
			free(j);
		}
		return r;
	}
	j->h = p;
	j->data = (uint8_t *)p + HEAD;
	j->mark = NONE;
	(void)pthread_mutex_init(&j->units, NULL);
	for (int l = 0; l < JOURNAL_LOGS; l++)
		(void)pthread_mutex_init(&j->lock[l], NULL);
	*ret = j;
	return 0;
}

void journal_close(struct journal *j)
{
	if (!j)
		return;
	(void)munmap(j->h, SIZE);
	(void)pthread_mutex_destroy(&j->units);
	for (int l = 0; l < JOURNAL_LOGS; l++)
		(void)pthread_mutex_destroy(&j->lock[l]);
	free(j->free);
	free(j->used);
	free(j);
}

/* ---- the head ---- */

void journal_set_base(struct journal *j, uint64_t layer, uint64_t seed)
{
	j->h->seed = seed;
	atomic_store(&j->h->layer, layer);
}

void journal_base(const struct journal *j, uint64_t *ret_layer, uint64_t *ret_seed)
{
	*ret_layer = atomic_load(&j->h->layer);
	*ret_seed = j->h->seed;
}

uint32_t journal_next_life(struct journal *j)
{
	return ++j->h->life;
}

uint64_t *journal_written(struct journal *j)
{
	return &j->h->written;
}

void journal_break(struct journal *j)
{
	(void)pthread_mutex_lock(&j->lock[JOURNAL_CHANGES]);
	atomic_store(&j->h->broken, 1);
	j->broken_since = true;
	(void)pthread_mutex_unlock(&j->lock[JOURNAL_CHANGES]);
}

bool journal_whole(const struct journal *j)
{
	return atomic_load(&j->h->broken) == 0;
}

void journal_done(struct journal *j, unsigned slot, const struct journal_done *d)
{
	/* The tag last: with the old one, which was answered long ago, the rest means nothing. */
	j->h->done[slot % JOURNAL_SLOTS].ino = d->ino;
	j->h->done[slot % JOURNAL_SLOTS].result = d->result;
	atomic_store_explicit(&j->h->done[slot % JOURNAL_SLOTS].tag, d->tag, memory_order_release);
}

void journal_done_get(const struct journal *j, unsigned slot, struct journal_done *ret)
{
	*ret = (struct journal_done){
		.tag = atomic_load(&j->h->done[slot % JOURNAL_SLOTS].tag),
		.ino = j->h->done[slot % JOURNAL_SLOTS].ino,
		.result = j->h->done[slot % JOURNAL_SLOTS].result,
	};
}

/* ---- units ---- */

/* A unit that is new to the process: all its pages at once, and an error instead of a signal when there is no
 * memory for them. Kernels before 5.14 cannot be asked; there they come one by one. */
static int populate(struct journal *j, uint32_t unit)
{
	if (madvise(journal_bytes(j, unit), UNIT, MADV_POPULATE_WRITE) == 0 || errno == EINVAL)
		return 0;
	return -ENOMEM;
}

uint32_t journal_unit_take(struct journal *j)
{
	uint32_t unit = NONE;

	(void)pthread_mutex_lock(&j->units);
	if (j->nfree > j->nbare || (j->nfree && populate(j, j->free[j->nfree - 1]) == 0)) {
		unit = j->free[--j->nfree];
		if (j->nbare > j->nfree)
			j->nbare = j->nfree;
	} else if (atomic_load(&j->h->high) < UNITS && populate(j, atomic_load(&j->h->high)) == 0) {
		unit = atomic_load(&j->h->high);
		/* Of nobody before it counts. */
		atomic_store(&j->h->next[unit], NONE);
		atomic_store(&j->h->high, unit + 1);
	}
	if (unit != NONE) {
		j->h->gen[unit]++;
		if (j->used)
			j->used[unit] = 1;
	}
	(void)pthread_mutex_unlock(&j->units);
	return unit;
}

void journal_unit_free(struct journal *j, uint32_t unit)
{
	(void)pthread_mutex_lock(&j->units);
	if (j->used)
		j->used[unit] = 0; /* for the sweep */
	else
		j->free[j->nfree++] = unit;
	(void)pthread_mutex_unlock(&j->units);
}

uint8_t *journal_unit_get(struct journal *j)
{
	uint32_t unit = journal_unit_take(j);

	return unit == NONE ? NULL : journal_bytes(j, unit);
}

bool journal_idle(struct journal *j, unsigned keep)
{
	bool some = false;

	(void)pthread_mutex_lock(&j->units);
	while (j->nfree - j->nbare > keep &&
	       madvise(journal_bytes(j, j->free[j->nbare]), UNIT, MADV_REMOVE) == 0) {
		j->nbare++;
		some = true;
	}
	(void)pthread_mutex_unlock(&j->units);
	return some;
}

static uint32_t unit_of(const struct journal *j, const uint8_t *p)
{
	return (uint32_t)((size_t)(p - j->data) / UNIT);
}

void journal_unit_put(struct journal *j, uint8_t *p)
{
	journal_unit_free(j, unit_of(j, p));
}

bool journal_owns(const struct journal *j, const void *p)
{
	return (const uint8_t *)p >= j->data && (const uint8_t *)p < j->data + UNIT * UNITS;
}

uint64_t journal_unit_name(const struct journal *j, const uint8_t *p)
{
	uint32_t unit = unit_of(j, p);

	return (uint64_t)j->h->gen[unit] << 32 | unit;
}

int journal_unit_adopt(struct journal *j, uint64_t name, uint8_t **ret)
{
	uint32_t unit = (uint32_t)name;

	if (unit >= atomic_load(&j->h->high) || j->h->gen[unit] != (uint32_t)(name >> 32))
		return -ENOENT;
	if (!j->used || j->used[unit])
		return -EBADMSG;
	j->used[unit] = 1;
	*ret = journal_bytes(j, unit);
	return 0;
}

bool journal_unit_copy(struct journal *j, uint64_t name, size_t off, void *p, size_t n)
{
	uint32_t unit = (uint32_t)name;
	bool is;

	/* With the lock held nobody takes it for something else. */
	(void)pthread_mutex_lock(&j->units);
	is = unit < atomic_load(&j->h->high) && off <= UNIT && n <= UNIT - off &&
	     j->h->gen[unit] == (uint32_t)(name >> 32);
	if (is)
		memcpy(p, journal_bytes(j, unit) + off, n);
	(void)pthread_mutex_unlock(&j->units);
	return is;
}

void journal_sweep(struct journal *j)
{
	uint32_t high = atomic_load(&j->h->high);

	for (int l = 0; l < JOURNAL_LOGS; l++) {
		const struct chain *c = &j->h->log[l].chain[atomic_load(&j->h->log[l].cur) & 1];

		for (uint32_t u = atomic_load(&c->first), n = 0; u < high && n < high;
		     u = atomic_load(&j->h->next[u]), n++)
			j->used[u] = 1;
	}
	(void)pthread_mutex_lock(&j->units);
	j->nfree = j->nbare = 0;
	for (uint32_t u = high; u-- > 0;) /* the lowest on top */
		if (!j->used[u])
			j->free[j->nfree++] = u;
	free(j->used);
	j->used = NULL;
	(void)pthread_mutex_unlock(&j->units);
}

void journal_reset(struct journal *j)
{
	struct head *h = j->h;

	for (int l = 0; l < JOURNAL_LOGS; l++)
		for (int i = 0; i < 2; i++) {
			atomic_store(&h->log[l].chain[i].first, NONE);
			h->log[l].chain[i].last = NONE;
			atomic_store(&h->log[l].chain[i].end, 0);
		}
	for (unsigned i = 0; i < JOURNAL_SLOTS; i++)
		atomic_store(&h->done[i].tag, 0);
	atomic_store(&h->broken, 0);
	j->mark = NONE;
	if (!j->used) {
		j->used = calloc(UNITS, 1);
		if (!j->used)
			return; /* its units stay where they are: more are taken */
	}
	memset(j->used, 0, UNITS);
	journal_sweep(j);
}
