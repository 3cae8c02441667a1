/*
 * Pages that nothing uses, given back to the disk as holes in LMDB's files.
 *
 * A page is free for everybody when LMDB itself would hand it to the next writer: it stands in the free
 * list under a transaction older than the last one and older than every reader's snapshot. LMDB writes such
 * a page before anything reads it, and both meta pages describe trees without it; so a hole there is as
 * harmless, at every moment and after every crash, as a new page's bytes that were never committed. With
 * the writer lock held nobody takes it while we do. Pages behind the last one belong to transactions that
 * came to nothing.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "store/gc.h"
#include "store/guard.h"

#define KEEP_PAGES 256  /* stay on the disk, so that a full one does not stop a removal */
#define PUNCH_US   5000 /* of work with the writer lock held */
#define FREE_DBI   0    /* LMDB's own */

struct shrink {
	struct gc *g;
	MDB_env *env;
	int fd;
	size_t psize;
	uint64_t oldest; /* the oldest snapshot that somebody may read */
	uint64_t last;   /* page */
	uint64_t *bits;  /* by page: free */
	uint64_t nfree;
};

/* A line of mdb_reader_list: pid, thread, transaction (or "-"). */
static int see_reader(const char *line, void *arg)
{
	struct shrink *x = arg;
	char txn[32];

	if (sscanf(line, "%*d %*x %31s", txn) == 1 && txn[0] >= '0' && txn[0] <= '9') {
		uint64_t id = strtoull(txn, NULL, 10);

		if (id < x->oldest)
			x->oldest = id;
	}
	return 0;
}

static int see_free(struct shrink *x, const MDB_val *k, const MDB_val *v)
{
	uint64_t id, n;
	const uint8_t *p = v->mv_data;

	if (k->mv_size != sizeof(id) || v->mv_size < sizeof(n))
		return -EBADMSG;
	memcpy(&id, k->mv_data, sizeof(id));
	memcpy(&n, p, sizeof(n));
	if (id >= x->oldest)
		return 0;
	if (n > v->mv_size / sizeof(n) - 1)
		return -EBADMSG;
	for (uint64_t i = 1; i <= n; i++) {
		uint64_t page;

		memcpy(&page, p + i * sizeof(page), sizeof(page));
		if (page > x->last || page < 2)
			return -EBADMSG;
		x->bits[page / 64] |= UINT64_C(1) << page % 64;
	}
	x->nfree += n;
	return 0;
}

/* The free list as a reader sees it who begins now; the caller holds the writer lock, or wants a guess. */
static int load_free(struct shrink *x)
{
	MDB_txn *t;
	MDB_envinfo info;
	MDB_cursor *c;
	MDB_val k, v;
	int r = store_lm_err(mdb_txn_begin(x->env, NULL, MDB_RDONLY, &t)), dead, got;

	if (r < 0)
		return r;
	(void)mdb_reader_check(x->env, &dead);
	r = store_lm_err(mdb_env_info(x->env, &info));
	x->oldest = mdb_txn_id(t);
	x->last = info.me_last_pgno;
	x->nfree = 0;
	free(x->bits);
	x->bits = calloc(x->last / 64 + 1, sizeof(*x->bits));
	if (r == 0 && !x->bits)
		r = -ENOMEM;
	if (r == 0 && mdb_reader_list(x->env, see_reader, x) < 0)
		r = -EIO;
	if (r == 0)
		r = gc_cursor(t, FREE_DBI, &c);
	if (r < 0) {
		mdb_txn_abort(t);
		return r;
	}
	for (got = store_cur_raw(c, &k, &v, MDB_FIRST); got == 0 && r == 0;
	     got = store_cur_raw(c, &k, &v, MDB_NEXT)) {
		GUARD_BEGIN(g)
		r = see_free(x, &k, &v);
		GUARD_END(g, r);
	}
	mdb_cursor_close(c);
	mdb_txn_abort(t);
	return r < 0 ? r : got == -ENOENT ? 0 : got;
}

static uint64_t blocks(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

static bool is_free(const struct shrink *x, uint64_t page)
{
	return x->bits[page / 64] >> page % 64 & 1;
}

static int punch(struct shrink *x, uint64_t page, uint64_t n)
{
	off_t at = (off_t)(page * x->psize), len = (off_t)(n * x->psize);
	off_t data = lseek(x->fd, at, SEEK_DATA);

	/* It may be a hole already. */
	if (data < 0 ? errno == ENXIO : data >= at + len)
		return 0;
	if (fallocate(x->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, len) < 0)
		return ret_nerrno();
	return 0;
}

/* From *@page on, until time is up; *@page is where to go on. The lowest free pages stay. */
static int punch_some(struct shrink *x, uint64_t *page, uint64_t *keep)
{
	int64_t until = gc_clock_us() + PUNCH_US;
	uint64_t p = *page;
	int r = 0;

	while (r == 0 && p <= x->last) {
		uint64_t first;

		while (p <= x->last && (!is_free(x, p) || *keep)) {
			*keep -= is_free(x, p) != 0;
			p++;
		}
		for (first = p; p <= x->last && is_free(x, p);)
			p++;
		if (p > first)
			r = punch(x, first, p - first);
		if (gc_clock_us() > until)
			break;
	}
	*page = p;
	return r;
}

static int punch_tail(struct shrink *x)
{
	struct stat st;
	uint64_t first = x->last + 1;

	if (fstat(x->fd, &st) < 0)
		return ret_nerrno();
	if ((uint64_t)st.st_size / x->psize <= first)
		return 0;
	return punch(x, first, (uint64_t)st.st_size / x->psize - first);
}

/* One hold of the writer lock; 1 when there is more. */
static int shrink_some(struct shrink *x, uint64_t *page, uint64_t *keep)
{
	cleanup_tx MDB_txn *t = NULL;
	uint64_t before, after;
	int r = store_lm_err(mdb_txn_begin(x->env, NULL, 0, &t));

	if (r == 0)
		r = load_free(x);
	if (r < 0)
		return r;
	before = blocks(x->fd);
	r = punch_some(x, page, keep);
	if (r == 0 && *page > x->last)
		r = punch_tail(x);
	after = blocks(x->fd);
	x->g->res->given_back += before > after ? before - after : 0;
	return r < 0 ? r : *page <= x->last;
}

static int shrink_open(struct gc *g, MDB_env *env, struct shrink *x)
{
	MDB_stat st;
	int r;

	*x = (struct shrink){.g = g, .env = env};
	r = store_lm_err(mdb_env_get_fd(env, &x->fd));
	if (r == 0)
		r = store_lm_err(mdb_env_stat(env, &st));
	if (r == 0)
		x->psize = st.ms_psize;
	return r;
}

/* A transaction that changes nothing but its number: the first value is written again. */
static int touch(struct store *s, MDB_env *env, MDB_dbi db)
{
	cleanup_tx MDB_txn *t = NULL;
	cleanup_free void *copy = NULL;
	MDB_cursor *c;
	MDB_val k, v;
	int r = store_lm_err(mdb_txn_begin(env, NULL, 0, &t));

	if (r == 0)
		r = store_lm_err(mdb_cursor_open(t, db, &c));
	if (r < 0)
		return r;
	r = store_cur_raw(c, &k, &v, MDB_FIRST);
	copy = r == 0 ? malloc(v.mv_size + 1) : NULL;
	if (copy) {
		memcpy(copy, v.mv_data, v.mv_size);
		v.mv_data = copy;
		r = store_lm_err(mdb_cursor_put(c, &k, &v, MDB_CURRENT));
	}
	mdb_cursor_close(c);
	if (!copy)
		return r < 0 ? r : -ENOMEM;
	return r < 0 ? r : store_tx_commit(s, &t);
}

/* What the last transaction freed is free for nobody yet: two more. A store without chunks gets one, garbage
 * for the next collector. */
static int pass_time(struct gc *g, MDB_env *env)
{
	static const uint8_t zeros[5000];
	struct store_chunk chunk = {.data = zeros, .len = sizeof(zeros)};
	bool chunks = env == g->s->chunks.env;
	int r = 0;

	for (int i = 0; r == 0 && i < 2; i++) {
		r = touch(g->s, env, chunks ? g->s->chunk_db : g->s->db[DB_META]);
		if (r == -ENOENT && chunks)
			r = store_chunks_put(g->s, &chunk, 1);
	}
	return err_no_room(r) || r == -EIO || r == -ENOENT ? 0 : r;
}

static int shrink_env(struct gc *g, MDB_env *env)
{
	uint64_t page = 2, keep = KEEP_PAGES;
	struct shrink x;
	int r = shrink_open(g, env, &x);

	if (r == 0)
		r = pass_time(g, env);

	while (r == 0) {
		r = gc_tell(g, STORE_GC_SHRINK, page, x.last);
		if (r == 0)
			r = shrink_some(&x, &page, &keep);
		gc_pause();
		if (r <= 0)
			break;
		r = 0;
	}
	free(x.bits);
	return r;
}

int gc_shrink(struct gc *g)
{
	int r = shrink_env(g, g->s->chunks.env);

	if (r == 0)
		r = shrink_env(g, g->s->meta.env);
	if (r == -EOPNOTSUPP)
		return diag_set(
			g->diag, r,
			"the file system of '%s' cannot make holes in files: the room stays with "
			"the store, for what comes",
			g->s->dir);
	return r < 0 ? diag_set(g->diag, r, "cannot give room back to the disk: %s", err_text(r))
		     : 0;
}

int gc_free_inside(struct gc *g, uint64_t *ret)
{
	MDB_env *const envs[] = {g->s->chunks.env, g->s->meta.env};
	int r = 0;

	*ret = 0;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(envs); i++) {
		struct shrink x;

		r = shrink_open(g, envs[i], &x);
		if (r == 0)
			r = load_free(&x);
		*ret += x.nfree * x.psize;
		free(x.bits);
	}
	return r;
}
