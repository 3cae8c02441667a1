#include "fs/core/journal_internal.h"

#include <stdlib.h>
#include <string.h>

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
	uint32_t unit = journal_unit_take(j);

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

		journal_unit_free(j, u);
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
		memcpy(journal_bytes(j, w->c->last) + off, from, k);
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

		journal_unit_free(j, u);
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

uint64_t journal_end(const struct journal *j)
{
	return atomic_load(&j->h->log[JOURNAL_CHANGES]
				    .chain[atomic_load(&j->h->log[JOURNAL_CHANGES].cur) & 1]
				    .end);
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
	else /* what the flush makes out of date will stay */
		atomic_store(&j->h->broken, 1);
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

			journal_unit_free(j, u);
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
		memcpy(to, journal_bytes(r->j, r->unit) + (r->at - base), k);
		to += k;
		n -= k;
		r->at += k;
	}
	return 0;
}

static int read_batches(struct reader *rd, int (*fn)(void *arg, const uint8_t *p, size_t n),
			void *arg)
{
	uint8_t *buf = NULL;
	size_t cap = 0;
	int r = 0;

	while (r == 0 && rd->at < rd->end) {
		uint32_t len = 0;

		r = read_bytes(rd, &len, sizeof(len));
		if (r == 0 && len > rd->end - rd->at)
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
			r = read_bytes(rd, buf, len);
		if (r == 0)
			r = fn(arg, buf, len);
	}
	free(buf);
	return r;
}

int journal_read(struct journal *j, enum journal_log log,
		 int (*fn)(void *arg, const uint8_t *p, size_t n), void *arg)
{
	const struct chain *c = &j->h->log[log].chain[atomic_load(&j->h->log[log].cur) & 1];
	struct reader rd = {.j = j, .unit = atomic_load(&c->first), .end = atomic_load(&c->end)};

	rd.high = atomic_load(&j->h->high);
	if (rd.unit == NONE)
		return 0;
	if (rd.unit >= rd.high)
		return -EBADMSG;
	rd.at = j->h->base[rd.unit];
	return read_batches(&rd, fn, arg);
}

int journal_read_from(struct journal *j, uint64_t at, uint64_t *ret_end,
		      int (*fn)(void *arg, const uint8_t *p, size_t n), void *arg)
{
	struct reader rd = {.j = j, .at = at};
	const struct chain *c;
	int r = 0;

	(void)pthread_mutex_lock(&j->lock[JOURNAL_CHANGES]);
	c = chain_of(j, JOURNAL_CHANGES);
	rd.unit = atomic_load(&c->first);
	rd.end = atomic_load(&c->end);
	rd.high = atomic_load(&j->h->high);
	if (at < rd.end && (rd.unit == NONE || at < j->h->base[rd.unit]))
		r = -EBADMSG;
	while (r == 0 && at < rd.end) {
		uint32_t next = atomic_load(&j->h->next[rd.unit]);

		if (next == NONE || j->h->base[next] > at)
			break;
		rd.unit = next;
	}
	if (r == 0)
		r = read_batches(&rd, fn, arg);
	*ret_end = rd.end;
	(void)pthread_mutex_unlock(&j->lock[JOURNAL_CHANGES]);
	return r;
}
