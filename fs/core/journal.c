#include "fs/core/journal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "store/record.h"

#define MAGIC UINT64_C(0x314c4e524a4e5452) /* "RTNJRNL1" */
#define UNIT  ((size_t)STORE_BLOCK)
#define UNITS 16384u /* 2 GiB; only touched pages exist */
#define NONE  UINT32_MAX

/* A log is a chain of units. @end counts all bytes ever written to it; a unit holds those from its base on,
 * up to the next one's base. */
struct chain {
	_Atomic uint32_t first;
	uint32_t last;
	_Atomic uint64_t end;
};

struct head {
	uint64_t magic;
	uint32_t version, units;
	_Atomic uint32_t high; /* units from here on were never used */
	_Atomic uint32_t broken;
	_Atomic uint64_t layer;
	uint64_t seed;
	uint32_t life, pad;
	uint64_t written;
	struct {
		_Atomic uint32_t cur; /* which of the two is the log */
		struct chain chain[2];
	} log[JOURNAL_LOGS];
	struct {
		_Atomic uint64_t tag;
		uint64_t ino;
		int64_t result;
	} done[JOURNAL_SLOTS];
	/* of each unit */
	uint32_t gen[UNITS];
	_Atomic uint32_t next[UNITS];
	_Atomic uint64_t base[UNITS];
};

#define HEAD ((sizeof(struct head) + UNIT - 1) / UNIT * UNIT)
#define SIZE (HEAD + UNIT * UNITS)

struct journal {
	struct head *h;
	uint8_t *data;

	pthread_mutex_t units; /* leaf: all below, and allocation in the head */
	uint32_t *free; /* a stack: what was used last is used next, as its pages are there */
	uint32_t nfree;
	uint32_t nbare; /* at the bottom of the stack: without memory behind them */
	uint8_t *used;  /* between opening and sweep; else NULL */

	pthread_mutex_t lock[JOURNAL_LOGS]; /* leaf: the log; units is taken below it */
	uint32_t mark;                      /* CHANGES: the unit where the flush's end is; NONE */
	bool broken_since;                  /* CHANGES: after the mark */
	bool renewing;                      /* KNOWN: appends go to the other chain */
};

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

/* A process that was killed in an append has linked units for bytes that do not count. */
static int chain_trim(struct head *h, struct chain *c)
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

		if (n > high)
			return -EBADMSG;
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

static int trim_all(struct head *h)
{
	int r = 0;

	for (int l = 0; l < JOURNAL_LOGS && r == 0; l++)
		r = chain_trim(h, &h->log[l].chain[atomic_load(&h->log[l].cur) & 1]);
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
	r = check(p);
	if (r == 0)
		r = trim_all(p);
	j = r == 0 ? calloc(1, sizeof(*j)) : NULL;
	if (j) {
		j->free = calloc(UNITS, sizeof(*j->free));
		j->used = calloc(UNITS, 1);
	}
	if (!j || !j->free || !j->used) {
		(void)munmap(p, SIZE);
		if (j) {
			free(j->free);
			free(j->used);
			free(j);
		}
		return r < 0 ? r : -ENOMEM;
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

static uint8_t *bytes(const struct journal *j, uint32_t unit)
{
	return j->data + UNIT * unit;
}

/* A unit that is new to the process: all its pages at once, and an error instead of a signal when there is no
 * memory for them. Kernels before 5.14 cannot be asked; there they come one by one. */
static int populate(struct journal *j, uint32_t unit)
{
	if (madvise(bytes(j, unit), UNIT, MADV_POPULATE_WRITE) == 0 || errno == EINVAL)
		return 0;
	return -ENOMEM;
}

static uint32_t unit_take(struct journal *j)
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

static void unit_free(struct journal *j, uint32_t unit)
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
	uint32_t unit = unit_take(j);

	return unit == NONE ? NULL : bytes(j, unit);
}

bool journal_idle(struct journal *j, unsigned keep)
{
	bool some = false;

	(void)pthread_mutex_lock(&j->units);
	while (j->nfree - j->nbare > keep &&
	       madvise(bytes(j, j->free[j->nbare]), UNIT, MADV_REMOVE) == 0) {
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
	unit_free(j, unit_of(j, p));
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

uint8_t *journal_unit_adopt(struct journal *j, uint64_t name)
{
	uint32_t unit = (uint32_t)name;

	if (unit >= atomic_load(&j->h->high) || j->h->gen[unit] != (uint32_t)(name >> 32))
		return NULL;
	if (j->used)
		j->used[unit] = 1;
	return bytes(j, unit);
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

/* ---- logs ---- */

/* log lock */
static struct chain *chain_of(const struct journal *j, enum journal_log log)
{
	uint32_t cur = atomic_load_explicit(&j->h->log[log].cur, memory_order_relaxed) & 1;

	if (log == JOURNAL_KNOWN && j->renewing)
		cur ^= 1;
	return &j->h->log[log].chain[cur];
}

/* log lock. A new last unit, which holds what comes from @at on. */
static int chain_grow(struct journal *j, struct chain *c, uint64_t at)
{
	uint32_t unit = unit_take(j);

	if (unit == NONE)
		return -ENOMEM;
	j->h->base[unit] = at;
	atomic_store(&j->h->next[unit], NONE);
	if (c->last == NONE)
		atomic_store(&c->first, unit);
	else
		atomic_store(&j->h->next[c->last], unit);
	c->last = unit;
	return 0;
}

/* log lock */
static void chain_free(struct journal *j, struct chain *c)
{
	uint32_t u = atomic_load(&c->first), high = atomic_load(&j->h->high);

	atomic_store(&c->first, NONE);
	c->last = NONE;
	while (u < high) {
		uint32_t next = atomic_load(&j->h->next[u]);

		unit_free(j, u);
		u = next;
	}
}

struct cursor {
	struct chain *c;
	uint64_t at;
};

/* log lock. Units that were added for a batch that did not fit stay for the next one: its bytes start where
 * the last batch has ended. */
static int write_bytes(struct journal *j, struct cursor *w, const void *p, size_t n)
{
	const uint8_t *from = p;

	while (n > 0) {
		size_t off, k;

		if (w->c->last == NONE || w->at - j->h->base[w->c->last] >= UNIT) {
			int r = chain_grow(j, w->c, w->at);

			if (r < 0)
				return r;
		}
		off = (size_t)(w->at - j->h->base[w->c->last]);
		k = UNIT - off < n ? UNIT - off : n;
		memcpy(bytes(j, w->c->last) + off, from, k);
		from += k;
		n -= k;
		w->at += k;
	}
	return 0;
}

/* log lock. Back to the unit that holds the end. */
static void take_back(struct journal *j, struct chain *c, uint32_t last)
{
	uint32_t u = last == NONE ? atomic_load(&c->first) : atomic_load(&j->h->next[last]);

	if (last == NONE)
		atomic_store(&c->first, NONE);
	else
		atomic_store(&j->h->next[last], NONE);
	c->last = last;
	while (u != NONE) {
		uint32_t next = atomic_load(&j->h->next[u]);

		unit_free(j, u);
		u = next;
	}
}

int journal_append(struct journal *j, enum journal_log log, const struct iovec *iov, size_t n)
{
	struct cursor w;
	uint32_t len = 0, last;
	int r;

	for (size_t i = 0; i < n; i++)
		len += (uint32_t)iov[i].iov_len;
	(void)pthread_mutex_lock(&j->lock[log]);
	w = (struct cursor){.c = chain_of(j, log)};
	w.at = atomic_load_explicit(&w.c->end, memory_order_relaxed);
	last = w.c->last;
	r = write_bytes(j, &w, &len, sizeof(len));
	for (size_t i = 0; r == 0 && i < n; i++)
		r = write_bytes(j, &w, iov[i].iov_base, iov[i].iov_len);
	if (r == 0)
		atomic_store_explicit(&w.c->end, w.at, memory_order_release);
	else
		take_back(j, w.c, last);
	(void)pthread_mutex_unlock(&j->lock[log]);
	return r;
}

uint64_t journal_size(const struct journal *j, enum journal_log log)
{
	const struct chain *c = &j->h->log[log].chain[atomic_load(&j->h->log[log].cur) & 1];
	uint32_t first = atomic_load(&c->first);

	uint64_t base, end;

	if (first == NONE)
		return 0;
	/* Without the lock: the unit may be cut, and even be another's, by now. An estimate is enough. */
	base = atomic_load(&j->h->base[first]);
	end = atomic_load(&c->end);
	return end > base ? end - base : 0;
}

void journal_mark(struct journal *j)
{
	struct chain *c;

	(void)pthread_mutex_lock(&j->lock[JOURNAL_CHANGES]);
	c = chain_of(j, JOURNAL_CHANGES);
	j->mark = NONE;
	/* In a unit of its own: a cut is the store of one number then. */
	if (chain_grow(j, c, atomic_load(&c->end)) == 0)
		j->mark = c->last;
	j->broken_since = false;
	(void)pthread_mutex_unlock(&j->lock[JOURNAL_CHANGES]);
}

void journal_cut(struct journal *j)
{
	struct chain *c;
	uint32_t u;

	(void)pthread_mutex_lock(&j->lock[JOURNAL_CHANGES]);
	c = chain_of(j, JOURNAL_CHANGES);
	if (j->mark != NONE) {
		u = atomic_load(&c->first);
		atomic_store(&c->first, j->mark);
		while (u != j->mark) {
			uint32_t next = atomic_load(&j->h->next[u]);

			unit_free(j, u);
			u = next;
		}
		j->mark = NONE;
		if (!j->broken_since)
			atomic_store(&j->h->broken, 0);
	}
	(void)pthread_mutex_unlock(&j->lock[JOURNAL_CHANGES]);
}

void journal_renew(struct journal *j)
{
	struct chain *c;

	(void)pthread_mutex_lock(&j->lock[JOURNAL_KNOWN]);
	j->renewing = true;
	c = chain_of(j, JOURNAL_KNOWN);
	atomic_store(&c->first, NONE);
	c->last = NONE;
	atomic_store(&c->end, 0);
	(void)pthread_mutex_unlock(&j->lock[JOURNAL_KNOWN]);
}

void journal_renewed(struct journal *j, bool ok)
{
	(void)pthread_mutex_lock(&j->lock[JOURNAL_KNOWN]);
	if (ok)
		atomic_fetch_xor(&j->h->log[JOURNAL_KNOWN].cur, 1);
	/* The old log, or the new one that failed: the one that is not the log now. */
	chain_free(j, chain_of(j, JOURNAL_KNOWN));
	j->renewing = false;
	(void)pthread_mutex_unlock(&j->lock[JOURNAL_KNOWN]);
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

/* ---- reading ---- */

struct reader {
	struct journal *j;
	uint32_t unit, high;
	uint64_t at, end;
};

static int read_bytes(struct reader *r, void *p, size_t n)
{
	uint8_t *to = p;

	if (n > r->end - r->at)
		return -EBADMSG;
	while (n > 0) {
		uint32_t next = atomic_load(&r->j->h->next[r->unit]);
		uint64_t base = r->j->h->base[r->unit];
		uint64_t limit = base + UNIT;
		size_t k;

		if (next != NONE && next < r->high && r->j->h->base[next] < limit)
			limit = r->j->h->base[next];
		if (r->at < base || r->at > limit)
			return -EBADMSG;
		if (r->at == limit) {
			if (next == NONE || next >= r->high)
				return -EBADMSG;
			r->unit = next;
			continue;
		}
		k = limit - r->at < n ? (size_t)(limit - r->at) : n;
		memcpy(to, bytes(r->j, r->unit) + (r->at - base), k);
		to += k;
		n -= k;
		r->at += k;
	}
	return 0;
}

int journal_read(struct journal *j, enum journal_log log,
		 int (*fn)(void *arg, const uint8_t *p, size_t n), void *arg)
{
	const struct chain *c = &j->h->log[log].chain[atomic_load(&j->h->log[log].cur) & 1];
	struct reader rd = {.j = j, .unit = atomic_load(&c->first), .end = atomic_load(&c->end)};
	uint8_t *buf = NULL;
	size_t cap = 0;
	int r = 0;

	rd.high = atomic_load(&j->h->high);
	if (rd.unit == NONE)
		return 0;
	if (rd.unit >= rd.high)
		return -EBADMSG;
	rd.at = j->h->base[rd.unit];
	while (r == 0 && rd.at < rd.end) {
		uint32_t len = 0;

		r = read_bytes(&rd, &len, sizeof(len));
		if (r == 0 && len > rd.end - rd.at)
			r = -EBADMSG;
		if (r == 0 && len > cap) {
			uint8_t *more = realloc(buf, len);

			if (!more) {
				r = -ENOMEM;
				break;
			}
			buf = more;
			cap = len;
		}
		if (r == 0)
			r = read_bytes(&rd, buf, len);
		if (r == 0)
			r = fn(arg, buf, len);
	}
	free(buf);
	return r;
}
